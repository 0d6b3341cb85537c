"""Who is timed together, and all that is learned of them. How they are timed is race's work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kernel_harness import clock
from kernel_harness.clock import Hold
from kernel_harness.device import Device, Steady
from kernel_harness.evidence import Evidence
from kernel_harness.examine import Fault, Refused, Subject
from kernel_harness.status import Status
from kernel_harness.timing import Round, reject_rounds, remaining_ms

BASELINE, SENTINEL = "torch", "(sentinel)"
COHORT = 8

Start = Callable[[str], Subject]
"""Another process of an arm, ready to be called. Raises Fault or Refused."""


@dataclass
class Arm:
    """One of the things timed against each other. A trusted one holds no candidate; not all are reported."""

    name: str
    subject: Subject
    trusted: bool = False
    reported: bool = True
    fault: Fault | None = None


@dataclass
class Cohort:
    """What was measured: it is kept up to date round by round, so that an interruption loses nothing.

    `states` are the device's, one after each round; `processes` is how many an arm has had, one after the other;
    `warm_ms`, `steady` and `peak_bytes` are information by arm, and so are `trials`: what culprit tried on those whom
    it suspected.
    """

    arms: list[Arm]
    device: Device
    warmup: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)
    processes: Counter[str] = field(default_factory=Counter)
    audits: int = 0
    calls_s: float = 0.0
    audits_s: float = 0.0
    warm_ms: dict[str, list[float]] = field(default_factory=dict)
    steady: dict[str, Steady | str] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    trials: dict[str, list[Evidence]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.processes.update(arm.name for arm in self.arms)

    def resolution_ms(self, arm: str, other: str) -> float:
        """What remains of the device's, over all processes that the two arms have had."""
        return remaining_ms(self.device.resolution_ms, self.processes[arm], self.processes[other])

    @property
    def broken(self) -> Fault | None:
        """Why nobody can be timed any more: who all are measured against, or the sentinel, failed."""
        return next(
            (arm.fault for arm in self.arms if arm.trusted and arm.name in (BASELINE, SENTINEL) and arm.fault), None
        )

    @property
    def accepted(self) -> tuple[Round, ...]:
        """All rounds, those marked rejected in which the sentinel stood out; times bounded by the judge's clock.

        Without torch or the sentinel a round bounds nobody, and does not count.
        """
        needed = {arm.name for arm in self.arms} & {BASELINE, SENTINEL}
        why = "torch or the sentinel failed"
        rounds = [r if needed <= r.samples_ms.keys() else replace(r, rejected=r.rejected or why) for r in self.rounds]
        candidates = [arm.name for arm in self.arms if not arm.trusted]
        return clock.bounded(reject_rounds(rounds, SENTINEL), candidates, BASELINE)


@contextmanager
def stopped_again(arm: Arm) -> Iterator[None]:
    """An arm's process may be asked, and is stopped afterwards; a fault of it becomes the arm's."""
    try:
        yield
    except Refused as refusal:
        arm.fault = Fault(Status.RUNTIME_ERROR, f"A timed call failed: {refusal}")
    except Fault as fault:
        arm.fault = Fault(fault.status, f"A timed call failed: {fault.reason}", fault.log)
    finally:
        arm.subject.worker.pause()


def cohorts(names: Sequence[str], size: int = COHORT) -> list[list[str]]:
    """Candidates in groups of at most `size`, as even as they can be."""
    count = -(-len(names) // size)
    return [list(names[i::count]) for i in range(count)]
