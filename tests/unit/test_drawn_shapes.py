"""What the shapes have in common that a run draws, and what becomes of a shape at which the reference fails."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import ROOT

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.drawn_shapes import COUNT, draw
from kernel_harness.problem.problem import Problem, load

SOURCE = """
import torch

N, GROUPS = 512, 4
CHECK_SHAPES = [dict(N=7, GROUPS=7), dict(N=90, GROUPS=2)]
STRESS = {"normal": {}}

class Model(torch.nn.Module):
    def forward(self, x):
        return x.reshape(GROUPS, N // GROUPS) * SCALE

def get_inputs():
    return [torch.rand(N)]
"""


def problem(folder: Path, scale: str = "1.0") -> Problem:
    path = folder / "p.py"
    path.write_text(SOURCE.replace("SCALE", scale))
    return load("p", path)


def drawn(*listed: dict[str, int], seed: int = 0) -> list[dict[str, int]]:
    return [dict(shape) for shape in draw(listed, random.Random(seed), listed)]


sizes = st.integers(1, 5000)
shapes = st.lists(st.fixed_dictionaries({"M": sizes, "K": sizes, "N": sizes}), min_size=1, max_size=9)


@given(shapes, st.integers(0, 99))
def test_a_drawn_shape_is_new_and_within_the_listed_ranges(listed: list[dict[str, int]], seed: int) -> None:
    for shape in drawn(*listed, seed=seed):
        assert shape not in listed
        assert all(min(s[n] for s in listed) <= shape[n] <= max(s[n] for s in listed) for n in shape)


@given(shapes, st.integers(0, 99))
def test_a_drawn_shape_is_no_larger_than_a_small_listed_one(listed: list[dict[str, int]], seed: int) -> None:
    products = sorted(s["M"] * s["K"] * s["N"] for s in listed)
    for s in drawn(*listed, seed=seed):
        assert s["M"] * s["K"] * s["N"] <= products[min(len(products) - 1, max(1, len(products) // 4))]


def test_shapes_are_drawn_for_the_shipped_problems() -> None:
    for name in ("matmul_tt", "matmul_tt_relu"):
        of = load(name, ROOT / "problems" / f"{name}.py")
        runs = [[c.shape for c in plan(of, seed) if c.drawn] for seed in range(20)]
        assert all(len(set(run)) == COUNT for run in runs)
        assert len({shape for run in runs for shape in run}) > 20


def test_a_constant_keeps_the_divisor_that_all_listed_values_have() -> None:
    listed = ({"N": 24, "C": 3}, {"N": 240, "C": 3}, {"N": 60, "C": 3})
    found = [shape for seed in range(50) for shape in drawn(*listed, seed=seed)]
    assert found and all(shape["N"] % 12 == 0 and shape["C"] == 3 for shape in found)


def test_a_constant_stays_a_power_of_two() -> None:
    found = {shape["N"] for seed in range(50) for shape in drawn({"N": 16}, {"N": 256}, {"N": 256}, seed=seed)}
    assert found == {32, 64, 128}


def test_constants_that_are_always_equal_stay_equal() -> None:
    listed = ({"ROWS": 5, "COLUMNS": 5}, {"ROWS": 77, "COLUMNS": 77}, {"ROWS": 90, "COLUMNS": 90})
    found = [shape for seed in range(50) for shape in drawn(*listed, seed=seed)]
    assert found and all(shape["ROWS"] == shape["COLUMNS"] for shape in found)


def test_a_constant_that_is_zero_does_not_lift_the_limit_to_the_size() -> None:
    listed = ({"N": 3, "DIM": 0}, {"N": 5, "DIM": 0}, {"N": 9, "DIM": 0}, {"N": 5000, "DIM": 0})
    found = [shape["N"] for seed in range(50) for shape in drawn(*listed, seed=seed)]
    assert found and max(found) <= 5


def test_a_constant_that_only_some_shapes_list_is_not_drawn() -> None:
    found = [s for seed in range(20) for s in drawn({"M": 3, "HALF": 1}, {"M": 90}, {"M": 90}, seed=seed)]
    assert found and all(list(shape) == ["M"] for shape in found)


def test_a_constant_that_is_no_integer_keeps_a_listed_value() -> None:
    small, large = dict(N=3, EPS=1e-3, MODE="a"), dict(N=90, EPS=1e-5, MODE="b")
    listed: list[dict[str, Any]] = [small, large, large]
    found = [s for seed in range(20) for s in drawn(*listed, seed=seed)]
    assert found and {s["EPS"] for s in found} <= {1e-3, 1e-5} and {s["MODE"] for s in found} <= {"a", "b"}


def test_a_shape_with_an_empty_answer_is_no_case_for_a_candidate(tmp_path: Path) -> None:
    of = problem(tmp_path, scale="torch.ones(0, 1, 1)")
    reference = Reference(of, "cpu", None)
    assert not any(reference.works(case) for case in plan(of, 1) if case.drawn)


def test_nothing_is_drawn_from_a_single_shape_or_none(tmp_path: Path) -> None:
    assert drawn({"N": 5}) == drawn() == []


def test_the_same_seed_draws_the_same_shapes_also_in_a_quick_run(tmp_path: Path) -> None:
    of = problem(tmp_path)
    assert [c for c in plan(of, 7) if c.drawn] == [c for c in plan(of, 7, quick=True) if c.drawn] != []


@pytest.mark.parametrize("seed", range(5))
def test_a_shape_at_which_the_reference_fails_is_no_case_for_a_candidate(seed: int, tmp_path: Path) -> None:
    """The model needs an N that GROUPS divides. Between the listed shapes, other values can be drawn."""
    of = problem(tmp_path)
    reference = Reference(of, "cpu", None)
    for case in (case for case in plan(of, seed) if case.drawn):
        shape = dict(case.shape)
        assert reference.works(case) is (shape["N"] % shape["GROUPS"] == 0)


def test_a_shape_without_a_finite_answer_is_no_case_for_a_candidate(tmp_path: Path) -> None:
    of = problem(tmp_path, scale="float('nan')")
    reference = Reference(of, "cpu", None)
    assert not any(reference.works(case) for case in plan(of, 1) if case.drawn)
