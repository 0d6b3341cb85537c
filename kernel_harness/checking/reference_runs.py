"""Runs of the reference in float32, and what they show about it at each size."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import psutil
import torch

from kernel_harness.checking import operators
from kernel_harness.checking.compared import FEW, MANY
from kernel_harness.checking.elementwise import all_finite
from kernel_harness.checking.plan import derived_seed
from kernel_harness.checking.reference_model import (
    alone,
    detached_aliases,
    key_of,
    on_host,
    placed,
    run_model,
    views_of,
)
from kernel_harness.checking.unchanged_models import UnchangedModels
from kernel_harness.checking.verify import unchanged
from kernel_harness.core.phases import phase
from kernel_harness.device import device_memory
from kernel_harness.ipc import tensors
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.problem import Problem, shape_text

# A GPU is short of memory for a shape if fewer than _AMPLE times the bytes of inputs and outputs are free on it. The
# most is needed while the judge holds inputs, outputs and the right answer, and computes in float64.
_AMPLE = 4
# The judge keeps its tensors in the host's memory only if more than _AMPLE_ON_HOST times these bytes are available.
_AMPLE_ON_HOST = 6
# Models that no call changes are kept between calls while they take at most this share of the free memory: those in
# float32 and those in float64 each.
_MODELS_SHARE = 1 / 8


class Answered(NamedTuple):
    """An answer of the float32 reference.

    `structure` is the nesting of its outputs. `tensors` are the outputs, and then the inputs that the reference changes
    in place, as it leaves them; `changed` has the indices of these inputs.
    """

    structure: Any
    tensors: Sequence[torch.Tensor]
    changed: tuple[int, ...]


@dataclass
class _Facts:
    """What runs of the reference at one shape have shown; None before.

    `output_bytes` is the size of all outputs. `first_sums` has fingerprints of the first outputs, and `views` the
    outputs that are views of parameters or buffers. `kept_outputs` has the outputs that a candidate may keep.
    `sums_up`: the reference sums up many numbers (`MANY`). `answers_large`: its answer to enlarged inputs is finite.
    `is_short`: the device is short of memory.
    """

    output_bytes: int | None = None
    first_sums: list[int] | None = None
    views: set[int] = field(default_factory=set)
    kept_outputs: tuple[int, ...] | None = None
    sums_up: bool | None = None
    answers_large: bool | None = None
    is_short: bool = False


class ReferenceRuns(ABC):
    """Runs the reference of one problem in float32 on one device. A Reference adds cases and their right answers."""

    def __init__(self, problem: Problem, device: str) -> None:
        self.problem, self.device = problem, device
        self.float32 = UnchangedModels(self.most_model_bytes)
        self._free: int | None = None
        self._found: dict[str, _Facts] = {}
        self._called: dict[tuple[str, int | None], operators.Called] = {}
        self._call_may_change_model: bool | None = None  # None before the first trial

    def _facts(self, problem: Problem) -> _Facts:
        return self._found.setdefault(shape_text(problem.shape), _Facts())

    @abstractmethod
    def make_room(self) -> None:
        """Frees memory of a GPU for another call."""

    def most_model_bytes(self) -> float:
        """Returns how many bytes the models that are kept between calls may take: a share of what is free now."""
        on_cpu = self.device == "cpu"
        free = psutil.virtual_memory().available if on_cpu else device_memory.usable_bytes(self.device)
        return _MODELS_SHARE * free

    def note_free_memory(self) -> None:
        """Stores how much memory of the GPU is free. Does nothing without a GPU. The device must have been prepared.

        A candidate that has been loaded may fill the memory. What is free then must not decide how others are judged.
        """
        if self.device != "cpu":
            self._free = device_memory.usable_bytes(self.device)

    @phase("right answers")
    def tried(self, problem: Problem, seed: int, distribution: str = OWN) -> Sequence[torch.Tensor]:
        """Returns the outputs of the reference for newly drawn inputs, and stores facts about the call.

        The facts are the size of the outputs in bytes, whether the call may have changed the model, whether the
        reference sums up many numbers (`MANY`), and whether the device is short of memory for this shape (`_AMPLE`).
        """
        self.make_room()
        inputs = placed(self.drawn(problem, seed, distribution), self.device)
        input_bytes = sum(tensor.nbytes for tensor in tensors.flatten(inputs)[1])
        views: set[int] = set()
        outputs = self.run(problem, inputs, lambda model, found: views.update(views_of(model, found)))[1]
        self._call_may_change_model = self.float32.was_changed is not False
        facts, output_bytes = self._facts(problem), sum(output.nbytes for output in outputs)
        facts.output_bytes, facts.views = output_bytes, views
        self.note_sums(problem, outputs)
        few = sum(output.numel() for output in outputs) <= FEW and all(o.is_floating_point() for o in outputs)
        # Inputs are sparse then: a number that is left out makes a difference far below the tolerance.
        facts.sums_up = few and input_bytes > MANY * output_bytes
        needed = input_bytes + output_bytes
        short = self._free is not None and _AMPLE * needed > max(self._free, device_memory.usable_bytes(self.device))
        if short and psutil.virtual_memory().available > _AMPLE_ON_HOST * needed:
            facts.is_short = True
        return outputs

    @phase("inputs")
    def drawn(self, problem: Problem, seed: int, distribution: str = OWN) -> Packed:
        """Returns inputs, which are in the host's memory if the device is short of memory."""
        packed = pack(problem.inputs(seed, distribution, self.device), device=self.device)
        if not self.is_short(problem):
            return packed
        return replace(packed, tensors=tuple(map(on_host, packed.tensors)))

    def is_short(self, problem: Problem) -> bool:
        """Returns whether the device is short of memory at the sizes of `problem`."""
        return self._facts(problem).is_short

    def output_bytes(self, problem: Problem) -> int | None:
        """Returns the bytes of all outputs at the sizes of `problem`; None if the reference was not tried there."""
        return self._facts(problem).output_bytes

    def kept_outputs(self, problem: Problem) -> tuple[int, ...] | None:
        """Returns the indices of the outputs that a candidate may keep from call to call at the sizes of `problem`.

        They are the same for all inputs, or the reference returns views of its parameters or buffers. Returns None if
        the reference was not called there with two sets of inputs yet.
        """
        return self._facts(problem).kept_outputs

    def note_sums(self, problem: Problem, outputs: Sequence[torch.Tensor]) -> None:
        """Compares the outputs with those of the first trial at this shape, by fingerprints, for `kept_outputs`."""
        facts = self._facts(problem)
        if facts.kept_outputs is not None:
            return
        sums = [tensors.fingerprint(output) for output in outputs]
        if facts.first_sums is None:
            facts.first_sums = sums
            return
        pairs = zip(facts.first_sums, sums, strict=False)
        constant = {i for i, (first, second) in enumerate(pairs) if first == second}
        facts.kept_outputs = tuple(sorted(constant | facts.views))

    @cached_property
    def keeps_state(self) -> bool:
        """Returns whether a call of the model changes what the next call returns, as that of a recurrent network may.

        A candidate's model then has to be built anew for each call, as the reference's is. BatchNorm changes its
        running statistics, but in training no call reads them.
        """
        problem, seed = self.problem, derived_seed(0, "two calls")
        if self._call_may_change_model is None:
            self.tried(problem, seed)
        if not self._call_may_change_model:
            return False
        model, packed = problem.model(self.device), self.drawn(problem, seed)
        first, second = (run_model(problem, model, placed(packed, self.device))[1] for _ in range(2))
        return not all(map(unchanged, first, second))

    def calls(self, problem: Problem, packed: Packed, names: re.Pattern[str]) -> bool:
        """Returns whether the reference calls an operator of torch with one of these names. Runs it once for a size."""
        key = key_of(problem)
        if key not in self._called:
            with operators.Called() as called:
                self.run(problem, placed(packed, self.device))
            self._called[key] = called
        return self._called[key].any(names)

    def answers_large(self, problem: Problem, large: Packed) -> bool:
        """Returns whether the reference's answer to `large`, enlarged inputs, is finite. Runs it once for each size."""
        facts = self._facts(problem)
        if facts.answers_large is None:
            facts.answers_large = all(map(all_finite, self.answered(problem, large).tensors))
        return facts.answers_large

    def terms(self, problem: Problem, packed: Packed) -> int:
        """Returns an upper limit for the products of one sum of the reference; 0 if it multiplies no matrices.

        The limit is the largest size of an input, or the elements of a weight for one of its rows or columns.
        """
        if not self.calls(problem, packed, operators.PRODUCTS):
            return 0
        weights = [t for t in problem.state().values() if t.ndim > 1 and t.numel()]
        sizes = [size for t in packed.tensors for size in t.shape]
        return int(max([1, *sizes, *(t.numel() // min(t.shape[:2]) for t in weights)]))

    def answered(self, problem: Problem, packed: Packed) -> Answered:
        """Returns the float32 reference's answer to the inputs `packed`."""
        inputs = placed(packed, self.device)
        after = detached_aliases(inputs)
        structure, outputs = self.run(problem, inputs)
        changed = tuple(i for i, before in enumerate(packed.tensors) if not unchanged(before, after[i]))
        return Answered(structure, [*outputs, *(alone(after[i]) for i in changed)], changed)

    def run(
        self, problem: Problem, inputs: Any, seen: Callable[[Any, Sequence[torch.Tensor]], None] | None = None
    ) -> tuple[Any, Sequence[torch.Tensor]]:
        """Returns the float32 reference's outputs for inputs on the device: their nesting, and the tensors.

        `seen` gets the model, and the outputs as it has returned them.
        """
        return self.float32.call(
            key_of(problem),
            lambda: problem.model(self.device),
            lambda model: run_model(problem, model, inputs, seen=seen),
        )
