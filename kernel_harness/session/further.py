"""Times candidates at the further shapes of a run, one shape after another, after the problem's own size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from kernel_harness.checking import lower_bound
from kernel_harness.checking.cases import Reference
from kernel_harness.checking.lower_bound import LowerBound
from kernel_harness.checking.plan import case_at
from kernel_harness.core.precision import Precision
from kernel_harness.device import Device
from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.problem import shape_text
from kernel_harness.results.record import Result
from kernel_harness.session.cohorts import Series, time_cohorts
from kernel_harness.session.run import RunContext
from kernel_harness.session.summary import at_further_shape, of_trial
from kernel_harness.session.trusted_arms import TrustedArms
from kernel_harness.trial.trial import State, Trial

_ENDED = "The kernel was not timed here: the run ended before."
_REFUSED = "The kernel refuses this shape."


@dataclass
class FurtherPlace:
    """A further shape of a session: the source of right answers there, and the least work of any correct kernel.

    `allowed` is the coarsest number format that the user allows.
    """

    reference: Reference
    device: Device
    allowed: Precision | None

    @cached_property
    def lower_bound(self) -> LowerBound | None:
        """The bytes that every correct kernel moves at this shape; None on a device whose speed is not known."""
        return lower_bound.derive(self.reference, self.allowed) if self.device.peaks() is not None else None

    def context(self, run: RunContext, place: str) -> RunContext:
        """Returns the context of `run` at this shape, whose name in texts is `place`."""
        problem = self.reference.problem
        case = case_at(problem.shape, OWN, run.settings.seed, timed_shape=True)
        return replace(
            run, problem=problem, reference=self.reference, cases=[case], lower_bound=self.lower_bound,
            problem_remarks=(), place=place,
        )  # fmt: skip


class FurtherTiming:
    """Holds the results of a run until their kernels have been timed at its further shapes, which it does.

    `places` are these shapes. `expected` is that of a `Series`.
    """

    def __init__(self, places: Sequence[FurtherPlace], expected: int) -> None:
        self._places = places
        self._series = [Series(expected, self._add) for _ in places]
        self._held: dict[str, Result] = {}

    def hold(self, result: Result) -> bool:
        """Holds a result at the problem's own size. Returns False without a time, or without further shapes."""
        if not self._places or result.timing is None:
            return False
        further = tuple(replace(each, untimed=_ENDED) for each in result.further)
        self._held[result.kernel] = replace(result, further=further)
        return True

    def time(self, run: RunContext, trials: Mapping[str, Trial]) -> None:
        """Times at each shape the candidates whose results are held, and one that is the baseline of the others.

        `trials` are those that were timed at the problem's own size. Each candidate and baseline has a new worker
        process for each shape. A candidate that fails at one shape is not timed at the next. Raises what `time_cohorts`
        raises.
        """
        if not self._held:
            return
        for number, (place, series) in enumerate(zip(self._places, self._series, strict=True), 2):
            there = place.context(run, f", shape {number} of {1 + len(self._places)}")
            chosen = {name: again for name, trial in trials.items() if (again := self._again(there, trial))}
            trusted = TrustedArms()
            try:
                time_cohorts(there, trusted, chosen, series)
            finally:
                trusted.close()
                for trial in chosen.values():
                    trial.close()
                place.reference.forget()

    def take(self) -> list[Result]:
        """Returns the results that were held, and holds them no longer."""
        held, self._held = [*self._held.values()], {}
        return held

    def _again(self, there: RunContext, trial: Trial) -> Trial | None:
        """Returns a new trial of a candidate at a further shape, or None if it is not to be timed there."""
        held = self._held.get(trial.name)
        if shape_text(there.problem.shape) in trial.refused:
            self._add(there.result(trial.name, trial.status, _REFUSED, trial.candidate.sha256))
            return None
        if trial.fault is not None or not (trial.name == there.settings.baseline or (held and held.passed)):
            return None
        again = there.trial(trial.candidate)
        again.launches = trial.launches
        again.entered = partial(self._entered, there)
        return again

    def _entered(self, there: RunContext, trial: Trial) -> None:
        if trial.state is State.DONE:
            self._add(of_trial(there, trial))

    def _add(self, there: Result) -> None:
        """Adds the result at a further shape to that at the problem's own size, if this is held."""
        held = self._held.get(there.kernel)
        if held is not None and held.passed:
            self._held[there.kernel] = at_further_shape(held, there)
