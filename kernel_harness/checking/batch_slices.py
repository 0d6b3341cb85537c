"""Splits the batch of a call into slices, and puts the outputs of slices together. The batch is the first dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernel_harness.device.host_memory import host_memory


def of(tensors: Sequence[torch.Tensor], most_bytes: int) -> list[slice]:
    """Returns slices of the batch. The parts of all `tensors` in a slice take at most `most_bytes` or have length 1.

    `tensors` are the inputs and outputs of a call. Returns an empty list if they take at most `most_bytes` together, if
    their first dimensions differ, or if the batch has fewer than two elements.
    """
    nbytes, lengths = sum(tensor.nbytes for tensor in tensors), {tensor.shape[:1].numel() for tensor in tensors}
    if nbytes <= most_bytes or len(lengths) != 1:
        return []
    (batch,) = lengths
    rows = max(1, batch * most_bytes // nbytes)
    return [slice(start, min(start + rows, batch)) for start in range(0, batch, rows)] if batch > 1 else []


def put_together(
    slices: Sequence[slice], outputs: Callable[[slice], Sequence[torch.Tensor]], *, on_host: bool
) -> Sequence[torch.Tensor]:
    """Returns the outputs for a whole batch: calls `outputs` for each slice, and joins the results.

    `slices` are in order and cover the batch. The result is in the host's memory if `on_host`, else on the device of
    the tensors that `outputs` returns. Raises ValueError if the first dimension of an output is not as long as its
    slice, and EnvironmentLacking if the host has too little memory.
    """
    whole: list[torch.Tensor] = []
    for part in slices:
        for i, output in enumerate(outputs(part)):
            if output.shape[:1] != (part.stop - part.start,):
                raise ValueError("an output has another length than the inputs")
            if len(whole) == i:
                shape = (slices[-1].stop, *output.shape[1:])
                like = output.new_empty(shape, device="meta" if on_host else None)
                whole.append(host_memory(like) if on_host else like)
            whole[i][part] = output
    return whole
