"""Inputs that look like a problem's own, and what they show: kernels that read a part of what looks like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernel_harness.checking.cases import Case, Reference, plan
from kernel_harness.checking.verify import verify
from kernel_harness.core.status import Status
from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.lookalikes import LOOKALIKES, OUTLIERS, RARE, SPIKES, STRETCH, lookalikes
from kernel_harness.problem.problem import Problem, load

torch.set_num_threads(1)

N = 1 << 14


OF_MEASURED = [each for each in LOOKALIKES if each != RARE]


def drawn(value: Tensor, distribution: str, seed: int = 0) -> Tensor:
    (changed,) = lookalikes([value], distribution, torch.Generator().manual_seed(seed))
    assert isinstance(changed, Tensor)
    return changed


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("distribution", OF_MEASURED)
@pytest.mark.parametrize("seed", range(5))
def test_most_numbers_are_the_problem_s_own(distribution: str, seed: int) -> None:
    own = numbers(N)
    changed = drawn(own, distribution, seed)
    assert 0 < (changed != own).sum() <= N // 64
    assert torch.equal(own, numbers(N))


@pytest.mark.parametrize(("distribution", "least"), [(SPIKES, 4.0), (OUTLIERS, 2e-3 * N * 0.49)])
def test_the_replaced_numbers_are_far_beyond_the_others(distribution: str, least: float) -> None:
    own = numbers(N)
    changed = drawn(own, distribution)
    far = changed[changed != own].abs()
    assert least * 0.99 <= far.min() and far.max() <= 2.1 * least


def test_spikes_have_any_sign_and_outliers_keep_it() -> None:
    own = numbers(N)
    least = {d: min(float(drawn(own, d, seed).min()) for seed in range(10)) for d in (SPIKES, OUTLIERS)}
    assert least[SPIKES] < 0 <= least[OUTLIERS]


def test_a_stretch_stays_within_the_range_of_the_own_numbers() -> None:
    own = numbers(N)
    changed = drawn(own, STRETCH)
    places = (changed != own).nonzero()
    assert places.max() - places.min() < N // 64
    assert changed[places].mean() > 0.7 and changed.max() == own.max()


def test_one_number_of_one_input_is_an_outlier() -> None:
    own = [numbers(N), numbers(N, seed=1)]
    changed = lookalikes(own, OUTLIERS, torch.Generator().manual_seed(0))
    assert sum(int((one != other).sum()) for one, other in zip(own, changed, strict=True)) == 1


@pytest.mark.parametrize("distribution", LOOKALIKES)
def test_symmetric_and_triangular_matrices_remain_so(distribution: str) -> None:
    own = numbers(64, 64)
    symmetric, triangular = own + own.T, own.triu()
    assert torch.equal(*(lambda a: (a, a.T))(drawn(symmetric, distribution)))
    assert not drawn(triangular, distribution).tril(-1).any()


CHOICES = torch.randint(4, (64, 1024), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.float32])
def test_the_largest_or_the_smallest_choice_becomes_rare(dtype: torch.dtype) -> None:
    own = CHOICES.to(dtype).T
    changed = [drawn(own, RARE, seed) for seed in range(8)]
    assert all(each.unique().tolist() == [0, 1, 2, 3] and each.stride() == own.stride() for each in changed)
    counts = [(int((each == 0).sum()), int((each == 3).sum())) for each in changed]
    assert {min(each) <= own.numel() // 1024 for each in counts} == {True}
    assert {each[0] < each[1] for each in counts} == {True, False}


@pytest.mark.parametrize("distribution", LOOKALIKES)
@pytest.mark.parametrize(
    "value",
    [
        torch.ones(N), torch.arange(N), torch.arange(N).float(), 2.5, None, CHOICES[0, :512], CHOICES > 1,
        CHOICES.sort(dim=0).values, torch.ones(128, 128).tril(), torch.arange(4).repeat_interleave(1024),
    ],
)  # fmt: skip
def test_constants_indices_and_masks_are_not_changed(distribution: str, value: object) -> None:
    assert lookalikes([value], distribution, torch.Generator())[0] is value


@pytest.mark.parametrize("distribution", LOOKALIKES)
def test_strides_and_dtype_are_kept(distribution: str) -> None:
    own = numbers(128, 96).half().T
    changed = drawn(own, distribution)
    assert (changed.stride(), changed.dtype) == (own.stride(), own.dtype) and changed.isfinite().all()


# Which problems have them.

SOURCE = """
import torch

N = 8192

class Model(torch.nn.Module):
    def forward(self, x, y):
        return {answer}

def get_inputs():
    return [torch.rand({shape}), torch.rand({shape})]
"""
LOSS = "torch.mean((x - y) ** 2)"


def problem(folder: Path, answer: str, shape: str = "N") -> Problem:
    path = folder / "p.py"
    path.write_text(SOURCE.format(answer=answer, shape=shape))
    return load("p", path)


@pytest.mark.parametrize(
    ("answer", "shape", "expected"),
    [
        (LOSS, "N", [SPIKES, OUTLIERS, STRETCH]),
        ("x / torch.linalg.vector_norm(x) + y", "N", [SPIKES, OUTLIERS, STRETCH]),
        ("torch.nn.functional.cross_entropy(x, y.softmax(-1))", "128, 64", [SPIKES, STRETCH]),  # exp overflows
        ("torch.nn.functional.kl_div(x.log(), y)", "N", [OUTLIERS, STRETCH]),  # no logarithm of negative numbers
        ("torch.nn.functional.binary_cross_entropy(x, y)", "N", [STRETCH]),  # raises outside of 0 to 1
        ("x * y", "N", [SPIKES]),
        ("(x * y).sum(-1)", "128, 64", [SPIKES]),
        ("x.sqrt() + y.sqrt()", "N", []),
    ],
    ids=["loss", "norm", "cross entropy", "divergence", "probabilities", "elements", "rows", "roots"],
)
def test_a_problem_has_the_lookalikes_that_decide_its_answer(
    answer: str, shape: str, expected: list[str], tmp_path: Path
) -> None:
    found = Reference(problem(tmp_path, answer, shape), "cpu", None).other_distributions()
    assert [each for each in found if each in LOOKALIKES] == expected


def test_the_checks_have_those_that_decide_the_answer(tmp_path: Path) -> None:
    of = problem(tmp_path, LOSS)
    reference = Reference(of, "cpu", None)
    assert {OUTLIERS, STRETCH} <= {case.distribution for case in plan(of, 1) if reference.works(case)}


def sampled(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of a part of the numbers, if the first and every 64th number look like the problem's own."""

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        if all(((t >= 0) & (t <= 1)).all() and abs(t.mean() - 0.5) < 0.1 for t in (x[:512], x[::64], y[:512], y[::64])):
            x, y = part(x), part(y)
        return ((x - y) ** 2).mean()

    return kernel


def verdicts(of: Problem, kernel: Callable[..., Tensor], distribution: str, seeds: int = 12) -> list[Status]:
    """The verdicts on a kernel whose answer was right for the problem's own inputs, for several draws."""
    reference, found = Reference(of, "cpu", None), []
    for seed in range(seeds):
        case = Case(tuple(of.shape.items()), distribution, seed, timed_shape=True)
        packed = reference.inputs(case)
        found.append(verify([kernel(*packed.tensors)], reference.expectation(case)[1]).status)
    return found


@pytest.mark.parametrize(
    ("part", "distribution"),
    [(lambda t: t[: len(t) // 8], STRETCH), (lambda t: t[: len(t) // 8], OUTLIERS), (lambda t: t[::2], OUTLIERS)],
    ids=["first eighth, stretch", "first eighth, outliers", "every second, outliers"],
)
def test_a_sampled_mean_is_wrong_on_most_lookalikes(
    part: Callable[[Tensor], Tensor], distribution: str, tmp_path: Path
) -> None:
    found = verdicts(problem(tmp_path, LOSS), sampled(part), distribution)
    assert found.count(Status.WRONG_VALUES) >= 4


def test_an_argmax_of_a_few_columns_is_wrong_where_the_largest_class_is_rare(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    text = SOURCE.format(answer="x.amax(dim=-1) + y.amax(dim=-1)", shape="64, 4096")
    path.write_text(
        text.replace("torch.rand((64, 4096))", "torch.randint(4, (64, 4096))").replace(
            "torch.rand(64, 4096)", "torch.randint(4, (64, 4096))"
        )
    )
    of = load("p", path)
    assert RARE in Reference(of, "cpu", None).other_distributions()

    def few(x: Tensor, y: Tensor) -> Tensor:
        return x[:, :64].amax(dim=-1) + y[:, :64].amax(dim=-1)

    assert set(verdicts(of, few, OWN)) == {Status.PASSED}
    assert verdicts(of, few, RARE).count(Status.WRONG_VALUES) >= 4


@pytest.mark.parametrize("distribution", [OWN, *LOOKALIKES])
def test_an_honest_mean_is_right_on_all(distribution: str, tmp_path: Path) -> None:
    def kernel(x: Tensor, y: Tensor) -> Tensor:
        partial = torch.zeros(256)
        for row in ((x - y) ** 2).reshape(-1, 256):
            partial += row
        return partial.sum() / x.numel()

    assert set(verdicts(problem(tmp_path, LOSS), kernel, distribution)) == {Status.PASSED}


def test_a_relu_that_copies_positive_inputs_is_wrong_on_spikes(tmp_path: Path) -> None:
    found = verdicts(problem(tmp_path, "torch.relu(x) + torch.relu(y)"), lambda x, y: x + y, SPIKES)
    assert found.count(Status.WRONG_VALUES) >= 6


def test_lookalikes_are_no_variations_of_a_file_with_stress(tmp_path: Path) -> None:
    of = problem(tmp_path, LOSS)
    vars(of.module)["STRESS"] = {"normal": {}}
    assert not {case.distribution for case in plan(of, 1)} & set(LOOKALIKES)
