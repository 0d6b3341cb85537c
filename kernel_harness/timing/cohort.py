"""The arms of a cohort, and what has been measured of them so far."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.device import Device, Steady
from kernel_harness.timing.clock import BRIEF_MS, Patience
from kernel_harness.timing.measurements import ArmMeasurements, Measurements
from kernel_harness.timing.statistics import Round
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.gated_call import Timed
from kernel_harness.workers.model_process import ModelProcess
from kernel_harness.workers.worker_client import WorkerClient

# A candidate fails after SLOW_PAUSES slow pauses, because the other arms would have to wait each time. A pause is slow
# if it takes longer than SLOW_PAUSE_S and longer than the call before it: a worker that frees gigabytes of inputs after
# a long call cannot be stopped meanwhile. A usual pause takes some milliseconds; on two cores with a load of 16 the
# longest of 1,300 pauses of honest workers took 32 ms.
SLOW_PAUSE_S, SLOW_PAUSES = 0.5, 3


@dataclass
class Arm:
    """One of the models that are timed against each other. `model` owns the worker process that runs it.

    `trusted`: the arm is a baseline or the control, so its process runs no candidate's code. `settled`: the arm's
    speedup is known precisely enough, so it takes part in no further round. `patience` is how long the judge waits for
    a call to be enqueued. `slow_pauses_s` holds the seconds of each slow pause, and `late_builds` is the number of
    rounds in which the arm's calls built a new library. `bracket_ms` is the judge's bracket of the last timed call.
    `ArmMeasurements` explains the other fields.
    """

    name: str
    model: ModelProcess
    trusted: bool = False
    fault: Fault | None = None
    settled: bool = False
    patience: Patience = field(default_factory=Patience)
    unordered: bool = False
    processes: int = 1
    warm_ms: list[float] = field(default_factory=list)
    steady: Steady | str | None = None
    peak_bytes: int | None = None
    energy_j: list[float] = field(default_factory=list)
    slow_pauses_s: list[float] = field(default_factory=list)
    late_builds: int = 0
    bracket_ms: float = math.inf

    @property
    def client(self) -> WorkerClient:
        """Returns the client of the present worker process."""
        return self.model.running

    @property
    def begins_on_host(self) -> bool:
        """Returns whether the worker awaits the inputs on the host before a timed call."""
        return self.patience.waits or self.unordered

    @property
    def timed(self) -> Timed:
        """Returns how the arm's next timed call begins."""
        return Timed(self.patience.hold_s, self.begins_on_host, brief=self.bracket_ms < BRIEF_MS)

    @phase("pauses")
    def pause(self, asked_s: float) -> None:
        """Pauses the worker process after requests that took `asked_s` seconds.

        A pause is slow if it takes longer than `asked_s` and longer than SLOW_PAUSE_S. If SLOW_PAUSES pauses of a
        candidate have been slow, the candidate gets a fault.
        """
        start = time.monotonic()
        self.client.worker.pause()
        took_s = time.monotonic() - start
        if took_s > max(SLOW_PAUSE_S, asked_s):
            self.slow_pauses_s.append(took_s)
        if len(self.slow_pauses_s) >= SLOW_PAUSES and not self.trusted and self.fault is None:
            self.fault = Fault(
                Status.CRASHED,
                f"After each of {SLOW_PAUSES} calls, stopping the process and those that it started took longer than "
                f"the call itself and longer than {SLOW_PAUSE_S:g} s. No other candidate could be timed in this "
                "time. End all work before the call returns.",
            )


@dataclass
class Cohort:
    """Arms that are timed together, with their measurements so far.

    The measurements of a round are added when it ends, so an interruption of the run loses none. `calls_s` and
    `audits_s` are the seconds spent on calls and on audits so far. `Measurements` explains the other fields.
    """

    arms: list[Arm]
    device: Device
    warmup: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    as_called: list[Round] = field(default_factory=list)
    audits: int = 0
    calls_s: float = 0.0
    audits_s: float = 0.0

    @property
    def candidates(self) -> list[Arm]:
        """Returns the arms that hold candidates, including arms that have failed."""
        return [arm for arm in self.arms if not arm.trusted]

    def clock_s(self) -> float:
        """Returns the time in seconds of a clock that does not count the slow pauses of the arms (`Arm.pause`).

        The budget is measured with this clock, so a candidate whose process cannot be stopped quickly does not use up
        the time of the other arms.
        """
        return time.monotonic() - sum(sum(arm.slow_pauses_s) for arm in self.arms)

    def measured(self) -> Measurements:
        """Returns a copy of the measurements so far, as plain values."""
        arms = {
            arm.name: ArmMeasurements(
                arm.name, arm.trusted, arm.fault, arm.settled, arm.processes, arm.patience.waits, arm.unordered,
                tuple(arm.warm_ms), arm.steady, arm.peak_bytes, tuple(arm.energy_j),
            )
            for arm in self.arms
        }  # fmt: skip
        return Measurements(
            arms,
            tuple(self.warmup),
            tuple(self.rounds),
            tuple(self.states),
            tuple(self.as_called),
            self.audits,
            self.device.policy.resolution_ms,
        )


@contextmanager
def asking(arm: Arm) -> Iterator[None]:
    """Returns a context in which the arm's worker process may be sent requests. At its end the process is paused.

    If a Fault or Refused is raised in the context, the context stores it as the arm's fault and does not raise it
    again.
    """
    start = time.monotonic()
    try:
        yield
        arm.client.release_large()
    except Refused as refusal:
        arm.fault = Fault(Status.RUNTIME_ERROR, f"A timed call failed: {refusal}")
    except Fault as fault:
        arm.fault = Fault(
            fault.status, f"A timed call failed: {fault.reason}", fault.log, lacked_memory=fault.lacked_memory
        )
    finally:
        arm.pause(time.monotonic() - start)
