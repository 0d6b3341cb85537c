"""Runs the reference of one case again, in float64, with a change that the caller asks for.

The change replaces inputs, parameters or an operation of the reference, for one run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_harness.checking.formulas import Formula, Replaced
from kernel_harness.ipc import tensors
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem import float64
from kernel_harness.problem.problem import Problem

LONGEST_S = 2.0
"""The processor time in seconds after which a Replay does not run the reference any more.

Beside other programs, the same search takes several times as long, so its end must not depend on the clock on the wall.
"""
LONGEST_WAIT_S = 30.0
"""The time in seconds after which it does not, however little processor time it had."""


@dataclass(frozen=True)
class Source:
    """A tensor from which the reference computes its outputs: an input, or a parameter of the model.

    `name` is its name in messages, such as "input 1 (A)". `tensor` is the tensor, in float64 if it is floating-point.
    `row_major` says whether the elements that a kernel reads are in row-major order, without gaps.
    """

    name: str
    tensor: torch.Tensor
    row_major: bool
    is_parameter: bool = False


class Replay:
    """The reference at one case, in float64. Its weights are those of the float32 reference.

    `sources` are its inputs and parameters with at least one dimension, and `scalars` maps the positions of arguments
    that are Python numbers to their names. `outputs` can replace some of them for one run; it restores them afterwards.
    """

    def __init__(self, problem: Problem, packed: Packed, device: str) -> None:
        self._problem, self._structure = problem, packed.structure
        self._inputs = [
            t.to(device, torch.float64 if t.is_floating_point() else t.dtype, copy=True) for t in packed.tensors
        ]
        self._model = float64.widened(problem.model(device))
        self._began, self._latest, self._runs = time.thread_time(), time.monotonic() + LONGEST_WAIT_S, 0
        arguments = tensors.unflatten(packed.structure, self._inputs)
        names = names_of(problem, packed)
        found = [Source(n, t, p.is_contiguous()) for n, t, p in zip(names, self._inputs, packed.tensors, strict=True)]
        parameters = [(n, p.detach()) for n, p in self._model.named_parameters()]
        found += [Source(f"the parameter {n}", p, p.is_contiguous(), is_parameter=True) for n, p in parameters]
        self.sources = [s for s in found if s.tensor.ndim > 0 and not s.tensor.is_complex()]
        self.scalars = _scalars(problem, arguments)

    def outputs(
        self,
        changed: Mapping[int, torch.Tensor] | None = None,
        formula: Formula | None = None,
        scalar: tuple[int, float] | None = None,
    ) -> list[torch.Tensor]:
        """Runs the reference and returns its outputs. They share no memory with the sources.

        `changed` replaces sources in this run. Its keys are indices into `sources`, and each tensor has the shape of
        its source. `formula` replaces an operation in this run, and `scalar` the argument at a position in `scalars`.
        Raises TimeoutError if this thread has computed for LONGEST_S seconds, or LONGEST_WAIT_S seconds have passed,
        since this Replay was made.
        """
        if self._spent_s() > LONGEST_S or time.monotonic() > self._latest:
            raise TimeoutError(f"the reference ran again for {LONGEST_S} s")
        self._runs += 1
        kept = {i: self.sources[i].tensor.clone() for i in changed or {}}
        try:
            for i, tensor in (changed or {}).items():
                self.sources[i].tensor.copy_(tensor)
            return self._run(Replaced(formula), scalar)
        finally:
            for i, tensor in kept.items():
                self.sources[i].tensor.copy_(tensor)

    def fitting(self, formulas: Sequence[Formula]) -> list[Formula]:
        """Runs the reference, and returns those formulas that replace a function which it calls."""
        run = Replaced()
        self._run(run)
        return [formula for formula in formulas if formula.functions & run.called]

    def affords(self, runs: int) -> bool:
        """Returns whether `runs` further runs, as long as those so far on average, would end within LONGEST_S."""
        return self._spent_s() * (1 + runs / max(1, self._runs)) <= LONGEST_S

    def _spent_s(self) -> float:
        return time.thread_time() - self._began

    def _run(self, replaced: Replaced, scalar: tuple[int, float] | None = None) -> list[torch.Tensor]:
        # The reference may change its inputs, and may return one of them.
        inputs = tensors.unflatten(self._structure, [t.clone() for t in self._inputs])
        if scalar is not None:
            inputs = [scalar[1] if i == scalar[0] else each for i, each in enumerate(inputs)]
        buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]  # such as running statistics
        with float64.Float32ToFloat64(), replaced:
            outputs = tensors.flatten_output(self._problem.forward(self._model, inputs))[1]
        for buffer, before in buffers:
            buffer.copy_(before)
        return [output.clone() for output in outputs]


def names_of(problem: Problem, packed: Packed) -> list[str]:
    """Returns the name of each input in messages, such as "input 1 (A)", where A is its parameter of `forward`.

    An input that is not itself an argument, such as a tensor in a list, has only its number.
    """
    arguments = tensors.unflatten(packed.structure, packed.tensors)
    named = zip(problem.input_names, arguments, strict=False)
    known = {id(a): f" ({n})" for n, a in named if isinstance(a, torch.Tensor)}
    return [f"input {i}{known.get(id(tensor), '')}" for i, tensor in enumerate(packed.tensors, 1)]


def _scalars(problem: Problem, arguments: Any) -> dict[int, str]:
    """Returns the names of those positional arguments of `forward` that are a Python float, by position from 0."""
    named = enumerate(zip(problem.input_names, arguments, strict=False))
    return {i: name for i, (name, value) in named if isinstance(value, float)}
