"""What a worker can reach from behind each kind of wall: tried by real workers, looked at from outside."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import ROOT, stopped_by_the_machine

from kernel_harness import tree
from kernel_harness.device.cpu import Emulated
from kernel_harness.examine import Fault, Subject
from kernel_harness.process import Limits, WorkerCrashed
from kernel_harness.spawn import Template, TemplateGone
from kernel_harness.status import Status
from kernel_harness.wall import Kind, best, bubblewrap, landlock, namespaces

HERE = {
    Kind.NAMESPACES: namespaces.usable(),
    Kind.BUBBLEWRAP: bubblewrap.usable(),
    Kind.LANDLOCK: landlock.version() > 0,
}
WALLS = [
    pytest.param(kind, marks=pytest.mark.skipif(not usable, reason=f"no {kind} on this machine"))
    for kind, usable in HERE.items()
]
MODEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, A, B):\n        return A\n"


@pytest.fixture(scope="module", params=WALLS)
def walled(request: pytest.FixtureRequest) -> Iterator[Template]:
    Emulated().prepare()
    with Template(request.param) as template:
        template.prepare("cpu", [ROOT / "problems"])
        yield template


def said(template: Template, statements: str) -> dict[str, Any]:
    """What a candidate's file finds out when it is run: it puts it into `found`, and the judge reads it as an error."""
    lines = "\n    ".join(statements.strip().split("\n"))
    source = f"import json, os, pathlib, socket\nfound = {{}}\n\ndef run():\n    {lines}\n\nrun()\n"
    source += "raise ValueError('FOUND' + json.dumps(found))\n"
    subject = Subject(template, "cpu", Limits())
    try:
        subject.load("probe.py", source, "ModelNew")
    except Fault as fault:
        import json

        assert "FOUND" in fault.reason, fault.reason + fault.log
        result: dict[str, Any] = json.loads(fault.reason.partition("FOUND")[2])
        return result
    finally:
        subject.close()
    raise AssertionError("the candidate found nothing")


def written(template: Template, *paths: Path | str) -> list[str]:
    """Those of some files that a worker could write."""
    text = f"""
found["written"] = []
for path in {[str(p) for p in paths]!r}:
    try:
        pathlib.Path(path).write_text("")
        found["written"].append(path)
    except OSError:
        pass
"""
    result: list[str] = said(template, text)["written"]
    return result


# ------------------------------------------------------------------------------------------ the probe


def test_nothing_that_the_probe_tries_gets_through_a_wall(walled: Template) -> None:
    assert "not stopped" not in walled.isolation


def test_the_probe_finds_that_everything_gets_through_where_there_is_no_wall(tmp_path: Path) -> None:
    Emulated().prepare()
    with Template(Kind.NONE) as template:
        template.prepare("cpu", [tmp_path])

    for gap in ("read the judge's environment", "kill the judge", "kill the template", "write to the checkout",
                "write to the build cache", f"write to the {tmp_path.name}"):  # fmt: skip
        assert gap in template.isolation
    for gap, cheat in (("read the judge's memory", "reads_the_judge"), ("open a connection", "opens_a_connection")):
        assert gap in template.isolation or stopped_by_the_machine(cheat)


def test_the_probe_leaves_no_file_behind(tmp_path: Path) -> None:
    Emulated().prepare()
    with Template(Kind.NONE) as template:
        template.prepare("cpu", [tmp_path])

    assert not list(tmp_path.iterdir())
    assert not list(ROOT.glob(".probe-*"))


def test_a_wall_that_does_not_stand_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is none cannot be a worker's: no wall that needs one stands."""
    Emulated().prepare()
    with Template(Kind.NAMESPACES) as template:
        spawn, tried = template.spawn, []

        def failing(limits: Limits) -> Any:
            tried.append(template._kind)
            if template._kind is Kind.NAMESPACES:
                raise WorkerCrashed("it does not stand")
            return spawn(limits)

        monkeypatch.setattr(template, "spawn", failing)
        template.prepare("cpu")

    assert tried[0] is Kind.NAMESPACES
    assert template.isolation.split(";")[0] == (Kind.LANDLOCK if landlock.version() else Kind.NONE)


def test_without_bwrap_on_the_path_the_best_wall_needs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert shutil.which("bwrap") is None
    assert best() is not Kind.BUBBLEWRAP


# ------------------------------------------------------------------------------------------- files


def test_a_worker_writes_to_its_own_folder_only(walled: Template, tmp_path: Path) -> None:
    places = [tmp_path / "x", ROOT / "x", ROOT / "results" / "x", Path.home() / "x", Path("/var/tmp/x"), Path("/etc/x")]

    assert written(walled, "x", *places) == ["x"]
    assert not any(place.exists() for place in places)


def test_a_worker_starts_in_an_empty_folder_which_is_its_home_and_its_place_for_temporary_files(
    walled: Template,
) -> None:
    first, second = (
        said(walled, """
import tempfile
found["files"] = os.listdir()
found["same"] = os.environ["HOME"] == os.environ["TMPDIR"] == tempfile.gettempdir() == os.getcwd()
pathlib.Path("note").write_text("for the next")
""")
        for _ in range(2)
    )  # fmt: skip

    assert first == second == {"files": [], "same": True}


def test_a_workers_folder_is_gone_when_it_is(walled: Template) -> None:
    before = {p for p in walled._folder.iterdir()}
    with walled.spawn(Limits()) as worker:
        worker.ask({"do": "ping"}, timeout_s=30)

    assert {p for p in walled._folder.iterdir()} == before


def test_what_is_hidden_cannot_be_read_and_what_lies_beside_it_can(walled: Template) -> None:
    hidden, beside = str(ROOT / "problems" / "matmul_tt.py"), str(ROOT / "README.md")
    found = said(walled, f"""
found["read"] = []
for path in {[hidden, beside]!r}:
    try:
        found["read"] += [path] if pathlib.Path(path).read_text() else []
    except OSError:
        pass
""")  # fmt: skip

    assert found == {"read": [beside]}


def test_what_lies_beside_the_hidden_is_everything_else(tmp_path: Path) -> None:
    for name in ("a/hidden/x", "a/b", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    hidden = tmp_path / "a" / "hidden"
    found = set(landlock.beside([hidden]))

    assert {path for path in found if path.is_relative_to(tmp_path)} == {tmp_path / "a" / "b", tmp_path / "c"}
    assert Path("/proc") in found
    assert not found & {hidden, *hidden.parents}
    assert list(landlock.beside([])) == [Path("/")]


@pytest.mark.skipif(not HERE[Kind.NAMESPACES], reason="no namespaces on this machine")
def test_hidden_files_read_as_empty() -> None:
    Emulated().prepare()
    with Template(Kind.NAMESPACES) as template:
        template.prepare("cpu", [ROOT / "problems", ROOT / "README.md"])
        found = said(template, f"""
found["files"] = os.listdir({str(ROOT / "problems")!r})
found["text"] = pathlib.Path({str(ROOT / "README.md")!r}).read_text()
""")  # fmt: skip

    assert found == {"files": [], "text": ""}


@pytest.mark.skipif(not HERE[Kind.NAMESPACES], reason="no namespaces on this machine")
def test_a_workers_folder_holds_a_gigabyte_and_no_more() -> None:
    Emulated().prepare()
    with Template(Kind.NAMESPACES) as template:
        template.prepare("cpu")
        found = said(
            template, 'found["size"] = [os.statvfs(p).f_blocks * os.statvfs(p).f_bsize for p in (".", "/dev/shm")]'
        )

    assert found == {"size": [1 << 30, 1 << 30]}


@pytest.mark.skipif(not HERE[Kind.NAMESPACES], reason="no namespaces on this machine")
@pytest.mark.parametrize("folder", [".", "/dev/shm"])
def test_files_in_memory_count_as_memory(folder: str) -> None:
    Emulated().prepare()
    fills = f"""
import time
with open("{folder}/filler", "wb") as file:
    for _ in range(900):
        file.write(bytes(1 << 20))
time.sleep(100)
"""
    with Template(Kind.NAMESPACES) as template:
        template.prepare("cpu")
        subject = Subject(template, "cpu", Limits(memory_bytes=800 << 20))
        with pytest.raises(Fault, match="MiB of memory"):
            subject.load("fills.py", MODEL + fills, "ModelNew")
        subject.close()


# ------------------------------------------------------------------------------------------ processes


def test_a_worker_has_no_capabilities_and_gets_no_new_ones(walled: Template) -> None:
    found = said(
        walled,
        """
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
found.update(line.split(":\\t") for line in lines if line.startswith(("Cap", "NoNewPrivs", "Seccomp:")))
""",
    )

    assert {int(found[f"Cap{which}"], 16) for which in ("Prm", "Eff", "Inh", "Amb")} == {0}
    assert found["NoNewPrivs"] == "1"
    assert found["Seccomp"] == "2"


def test_a_worker_can_neither_signal_nor_read_another_worker_or_the_template(walled: Template) -> None:
    with walled.spawn(Limits()) as other:
        other.ask({"do": "ping"}, timeout_s=30)
        found = said(
            walled,
            f"""
for pid in {[other.pid, other._inner, walled._process.pid]}:
    try:
        os.kill(pid, 0)
        started = int(pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[19])
        # In a namespace of its own the number may be one of its own processes'.
        found[pid] = started in {[started(pid) for pid in (other.pid, walled._process.pid)]}
    except OSError:
        pass
    try:
        pathlib.Path(f"/proc/{{pid}}/environ").read_bytes()
    except OSError:
        pass
""",
        )
        assert other.ask({"do": "ping"}, timeout_s=30) == {"ok": {}}

    assert not any(found.values())


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_how_a_worker_ended_is_told_from_outside(walled: Template) -> None:
    source = MODEL + "import os\nos.abort()\n"
    subject = Subject(walled, "cpu", Limits())
    with pytest.raises(Fault) as caught:
        subject.load("aborts.py", source, "ModelNew")
    subject.close()

    assert caught.value.status is Status.CRASHED
    assert "SIGABRT" in caught.value.reason


LEAVES_A_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
"""


def test_nothing_that_a_worker_started_outlives_it(walled: Template) -> None:
    before = set(alive_below(walled))
    subject = Subject(walled, "cpu", Limits())
    subject.load("leaves.py", MODEL + LEAVES_A_DAEMON, "ModelNew")
    during = set(alive_below(walled))
    subject.close()

    assert len(during) >= len(before) + 2
    end = time.monotonic() + 10
    while not set(alive_below(walled)) <= before:
        assert time.monotonic() < end  # a process that was killed takes its time to end


# Each link burns until it is killed; its child, which has waited for that, is then nobody's but goes on.
GOES_ON_IN_ORPHANS = """
import os, time

def go_on():
    while True:
        me = os.getpid()
        if os.fork():
            while True:
                pass
        while os.getppid() == me:
            time.sleep(0.001)

if os.fork() == 0:
    if os.fork() == 0:
        go_on()
    os._exit(0)
os.wait()
"""


def test_orphans_are_counted_stopped_and_ended_with_the_worker(walled: Template) -> None:
    before = set(alive_below(walled))
    subject = Subject(walled, "cpu", Limits())
    subject.load("orphans.py", MODEL + GOES_ON_IN_ORPHANS, "ModelNew")
    orphans = set(alive_below(walled)) - before - {subject.worker.pid}
    counted = {process.pid for process in tree.group(subject.worker.pid)}
    subject.worker.pause()
    stopped = [psutil.Process(pid).status() for pid in orphans]
    subject.close()

    assert len(orphans) >= 2  # the worker behind its attendant, and who burns
    assert orphans <= counted
    assert set(stopped) == {psutil.STATUS_STOPPED}
    assert set(alive_below(walled)) <= before


# Each lives for a moment only, and has a fork under way for most of it.
FORKS_AND_ENDS = """
import os

if os.fork() == 0:
    while True:
        if os.fork():
            os._exit(0)
"""


def test_a_chain_of_forks_stands_still_whenever_it_is_stopped(walled: Template) -> None:
    subject = Subject(walled, "cpu", Limits())
    subject.load("chain.py", MODEL + FORKS_AND_ENDS, "ModelNew")
    changed = []
    with walled.spawn(Limits()) as other:
        for _ in range(10):
            subject.worker.pause()
            before = tree.pids(subject.worker.pid)
            other.ask({"do": "ping"}, timeout_s=30)
            changed.append(tree.pids(subject.worker.pid) != before)
            subject.worker.resume()
            subject.ping()
    subject.close()

    assert not any(changed)


def test_what_a_worker_leaves_when_it_ends_by_itself_ends_too(walled: Template) -> None:
    before = set(alive_below(walled))
    subject = Subject(walled, "cpu", Limits())
    with pytest.raises(Fault):
        subject.load("orphans.py", GOES_ON_IN_ORPHANS + "os._exit(0)", "ModelNew")
    subject.close()

    assert set(alive_below(walled)) <= before


def alive_below(template: Template) -> Iterator[int]:
    for process in psutil.Process(template._process.pid).children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid
        except psutil.NoSuchProcess:
            continue


def test_a_killed_template_is_a_clear_error() -> None:
    with Template() as template:
        os.kill(template._process.pid, signal.SIGKILL)
        with pytest.raises(TemplateGone, match="ended from outside"):
            template.prepare("cpu")


# ------------------------------------------------------------------------------------------- network


def test_a_worker_has_no_network(walled: Template) -> None:
    found = said(
        walled,
        """
found["opened"] = []
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_PACKET, socket.AF_VSOCK):
    try:
        socket.socket(family)
        found["opened"].append(int(family))
    except OSError:
        pass
ours, theirs = socket.socketpair()
ours.send(b"x")
found["pair"] = theirs.recv(1).decode()
""",
    )

    assert found == {"opened": [], "pair": "x"}


# ------------------------------------------------------------------------------------------- environment


def test_a_worker_sees_of_the_environment_what_the_list_allows(
    walled: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMEBODYS_TOKEN", "secret")

    assert "SOMEBODYS_TOKEN" not in said(walled, "found.update(os.environ)")
