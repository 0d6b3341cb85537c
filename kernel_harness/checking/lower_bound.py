"""Derives the bytes that every correct kernel of a problem has to move, from runs of the reference."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from kernel_harness.checking import inputs_read, weights_read
from kernel_harness.checking.cases import Reference
from kernel_harness.checking.compared import MIN_PRECISION_NUMEL, NEARNESS
from kernel_harness.checking.inputs_read import Input
from kernel_harness.checking.outputs_written import Written
from kernel_harness.checking.probe import CannotRun, Probe, reference_errors, summed
from kernel_harness.checking.reference_model import memory_errors
from kernel_harness.checking.verify import WRONG_NORM
from kernel_harness.core.phases import phase
from kernel_harness.core.precision import Precision, is_inexact
from kernel_harness.ipc import tensors
from kernel_harness.problem.model_values import values
from kernel_harness.problem.problem import Problem

_MOST_OTHERS = 2  # further distributions whose outputs are looked at
_SEED = 0  # of the places that are looked at
# If the inputs and outputs of a call take more than _MOST_BYTES, the float64 runs are of some rows of the batch, as
# many as take _MOST_BYTES and at least _LEAST_ROWS. The float32 outputs of these rows, computed alone, must be those
# of the whole batch up to _ALIKE of their root mean square.
_MOST_BYTES, _LEAST_ROWS, _ALIKE = 1 << 28, 4, 1e-3

# Weights of fewer bytes than this share of those of inputs and outputs are not examined.
_LEAST_SHARE = 1 / 64
_NORMAL = "normal"  # the distribution on which the error of every output is examined

T = TypeVar("T")


@dataclass(frozen=True)
class LowerBound:
    """The bytes that a correct kernel moves at least in one call, at the size at which candidates are timed.

    `written` are the bytes of outputs, `inputs` and `weights` the bytes of what the answer was shown to depend on. A
    part that could not be derived is 0.
    """

    written: float = 0.0
    inputs: float = 0.0
    weights: float = 0.0

    def beyond(self, l2_bytes: float) -> float:
        """Returns the bytes that the device's memory and an L2 cache of `l2_bytes` exchange at least.

        A part of the outputs may still be in the L2 when the call ends. Nothing of what is read is there when it
        begins, because the L2 is emptied before each timed call.
        """
        return max(0.0, self.written - l2_bytes) + self.inputs + self.weights


@phase("lower bound")
def derive(reference: Reference, allowed: Precision | None = None) -> LowerBound:
    """Returns the LowerBound of the problem of `reference`. Where the device lacks memory, the CPU computes it.

    `allowed` is the coarsest number format that the user allows, if that is coarser than the outputs' own.
    Without the attempt on the CPU, a candidate that fills the device's memory could switch off the bound.
    """
    for device in dict.fromkeys((reference.device, "cpu")):
        try:
            with memory_errors():
                return _tried(partial(_derive, reference, allowed, device)) or LowerBound()
        except MemoryError:
            pass
        gc.collect()  # cycles of objects may hold tensors of the failed attempt
        torch.cuda.empty_cache()
    return LowerBound()


def _derive(reference: Reference, allowed: Precision | None, device: str) -> LowerBound:
    """Returns the LowerBound, computed on `device`. Raises torch.OutOfMemoryError if it has too little memory."""
    problem = reference.problem
    seen = _look(reference, device)
    probe = _tried(lambda: Probe(problem, seen.run.model, seen.structure, seen.part, device))
    if probe is None:
        return LowerBound(seen.written)
    read = _tried(lambda: inputs_read.derive(probe, seen.inputs)) or 0.0
    if not seen.other:
        return LowerBound(seen.written, read)
    error = seen.own.largest_error(probe, allowed) if seen.has_normal else WRONG_NORM
    least = _LEAST_SHARE * (seen.written + read)
    draw = partial(_drawn_weights, problem, device)
    weights = _tried(lambda: weights_read.derive(probe, seen.other, draw, error, least)) or 0.0
    return LowerBound(seen.written, read, weights)


@dataclass(frozen=True)
class _Seen:
    """What several runs of the reference, in its own formats, have shown.

    `written` are the bytes of the outputs that count. `part` are the inputs of the first run, or the rows of its batch
    that stand for all, and `other` those of another draw; empty for a model without parameters. `inputs` may count.
    `own` is kept of the outputs. `has_normal` says whether the outputs on normal inputs are examined for precision.
    """

    run: _Run
    structure: Any
    part: list[torch.Tensor]
    other: list[torch.Tensor]
    inputs: list[Input]
    own: _Own
    written: float
    has_normal: bool


def _look(reference: Reference, device: str) -> _Seen:
    """Runs the reference on two draws of the problem's own inputs and on some of other distributions.

    One draw at a time is in memory, or two where none but the whole batch can run.
    """
    generator = torch.Generator().manual_seed(_SEED)
    run = _Run(reference.problem, device)
    first = reference.new_inputs()
    outputs = run(first.structure, first.tensors)
    written = [Written(output, run.held, generator) for output in outputs]
    _see(written, first.tensors, outputs)
    rows = _rows(run, first.structure, first.tensors, outputs, generator)
    own = _Own(outputs, rows)
    del outputs
    structure, part = first.structure, _part(first.tensors, rows, device)
    inputs = inputs_read.chosen(first.tensors, part, generator)
    del first
    second = reference.new_inputs()
    _see(written, second.tensors, run(second.structure, second.tensors))
    other = _part(second.tensors, rows, device)
    for each in inputs:
        each.see(second.tensors[each.number], other[each.number])
    del second
    if not run.has_parameters:
        other = []
    others = reference.other_distributions()[:_MOST_OTHERS]
    for distribution in others:
        further = reference.new_inputs(distribution)
        _see(written, further.tensors, run(further.structure, further.tensors))
    return _Seen(run, structure, part, other, inputs, own, sum(each.bytes for each in written), _NORMAL in others)


class _Run:
    """Calls of one reference model in the problem's own formats."""

    def __init__(self, problem: Problem, device: str) -> None:
        self._problem, self._device = problem, device
        self.model = problem.model(device)
        self.held: set[int] = set()

    @property
    def has_parameters(self) -> bool:
        """Whether the model has parameters of two dimensions or more."""
        parameters = self.model.parameters() if isinstance(self.model, torch.nn.Module) else ()
        return any(each.ndim >= 2 for each in parameters)

    def __call__(self, structure: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the outputs for copies of `inputs`. `held` then has the storages of these copies and of the model."""
        placed = [tensor.to(self._device, copy=True) for tensor in inputs]
        with reference_errors():
            answer = self._problem.forward(self.model, tensors.unflatten(structure, placed))
        known = [*placed, *(each for each in values(self.model) if isinstance(each, torch.Tensor))]
        self.held = {each.untyped_storage().data_ptr() for each in known if each.layout is torch.strided}
        return [output.detach() for output in tensors.flatten_output(answer)[1]]


class _Own:
    """What is kept of the outputs in their own formats, to find out with what error an output passes the checks.

    `rows` are those rows of the outputs whose float64 sums are compared with theirs; None for all.
    """

    def __init__(self, outputs: Sequence[torch.Tensor], rows: torch.Tensor | None) -> None:
        self._sums = summed([output if rows is None else output[rows.to(output.device)] for output in outputs])
        self._exact = any(output.numel() < MIN_PRECISION_NUMEL or not is_inexact(output.dtype) for output in outputs)
        self._formats = [Precision.of(output.dtype) for output in outputs if is_inexact(output.dtype)]

    def largest_error(self, probe: Probe, allowed: Precision | None) -> float:
        """Returns a relative error, in the Frobenius norm, that no output that passes the checks exceeds."""
        if self._exact or self._sums.keys() != probe.base.keys():
            return WRONG_NORM
        longest = {lane[0]: lane for lane in sorted(self._sums, key=lambda lane: len(self._sums[lane]))}.values()
        relative = [float((self._sums[k] - probe.base[k]).norm() / probe.base[k].norm()) for k in longest]
        formats = [*self._formats, Precision.FLOAT32, *([allowed] if allowed else [])]
        return max(max(each.largest_error for each in formats), NEARNESS * max(relative, default=0.0))


def _drawn_weights(problem: Problem, device: str) -> dict[str, torch.Tensor]:
    """Returns the parameters of a reference model with another seed, by name. A GPU draws them itself, in less time."""
    with reference_errors(), torch.device(device):
        model = problem.with_random_parameters(_SEED).model(device)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _see(written: Sequence[Written], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    """Adds a run to each of `written`, one for each output. An output may be a view of a larger or an earlier one."""
    for number, (each, output) in enumerate(zip(written, outputs, strict=True)):
        sources = [o for i, o in enumerate(outputs) if (o.numel(), -i) > (output.numel(), -number)]
        each.see([*inputs, *sources], output)


def _rows(
    run: _Run, structure: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], rng: torch.Generator
) -> torch.Tensor | None:
    """Returns random rows of the batch that stand for all of it in float64 runs, or None if all are to run.

    The batch is the first dimension, which all inputs and outputs must share.
    """
    held = [*inputs, *outputs]
    total = sum(each.nbytes for each in held)
    lengths = {each.shape[0] if each.ndim else 0 for each in held}
    if total <= _MOST_BYTES or len(lengths) != 1:
        return None
    (length,) = lengths
    count = max(_LEAST_ROWS, length * _MOST_BYTES // total)
    if count >= length:
        return None
    rows = torch.randperm(length, generator=rng)[:count].sort().values
    alone = _tried(lambda: run(structure, [tensor[rows.to(tensor.device)] for tensor in inputs]))
    wanted = [output[rows.to(output.device)] for output in outputs]
    return rows if alone is not None and all(map(_alike, alone, wanted)) else None


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape:
        return False
    if not b.is_floating_point():
        return bool(torch.equal(a, b))
    return bool(((a - b).abs() <= _ALIKE * b.double().square().mean().sqrt()).all())


def _part(given: Sequence[torch.Tensor], rows: torch.Tensor | None, device: str) -> list[torch.Tensor]:
    return [t if rows is None else t[rows.to(t.device)].to(device) for t in given]


def _tried(step: Callable[[], T]) -> T | None:
    """Returns the result of `step`, or None if the reference cannot run as the step needs."""
    try:
        return step()
    except CannotRun:
        return None
