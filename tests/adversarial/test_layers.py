"""For each layer of the defence, a cheat that passes with the layer off and fails with the layer on."""

from __future__ import annotations

import itertools
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from support.command import ROOT, stopped_by_the_machine
from support.models import Held
from support.product import PROBLEM, RIGHT

import kernel_harness
from kernel_harness import sandbox
from kernel_harness.checking import drawn_shapes, input_rounding, lower_bound
from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.lower_bound import LowerBound
from kernel_harness.core import process_tree
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.peaks import Peaks
from kernel_harness.device.policy import ON_GPU
from kernel_harness.ipc import input_memory
from kernel_harness.ipc.messages import Purpose
from kernel_harness.problem.candidate import Candidate
from kernel_harness.sandbox import Kind, best
from kernel_harness.timing import baselines, inputs, rounds
from kernel_harness.timing.cohort import SLOW_PAUSE_S, SLOW_PAUSES, Arm, Cohort
from kernel_harness.timing.one_round import OneRound
from kernel_harness.timing.statistics import Round
from kernel_harness.timing.stopping import Stop
from kernel_harness.trial.trial import Trial
from kernel_harness.workers import fork_server_process, process
from kernel_harness.workers.exchange import Exchange
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import Answer, WorkerClient

pytestmark = pytest.mark.slow

ROUNDS = 8
LONGEST_STOP_S = 3.0
A_WALL = pytest.mark.skipif(best() is Kind.NONE, reason="no wall on this machine")

Patch = pytest.MonkeyPatch


def fork_server_behind(kind: Kind | None) -> Iterator[ForkServer]:
    Emulated().prepare()
    with ForkServer(kind) as made:
        made.prepare("cpu", [PROBLEM.path, ROOT / "problems"])
        yield made


@pytest.fixture(scope="module")
def walled() -> Iterator[ForkServer]:
    """Behind the strongest wall of this machine."""
    yield from fork_server_behind(None)


@pytest.fixture(scope="module")
def open_fork_server() -> Iterator[ForkServer]:
    """Without a wall."""
    yield from fork_server_behind(Kind.NONE)


@dataclass
class Outcome:
    """A cheat's status, its shortest counted call, and how many of its processes were not stopped at the end."""

    status: Status
    reason: str
    shortest_ms: float = 0.0
    moving: int = 0

    @property
    def gained(self) -> bool:
        return self.status is Status.PASSED


def judged(fork_server: ForkServer, name: str, *, timed: bool = True) -> Outcome:
    """A cheat, checked and then timed beside the baseline."""
    path = ROOT / "tests" / "adversarial" / "cheats" / f"{name}.py"
    reference = Reference(PROBLEM, "cpu", None)
    trial = Trial(
        Candidate(name, path, path.read_text()),
        lambda: WorkerClient(fork_server, "cpu", Limits()),
        reference,
        plan(PROBLEM, 1),
    )
    baseline = WorkerClient(fork_server, "cpu", Limits())
    try:
        trial.build()
        trial.check(ready_for_timing=timed)
        if not timed or trial.fault is not None:
            return Outcome(trial.status, trial.fault.reason if trial.fault else "")
        baseline.load("problem.py", PROBLEM.text, "Model")
        baseline.make(PROBLEM)
        arms = [Arm(name, trial), Arm(baselines.BASELINE, Held(baseline), trusted=True)]
        cohort = Cohort(arms, Emulated())
        rounds.time_rounds(cohort, reference, Stop(60, 0.05, ROUNDS), lambda text: None)
        moving = moving_below(trial.running.worker.pid)
        fault = arms[0].fault
        if fault is not None:
            return Outcome(fault.status, fault.reason)
        assert cohort.measured().broken is None, cohort.measured().broken
        return Outcome(Status.PASSED, "", min(r.samples_ms[name] for r in cohort.rounds), moving)
    finally:
        trial.close()
        baseline.close()


def moving_below(pid: int) -> int:
    """How many processes are not stopped. A stop takes effect when a process is next scheduled, hence the wait."""
    until = time.monotonic() + LONGEST_STOP_S
    while True:
        moving = sum(p.status() != psutil.STATUS_STOPPED for p in process_tree.group(pid))
        if not moving or time.monotonic() > until:
            return moving
        time.sleep(0.01)


# ------------------------------------------------------------------------- layers of the judge itself


def same_inputs(patch: Patch) -> None:
    patch.setattr(secrets, "randbits", lambda bits: 1)
    patch.setattr(rounds, "distributions", lambda problem, rng: itertools.repeat("own"))
    nothing_overwritten(patch)  # what is kept would be lost


def no_audits(patch: Patch) -> None:
    patch.setattr(OneRound, "_audit", lambda *arguments: None)


def looked_at_late(patch: Patch) -> None:
    copied = Exchange.copy_outputs

    def late(self: Exchange, copy: Any) -> None:
        end = time.monotonic() + 10
        while not self._pieces[Purpose.OUTPUTS].bytes[512:516].any() and time.monotonic() < end:
            pass  # with the layer off, a late writer has all the time it needs
        copied(self, copy)

    patch.setattr(Exchange, "copy_outputs", late)


def inputs_not_compared(patch: Patch) -> None:
    patch.setattr(input_memory, "unequal", lambda before, after: torch.tensor(False))


def no_guards(patch: Patch) -> None:
    patch.setattr(input_memory, "damaged", lambda *arguments: [])


def one_shape(patch: Patch) -> None:
    everything = plan
    patch.setitem(globals(), "plan", lambda *arguments: [c for c in everything(*arguments) if c.timed_shape])


def own_inputs_only(patch: Patch) -> None:
    everything = plan
    patch.setitem(globals(), "plan", lambda *arguments: [c for c in everything(*arguments) if c.repeat])
    own_inputs_in_all_rounds(patch)


def errors_limited_in_size_only(patch: Patch) -> None:
    patch.setattr(input_rounding, "find", lambda *arguments: None)
    # With 3 random seeds of 1000, one of 1,536 elements that TF32 rounds exceeds the tolerance. With these none does.
    seeds = itertools.cycle(range(8))
    patch.setattr(secrets, "randbits", lambda bits: next(seeds))


def own_inputs_in_all_rounds(patch: Patch) -> None:
    errors_limited_in_size_only(patch)
    patch.setattr(rounds, "distributions", lambda problem, rng: itertools.repeat("own"))


def no_drawn_shapes(patch: Patch) -> None:
    patch.setattr(drawn_shapes, "COUNT", 0)


def nothing_overwritten(patch: Patch) -> None:
    patch.setattr(Reference, "kept_outputs", lambda self, problem: None)


OF_THE_JUDGE = [
    (same_inputs, "replay_by_shape"),
    (same_inputs, "replay_by_content"),
    (no_audits, "honest_for_five_calls"),
    (no_audits, "detects_timing"),
    (no_audits, "waits_for_the_audit_to_end"),
    (looked_at_late, "late_writer"),
    (inputs_not_compared, "edits_the_inputs"),
    (inputs_not_compared, "edits_inputs_when_timed"),
    (nothing_overwritten, "returns_its_kept_output"),
    (no_guards, "writes_beside_inputs"),
    (no_guards, "writes_beside_when_timed"),
    (one_shape, "hard_codes_the_shape"),
    (no_drawn_shapes, "right_at_listed_shapes"),
    (own_inputs_only, "tf32_inside"),
    (own_inputs_in_all_rounds, "tf32_on_positive_inputs"),
    (own_inputs_in_all_rounds, "tf32_after_the_checks"),
    (own_inputs_in_all_rounds, "no_signs_of_its_own"),
]


@pytest.mark.parametrize(("switch_off", "cheat"), OF_THE_JUDGE, ids=lambda value: getattr(value, "__name__", value))
def test_a_cheat_passes_only_with_its_layer_off(
    switch_off: Callable[[Patch], None], cheat: str, walled: ForkServer
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        switch_off(patch)
        without = judged(walled, cheat)
    with_it = judged(walled, cheat)

    assert without.gained, without.reason
    assert not with_it.gained


def test_reduced_precision_in_timed_calls_is_seen_in_rounds_on_other_inputs(
    walled: ForkServer, monkeypatch: Patch
) -> None:
    errors_limited_in_size_only(monkeypatch)
    monkeypatch.setitem(globals(), "ROUNDS", 2 * inputs.OTHERS_EVERY)

    assert judged(walled, "tf32_after_the_checks").status is Status.REDUCED_PRECISION


def test_a_forged_clock_counts_only_if_the_judge_believes_it(walled: ForkServer, monkeypatch: Patch) -> None:
    truth = judged(walled, "forged_device_time")

    def believing(self: OneRound, calls: dict[str, list[Answer]]) -> Round:
        samples = {n: made[0].clocked.device_ms or made[0].timed.bracket_ms for n, made in calls.items()}
        return Round(samples, tuple(calls))

    monkeypatch.setattr(OneRound, "_as_round", believing)
    forged = judged(walled, "forged_device_time")

    assert truth.shortest_ms >= 20
    assert forged.shortest_ms < 1e-2


def test_processes_that_a_call_left_behind_are_stopped_by_pause_alone(walled: ForkServer, monkeypatch: Patch) -> None:
    stopped = judged(walled, "burns_the_baseline")
    monkeypatch.setattr(process.WorkerProcess, "pause", lambda self: None)
    monkeypatch.setitem(globals(), "LONGEST_STOP_S", 0.0)  # nothing stops them, so there is nothing to wait for
    running = judged(walled, "burns_the_baseline")

    assert stopped.moving == 0
    assert running.moving > 0


@contextmanager
def cohort_of(fork_server: ForkServer, sources: dict[str, str]) -> Iterator[Cohort]:
    """The baseline and candidates that passed no check, ready to be timed."""
    clients: dict[str, WorkerClient] = {}
    try:
        for name, source in {BASELINE: PROBLEM.text, **sources}.items():
            clients[name] = WorkerClient(fork_server, "cpu", Limits())
            clients[name].load(f"{name}.py", source, "Model" if name == BASELINE else "ModelNew")
            clients[name].make(PROBLEM)
        yield Cohort(
            [Arm(name, Held(client), trusted=name == BASELINE) for name, client in clients.items()], Emulated()
        )
    finally:
        for client in clients.values():
            client.close()


def time_to_the_budget(cohort: Cohort, budget_s: float) -> None:
    """Makes rounds until the budget is spent: no ratio is ever known to the precision that is asked for."""
    rounds.time_rounds(cohort, Reference(PROBLEM, "cpu", None), Stop(budget_s, 1e-9), lambda text: None)


def test_a_vfork_child_takes_no_rounds_from_the_others(walled: ForkServer) -> None:
    cheat = (ROOT / "tests" / "adversarial" / "cheats" / "waits_in_vfork.py").read_text()
    with cohort_of(walled, {"waits_in_vfork": cheat, "honest": RIGHT}) as cohort:
        time_to_the_budget(cohort, 4)

    assert len(cohort.rounds) > ON_GPU.least_rounds
    assert [arm.fault for arm in cohort.arms] == [None] * 3


def test_a_candidate_with_slow_pauses_fails_and_takes_no_time_from_the_others(
    walled: ForkServer, monkeypatch: Patch
) -> None:
    with cohort_of(walled, {"slow": RIGHT, "honest": RIGHT}) as cohort:
        worker = cohort.arms[1].client.worker
        pause = worker.pause

        def slow_pause() -> None:
            if cohort.rounds:
                time.sleep(1.5 * SLOW_PAUSE_S)
            pause()

        monkeypatch.setattr(worker, "pause", slow_pause)
        time_to_the_budget(cohort, SLOW_PAUSES * SLOW_PAUSE_S)
    faults = {arm.name: arm.fault for arm in cohort.arms}

    assert faults["slow"] and "stopping the process" in faults["slow"].reason
    assert faults[BASELINE] is faults["honest"] is None
    # The first round began before its pauses were slow. The arm failed in the last one, which then does not count.
    assert sum("slow" in r.samples_ms for r in cohort.rounds) == SLOW_PAUSES
    assert len(cohort.rounds) > ON_GPU.least_rounds


def test_an_answer_sent_before_its_question_counts_only_if_numbers_are_not_compared(
    walled: ForkServer, monkeypatch: Patch
) -> None:
    on = judged(walled, "answers_ahead", timed=False)
    monkeypatch.setattr(process.secrets, "token_hex", lambda count: "")  # the number in the forged replies
    off = judged(walled, "answers_ahead", timed=False)

    assert "a reply to another request" not in off.reason
    assert "a reply to another request" in on.reason


def test_the_users_environment_is_visible_only_if_the_list_allows_it(monkeypatch: Patch) -> None:
    monkeypatch.setenv("KERNEL_HARNESS_TEST_SECRET", "a user's")
    outcomes = []
    for allowed in (fork_server_process._ALLOWED, (*fork_server_process._ALLOWED, "KERNEL_HARNESS_TEST_SECRET")):
        monkeypatch.setattr(fork_server_process, "_ALLOWED", allowed)
        for fork_server in fork_server_behind(None):
            outcomes.append(judged(fork_server, "reads_the_users_environment", timed=False).gained)

    assert outcomes == [False, True]


# ------------------------------------------------------------------------------------------- the wall

BEHIND_THE_WALL = (
    "reads_the_judge", "edits_the_harness", "poisons_the_cache", "compiler_plugin", "opens_a_connection",
    "reads_the_problem", "embeds_the_problem", "knocks_at_sockets", "leaves_keys", "leaves_locks",
    "watches_files", "asks_the_kernel_instead", "compiler_shows_the_problem", "assembles_the_problem",
)  # fmt: skip


@A_WALL
@pytest.mark.parametrize("cheat", BEHIND_THE_WALL)
def test_a_cheat_passes_only_without_a_wall(cheat: str, walled: ForkServer, open_fork_server: ForkServer) -> None:
    without = judged(open_fork_server, cheat, timed=False)
    # A process that may not read another's memory file may not ask the kernel for that memory either.
    if not without.gained and stopped_by_the_machine(cheat.replace("asks_the_kernel_instead", "reads_the_judge")):
        pytest.skip("this machine stops the cheat without a wall")
    assert without.gained
    assert not judged(walled, cheat, timed=False).gained


@A_WALL
def test_a_note_is_found_only_without_a_wall(walled: ForkServer, open_fork_server: ForkServer) -> None:
    found = []
    try:
        for fork_server in (walled, open_fork_server):
            judged(fork_server, "leaves_a_note", timed=False)
            found.append(judged(fork_server, "finds_a_note", timed=False).gained)
    finally:
        for folder in map(Path, ("/tmp", "/var/tmp", "/dev/shm")):
            (folder / f"note-of-{open_fork_server._folder.name}").unlink(missing_ok=True)

    assert found == [False, True]


def fork_server_that_starts_with(
    patch: Patch, variables: dict[str, str], kind: Kind | None = None
) -> Iterator[ForkServer]:
    """A fork server whose own process starts with these variables, to switch something off there."""
    honest = fork_server_process.environment
    patch.setattr(fork_server_process, "environment", lambda home: {**honest(home), **variables})
    yield from fork_server_behind(kind)


# ---------------------------------------------------------------------------------------- poisoned memory

# A GPU's memory holds zeros after a reset, and a kernel that forgets to clear its output relies on that.
ZEROS_INSTEAD_OF_NAN = r"""
#include <cstddef>
#include <cstring>
#include <dlfcn.h>

extern "C" void* memset(void* address, int value, std::size_t bytes) {
  Dl_info caller;
  if ((value & 0xFF) == 0xFF && dladdr(__builtin_return_address(0), &caller) &&
      std::strstr(caller.dli_fname, "libemulator"))
    value = 0;
  auto* byte = static_cast<volatile char*>(address);
  while (bytes--) *byte++ = static_cast<char>(value);
  return address;
}
"""
ADDS_TO_UNINITIALISED_MEMORY = RIGHT.replace("return", "return torch.empty(A.shape[1], B.shape[0], device=A.device) +")


@pytest.mark.parametrize(("poison", "status"), [(True, Status.WRONG_VALUES), (False, Status.PASSED)], ids=["on", "off"])
def test_a_kernel_that_relies_on_zeros_passes_only_if_memory_is_not_poisoned(
    poison: bool, status: Status, monkeypatch: Patch, tmp_path: Path
) -> None:
    variables = {}
    if not poison:
        (tmp_path / "zeros.cpp").write_text(ZEROS_INSTEAD_OF_NAN)
        library = tmp_path / "zeros.so"
        subprocess.run(
            ["c++", "-O1", "-fno-builtin", "-shared", "-fPIC", tmp_path / "zeros.cpp", "-o", library, "-ldl"],
            check=True,
        )
        variables["LD_PRELOAD"] = str(library)
    for fork_server in fork_server_that_starts_with(monkeypatch, variables):
        assert checked(fork_server, ADDS_TO_UNINITIALISED_MEMORY, Limits()).status is status


def checked(fork_server: ForkServer, source: str, limits: Limits) -> Outcome:
    """A candidate that is not among the cheats, checked on every case. `moving` counts all its processes."""
    trial = Trial(
        Candidate("candidate", Path("candidate.py"), source),
        lambda: WorkerClient(fork_server, "cpu", limits),
        Reference(PROBLEM, "cpu", None),
        plan(PROBLEM, 1),
    )
    try:
        trial.build()
        trial.check(ready_for_timing=False)
        processes = process_tree.group(trial.running.worker.pid) if trial.client else []
        return Outcome(trial.status, trial.fault.reason if trial.fault else "", moving=len(processes))
    finally:
        trial.close()


# ------------------------------------------------------------------------------------------ the limits

STARTS_FORTY = """
import os
import time
import torch

for _ in range(40):
    if os.fork() == 0:
        time.sleep(1000)

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        time.sleep(0.1)  # long enough for the judge to count the tasks
        return torch.matmul(A.T, B.T)
"""
KEEPS_EIGHT_MEGABYTES = f"""
from pathlib import Path

Path("kept").write_bytes(bytes(8 << 20))
{RIGHT}"""


def test_more_tasks_than_allowed_run_only_if_they_are_not_counted(walled: ForkServer, monkeypatch: Patch) -> None:
    few = Limits(tasks=30)
    counted = checked(walled, STARTS_FORTY, few)
    monkeypatch.setattr(process.WorkerProcess, "_check_limits", lambda self: None)
    not_counted = checked(walled, STARTS_FORTY, few)

    assert counted.status is Status.CRASHED
    assert "at most 30 are allowed" in counted.reason
    assert not_counted.gained
    assert not_counted.moving > 40


@A_WALL
def test_files_beyond_the_limit_are_kept_only_without_the_limit(monkeypatch: Patch, tmp_path: Path) -> None:
    found = []
    for limit in (4 << 20, 1 << 30):
        monkeypatch.setattr(sandbox, "DISK_BYTES", limit)
        # Every Python with this folder on its path imports this file first.
        (tmp_path / "sitecustomize.py").write_text(
            f"from kernel_harness import sandbox\nsandbox.DISK_BYTES = {limit}\n"
        )
        variables = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
        for fork_server in fork_server_that_starts_with(monkeypatch, variables):
            found.append(checked(fork_server, KEEPS_EIGHT_MEGABYTES, Limits()))

    assert found[0].status is Status.LOAD_ERROR
    assert "No space left" in found[0].reason or "File too large" in found[0].reason
    assert found[1].gained


# ------------------------------------------------------------------------------------------- the floor


@pytest.mark.parametrize(
    ("peaks", "status"), [(None, Status.PASSED), (Peaks(1.0, {}, 1e30), Status.CHEATED)], ids=["off", "on"]
)
def test_a_time_below_the_possible_minimum_is_ranked_only_without_a_floor(
    peaks: Peaks | None, status: Status, monkeypatch: Patch
) -> None:
    """On a device of one byte per second no call can take milliseconds."""
    monkeypatch.setattr(Emulated, "peaks", lambda self: peaks)
    result = kernel_harness.evaluate(
        "matmul_tt",
        (ROOT / "tests" / "adversarial" / "cheats" / "control_right.py").read_text(),
        device="cpu",
        budget_s=0.1,
    )

    assert result.status is status, result.reason
    assert (result.timing is None) == (status is Status.CHEATED)


FOREIGN = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(64, 64)]
"""


@pytest.mark.parametrize(
    ("bound", "status"), [(LowerBound(), Status.PASSED), (None, Status.CHEATED)], ids=["off", "on"]
)
def test_a_problem_that_states_no_minimum_has_one_only_if_it_is_derived(
    bound: LowerBound | None, status: Status, monkeypatch: Patch, tmp_path: Path
) -> None:
    """As above, for a problem file without `min_bytes`."""
    monkeypatch.setattr(Emulated, "peaks", lambda self: Peaks(1.0, {}, 1e30))
    if bound is not None:
        monkeypatch.setattr(lower_bound, "derive", lambda *arguments: bound)
    (tmp_path / "foreign.py").write_text(FOREIGN)
    source = FOREIGN.replace("Model(", "ModelNew(")
    result = kernel_harness.evaluate(str(tmp_path / "foreign.py"), source, device="cpu", budget_s=0.1)

    assert result.status is status, result.reason
