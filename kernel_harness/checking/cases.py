"""The right answer of each case, with its inputs. Both are computed on first use, and kept."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch

from kernel_harness.checking import operators
from kernel_harness.checking.coarseness import HALVES
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.elementwise import all_finite, count, sample
from kernel_harness.checking.oracle import Float64, Oracle
from kernel_harness.checking.plan import Case, case_at, derived_seed, plan
from kernel_harness.checking.reference_model import is_out_of_memory, key_of, on_host, placed, summary
from kernel_harness.checking.reference_runs import Answered, ReferenceRuns
from kernel_harness.checking.unchanged_models import Kept
from kernel_harness.checking.verify import unchanged
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.phases import phase
from kernel_harness.core.precision import Change, Precision
from kernel_harness.device import device_memory
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.problem.distributions import NEGATIVE, OWN, POSITIVE, SMALL, SPARSE
from kernel_harness.problem.errors import ProblemError, place_of
from kernel_harness.problem.known import known
from kernel_harness.problem.lookalikes import LOOKALIKES, OUTLIERS, STRETCH
from kernel_harness.problem.problem import Problem

__all__ = ["Case", "Reference", "plan"]

# Distributions whose inputs have zero mean. Terms of an output then cancel, so its rounding error is relatively large.
_ZERO_MEAN = ("normal", "integers", "scaled", SMALL)
# The operators for which a distribution of numbers of one sign is tried.
_SEARCHES = {NEGATIVE: operators.MAXIMA, POSITIVE: operators.MINIMA}
# The share of a GPU's memory that the inputs of cases may take between their uses, and that their answers may take.
_KEPT_SHARE = 1 / 32
# The elements of an output that show whether a few inputs decide the whole answer.
_SAMPLE = 1 << 12


class Reference(ReferenceRuns):
    """Computes the right answers of one problem.

    The answer of a case is computed on first use and cached. `make_room` removes cached answers that take too much of a
    GPU's memory. Such an answer is computed again on its next use.
    """

    def __init__(self, problem: Problem, device: str, allowed: Precision | None) -> None:
        super().__init__(problem, device)
        self._allowed = allowed
        self._problems: dict[tuple[tuple[tuple[str, int], ...], int | None], Problem] = {}
        self._works: dict[tuple[tuple[tuple[str, int], ...], str], bool] = {}
        self._required: set[tuple[tuple[str, int], ...]] = set()
        self._deciders: dict[tuple[str, int | None], tuple[str, ...]] = {}
        self._inputs: Kept[Packed] = Kept()
        self._answers: Kept[Answered] = Kept()
        self._expectations: Kept[tuple[Any, Expectation]] = Kept()
        self._float64 = Float64(self, self._expectations.clear)

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
            self.tried(problem, derived_seed(case.seed, "a first trial"))
        except (torch.OutOfMemoryError, UserError):
            raise
        except Exception as error:
            where = f"{place_of(error, problem.path)} at {case.shape_name or 'its size'}"
            if is_out_of_memory(error):
                raise EnvironmentLacking(f"{where}: there is too little memory for the reference: {error}") from error
            raise ProblemError(f"{where}: the reference cannot run: {summary(error)}") from error
        self._required.add(case.shape)

    def works(self, case: Case) -> bool:
        """Returns whether the reference gives a finite answer at the shape and the distribution of the case.

        A shape that was drawn at random may be invalid for the problem, and so may a variation of its inputs. The
        function uses inputs of another seed than the case's. It also returns False if the reference raises an exception
        or an output has no elements, for a variation that changes no input, and for one that would show nothing here
        (`_decided_by_zeros`, `_decided_by_signs`, `_deciding`). What an earlier run has found at the timed shape holds
        (`known`). Raises torch.OutOfMemoryError if the device has too little memory, and EnvironmentLacking if the host
        has.
        """
        key = (case.shape, case.distribution)
        if key not in self._works:
            try:
                self._works[key] = self._has_worked(case)
            except (torch.OutOfMemoryError, EnvironmentLacking):  # a candidate may have filled the memory
                raise
            except Exception:  # not kept for other runs: it may be another reason than the inputs
                self._works[key] = False
        return self._works[key]

    def _has_worked(self, case: Case) -> bool:
        if dict(case.shape) != dict(self.problem.shape):
            return self._gives_finite_answer(case)
        self.require(case)  # what is known of this run's calls comes from such a trial
        where = self.device if self.device == "cpu" else torch.cuda.get_device_name(self.device)
        facts = {"distribution": case.distribution, "device": where}
        return known(self.problem, "works", lambda: self._gives_finite_answer(case), **facts)

    def _gives_finite_answer(self, case: Case) -> bool:
        problem, seed = self.at(case), derived_seed(case.seed, "a trial")
        if case.inputs_from == SPARSE and not self._decided_by_zeros(case, problem, seed):
            return False
        if case.inputs_from in _SEARCHES and not self._decided_by_signs(case, problem, seed):
            return False
        if case.inputs_from in (OUTLIERS, STRETCH) and case.inputs_from not in self._deciding(problem, seed):
            return False
        if case.inputs_from in LOOKALIKES or (case.inputs_from != OWN and not problem.states("STRESS")):
            own, varied = (self.drawn(problem, seed, each).tensors for each in (OWN, case.inputs_from))
            if all(map(unchanged, own, varied)):
                return False
            del own, varied  # the trial may need the memory
        return all(o.numel() > 0 and all_finite(o) for o in self.tried(problem, seed, case.inputs_from))

    def _decided_by_zeros(self, case: Case, problem: Problem, seed: int) -> bool:
        """Returns whether zeros may show a mistake: which numbers a long sum leaves out, or what zeros are taken for.

        The latter is tried for a model without parameters, whose operators get the zeros: at a drawn shape, which is
        small, and on the CPU.
        """
        if not problem.parameters and (case.drawn or self.device == "cpu"):
            return True
        if self._facts(problem).sums_up is None:
            self.tried(problem, seed)
        return bool(self._facts(problem).sums_up)

    def _decided_by_signs(self, case: Case, problem: Problem, seed: int) -> bool:
        """Returns whether inputs of one sign may show a mistake: at which number a search for an extremum starts.

        The outputs of a layer with weights have both signs whatever the inputs are.
        """
        if problem.states("STRESS"):  # the file's own distribution of this name
            return True
        searches = _SEARCHES[case.inputs_from]
        return not problem.parameters and self.calls(problem, self.drawn(problem, seed), searches)

    def _deciding(self, problem: Problem, seed: int) -> Collection[str]:
        """Returns those of OUTLIERS and STRETCH that change at least half of all outputs, as in a sum of all inputs.

        OUTLIERS is left out if the reference calls an operator whose usual formula overflows for large numbers, and if
        it cannot run with them.
        """
        key = key_of(problem)
        if key not in self._deciders:

            def sampled(distribution: str) -> torch.Tensor:
                return torch.cat([sample(o, _SAMPLE).double() for o in self.tried(problem, seed, distribution)])

            def decides(distribution: str) -> bool:
                return bool(2 * count(sampled(distribution) != usual) >= usual.numel())

            usual = sampled(OWN)
            try:
                found = (OUTLIERS, STRETCH) if decides(OUTLIERS) else ()
                overflows = bool(found) and self.calls(problem, self.drawn(problem, seed), operators.EXPONENTIALS)
                self._deciders[key] = found[1:] if overflows else found
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError):
                self._deciders[key] = (STRETCH,) if decides(STRETCH) else ()
        return self._deciders[key]

    def other_distributions(self) -> list[str]:
        """Returns the sorted names of the distributions, other than the problem's own, of the inputs of timed calls.

        SPARSE is left out, and so is a variation with which the reference does not work (`works`). Those that look
        like the problem's own come last.
        """
        # Zeros take less power and may take less time, so times for them tell little.
        stress = [d for d in sorted(self.problem.stress) if d != SPARSE]
        stated = stress if self.problem.states("STRESS") else []
        cases = [case_at(self.problem.shape, d, 0) for d in (*stress, *LOOKALIKES)]
        return [case.distribution for case in cases if case.distribution in stated or self.works(case)]

    def decides(self, expectation: Expectation) -> bool:
        """Returns whether a candidate may be judged by this answer.

        Returns False for a variation of the problem's inputs whose answer contains NaN or infinity, because such inputs
        may not be valid for the problem. Returns True for the problem's own inputs and for a distribution of STRESS.
        """
        stated = self.problem.states("STRESS") and expectation.distribution not in LOOKALIKES
        if expectation.distribution == OWN or stated:
            return True
        answers = [*expectation.expected, *(expectation.oracle or ())]
        return all(all_finite(each, self.device) for each in answers)  # some may be in the host's memory

    def inputs(self, case: Case) -> Packed:
        """Returns the inputs of the case, which are cached until `make_room` removes them. Worker processes get copies.

        The tensors are on the device. If the device is short of memory for this shape, they are in the host's memory.
        """
        if case not in self._inputs:
            self.make_room()
            packed = self.drawn(self.at(case), case.seed, case.inputs_from)
            self._inputs.keep(case, packed, packed.tensors)
        return self._inputs[case]

    def new_inputs(self, distribution: str = OWN) -> Packed:
        """Draws inputs at the problem's size that no process has seen before. They are not cached.

        They are on the device. If the first call of the reference has shown that the device is short of memory for this
        size, they are in the host's memory.
        """
        self.make_room()
        return self.drawn(self.problem, secrets.randbits(48), distribution)

    def make_room(self) -> None:
        """Frees memory of a GPU for another call. Does nothing on the CPU, because problems are small there.

        The oldest cached inputs are removed until the others take at most _KEPT_SHARE of the free memory, and so are
        the oldest cached answers. Cached models may take more (`most_model_bytes`). On their next use, inputs are
        drawn, answers computed and models built again.
        """
        if self.device == "cpu":
            return
        most_bytes = _KEPT_SHARE * device_memory.usable_bytes(self.device)
        for kept in (self._inputs, self._answers, self._expectations):
            kept.trim(most_bytes)
        for models in (self.float32, self._float64.kept):
            models.trim(self.most_model_bytes())

    def forget(self) -> None:
        """Frees the cached inputs, answers and models. They are drawn, computed and built again on their next use.

        Answers refer to this object, so without this method Python frees them only when it looks for cycles.
        """
        for kept in (self._inputs, self._answers, self._expectations, self.float32, self._float64.kept):
            kept.clear()
        for problem in (self.problem, *self._problems.values()):
            problem.drawn_models.leave_gpu()

    def call_bytes(self, case: Case) -> int:
        """Runs the reference in float32 on a GPU. Returns the largest use of the GPU's memory by this call, in bytes.

        Counts the model and a copy of the inputs.
        """
        problem, packed = self.at(case), self.inputs(case)
        self.float32.clear()
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        self.run(problem, placed(packed, self.device))
        return int(torch.cuda.max_memory_allocated(self.device) - before)

    @phase("right answers")
    def answer(self, case: Case) -> Answered:
        """Returns the float32 reference's answer in a case, which is cached. A later `expectation` makes use of it.

        Raises torch.OutOfMemoryError if the device has too little memory for the reference.
        """
        packed = self.inputs(case)
        if case in self._expectations:
            structure, known = self._expectations[case]
            return Answered(structure, known.expected, known.changed)
        if case not in self._answers:
            self.make_room()
            found = self._noted(self.at(case), packed)
            self._answers.keep(case, found, found.tensors)
        return self._answers[case]

    @phase("right answers")
    def answer_to(self, packed: Packed) -> Answered:
        """Returns the float32 reference's answer to inputs at the problem's size, which is not cached."""
        return self._noted(self.problem, packed)

    def _noted(self, problem: Problem, packed: Packed) -> Answered:
        found = self.answered(problem, packed)
        self.note_sums(problem, found.tensors)
        return found

    def expectation(self, case: Case) -> tuple[Any, Expectation]:
        """Returns the right answer of the case: the nesting of its outputs, and the Expectation of its tensors.

        Raises torch.OutOfMemoryError if the device has too little memory for the float32 reference.
        """
        packed = self.inputs(case)
        if case not in self._expectations:
            answered = self._answers.pop(case) if case in self._answers else None
            self.make_room()
            structure, expectation = self.expect(self.at(case), packed, case.name, case.inputs_from, answered=answered)
            # Inputs may be a hundred times as large as outputs, so a cached answer does not hold them.
            bare = replace(expectation, rounded=None, inputs=())
            held = (*bare.expected, *(bare.oracle or ()), *(bare.scale or ()))
            self._expectations.keep(case, (structure, bare), held)
        structure, bare = self._expectations[case]
        return structure, self._with_inputs(bare, self.at(case), packed)

    @phase("right answers")
    def expect(
        self, problem: Problem, packed: Packed, name: str, distribution: str, *, timed: bool = False,
        answered: Answered | None = None,
    ) -> tuple[Any, Expectation]:  # fmt: skip
        """Computes the right answer for given inputs: the nesting of its outputs, and the Expectation of its tensors.

        `packed` holds the inputs, which need not be those of a case; they may be those of a timed round. `name` is the
        text that stands for the case in messages. The answer is not cached. If `timed`, and a coarser number format is
        allowed, `verify` does not look for the rounding of the inputs that an error shows, because that takes longer
        than a call. `answered` is the reference's answer in float32; None if it is not known.
        Raises torch.OutOfMemoryError if the device has too little memory for the float32 reference.
        """
        structure, expected, changed = answered or self._noted(problem, packed)
        packed = replace(packed, changed=changed)
        if self.is_short(problem):
            expected = [on_host(each) for each in expected]
        # Only the limits of other distributions than the problem's own use the scale.
        oracle = self._float64.compute(problem, packed, expected, scaled=distribution != OWN)
        if oracle.outputs is not None and [o.shape for o in oracle.outputs] != [e.shape for e in expected]:
            oracle = Oracle(None, missing="the reference's outputs have other shapes in float64")
        if self.is_short(problem):
            expected = [each.to(self.device) for each in expected]
            # Pieces of it are copied to the device again when outputs are compared with it.
            oracle = replace(oracle, outputs=oracle.outputs and tuple(map(on_host, oracle.outputs)))

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
            terms=self.terms(problem, packed) if examined else 0,
            composite=examined and self.calls(problem, packed, operators.COMPOSITES),
            searches=not timed or self._allowed is None,
        )
        return structure, self._with_inputs(expectation, problem, packed)

    def _with_inputs(self, expectation: Expectation, problem: Problem, packed: Packed) -> Expectation:
        """Returns the Expectation with the two fields that need the inputs `packed`: `inputs` and `rounded`."""

        packed = replace(packed, changed=expectation.changed)

        def changed(change: Change) -> tuple[torch.Tensor, ...] | None:
            return self._float64.compute(problem, packed, expectation.expected, change=change).outputs

        return replace(expectation, rounded=changed, inputs=packed.tensors)
