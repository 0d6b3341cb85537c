"""For every layer of the defence a cheat that gains where the layer is off, and gains nothing where it is on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import ROOT, stopped_by_the_machine

import kernel_harness
from kernel_harness import builtin, examine, inputs, process, race, spawn, tensors, tree, wall
from kernel_harness import problem as problems
from kernel_harness.cases import Reference, plan
from kernel_harness.channel import SharedBuffer
from kernel_harness.cohort import Arm, Cohort
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.peaks import Peaks
from kernel_harness.examine import Answer, Finding, Subject
from kernel_harness.process import Limits
from kernel_harness.race import Stop
from kernel_harness.spawn import Template
from kernel_harness.status import Status
from kernel_harness.timing import Round
from kernel_harness.wall import Kind, best

PROBLEM = problems.load("product", ROOT / "tests" / "candidates" / "problem" / "product.py")
ROUNDS = 8
A_WALL = pytest.mark.skipif(best() is Kind.NONE, reason="no wall on this machine")

Patch = pytest.MonkeyPatch


def template_of(kind: Kind | None) -> Iterator[Template]:
    Emulated().prepare()
    with Template(kind) as made:
        made.prepare("cpu", [PROBLEM.path, ROOT / "problems"])
        yield made


@pytest.fixture(scope="module")
def walled() -> Iterator[Template]:
    """The best wall that this machine has."""
    yield from template_of(None)


@pytest.fixture(scope="module")
def open_template() -> Iterator[Template]:
    """No wall at all."""
    yield from template_of(Kind.NONE)


@dataclass
class Outcome:
    """What became of a cheat: its status, the shortest call that was counted, and its processes at the end."""

    status: Status
    reason: str
    shortest_ms: float = 0.0
    moving: int = 0

    @property
    def gained(self) -> bool:
        return self.status is Status.PASSED


def judged(template: Template, name: str, *, timed: bool = True) -> Outcome:
    """A cheat, checked and then timed beside the baseline."""
    path = ROOT / "tests" / "cheats" / f"{name}.py"
    reference = Reference(PROBLEM, "cpu", None)
    subject, finding = Subject(template, "cpu", Limits()), Finding()
    baseline = Subject(template, "cpu", Limits())
    try:
        subject.load(str(path), path.read_text(), "ModelNew")
        examine.examine(subject, finding, reference, plan(PROBLEM, 1), lambda text: None)
        if not timed or finding.status is not Status.PASSED:
            return Outcome(finding.status, finding.reason)
        subject.make(PROBLEM)
        baseline.load("problem.py", PROBLEM.text, "Model")
        baseline.make(PROBLEM)
        arms = [Arm(name, subject), Arm(builtin.BASELINE, baseline, trusted=True)]
        cohort = Cohort(arms, Emulated())
        race.race(cohort, reference, Stop(60, 0.05, ROUNDS), lambda text: None, start=None)
        moving = moving_below(subject.worker.pid)
        fault = arms[0].fault
        if fault is not None:
            return Outcome(fault.status, fault.reason)
        assert cohort.broken is None, cohort.broken
        return Outcome(Status.PASSED, "", min(r.samples_ms[name] for r in cohort.rounds), moving)
    except examine.Fault as fault:
        return Outcome(fault.status, fault.reason)
    finally:
        subject.close()
        baseline.close()


def moving_below(pid: int) -> int:
    """Processes that are not stopped, once each has had its turn: a stop is felt when a process runs next."""
    until = time.monotonic() + 3
    while True:
        moving = sum(p.status() != psutil.STATUS_STOPPED for p in tree.group(pid))
        if not moving or time.monotonic() > until:
            return moving
        time.sleep(0.01)


# ------------------------------------------------------------------------- layers of the judge itself


def same_inputs(patch: Patch) -> None:
    patch.setattr(inputs.secrets, "randbits", lambda bits: 1)


def no_audits(patch: Patch) -> None:
    patch.setattr(race, "_audit", lambda *arguments: None)


def looked_at_late(patch: Patch) -> None:
    read = Subject._leaves

    def late(self: Subject, reply: Any) -> Any:
        end = time.monotonic() + 10
        while not any(self._output.memory[512:516]) and time.monotonic() < end:
            pass  # the layer off: whoever wants to write has all the time
        return read(self, reply)

    patch.setattr(Subject, "_leaves", late)


def inputs_not_compared(patch: Patch) -> None:
    patch.setattr(examine, "unchanged", lambda before, after: True)


def no_canaries(patch: Patch) -> None:
    patch.setattr(tensors, "damaged", lambda *arguments: [])


def one_shape(patch: Patch) -> None:
    everything = plan
    patch.setitem(globals(), "plan", lambda *arguments: [c for c in everything(*arguments) if c.timed_shape])


def own_inputs_only(patch: Patch) -> None:
    everything = plan
    patch.setitem(globals(), "plan", lambda *arguments: [c for c in everything(*arguments) if c.repeat])
    no_audits(patch)  # of so many elements one may be over its tolerance by chance


def unsealed(patch: Patch) -> None:
    patch.setattr(SharedBuffer, "read_only", lambda self: process.os.dup(self.descriptor))


OF_THE_JUDGE = [
    (same_inputs, "replay_by_shape"),
    (same_inputs, "replay_by_content"),
    (no_audits, "honest_for_five_calls"),
    (no_audits, "detects_timing"),
    (no_audits, "waits_for_the_audit_to_end"),
    (looked_at_late, "late_writer"),
    (inputs_not_compared, "edits_the_inputs"),
    (no_canaries, "writes_beside_inputs"),
    (one_shape, "hard_codes_the_shape"),
    (own_inputs_only, "tf32_inside"),
    (unsealed, "spoils_the_inputs_of_others"),
]


@pytest.mark.parametrize(("switch_off", "cheat"), OF_THE_JUDGE, ids=lambda value: getattr(value, "__name__", value))
def test_a_cheat_gains_where_its_layer_is_off_and_only_there(
    switch_off: Callable[[Patch], None], cheat: str, walled: Template
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        switch_off(patch)
        without = judged(walled, cheat)
    with_it = judged(walled, cheat)

    assert without.gained, without.reason
    assert not with_it.gained


def test_a_forged_clock_counts_only_where_the_judge_believes_it(walled: Template, monkeypatch: Patch) -> None:
    truth = judged(walled, "forged_device_time")

    def believing(answers: dict[str, Answer], cohort: Cohort) -> Round:
        return Round({n: a.clocked.device_ms or a.bracket_ms for n, a in answers.items()}, tuple(answers))

    monkeypatch.setattr(race, "_as_round", believing)
    forged = judged(walled, "forged_device_time")

    assert truth.shortest_ms >= 20
    assert forged.shortest_ms < 1e-2


def test_what_a_worker_left_behind_stands_still_unless_nobody_stops_it(walled: Template, monkeypatch: Patch) -> None:
    stopped = judged(walled, "burns_the_baseline")
    monkeypatch.setattr(process.Worker, "pause", lambda self: None)
    running = judged(walled, "burns_the_baseline")

    assert stopped.moving == 0
    assert running.moving > 0


def test_an_answer_sent_before_its_question_counts_only_where_numbers_are_not_compared(
    walled: Template, monkeypatch: Patch
) -> None:
    on = judged(walled, "answers_ahead", timed=False)
    monkeypatch.setattr(process.secrets, "token_hex", lambda count: None)  # a number that any answer has
    off = judged(walled, "answers_ahead", timed=False)

    assert "not what was asked" not in off.reason
    assert "what was not asked" in on.reason


def test_the_users_environment_is_seen_only_where_the_list_allows_it(monkeypatch: Patch) -> None:
    monkeypatch.setenv("KERNEL_HARNESS_TEST_SECRET", "a user's")
    outcomes = []
    for allowed in (spawn._ALLOWED, (*spawn._ALLOWED, "KERNEL_HARNESS_TEST_SECRET")):
        monkeypatch.setattr(spawn, "_ALLOWED", allowed)
        for template in template_of(None):
            outcomes.append(judged(template, "reads_the_users_environment", timed=False).gained)

    assert outcomes == [False, True]


# ------------------------------------------------------------------------------------------- the wall

BEHIND_THE_WALL = (
    "reads_the_judge", "edits_the_harness", "poisons_the_cache", "compiler_plugin", "opens_a_connection",
    "reads_the_problem", "knocks_at_sockets", "leaves_keys", "leaves_locks",
    "asks_the_kernel_instead",
)  # fmt: skip


@A_WALL
@pytest.mark.parametrize("cheat", BEHIND_THE_WALL)
def test_a_cheat_gains_where_there_is_no_wall_and_only_there(
    cheat: str, walled: Template, open_template: Template
) -> None:
    without = judged(open_template, cheat, timed=False)
    # A process that may not read another's memory file may not ask the kernel for that memory either.
    if not without.gained and stopped_by_the_machine(cheat.replace("asks_the_kernel_instead", "reads_the_judge")):
        pytest.skip("this machine stops it by itself")
    assert without.gained
    assert not judged(walled, cheat, timed=False).gained


@A_WALL
def test_a_note_is_found_only_where_there_is_no_wall(walled: Template, open_template: Template) -> None:
    found = []
    try:
        for template in (walled, open_template):
            judged(template, "leaves_a_note", timed=False)
            found.append(judged(template, "finds_a_note", timed=False).gained)
    finally:
        for folder in map(Path, ("/tmp", "/var/tmp", "/dev/shm")):
            (folder / f"note-of-{open_template._folder.name}").unlink(missing_ok=True)

    assert found == [False, True]


def template_that_starts_with(patch: Patch, variables: dict[str, str], kind: Kind | None = None) -> Iterator[Template]:
    """What is switched off there must be so from the template's start on: it is a process of its own."""
    honest = spawn.environment
    patch.setattr(spawn, "environment", lambda home: {**honest(home), **variables})
    yield from template_of(kind)


# ---------------------------------------------------------------------------------------- poisoned memory

# What a GPU's memory holds after a reset, and what a kernel that forgets to clear its output counts on.
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
ADDS_TO_WHAT_IS_THERE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.empty(A.shape[1], B.shape[0], device=A.device).add_(torch.matmul(A.T, B.T))
"""


@pytest.mark.parametrize(("poison", "status"), [(True, Status.WRONG_VALUES), (False, Status.PASSED)], ids=["on", "off"])
def test_a_kernel_that_counts_on_zeros_passes_only_where_memory_is_not_poisoned(
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
    for template in template_that_starts_with(monkeypatch, variables):
        assert checked(template, ADDS_TO_WHAT_IS_THERE, Limits()).status is status


def checked(template: Template, source: str, limits: Limits) -> Outcome:
    """A candidate that is not among the cheats, asked every case."""
    subject, finding = Subject(template, "cpu", limits), Finding()
    try:
        subject.load("candidate.py", source, "ModelNew")
        examine.examine(subject, finding, Reference(PROBLEM, "cpu", None), plan(PROBLEM, 1), lambda text: None)
        return Outcome(finding.status, finding.reason, moving=len(tree.group(subject.worker.pid)))
    except examine.Fault as fault:
        return Outcome(fault.status, fault.reason)
    finally:
        subject.close()


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
        time.sleep(0.1)  # as long as it takes to be seen
        return torch.matmul(A.T, B.T)
"""
KEEPS_EIGHT_MEGABYTES = """
from pathlib import Path
import torch

Path("kept").write_bytes(bytes(8 << 20))

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
"""


def test_more_tasks_than_allowed_run_only_where_nobody_counts_them(walled: Template, monkeypatch: Patch) -> None:
    few = Limits(tasks=30)
    counted = checked(walled, STARTS_FORTY, few)
    monkeypatch.setattr(process.Worker, "_watch", lambda self: None)
    not_counted = checked(walled, STARTS_FORTY, few)

    assert counted.status is Status.CRASHED
    assert "at most 30 are allowed" in counted.reason
    assert not_counted.gained
    assert not_counted.moving > 40


@A_WALL
def test_more_is_kept_in_files_than_there_is_room_for_only_where_there_is_no_limit(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    found = []
    for limit in (4 << 20, 1 << 30):
        monkeypatch.setattr(wall, "DISK_BYTES", limit)
        # It is imported by every Python that has this folder on its path, before anything else.
        (tmp_path / "sitecustomize.py").write_text(f"from kernel_harness import wall\nwall.DISK_BYTES = {limit}\n")
        variables = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
        for template in template_that_starts_with(monkeypatch, variables):
            found.append(checked(template, KEEPS_EIGHT_MEGABYTES, Limits()))

    assert found[0].status is Status.LOAD_ERROR
    assert "No space left" in found[0].reason or "File too large" in found[0].reason
    assert found[1].gained


# ------------------------------------------------------------------------------------------- the floor


@pytest.mark.parametrize(
    ("peaks", "status"), [(None, Status.PASSED), (Peaks(1.0, {}, 1e30), Status.CHEATED)], ids=["off", "on"]
)
def test_a_time_below_what_the_problem_makes_possible_is_ranked_only_where_there_is_no_floor(
    peaks: Peaks | None, status: Status, monkeypatch: Patch
) -> None:
    """On a device of one byte per second no call of milliseconds can be true."""
    monkeypatch.setattr(Emulated, "peaks", lambda self: peaks)
    result = kernel_harness.evaluate(
        "matmul_tt", (ROOT / "tests" / "cheats" / "control_right.py").read_text(), device="cpu", budget_s=0.1
    )

    assert result.status is status, result.reason
    assert (result.timing is None) == (status is Status.CHEATED)
