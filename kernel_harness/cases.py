"""What a candidate is tried on, and what the right answer is. The answer is never computed before it is needed."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_harness import tensors
from kernel_harness.precision import Precision
from kernel_harness.problem import Problem, Shape, shape_text
from kernel_harness.tensors import Leaf
from kernel_harness.verify import Expectation

FORWARD_SEED = 42
# Distributions whose outputs cancel around zero, where precision shows.
_ZERO_MEAN = ("normal", "integers", "scaled")


@dataclass(frozen=True)
class Case:
    """One trial: a shape (as constants of the problem), a distribution, and the seed its inputs are drawn with."""

    shape: tuple[tuple[str, int], ...]
    distribution: str
    seed: int
    timed_shape: bool
    poison: bool = False
    repeat: bool = False

    @property
    def name(self) -> str:
        """`M=64,K=128,N=96:normal`, as --case takes it."""
        return f"{self.shape_name}:{self.distribution}"

    @property
    def shape_name(self) -> str:
        """`M=64,K=128,N=96`, as --shape takes it."""
        return shape_text(dict(self.shape))


def plan(problem: Problem, seed: int, *, quick: bool = False) -> list[Case]:
    """The cases of a run: every distribution at the timed shape, then each further shape with one, in turn.

    The own distribution is asked twice, for the same answer; the first of all finds its memory poisoned.
    """
    # Where errors show their size first: on the problem's own inputs a coarse format is merely wrong.
    distributions = sorted(["own", *problem.stress], key=lambda d: d != "normal")
    timed = [
        _case(problem.shape, d, seed, timed=True, poison=i == 0, repeat=d == "own") for i, d in enumerate(distributions)
    ]
    shapes: list[Shape] = [s for s in problem.check_shapes if {**problem.shape, **s} != dict(problem.shape)]
    # The strictest distribution first: on odd shapes an exact answer shows a single missing term.
    turns = [d for d in ("integers", *distributions) if d in distributions]
    further = [
        _case({**problem.shape, **s}, turns[i % len(turns)], seed, timed=False)
        for i, s in enumerate(shapes[:3] if quick else shapes)
    ]
    return timed + further


def _case(
    shape: Shape, distribution: str, seed: int, *, timed: bool, poison: bool = False, repeat: bool = False
) -> Case:
    name = f"{shape_text(shape)}:{distribution}"
    return Case(tuple(shape.items()), distribution, derive(seed, name), timed, poison, repeat)


def derive(seed: int, purpose: str) -> int:
    """A seed for one purpose, from which neither another purpose's nor the run's can be had."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:7], "big")


@dataclass(frozen=True)
class Packed:
    """Inputs as they travel: their structure, where each tensor lies, and the tensors themselves.

    With a key their bytes lie masked.
    """

    structure: Any
    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Leaf, ...]
    size: int
    key: int | None = None


def pack(inputs: Any, lead_bytes: int = 0) -> Packed:
    """Inputs, the first of them `lead_bytes` later than need be. Raises tensors.Unreadable."""
    structure, found = tensors.flatten(inputs)
    leaves, size = tensors.layout(found, lead_bytes)
    return Packed(structure, tuple(found), tuple(leaves), size)


class Reference:
    """The right answers of one problem, each worked out on first use and kept."""

    def __init__(self, problem: Problem, device: str, allowed: Precision | None) -> None:
        self.problem = problem
        self.device, self._allowed = device, allowed
        self._problems: dict[tuple[tuple[str, int], ...], Problem] = {}
        self._inputs: dict[Case, Packed] = {}
        self._expectations: dict[Case, tuple[Any, Expectation]] = {}

    def at(self, case: Case) -> Problem:
        """The problem at the case's shape."""
        if case.shape not in self._problems:
            self._problems[case.shape] = self.problem.at(dict(case.shape))
        return self._problems[case.shape]

    def inputs(self, case: Case) -> Packed:
        """The case's inputs, which nobody else holds."""
        if case not in self._inputs:
            self._inputs[case] = pack(self.at(case).inputs(case.seed, case.distribution))
        return self._inputs[case]

    def expectation(self, case: Case) -> tuple[Any, Expectation]:
        """The structure of the right answer, and what is known of its values."""
        if case not in self._expectations:
            packed = self.inputs(case)
            self._expectations[case] = self.expect(self.at(case), packed, case.name, case.distribution)
        return self._expectations[case]

    def expect(self, problem: Problem, packed: Packed, name: str, distribution: str) -> tuple[Any, Expectation]:
        """The same for inputs that belong to no case, such as a timed round's."""
        model = problem.model(self.device)
        structure, expected = self._run(model, packed, None)
        oracle = self._oracle(model, packed)
        scale = None
        if oracle is not None:
            scaled = problem.error_scale(self._placed(packed, torch.float64))
            scale = None if scaled is None else tuple(tensors.flatten(scaled)[1])
        dtype = next((t.dtype for t in expected if t.is_floating_point()), torch.float32)
        return structure, Expectation(
            case=name,
            distribution=distribution,
            expected=tuple(expected),
            oracle=oracle,
            scale=scale,
            tolerance=problem.tolerance(dtype),
            zero_mean=distribution in _ZERO_MEAN,
            allowed_precision=self._allowed,
        )

    def _oracle(self, model: Any, packed: Packed) -> tuple[torch.Tensor, ...] | None:
        """The model in float64; None where it cannot run so, and then precision goes unchecked."""
        try:
            return tuple(self._run(copy.deepcopy(model).double(), packed, torch.float64)[1])
        except Exception:
            return None

    def _run(self, model: Any, packed: Packed, dtype: torch.dtype | None) -> tuple[Any, Sequence[torch.Tensor]]:
        inputs = self._placed(packed, dtype)
        torch.manual_seed(FORWARD_SEED)
        with torch.no_grad():
            return tensors.flatten(model(*inputs))

    def _placed(self, packed: Packed, dtype: torch.dtype | None) -> Any:
        """The inputs on the reference's device, floating ones in another dtype if asked; never the originals."""
        moved = [
            t.to(self.device, dtype if dtype and t.is_floating_point() else t.dtype, copy=True) for t in packed.tensors
        ]
        return tensors.unflatten(packed.structure, moved)
