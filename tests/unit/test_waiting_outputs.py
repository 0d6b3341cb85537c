"""The outputs of a call in the worker, until the judge has copied them."""

from __future__ import annotations

import torch

from kernel_harness.device.cpu import Emulated
from kernel_harness.worker.outputs import Outputs


def test_an_output_that_waits_for_larger_memory_is_kept_when_the_smaller_is_withdrawn() -> None:
    """The judge withdraws large memory before it shares larger one, so that both need not fit."""
    outputs, numbers = Outputs(Emulated()), torch.arange(1000.0)
    outputs.memory = torch.zeros(64, dtype=torch.uint8)
    outputs.take(numbers)
    outputs.clear()
    outputs.memory = torch.zeros(8192, dtype=torch.uint8)
    outputs.copy_rest()
    ((leaf,),) = outputs.described()[1:2]
    assert torch.equal(leaf.view(outputs.memory), numbers)


def test_outputs_that_the_judge_has_are_dropped() -> None:
    outputs = Outputs(Emulated())
    outputs.memory = torch.zeros(8192, dtype=torch.uint8)
    outputs.take(torch.arange(1000.0))
    outputs.clear()
    assert outputs._tensors == []
