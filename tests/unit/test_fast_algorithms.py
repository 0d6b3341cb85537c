"""Algorithms with fewer products and larger errors (Strassen, Winograd, FFT): where they pass and where not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.verify import Check, verify
from kernel_harness.core.status import Status
from kernel_harness.problem.problem import Problem, load

torch.set_num_threads(1)


def strassen(a: Tensor, b: Tensor, levels: int) -> Tensor:
    """A product with seven products of halves in place of eight, on so many levels."""
    if not levels:
        return a @ b
    (a, c), (e, g) = ([half.chunk(2, 1) for half in each.chunk(2, 0)] for each in (a, b))
    (a, b), (c, d), (e, f), (g, h) = a, c, e, g
    pairs = ((a, f - h), (a + b, h), (c + d, e), (d, g - e), (a + d, e + h), (b - d, g + h), (a - c, e + f))
    p = [strassen(x, y, levels - 1) for x, y in pairs]
    top = torch.cat([p[4] + p[3] - p[1] + p[5], p[0] + p[1]], 1)
    return torch.cat([top, torch.cat([p[2] + p[3], p[0] + p[4] - p[2] - p[6]], 1)], 0)


# Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016): F(2x2, 3x3) and F(4x4, 3x3).
WINOGRAD = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6], [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}  # fmt: skip


def winograd(x: Tensor, weight: Tensor, size: int) -> Tensor:
    """A convolution with 3 x 3 weights, computed for tiles of `size` x `size` outputs."""
    b, g, a = (torch.tensor(each, dtype=torch.float32) for each in WINOGRAD[size])
    tiles = x.unfold(2, size + 2, size).unfold(3, size + 2, size)
    products = torch.einsum("nchwij,kcij->nkhwij", b @ tiles @ b.T, g @ weight @ g.T)
    out = a @ products @ a.T
    n, k, h, w = out.shape[:4]
    return out.transpose(3, 4).reshape(n, k, h * size, w * size)


def by_fft(x: Tensor, weight: Tensor) -> Tensor:
    """A convolution as a product of Fourier transforms."""
    shape = x.shape[2:]
    spectrum = torch.einsum("nchw,kchw->nkhw", torch.fft.rfft2(x), torch.fft.rfft2(weight, s=shape).conj())
    return torch.fft.irfft2(spectrum, s=shape)[:, :, :-2, :-2]


PRODUCT = """
import torch

N = 256

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.rand(N, N), torch.rand(N, N)]
"""
CONVOLUTION = """
import torch

N = 32

class Model(torch.nn.Module):
    def forward(self, x, weight):
        return torch.nn.functional.conv2d(x, weight)

def get_inputs():
    return [torch.rand(2, N, 34, 34), (torch.rand(N, N, 3, 3) - 0.5) / 10]
"""
COMPONENTWISE = (
    PRODUCT
    + """
STRESS = {"normal": {}, "scaled": {"log2_range": 10}}

def error_scale(a, b):
    return a.abs() @ b.abs()
"""
)


def problem(folder: Path, source: str) -> Problem:
    path = folder / "p.py"
    path.write_text(source)
    return load("p", path)


def checks(of: Problem, kernel: Callable[..., Tensor]) -> dict[str, Check]:
    """The verdicts at the timed shape, by distribution."""
    reference, found = Reference(of, "cpu", None), {}
    for case in plan(of, 1):
        if case.timed_shape and (not case.optional or reference.works(case)):
            answer = kernel(*reference.inputs(case).tensors)
            found[case.distribution] = verify([answer], reference.expectation(case)[1])
    return found


@pytest.mark.parametrize("levels", [1, 3])
def test_strassen_passes_where_errors_count_beside_the_norm(levels: int, tmp_path: Path) -> None:
    found = checks(problem(tmp_path, PRODUCT), lambda a, b: strassen(a, b, levels))
    assert {check.status for check in found.values()} == {Status.PASSED}


@pytest.mark.parametrize(
    "kernel", [lambda x, w: winograd(x, w, 2), lambda x, w: winograd(x, w, 4), by_fft], ids=["F(2,3)", "F(4,3)", "FFT"]
)
def test_fast_convolutions_pass(kernel: Callable[[Tensor, Tensor], Tensor], tmp_path: Path) -> None:
    found = checks(problem(tmp_path, CONVOLUTION), kernel)
    assert {check.status for check in found.values()} == {Status.PASSED}


@pytest.mark.parametrize("levels", [1, 3])
def test_strassen_is_wrong_where_the_problem_limits_each_element(levels: int, tmp_path: Path) -> None:
    found = checks(problem(tmp_path, COMPONENTWISE), lambda a, b: strassen(a, b, levels))
    assert {name: check.status for name, check in found.items()} == {
        "normal": Status.PASSED, "own": Status.PASSED, "scaled": Status.WRONG_VALUES,
    }  # fmt: skip
    assert "Strassen" in found["scaled"].advice


def test_an_error_that_is_large_beside_the_norm_is_not_taken_for_a_fast_algorithm(tmp_path: Path) -> None:
    found = checks(problem(tmp_path, COMPONENTWISE), lambda a, b: 1.1 * (a @ b))
    assert found["scaled"].status is Status.WRONG_VALUES and "Strassen" not in found["scaled"].advice
