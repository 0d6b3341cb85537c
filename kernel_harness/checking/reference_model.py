"""Runs a model of the reference on copies of inputs, and tells a lack of memory from other errors."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernel_harness.core.precision import Change
from kernel_harness.device.host_memory import host_memory
from kernel_harness.ipc import input_memory, tensors
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem.problem import Problem, shape_text

# An output is copied if its storage has more than _SPARE times its bytes and more than _SPARE_BYTES: a cached answer
# would hold that storage.
_SPARE, _SPARE_BYTES = 4, 1 << 20


def key_of(problem: Problem) -> tuple[str, int | None]:
    """Returns a key that differs for different models of a reference: the sizes, and the seed of random parameters."""
    return shape_text(problem.shape), problem.parameter_seed


def run_model(
    problem: Problem,
    model: Any,
    inputs: Any,
    changed: Sequence[int] = (),
    seen: Callable[[Any, Sequence[torch.Tensor]], None] | None = None,
) -> tuple[Any, Sequence[torch.Tensor]]:
    """Returns the nesting of a model's outputs, and its outputs and then the inputs `changed`, as the call leaves them.

    `changed` has indices of input tensors. `seen` gets the model, and the outputs as it has returned them.
    """
    after = detached_aliases(inputs)
    structure, outputs = tensors.flatten_output(problem.forward(model, inputs))
    if seen is not None:
        seen(model, outputs)
    outputs += [after[i] for i in changed]
    return structure, [alone(output.detach()) for output in outputs]  # an output may be a parameter


def placed(
    packed: Packed,
    device: str,
    dtype: torch.dtype | None = None,
    change: Change | None = None,
    part: slice | None = None,
) -> Any:
    """Returns copies of the inputs, or of the slice `part` of their batch, on `device`.

    They have the strides, offsets and shared storages that the candidate's have; those of a slice are dense. If
    `change` is not None, it changes the copies, for example rounds them. If `dtype` is not None, floating-point
    tensors are then converted to it.
    """
    values = packed.tensors if part is None else [tensor[part] for tensor in packed.tensors]
    values = values if change is None else [change(t.to(device)) for t in values]
    leaves = packed.leaves if part is None else tensors.layout(values)[0]
    return tensors.unflatten(packed.structure, input_memory.copies(leaves, values, device, dtype))


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy of it in the host's memory if it is on a GPU."""
    return host_memory(tensor).copy_(tensor) if tensor.is_cuda else tensor


def views_of(model: Any, outputs: Sequence[torch.Tensor]) -> set[int]:
    """Returns the indices of the outputs that share a storage with a parameter or a buffer of the model."""
    state = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    held = {each.untyped_storage().data_ptr() for each in state if each.layout is torch.strided and each.numel()}
    return {i for i, output in enumerate(outputs) if output.untyped_storage().data_ptr() in held}


def detached_aliases(inputs: Any) -> list[torch.Tensor]:
    """Returns the tensors of the inputs as further objects, which keep their shapes if a model changes those."""
    return [tensor.detach() for tensor in tensors.flatten(inputs)[1]]


def alone(output: torch.Tensor) -> torch.Tensor:
    """Returns a copy of an output whose storage is far larger than it is, and any other output itself.

    An output may be a small view of a large tensor. The mean that torch's smooth_l1_loss returns has the storage of all
    its terms (seen with torch 2.11).
    """
    if output.layout is not torch.strided:
        return output
    held = output.untyped_storage().nbytes()
    return output.clone() if held > max(_SPARE * output.nbytes, _SPARE_BYTES) else output


@contextmanager
def memory_errors() -> Iterator[None]:
    """Returns a context that raises MemoryError in place of torch's out-of-memory errors, which have no common type."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold tensors
        raise MemoryError(summary(error)) from None


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether an error of torch or Python says that memory was too small."""
    # torch's CPU allocator raises a plain RuntimeError with this text.
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def summary(error: Exception) -> str:
    """Returns the type of the error and at most 200 characters of the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
