"""The cases that a candidate is checked on, and the right answer of each case. An answer is computed on first use."""

from __future__ import annotations

import gc
import hashlib
import random
import re
import secrets
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

import psutil
import torch

from kernel_harness.checking import batch_slices, drawn_shapes, operators
from kernel_harness.checking.coarseness import HALVES
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.elementwise import all_finite, count
from kernel_harness.checking.unchanged_model import UnchangedModel
from kernel_harness.checking.verify import unchanged
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.phases import phase
from kernel_harness.core.precision import Change, Precision
from kernel_harness.device import device_memory
from kernel_harness.device.host_memory import host_memory
from kernel_harness.ipc import input_memory, tensors
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.problem import float64, sizing
from kernel_harness.problem.lookalikes import LOOKALIKES, OUTLIERS, STRETCH
from kernel_harness.problem.problem import OWN, PARAMETERS, SMALL, SPARSE, Problem, ProblemError, Shape, shape_text

# Distributions whose inputs have zero mean. Terms of an output then cancel, so its rounding error is relatively large.
_ZERO_MEAN = ("normal", "integers", "scaled", SMALL)
# The share of a GPU's memory that the inputs of cases may take between their uses, and that their answers may take.
_KEPT_SHARE = 1 / 32
# A GPU is short of memory for a shape if fewer than _AMPLE times the bytes of inputs and outputs are free on it. The
# most is needed while the judge holds inputs, outputs and the right answer, and computes in float64.
_AMPLE = 4
# The judge keeps its tensors in the host's memory only if more than _AMPLE_ON_HOST times these bytes are available.
_AMPLE_ON_HOST = 6

# Where inputs and outputs take more than _SLICED_BYTES, the float64 answer is computed for slices of about that size of
# the batch, if that is possible (`Reference._slices`). On a GPU of which _WHOLE times these bytes are free, the whole
# batch is faster: in float64 a call takes twice the bytes, and what the model needs in between.
_SLICED_BYTES = 1 << 30
_WHOLE = 3

# Inputs are sparse where the reference computes at most _FEW numbers from more than _MANY times as many bytes. In such
# a sum, a number that is left out makes a difference far below the tolerance.
_FEW, _MANY = 64, 1024
# The elements of an output that show whether a few inputs decide the whole answer.
_SAMPLE = 1 << 12

# An output is copied if its storage has more than _SPARE times its bytes and more than _SPARE_BYTES: a cached answer
# would hold that storage.
_SPARE, _SPARE_BYTES = 4, 1 << 20

# Outputs in float64 depend on the order of the inputs if they differ by more than this: rounding changes them by less.
_REORDERED = 1e-9

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One check of a candidate: the problem's size constants, and the distribution and seed of the inputs.

    With the distribution PARAMETERS the inputs are the problem's own, and the parameters of the model are random.
    `shape` holds pairs of a size constant (`M`, `N`, ...) and its value. `timed_shape`: the shape is the one at which
    candidates are timed. `drawn`: the shape was drawn at random. `optional`: the problem file does not name this shape
    or this distribution, so the case is left out if `Reference.works` returns False. `poison`: device memory that the
    call allocates is first filled with NaN. `repeat`: the candidate is called twice with equal inputs, and the two
    outputs must agree within the tolerance.
    """

    shape: tuple[tuple[str, int], ...]
    distribution: str
    seed: int
    timed_shape: bool = False
    poison: bool = False
    repeat: bool = False
    drawn: bool = False
    optional: bool = False

    @property
    def name(self) -> str:
        """Returns the name of the case, as the option --case accepts it: `M=64,K=128,N=96:normal`."""
        return f"{self.shape_name}:{self.distribution}"

    @property
    def random_parameters(self) -> bool:
        """Returns whether the model's parameters depend on this case's seed (`Problem.with_random_parameters`).

        The model's constructor then draws its random numbers with this seed. A parameter that the constructor sets to
        one number everywhere gets random numbers near that number.
        """
        return self.distribution == PARAMETERS

    @property
    def inputs_from(self) -> str:
        """Returns the name of the distribution of the inputs."""
        return OWN if self.random_parameters else self.distribution

    @property
    def shape_name(self) -> str:
        """Returns the size constants as text, as the option --shape accepts them: `M=64,K=128,N=96`."""
        return shape_text(dict(self.shape))


def plan(problem: Problem, seed: int, *, quick: bool = False) -> list[Case]:
    """Returns the cases of a run: one for each distribution of inputs at the timed shape, then cases at further shapes.

    A shape is a set of values for the problem's size constants (`M`, `N`, ...). The timed shape is the one at which
    candidates are timed. The distributions are the problem's own and those of its STRESS. A problem file without STRESS
    has variations of its own inputs instead, and then inputs that look like its own (`lookalikes`), if these change
    most of the answer (`Reference.works`). If the model has parameters, one more case at the timed shape has random
    ones (`Case.random_parameters`).
    Further shapes come from three sources, in this order. Each shape of CHECK_SHAPES has one case; these cases take the
    problem's own distribution and those of STRESS in turn. With `quick`, only the first three shapes of CHECK_SHAPES
    have a case. On an emulated device, some shapes have one size at its value in the file (`_stretched`). Some shapes
    are drawn at random (`_drawn`).
    The first case that is not optional is poisoned (`Case.poison`). The case with the problem's own distribution at the
    timed shape is repeated (`Case.repeat`). The seed of each case, and the drawn shapes, are derived from `seed`.
    """
    # Normal inputs come first, because they show that a candidate uses a coarse number format. With other inputs, such
    # a candidate only has wrong values.
    distributions = sorted([OWN, *problem.stress], key=lambda d: d != "normal")
    named = distributions if problem.states_stress else [OWN]
    timed = [
        _case(
            problem.shape, d, seed, timed_shape=True, poison=d == named[0], repeat=d == OWN, optional=d not in named
        )
        for d in (*distributions, *(() if problem.states_stress else (OUTLIERS, STRETCH)))
    ]  # fmt: skip
    if problem.parameters:
        timed.append(_case(problem.shape, PARAMETERS, seed, timed_shape=True, optional=True))
    shapes: list[Shape] = [s for s in problem.check_shapes if {**problem.shape, **s} != dict(problem.shape)]
    # Integers come first, because they give the strictest check: the answer is exact, so one missing term is visible.
    turns = [d for d in ("integers", *named) if d in named]
    further = [
        _case({**problem.shape, **s}, turns[i % len(turns)], seed)
        for i, s in enumerate(shapes[:3] if quick else shapes)
    ]
    return timed + further + _stretched(problem, seed) + _drawn(problem, seed)


def _stretched(problem: Problem, seed: int) -> list[Case]:
    """Returns cases in which one size has its value in the problem's file. The other sizes are small enough for a CPU.

    Size constants with the same value may be one size here. Returns an empty list for a GPU, and if the problem file
    has CHECK_SHAPES or names sizes in CPU_SHAPE.
    """
    if not problem.emulated or problem.states_shapes or problem.cpu_shape:
        return []
    return [_case(shape, OWN, seed, optional=True) for shape in sizing.stretched(problem)]


def _drawn(problem: Problem, seed: int) -> list[Case]:
    """Returns the cases at shapes that are drawn at random. A candidate cannot know these shapes.

    If the problem file has CHECK_SHAPES, up to `drawn_shapes.COUNT` shapes in the range of CHECK_SHAPES and CPU_SHAPE
    are drawn, with one case each. The case has a random distribution of the file's STRESS, because the limits for it
    are relative to `error_scale` and so suit sums of any length. Without STRESS, it has the problem's own distribution.
    If the file has no CHECK_SHAPES, at most one shape is drawn, with sizes a little below the problem's
    (`sizing.near`). It has two cases: the problem's own distribution, and SPARSE. All these cases are optional.
    """
    rng = random.Random(_derived_seed(seed, "drawn shapes"))
    if not problem.states_shapes:
        found = sizing.near(problem, rng)
        return [_case(found, d, seed, drawn=True, optional=True) for d in (OWN, SPARSE)] if found else []
    listed = [{**problem.shape, **shape} for shape in (*problem.check_shapes, problem.cpu_shape) if shape]
    shapes = drawn_shapes.draw(listed, rng, avoid=[*listed, problem.shape])
    distributions = (sorted(problem.stress) if problem.states_stress else []) or [OWN]
    return [_case(shape, rng.choice(distributions), seed, drawn=True, optional=True) for shape in shapes]


def _case(shape: Shape, distribution: str, seed: int, **more: bool) -> Case:
    name = f"{shape_text(shape)}:{distribution}"
    return Case(tuple(shape.items()), distribution, _derived_seed(seed, name), **more)


def _derived_seed(seed: int, purpose: str) -> int:
    """Returns a seed for one purpose. It reveals neither `seed` nor the seed of another purpose."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:7], "big")


@dataclass(frozen=True)
class _Oracle:
    """The reference's outputs in float64, and for each output the scale with which its rounding error is compared.

    If the outputs cannot be computed, `outputs` is None and `missing` is the reason. `scale` is None if it was not
    asked for, or if the problem file has no `error_scale`.
    """

    outputs: tuple[torch.Tensor, ...] | None
    scale: tuple[torch.Tensor, ...] | None = None
    missing: str = ""


class _Kept(Generic[T]):
    """A cache with one value for each case. `trim` removes the oldest values if their tensors take too much memory."""

    def __init__(self) -> None:
        self._values: dict[Case, tuple[T, int]] = {}

    def __contains__(self, case: Case) -> bool:
        return case in self._values

    def __getitem__(self, case: Case) -> T:
        return self._values[case][0]

    def keep(self, case: Case, value: T, held: Iterable[torch.Tensor]) -> None:
        """Stores `value` for `case`; its memory is that of the tensors `held`. A later `trim` may remove it."""
        self._values[case] = value, sum(tensor.nbytes for tensor in held)

    def trim(self, most_bytes: float) -> None:
        """Removes the oldest values until the remaining ones take at most `most_bytes` together."""
        while self._values and sum(size for _, size in self._values.values()) > most_bytes:
            del self._values[next(iter(self._values))]

    def clear(self) -> None:
        """Removes all values."""
        self._values.clear()


class Reference:
    """Computes the right answers of one problem.

    The answer of a case is computed on first use and cached. `make_room` removes cached answers that take too much of a
    GPU's memory. Such an answer is computed again on its next use.
    """

    def __init__(self, problem: Problem, device: str, allowed: Precision | None) -> None:
        self.problem = problem
        self.device, self._allowed = device, allowed
        self._problems: dict[tuple[tuple[tuple[str, int], ...], int | None], Problem] = {}
        self._works: dict[tuple[tuple[tuple[str, int], ...], str], bool] = {}
        self._required: set[tuple[tuple[str, int], ...]] = set()
        self._free: int | None = None
        self._short: set[str] = set()
        self._output_bytes: dict[str, int] = {}
        self._first_sums: dict[str, list[int]] = {}  # fingerprints of the outputs of the first trial at a shape
        self._views: dict[str, set[int]] = {}  # the outputs that are views of the model's parameters or buffers
        self._kept_outputs: dict[str, tuple[int, ...]] = {}
        self._sums_up: dict[str, bool] = {}
        self._deciders: dict[tuple[str, int | None], tuple[str, ...]] = {}
        self._called: dict[tuple[tuple[str, int | None], re.Pattern[str]], bool] = {}
        self._inputs: _Kept[Packed] = _Kept()
        self._expectations: _Kept[tuple[Any, Expectation]] = _Kept()
        self._float32, self._float64 = UnchangedModel(), UnchangedModel()
        self._not_in_slices: set[tuple[str, int | None]] = set()
        self._call_may_change_model: bool | None = None  # None before the first trial

    def note_free_memory(self) -> None:
        """Stores how much memory of the GPU is free. Does nothing without a GPU. The device must have been prepared.

        A candidate that has been loaded may fill the memory. What is free then must not decide how others are judged.
        """
        if self.device != "cpu":
            self._free = device_memory.usable_bytes(self.device)

    def at(self, case: Case) -> Problem:
        """Returns the problem with its size constants (`M`, `N`, ...) set to the values of the case.

        If the case has random parameters, the model of the returned problem draws its parameters from the case's seed.
        """
        key = case.shape, case.seed if case.random_parameters else None
        if key not in self._problems:
            problem = self.problem.at(dict(case.shape))
            self._problems[key] = problem.with_random_parameters(case.seed) if case.random_parameters else problem
        return self._problems[key]

    def require(self, case: Case) -> None:
        """Raises ProblemError if the reference cannot run at the shape of the case.

        The reference is tried on the problem's own inputs of another seed than the case's. Without this trial, the
        candidate would be blamed, because it gets the same arguments. A shape is tried once. Raises EnvironmentLacking
        if the host has too little memory, and torch.OutOfMemoryError if the device has.
        """
        if case.shape in self._required:
            return
        problem = self.at(case)
        try:
            pack(problem.init_inputs())
            self._tried(problem, _derived_seed(case.seed, "a first trial"))
        except (torch.OutOfMemoryError, UserError):
            raise
        except Exception as error:
            where = f"{problem.path} at {case.shape_name or 'its size'}"
            if _is_out_of_memory(error):
                raise EnvironmentLacking(f"{where}: there is too little memory for the reference: {error}") from error
            raise ProblemError(f"{where}: the reference cannot run: {_summary(error)}") from error
        self._required.add(case.shape)

    def works(self, case: Case) -> bool:
        """Returns whether the reference gives a finite answer at the shape and the distribution of the case.

        A shape that was drawn at random may be invalid for the problem, and so may a variation of its inputs. The
        function uses inputs of another seed than the case's. It also returns False if the reference raises an exception
        or an output has no elements, and for a variation that changes no input. For sparse inputs it returns False
        unless a trial at this shape has shown that the reference sums up many numbers (`_MANY`). For OUTLIERS and
        STRETCH it returns False unless these change most of the answer (`_deciding`). Raises torch.OutOfMemoryError if
        the device has too little memory, EnvironmentLacking if the host has.
        """
        key = (case.shape, case.distribution)
        if key not in self._works:
            try:
                self._works[key] = self._gives_finite_answer(case)
            except (torch.OutOfMemoryError, EnvironmentLacking):  # a candidate may have filled the memory
                raise
            except Exception:
                self._works[key] = False
        return self._works[key]

    def _gives_finite_answer(self, case: Case) -> bool:
        problem, seed = self.at(case), _derived_seed(case.seed, "a trial")
        if case.inputs_from == SPARSE:
            shape = shape_text(problem.shape)
            if shape not in self._sums_up:
                self._tried(problem, seed)
            if not self._sums_up[shape]:
                return False
        if case.inputs_from in (OUTLIERS, STRETCH) and case.inputs_from not in self._deciding(problem, seed):
            return False
        if case.inputs_from in LOOKALIKES or (case.inputs_from != OWN and not problem.states_stress):
            own, varied = (self._drawn(problem, seed, each).tensors for each in (OWN, case.inputs_from))
            if all(map(unchanged, own, varied)):
                return False
            del own, varied  # the trial may need the memory
        return all(o.numel() > 0 and all_finite(o) for o in self._tried(problem, seed, case.inputs_from))

    def _deciding(self, problem: Problem, seed: int) -> Collection[str]:
        """Returns those of OUTLIERS and STRETCH that change at least half of all outputs, as in a sum of all inputs.

        OUTLIERS is left out if the reference calls an operator whose usual formula overflows for large numbers, and if
        it cannot run with them.
        """
        key = _key(problem)
        if key not in self._deciders:

            def sampled(distribution: str) -> torch.Tensor:
                outputs = self._tried(problem, seed, distribution)
                places = [
                    torch.randint(o.numel(), (_SAMPLE,), generator=torch.Generator().manual_seed(1)) for o in outputs
                ]
                return torch.cat(
                    [o.reshape(-1)[at.to(o.device)].double() for o, at in zip(outputs, places, strict=True)]
                )

            def decides(distribution: str) -> bool:
                return bool(2 * count(sampled(distribution) != usual) >= usual.numel())

            usual = sampled(OWN)
            try:
                found = (OUTLIERS, STRETCH) if decides(OUTLIERS) else ()
                overflows = bool(found) and self._calls(problem, self._drawn(problem, seed), operators.EXPONENTIALS)
                self._deciders[key] = found[1:] if overflows else found
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError):
                self._deciders[key] = (STRETCH,) if decides(STRETCH) else ()
        return self._deciders[key]

    @phase("right answers")
    def _tried(self, problem: Problem, seed: int, distribution: str = OWN) -> Sequence[torch.Tensor]:
        """Returns the outputs of the reference for newly drawn inputs, and stores facts about the call.

        The facts are the size of the outputs in bytes, whether the call may have changed the model, whether the
        reference sums up many numbers (`_MANY`), and whether the device is short of memory for this shape (`_AMPLE`).
        """
        self.make_room()
        inputs = self._placed(self._drawn(problem, seed, distribution), self.device)
        input_bytes = sum(tensor.nbytes for tensor in tensors.flatten(inputs)[1])
        views: set[int] = set()
        outputs = self._run(problem, inputs, lambda model, found: views.update(_views_of(model, found)))[1]
        self._call_may_change_model = self._float32.was_changed is not False
        output_bytes = sum(output.nbytes for output in outputs)
        self._output_bytes[shape_text(problem.shape)] = output_bytes
        self._views[shape_text(problem.shape)] = views
        self._note_sums(problem, outputs)
        few = sum(output.numel() for output in outputs) <= _FEW and all(o.is_floating_point() for o in outputs)
        self._sums_up[shape_text(problem.shape)] = few and input_bytes > _MANY * output_bytes
        needed = input_bytes + output_bytes
        short = self._free is not None and _AMPLE * needed > max(self._free, device_memory.usable_bytes(self.device))
        if short and psutil.virtual_memory().available > _AMPLE_ON_HOST * needed:
            self._short.add(shape_text(problem.shape))
        return outputs

    def other_distributions(self) -> list[str]:
        """Returns the sorted names of the distributions, other than the problem's own, of the inputs of timed calls.

        SPARSE is left out, and so is a variation with which the reference does not work (`works`). Those that look
        like the problem's own come last.
        """
        # Zeros take less power and may take less time, so times for them tell little.
        stress = [d for d in sorted(self.problem.stress) if d != SPARSE]
        stated = stress if self.problem.states_stress else []
        cases = [_case(self.problem.shape, d, 0) for d in (*stress, *LOOKALIKES)]
        return [case.distribution for case in cases if case.distribution in stated or self.works(case)]

    def decides(self, expectation: Expectation) -> bool:
        """Returns whether a candidate may be judged by this answer.

        Returns False for a variation of the problem's inputs whose answer contains NaN or infinity, because such inputs
        may not be valid for the problem. Returns True for the problem's own inputs and for a distribution of STRESS.
        """
        stated = self.problem.states_stress and expectation.distribution not in LOOKALIKES
        if expectation.distribution == OWN or stated:
            return True
        answers = [*expectation.expected, *(expectation.oracle or ())]
        return all(map(all_finite, answers))

    def inputs(self, case: Case) -> Packed:
        """Returns the inputs of the case, which are cached until `make_room` removes them. Worker processes get copies.

        The tensors are on the device. If the device is short of memory for this shape, they are in the host's memory.
        """
        if case not in self._inputs:
            self.make_room()
            packed = self._drawn(self.at(case), case.seed, case.inputs_from)
            self._inputs.keep(case, packed, packed.tensors)
        return self._inputs[case]

    def new_inputs(self, distribution: str = OWN) -> Packed:
        """Draws inputs at the problem's size that no process has seen before. They are not cached.

        They are on the device. If the first call of the reference has shown that the device is short of memory for this
        size, they are in the host's memory.
        """
        self.make_room()
        return self._drawn(self.problem, secrets.randbits(48), distribution)

    def make_room(self) -> None:
        """Frees memory of a GPU for another call. Does nothing on the CPU, because problems are small there.

        The oldest cached inputs are removed until the others take at most _KEPT_SHARE of the free memory, and so are
        the oldest cached answers. A cached model that takes more is removed, too. On their next use, inputs are drawn,
        answers computed and models built again.
        """
        if self.device == "cpu":
            return
        most_bytes = _KEPT_SHARE * device_memory.usable_bytes(self.device)
        self._inputs.trim(most_bytes)
        self._expectations.trim(most_bytes)
        for model in (self._float32, self._float64):
            if model.nbytes > most_bytes:
                model.clear()

    def forget(self) -> None:
        """Frees the cached inputs, answers and models. They are drawn, computed and built again on their next use.

        Answers refer to this object, so without this method Python frees them only when it looks for cycles.
        """
        for kept in (self._inputs, self._expectations, self._float32, self._float64):
            kept.clear()

    @phase("inputs")
    def _drawn(self, problem: Problem, seed: int, distribution: str = OWN) -> Packed:
        packed = pack(problem.inputs(seed, distribution, self.device), device=self.device)
        if not self._is_short(problem):
            return packed
        return replace(packed, tensors=tuple(map(_on_host, packed.tensors)))

    def _is_short(self, problem: Problem) -> bool:
        return shape_text(problem.shape) in self._short

    def output_bytes(self, problem: Problem) -> int | None:
        """Returns the bytes of all outputs at the sizes of `problem`; None if the reference was not tried there."""
        return self._output_bytes.get(shape_text(problem.shape))

    def kept_outputs(self, problem: Problem) -> tuple[int, ...] | None:
        """Returns the indices of the outputs that a candidate may keep from call to call at the sizes of `problem`.

        They are the same for all inputs, or the reference returns views of its parameters or buffers. Returns None if
        the reference was not called there with two sets of inputs yet.
        """
        return self._kept_outputs.get(shape_text(problem.shape))

    def _note_sums(self, problem: Problem, outputs: Sequence[torch.Tensor]) -> None:
        """Compares the outputs with those of the first trial at this shape, by fingerprints, for `kept_outputs`."""
        shape = shape_text(problem.shape)
        if shape in self._kept_outputs:
            return
        sums = [tensors.fingerprint(output) for output in outputs]
        if shape in self._first_sums:
            pairs = zip(self._first_sums[shape], sums, strict=False)
            constant = {i for i, (first, second) in enumerate(pairs) if first == second}
            self._kept_outputs[shape] = tuple(sorted(constant | self._views.get(shape, set())))
        self._first_sums.setdefault(shape, sums)

    def call_bytes(self, case: Case) -> int:
        """Runs the reference in float32 on a GPU. Returns the largest use of the GPU's memory by this call, in bytes.

        Counts the model and a copy of the inputs.
        """
        problem, packed = self.at(case), self.inputs(case)
        self._float32.clear()
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        self._run(problem, self._placed(packed, self.device))
        return int(torch.cuda.max_memory_allocated(self.device) - before)

    @cached_property
    def keeps_state(self) -> bool:
        """Returns whether a call of the model changes what the next call returns, as that of a recurrent network may.

        A candidate's model then has to be built anew for each call, as the reference's is. BatchNorm changes its
        running statistics, but in training no call reads them.
        """
        problem, seed = self.problem, _derived_seed(0, "two calls")
        if self._call_may_change_model is None:
            self._tried(problem, seed)
        if not self._call_may_change_model:
            return False
        model, packed = problem.model(self.device), self._drawn(problem, seed)
        first, second = (_run(problem, model, self._placed(packed, self.device))[1] for _ in range(2))
        return not all(map(unchanged, first, second))

    def answer_to_others(self, case: Case) -> Sequence[torch.Tensor]:
        """Returns the reference's outputs for inputs of the case's shape and distribution that have another seed.

        The outputs are in the host's memory if the device is short of memory.
        """
        problem = self.at(case)
        self.make_room()
        return self._answer(problem, self._drawn(problem, _derived_seed(case.seed, "other inputs"), case.inputs_from))

    def answer_to_reordered(self, case: Case) -> Sequence[torch.Tensor]:
        """Returns the reference's outputs for the case's inputs in another order (`_reordered`).

        The outputs are in the host's memory if the device is short of memory.
        """
        return self._answer(self.at(case), self._reordered(case))

    def order_matters(self, case: Case) -> bool:
        """Returns whether the reference's float64 outputs depend on the order of the case's inputs (`_reordered`).

        Returns False if the reference cannot run in float64.
        """
        reordered = self.expect(self.at(case), self._reordered(case), case.name, case.inputs_from)[1].oracle
        oracle = self.expectation(case)[1].oracle
        if oracle is None or reordered is None:
            return False
        return any((a - b).abs().max() > _REORDERED * a.abs().max() for a, b in zip(oracle, reordered, strict=True))

    def _reordered(self, case: Case) -> Packed:
        """Returns the case's inputs with the elements of each floating-point tensor rolled by a distance of its own."""
        self.make_room()
        packed = self._drawn(self.at(case), case.seed, case.inputs_from)  # their memory is freed one by one
        rng, rolled = random.Random(_derived_seed(case.seed, "another order")), list(packed.tensors)
        packed = replace(packed, tensors=())
        for i, tensor in enumerate(rolled):
            if tensor.is_floating_point() and tensor.numel() > 1:
                rolled[i] = tensor.reshape(-1).roll(rng.randrange(1, tensor.numel())).reshape(tensor.shape)
        return replace(packed, tensors=tuple(rolled))

    def _answer(self, problem: Problem, packed: Packed) -> Sequence[torch.Tensor]:
        outputs = self._answered(problem, packed)[1]
        return list(map(_on_host, outputs)) if self._is_short(problem) else outputs

    def expectation(self, case: Case) -> tuple[Any, Expectation]:
        """Returns the right answer of the case: the nesting of its outputs, and the Expectation of its tensors.

        Raises torch.OutOfMemoryError if the device has too little memory for the float32 reference.
        """
        packed = self.inputs(case)
        if case not in self._expectations:
            self.make_room()
            structure, expectation = self.expect(self.at(case), packed, case.name, case.inputs_from)
            # Inputs may be a hundred times as large as outputs, so a cached answer does not hold them.
            bare = replace(expectation, rounded=None, inputs=())
            held = (*bare.expected, *(bare.oracle or ()), *(bare.scale or ()))
            self._expectations.keep(case, (structure, bare), held)
        structure, bare = self._expectations[case]
        return structure, self._with_inputs(bare, self.at(case), packed)

    @phase("right answers")
    def expect(
        self, problem: Problem, packed: Packed, name: str, distribution: str, *, timed: bool = False
    ) -> tuple[Any, Expectation]:
        """Computes the right answer for given inputs: the nesting of its outputs, and the Expectation of its tensors.

        `packed` holds the inputs, which need not be those of a case; they may be those of a timed round. `name` is the
        text that stands for the case in messages. The answer is not cached. If `timed`, and a coarser number format is
        allowed, `verify` does not look for the rounding of the inputs that an error shows, because that takes longer
        than a call.
        Raises torch.OutOfMemoryError if the device has too little memory for the float32 reference.
        """
        structure, expected, packed = self._answered(problem, packed)
        self._note_sums(problem, expected)
        if self._is_short(problem):
            expected = [_on_host(each) for each in expected]
        # Only the limits of other distributions than the problem's own use the scale.
        oracle = self._oracle(problem, packed, expected, scaled=distribution != OWN)
        if oracle.outputs is not None and [o.shape for o in oracle.outputs] != [e.shape for e in expected]:
            oracle = _Oracle(None, missing="the reference's outputs have other shapes in float64")
        if self._is_short(problem):
            expected = [each.to(self.device) for each in expected]
            # Pieces of it are copied to the device again when outputs are compared with it.
            oracle = replace(oracle, outputs=oracle.outputs and tuple(map(_on_host, oracle.outputs)))

        dtype = next((t.dtype for t in expected if t.is_floating_point()), torch.float32)
        examined = self._allowed is not None or any(t.dtype in HALVES for t in expected)
        expectation = Expectation(
            case=name,
            distribution=distribution,
            expected=tuple(expected),
            oracle=oracle.outputs,
            scale=oracle.scale,
            tolerance=problem.tolerance(dtype),
            zero_mean=distribution in _ZERO_MEAN,
            allowed_precision=self._allowed,
            oracle_missing=oracle.missing,
            changed=packed.changed,
            terms=self._terms(problem, packed) if examined else 0,
            composite=examined and self._calls(problem, packed, operators.COMPOSITES),
            searches=not timed or self._allowed is None,
        )
        return structure, self._with_inputs(expectation, problem, packed)

    def _calls(self, problem: Problem, packed: Packed, names: re.Pattern[str]) -> bool:
        """Returns whether the reference calls an operator of torch with one of these names. Runs it once for each."""
        key = _key(problem), names
        if key not in self._called:
            with operators.Seen(names) as seen:
                self._run(problem, self._placed(packed, self.device))
            self._called[key] = bool(seen.any)
        return self._called[key]

    def _terms(self, problem: Problem, packed: Packed) -> int:
        """Returns an upper limit for the products of one sum of the reference; 0 if it multiplies no matrices.

        The limit is the largest size of an input, or the elements of a weight for one of its rows or columns.
        """
        if not self._calls(problem, packed, operators.PRODUCTS):
            return 0
        weights = [t for t in problem.state().values() if t.ndim > 1 and t.numel()]
        sizes = [size for t in packed.tensors for size in t.shape]
        return int(max([1, *sizes, *(t.numel() // min(t.shape[:2]) for t in weights)]))

    def _with_inputs(self, expectation: Expectation, problem: Problem, packed: Packed) -> Expectation:
        """Returns the Expectation with the two fields that need the inputs `packed`: `inputs` and `rounded`."""

        packed = replace(packed, changed=expectation.changed)

        def changed(change: Change) -> tuple[torch.Tensor, ...] | None:
            return self._oracle(problem, packed, expectation.expected, change=change).outputs

        return replace(expectation, rounded=changed, inputs=packed.tensors)

    def _oracle(
        self,
        problem: Problem,
        packed: Packed,
        expected: Sequence[torch.Tensor],
        *,
        scaled: bool = False,
        change: Change | None = None,
    ) -> _Oracle:
        """Returns the reference's outputs in float64, computed on the CPU if the device has too little memory.

        `expected` are the reference's outputs in float32. In both, the inputs `packed.changed` follow, as the reference
        leaves them. If `scaled` and there are none of these, the scale is computed too. With `change`, inputs
        and weights are changed first, for example rounded as units that multiply numbers of a shorter format do. If the
        outputs cannot be computed, the result holds the reason.
        The cached answers are freed before the attempt on the CPU. Without that attempt, a candidate that fills the
        device's memory could switch off the precision check.
        """
        try:
            return self._oracle_on(self.device, problem, packed, scaled, change, expected)
        except MemoryError:
            self._expectations.clear()
            self._float64.clear()
        gc.collect()  # cycles of objects may hold tensors of the failed attempt
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        try:
            return self._oracle_on("cpu", problem, packed, scaled, change)
        except MemoryError as error:
            return _Oracle(None, missing=f"there is too little memory for the reference in float64 ({error})")

    def _oracle_on(
        self,
        device: str,
        problem: Problem,
        packed: Packed,
        scaled: bool,
        change: Change | None,
        expected: Sequence[torch.Tensor] = (),
    ) -> _Oracle:
        """Returns the reference's outputs in float64, computed on `device`, or the reason why it cannot run in float64.

        If `expected`, the float32 outputs, is not empty, the outputs are computed in slices where `_slices` finds any.
        Raises MemoryError if the memory of `device` is too small.
        """
        with memory_errors():
            try:
                slices = self._slices(problem, packed, expected)
                outputs = self._in_float64(device, problem, packed, change, slices)
            except Exception as error:
                if _is_out_of_memory(error):
                    raise
                return _Oracle(None, missing=f"the reference cannot run in float64 ({_summary(error)})")
            scaled = scaled and problem.states_error_scale and not packed.changed
            scale = problem.error_scale(self._placed(packed, device, torch.float64)) if scaled else None
            return _Oracle(outputs, None if scale is None else tuple(tensors.flatten_output(scale)[1]))

    def _slices(self, problem: Problem, packed: Packed, expected: Sequence[torch.Tensor]) -> Sequence[slice]:
        """Returns slices of the batch whose outputs can be computed one by one; none if a call needs the whole batch.

        In float64 a call takes twice the memory, so large inputs and outputs may not fit into it. There are no slices
        if inputs and outputs take at most _SLICED_BYTES, or if the GPU has _WHOLE times their bytes free. The batch is
        the first dimension, which must be that of all inputs and outputs. A model may compute with the whole batch, as
        BatchNorm does. So the slices' float32 outputs must be `expected`, in every bit.
        """
        key, held = _key(problem), [*packed.tensors, *expected]
        slices = batch_slices.of(held, _SLICED_BYTES)
        if not expected or not slices or key in self._not_in_slices:
            return ()
        needed = _WHOLE * sum(tensor.nbytes for tensor in held)
        if self.device != "cpu" and device_memory.usable_bytes(self.device) >= needed:
            return ()

        def alike(model: Any) -> bool:
            def outputs(part: slice) -> Sequence[torch.Tensor]:
                return _run(problem, model, self._placed(packed, self.device, part=part), packed.changed)[1]

            return all(
                unchanged(output, whole[part])
                for part in slices
                for output, whole in zip(outputs(part), expected, strict=True)
            )

        try:
            if self._float32.call(key, lambda: problem.model(self.device), alike) and not self._float32.was_changed:
                return slices
        except Exception as error:
            if _is_out_of_memory(error):
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
                inputs = self._placed(packed, device, torch.float64, change, part)
                with context:
                    return _run(problem, model, inputs, packed.changed)[1]

            def call(model: Any) -> Sequence[torch.Tensor]:
                if not slices:
                    return outputs(model, None)
                return batch_slices.put_together(slices, partial(outputs, model), on_host=self._is_short(problem))

            kept = self._float64 if change is None else UnchangedModel()
            return tuple(kept.call((device, *_key(problem)), made, call))

        try:
            return run(float64.Float32ToFloat64())
        except Exception as error:
            if _is_out_of_memory(error):
                raise
            return run(nullcontext())

    def _answered(self, problem: Problem, packed: Packed) -> tuple[Any, Sequence[torch.Tensor], Packed]:
        """Returns the nesting of the float32 reference's outputs, its answer, and `packed` with its field `changed`.

        The answer is the outputs and then the inputs that the reference changes in place, as it leaves them.
        """
        inputs = self._placed(packed, self.device)
        after = _memory_of(inputs)
        structure, outputs = self._run(problem, inputs)
        changed = tuple(i for i, before in enumerate(packed.tensors) if not unchanged(before, after[i]))
        return structure, [*outputs, *(_alone(after[i]) for i in changed)], replace(packed, changed=changed)

    def _run(
        self, problem: Problem, inputs: Any, seen: Callable[[Any, Sequence[torch.Tensor]], None] | None = None
    ) -> tuple[Any, Sequence[torch.Tensor]]:
        """Returns the float32 reference's outputs for inputs on the device: their nesting, and the tensors.

        `seen` gets the model, and the outputs as it has returned them.
        """
        return self._float32.call(
            _key(problem), lambda: problem.model(self.device), lambda model: _run(problem, model, inputs, seen=seen)
        )

    def _placed(
        self,
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


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return host_memory(tensor).copy_(tensor) if tensor.is_cuda else tensor


def _key(problem: Problem) -> tuple[str, int | None]:
    """Returns a key that differs for different models of a reference: the sizes, and the seed of random parameters."""
    return shape_text(problem.shape), problem.parameter_seed


def _run(
    problem: Problem,
    model: Any,
    inputs: Any,
    changed: Sequence[int] = (),
    seen: Callable[[Any, Sequence[torch.Tensor]], None] | None = None,
) -> tuple[Any, Sequence[torch.Tensor]]:
    """Returns the nesting of a model's outputs, and its outputs and then the inputs `changed`, as the call leaves them.

    `changed` has indices of input tensors. `seen` gets the model, and the outputs as it has returned them.
    """
    after = _memory_of(inputs)
    structure, outputs = tensors.flatten_output(problem.forward(model, inputs))
    if seen is not None:
        seen(model, outputs)
    outputs += [after[i] for i in changed]
    return structure, [_alone(output.detach()) for output in outputs]  # an output may be a parameter


def _views_of(model: Any, outputs: Sequence[torch.Tensor]) -> set[int]:
    """Returns the indices of the outputs that share a storage with a parameter or a buffer of the model."""
    state = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    held = {each.untyped_storage().data_ptr() for each in state if each.layout is torch.strided and each.numel()}
    return {i for i, output in enumerate(outputs) if output.untyped_storage().data_ptr() in held}


def _memory_of(inputs: Any) -> list[torch.Tensor]:
    """Returns the tensors of the inputs as further objects, which keep their shapes if a model changes those."""
    return [tensor.detach() for tensor in tensors.flatten(inputs)[1]]


def _alone(output: torch.Tensor) -> torch.Tensor:
    """Returns a copy of an output whose storage is far larger than it is, and any other output itself.

    An output may be a small view of a large tensor. The mean that torch's smooth_l1_loss returns has the storage of all
    its terms (seen with torch 2.11).
    """
    if output.layout is not torch.strided:
        return output
    held = output.untyped_storage().nbytes()
    return output.clone() if held > max(_SPARE * output.nbytes, _SPARE_BYTES) else output


def _change_weights(model: Any, change: Change) -> None:
    """Applies `change` in place to the model's parameters and buffers with at least two dimensions.

    A tensor of one dimension is a bias, which is added and not multiplied. It stays as it is.
    """
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.ndim > 1:
                tensor.copy_(change(tensor))


@contextmanager
def memory_errors() -> Iterator[None]:
    """Returns a context that raises MemoryError in place of torch's out-of-memory errors, which have no common type."""
    try:
        yield
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold tensors
        raise MemoryError(_summary(error)) from None


def _is_out_of_memory(error: Exception) -> bool:
    # torch's CPU allocator raises a plain RuntimeError with this text.
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def _summary(error: Exception) -> str:
    """Returns the type of the error and at most 200 characters of the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
