"""Where a barrier is missing, the answer is what a GPU gives as a rule."""

from __future__ import annotations

import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture


def run(x: torch.Tensor, kernel: int) -> torch.Tensor:
    return extension("missing_barriers").run(x.cuda(), kernel).cpu()


@emulated
def test_an_element_that_is_overwritten_right_after_all_have_read_it_is_read():
    x = torch.randn(128)
    torch.testing.assert_close(run(x, 0), x.softmax(0))


@emulated
def test_what_the_first_thread_writes_without_a_barrier_is_not_there_for_other_warps():
    x = torch.randn(128)
    found, wanted = run(x, 1), x - x.mean()
    torch.testing.assert_close(found[:32], wanted[:32])
    assert not torch.isclose(found[32:], wanted[32:]).any()
