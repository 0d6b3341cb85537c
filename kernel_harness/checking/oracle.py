"""The oracle: the right answers of a problem in float64, which tell how large an error is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernel_harness.checking.reference_model import is_out_of_memory, key_of, memory_errors, placed, run_model, summary
from kernel_harness.checking.reference_runs import ReferenceRuns
from kernel_harness.checking.unchanged_models import UnchangedModels
from kernel_harness.checking.verify import unchanged
from kernel_harness.core.precision import Change
from kernel_harness.device import device_memory
from kernel_harness.device.host_memory import host_memory
from kernel_harness.ipc import tensors
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem import float64
from kernel_harness.problem.problem import Problem

# Where inputs and outputs take more than _SLICED_BYTES, the float64 answer is computed for slices of about that size of
# the batch, if that is possible (`Float64._slices`). On a GPU of which _WHOLE times these bytes are free, the whole
# batch is faster: in float64 a call takes twice the bytes, and what the model needs in between.
_SLICED_BYTES = 1 << 30
_WHOLE = 3


@dataclass(frozen=True)
class Oracle:
    """The reference's outputs in float64, and for each output the scale with which its rounding error is compared.

    If the outputs cannot be computed, `outputs` is None and `missing` is the reason. `scale` is None if it was not
    asked for, or if the problem file has no `error_scale`.
    """

    outputs: tuple[torch.Tensor, ...] | None
    scale: tuple[torch.Tensor, ...] | None = None
    missing: str = ""


class Float64:
    """Computes the reference's outputs in float64.

    `runs` runs the reference in float32. `free_answers` frees memory: it removes cached answers. `kept` is the model of
    the last call, if that left it unchanged.
    """

    def __init__(self, runs: ReferenceRuns, free_answers: Callable[[], None]) -> None:
        self._runs, self._device, self._free_answers = runs, runs.device, free_answers
        self.kept = UnchangedModels(runs.most_model_bytes)
        self._not_in_slices: set[tuple[str, int | None]] = set()

    def compute(
        self,
        problem: Problem,
        packed: Packed,
        expected: Sequence[torch.Tensor],
        *,
        scaled: bool = False,
        change: Change | None = None,
    ) -> Oracle:
        """Returns the reference's outputs in float64, computed on the CPU if the device has too little memory.

        `expected` are the reference's outputs in float32. In both, the inputs `packed.changed` follow, as the reference
        leaves them. If `scaled` and there are none of these, the scale is computed too. With `change`, inputs
        and weights are changed first, for example rounded as units that multiply numbers of a shorter format do. If the
        outputs cannot be computed, the result holds the reason.
        The cached answers are freed before the attempt on the CPU. Without that attempt, a candidate that fills the
        device's memory could switch off the precision check.
        """
        try:
            return self._on(self._device, problem, packed, scaled, change, expected)
        except MemoryError:
            self._free_answers()
            self.kept.clear()
        gc.collect()  # cycles of objects may hold tensors of the failed attempt
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        try:
            return self._on("cpu", problem, packed, scaled, change)
        except MemoryError as error:
            return Oracle(None, missing=f"there is too little memory for the reference in float64 ({error})")

    def _on(
        self,
        device: str,
        problem: Problem,
        packed: Packed,
        scaled: bool,
        change: Change | None,
        expected: Sequence[torch.Tensor] = (),
    ) -> Oracle:
        """Returns the reference's outputs in float64, computed on `device`, or the reason why it cannot run in float64.

        If `expected`, the float32 outputs, is not empty, the outputs are computed in slices where `_slices` finds any.
        Raises MemoryError if the memory of `device` is too small.
        """
        with memory_errors():
            try:
                slices = self._slices(problem, packed, expected)
                outputs = self._in_float64(device, problem, packed, change, slices)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                return Oracle(None, missing=f"the reference cannot run in float64 ({summary(error)})")
            scaled = scaled and problem.states("error_scale") and not packed.changed
            scale = problem.error_scale(placed(packed, device, torch.float64)) if scaled else None
            return Oracle(outputs, None if scale is None else tuple(tensors.flatten_output(scale)[1]))

    def _slices(self, problem: Problem, packed: Packed, expected: Sequence[torch.Tensor]) -> Sequence[slice]:
        """Returns slices of the batch whose outputs can be computed one by one; none if a call needs the whole batch.

        In float64 a call takes twice the memory, so large inputs and outputs may not fit into it. There are no slices
        if inputs and outputs take at most _SLICED_BYTES, or if the GPU has _WHOLE times their bytes free. The batch is
        the first dimension, which must be that of all inputs and outputs. A model may compute with the whole batch, as
        BatchNorm does. So the slices' float32 outputs must be `expected`, in every bit.
        """
        key, held = key_of(problem), [*packed.tensors, *expected]
        slices = _batch_slices(held, _SLICED_BYTES)
        if not expected or not slices or key in self._not_in_slices:
            return ()
        needed = _WHOLE * sum(tensor.nbytes for tensor in held)
        if self._device != "cpu" and device_memory.usable_bytes(self._device) >= needed:
            return ()

        def alike(model: Any) -> bool:
            def outputs(part: slice) -> Sequence[torch.Tensor]:
                return run_model(problem, model, placed(packed, self._device, part=part), packed.changed)[1]

            return all(
                unchanged(output, whole[part])
                for part in slices
                for output, whole in zip(outputs(part), expected, strict=True)
            )

        float32 = self._runs.float32
        try:
            if float32.call(key, lambda: problem.model(self._device), alike) and not float32.was_changed:
                return slices
        except Exception as error:
            if is_out_of_memory(error):
                raise
        self._not_in_slices.add(key)
        return ()

    def _in_float64(
        self, device: str, problem: Problem, packed: Packed, change: Change | None, slices: Sequence[slice]
    ) -> tuple[torch.Tensor, ...]:
        """Returns the outputs of a model in float64, whose weights are drawn with the seed of the float32 model.

        A copy of the float32 model would not do: functions that it holds may still refer to the float32 weights. If
        `change` is not None, it changes the weights and inputs before they are converted. Tensors that the model makes
        itself are converted too. If the model then raises an exception, it runs again, and only its weights and inputs
        are converted. With `slices` of the batch, the outputs of each slice are computed alone, and then put together,
        in the host's memory if the device is short of memory.
        """

        def made() -> Any:
            model = problem.model(device)
            if change is not None:
                _change_weights(model, change)
            return float64.widened(model)

        def run(context: AbstractContextManager[Any]) -> tuple[torch.Tensor, ...]:
            def outputs(model: Any, part: slice | None) -> Sequence[torch.Tensor]:
                inputs = placed(packed, device, torch.float64, change, part)
                with context:
                    return run_model(problem, model, inputs, packed.changed)[1]

            def call(model: Any) -> Sequence[torch.Tensor]:
                if not slices:
                    return outputs(model, None)
                return _put_together(slices, partial(outputs, model), on_host=self._runs.is_short(problem))

            if change is not None:
                return tuple(call(made()))
            return tuple(self.kept.call((device, *key_of(problem)), made, call))

        try:
            return run(float64.Float32ToFloat64())
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return run(nullcontext())


def _change_weights(model: Any, change: Change) -> None:
    """Applies `change` in place to the model's parameters and buffers with at least two dimensions.

    A tensor of one dimension is a bias, which is added and not multiplied. It stays as it is.
    """
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.ndim > 1:
                tensor.copy_(change(tensor))


def _batch_slices(tensors: Sequence[torch.Tensor], most_bytes: int) -> list[slice]:
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


def _put_together(
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
