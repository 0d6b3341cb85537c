"""Times one cohort in rounds. Each round times its arms in a new random order on inputs that no arm has seen before.

In a round, an arm is called once, or several times on different inputs if its calls on a GPU are short. An arm takes
part in a round unless it has failed or its speedup is known precisely enough.

`time_rounds` schedules the rounds, and `OneRound` (timing.one_round) runs one. `WorkerClient.call` sends one call to a
worker process. In the worker process, `Worker` (worker.worker) handles the call, and the method `timed` of the device
measures it.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import BoundedSemaphore

from cuda_on_cpu.core.tell import Tell
from cuda_on_cpu.core.waiting import until_done
from kernel_harness.checking.cases import Reference
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.phases import phase
from kernel_harness.device import Steady
from kernel_harness.timing import stopping
from kernel_harness.timing.cohort import Arm, Cohort, asking
from kernel_harness.timing.inputs import distributions, draw
from kernel_harness.timing.measurements import ROUNDS_OF_A_PLACE
from kernel_harness.timing.one_round import LARGE_BYTES, OneRound
from kernel_harness.timing.stopping import Stop
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.worker_client import WorkerClient

# The times of calls with launch latency are only displayed. They scatter by some percent, and each costs two calls.
_AS_CALLED_ROUNDS = 8


@phase("rounds")
def time_rounds(cohort: Cohort, reference: Reference, stop: Stop, tell: Tell) -> None:
    """Runs rounds and adds their measurements to `cohort`, until `stop` says that no further round is needed.

    Warm-up rounds come first. An arm that fails keeps its fault and takes part in no further round. `tell` gets a text
    at each step. Raises torch.OutOfMemoryError if the device has too little memory for inputs or the right answer.
    The inputs, and the order of the arms in each round, are drawn from the operating system's random source, not from
    the seed of the run. That seed is written to disk before the run ends, so a candidate that could read it could
    predict the inputs.
    """
    rng = random.SystemRandom()
    _start_processes(cohort, reference)
    for arm in cohort.arms:
        arm.model.pause()
    drawn_from = distributions(reference.other_distributions(), rng)
    began = cohort.clock_s()
    policy = cohort.device.policy
    while not stopping.warmed_up(cohort.measured(), (cohort.clock_s() - began) / stop.budget_s, policy):
        tell(f"warming up, round {len(cohort.warmup) + 1}")
        cohort.warmup.append(OneRound(cohort, reference, rng).timed())
    began = cohort.clock_s()
    while not stopping.done(cohort.measured(), stop, cohort.clock_s() - began):
        settled = stopping.settled(cohort.measured(), stop)
        for arm in cohort.arms:
            arm.settled = arm.settled or arm.name in settled
        if stopping.processes_worn(cohort.measured(), stop):
            tell("starting new processes")
            _replace_processes(cohort, reference)
            cohort.warmup.append(OneRound(cohort, reference, rng).timed())
        tell(f"timing round {len(cohort.rounds) + 1}")
        warm = policy.warm_every is not None and len(cohort.rounds) % policy.warm_every == 0
        moved = policy.works_behind and len(cohort.rounds) % ROUNDS_OF_A_PLACE == 0
        one = OneRound(cohort, reference, rng, warm=warm, moved=moved, distribution=next(drawn_from))
        cohort.rounds.append(one.timed())
        cohort.states.append(cohort.device.state())
        shows_latency = warm and not one.is_large
        del one
        if shows_latency and len(cohort.as_called) < _AS_CALLED_ROUNDS:
            cohort.as_called.append(OneRound(cohort, reference, rng, as_called=True).timed())
    _replay_short_calls(cohort, reference)


@phase("new processes")
def _replace_processes(cohort: Cohort, reference: Reference) -> None:
    """Replaces the worker processes of "torch" and of the candidates without a fault, and calls each new process once.

    An arm gets a fault if its new process cannot be started or if the call fails.
    """
    arms = [arm for arm in cohort.arms if arm.fault is None and (not arm.trusted or arm.name == BASELINE)]
    with ThreadPoolExecutor(len(arms)) as pool:
        list(pool.map(lambda arm: arm.model.close(), arms))  # a process that used a GPU takes a while to end
    _start_processes(cohort, reference)
    for arm in arms:
        arm.processes += arm.fault is None


@phase("new processes")
def _start_processes(cohort: Cohort, reference: Reference) -> None:
    """Starts a worker process for each arm without one. Calls each process that has not been called since its `make`.

    On a GPU, such a call loads kernels, gets memory and may compile. In a timed call the device would not go on while
    it is held, and the call would have to wait until the end of the hold. An arm gets a fault if its process cannot be
    started or if the call fails.
    """
    calls = cohort.device.policy.works_behind
    arms = [
        arm
        for arm in cohort.arms
        if arm.fault is None and not (arm.model.is_alive and (arm.client.was_called or not calls))
    ]
    if not arms:
        return
    drawn = draw(reference) if calls else None
    # Large inputs of several arms would not fit into the device's memory.
    calling = BoundedSemaphore(1 if drawn and drawn.packed.size > LARGE_BYTES else len(arms))

    def called(client: WorkerClient) -> None:
        if drawn is not None:
            with calling:
                # Models that compile in their first call do so at the same time here, so the time limit is longer.
                client.call(drawn.packed, patience=len(arms))
                client.release_large()

    def started(arm: Arm) -> None:
        if arm.model.is_alive:
            called(arm.client)
        else:
            arm.model.restart(called)

    arms.sort(key=lambda arm: arm.name != BASELINE)
    pool = ThreadPoolExecutor(len(arms))
    try:
        # The baseline "torch" starts first, before candidates can take the device memory that it needs.
        for side_by_side in (arms[:1], arms[1:]):
            for arm, start in [(arm, pool.submit(started, arm)) for arm in side_by_side]:
                with asking(arm):
                    until_done([start])
                    start.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interruption does not wait for processes that are starting


def _replay_short_calls(cohort: Cohort, reference: Reference) -> None:
    """Replays the calls of arms with short median times as CUDA graphs. Stores the results in `Arm.steady`.

    The times are only displayed, so a call that cannot be replayed is not a fault of the arm.
    """

    def typical_ms(arm: Arm) -> float:
        return median([r.samples_ms[arm.name] for r in cohort.rounds if arm.name in r.samples_ms] or [1.0])

    short = [
        arm for arm in cohort.arms if arm.fault is None and typical_ms(arm) < cohort.device.policy.replayed_below_ms
    ]
    if not short:
        return
    drawn = draw(reference)
    for arm in short:
        with asking(arm):
            arm.client.call(drawn.packed, keep=True)
            arm.steady = _replayed(arm.client)


def _replayed(client: WorkerClient) -> Steady | str:
    try:
        return client.steady() or "the worker reported no times"
    except (Fault, Refused) as reason:
        return f"the call cannot be captured as a graph: {reason}"
