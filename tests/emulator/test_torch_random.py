"""Kernels of an extension that draw random numbers from a Philox state of torch's generators."""

from __future__ import annotations

from types import ModuleType

import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture


def kernels() -> ModuleType:
    return extension("torch_random")


@emulated
def test_kernels_get_uniform_numbers_and_other_ones_at_each_call() -> None:
    first, second = kernels().uniform(4000, None), kernels().uniform(4000, None)

    for numbers in (first, second):
        assert numbers.min() > 0 and numbers.max() <= 1 and abs(numbers.mean() - 0.5) < 0.03
    assert (first == second).sum() < 10


@emulated
def test_manual_seed_repeats_the_numbers_of_kernels() -> None:
    torch.manual_seed(7)
    first = kernels().uniform(100, None)
    torch.manual_seed(7)

    assert torch.equal(kernels().uniform(100, None), first)


@emulated
def test_a_generator_of_the_program_gives_the_numbers() -> None:
    given = torch.Generator(device="cuda").manual_seed(3)
    first = kernels().uniform(100, given)
    torch.manual_seed(3)
    again = kernels().uniform(100, torch.Generator(device="cuda").manual_seed(3))

    assert torch.equal(first, again)
