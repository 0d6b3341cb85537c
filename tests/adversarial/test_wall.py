"""What a worker can reach from behind each kind of wall, tried by real workers and checked from outside."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.command import ROOT, stopped_by_the_machine
from support.second_gpu import OTHER_GPU, SecondGpu

from cuda_on_cpu.compile import cache
from kernel_harness.core import process_tree
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.ipc.messages import Done, Ping
from kernel_harness.ipc.process_messages import PrepareDevice, SetWall
from kernel_harness.sandbox import Kind, best, bubblewrap, landlock, namespaces, privileges, system
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.fork_server import ForkServer, ForkServerGone
from kernel_harness.workers.process import Limits, WorkerCrashed, WorkerMisbehaved, WorkerProcess
from kernel_harness.workers.worker_client import WorkerClient

HERE = {
    Kind.NAMESPACES: namespaces.usable(),
    Kind.BUBBLEWRAP: bubblewrap.usable(),
    Kind.LANDLOCK: landlock.version() > 0,
}
# The fast tests try the wall that a run on this machine has.
WALLS = [
    pytest.param(
        kind,
        marks=[
            pytest.mark.skipif(not usable, reason=f"no {kind} on this machine"),
            *([] if kind is best() else [pytest.mark.slow]),
        ],
    )
    for kind, usable in HERE.items()
]
MODEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, A, B):\n        return A\n"


@pytest.fixture(scope="module", params=WALLS)
def walled(request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    Emulated().prepare()
    with ForkServer(request.param) as fork_server:
        fork_server.prepare("cpu", [ROOT / "problems"])
        yield fork_server


@pytest.fixture(scope="module")
def started_server() -> Iterator[ForkServer]:
    """A fork server for tests that choose the wall and the hidden paths of the next workers with `behind`."""
    Emulated().prepare()
    with ForkServer(Kind.NONE) as fork_server:
        yield fork_server


def behind(kind: Kind, fork_server: ForkServer, *hidden: Path) -> ForkServer:
    """The fork server, whose next workers start behind a wall of this kind."""
    fork_server._kind = kind
    fork_server.prepare("cpu", hidden)
    return fork_server


def said(fork_server: ForkServer, statements: str, device: str = "cpu") -> dict[str, Any]:
    """What statements in a candidate's file put into `found`. The file reports it as the text of an exception."""
    lines = "\n    ".join(statements.strip().split("\n"))
    source = f"import json, os, pathlib, socket\nfound = {{}}\n\ndef run():\n    {lines}\n\nrun()\n"
    source += "raise ValueError('FOUND' + json.dumps(found))\n"
    client = WorkerClient(fork_server, device, Limits())
    try:
        client.load("probe.py", source, "ModelNew")
    except Fault as fault:
        import json

        assert "FOUND" in fault.reason, fault.reason + fault.log
        result: dict[str, Any] = json.loads(fault.reason.partition("FOUND")[2])
        return result
    finally:
        client.close()
    raise AssertionError("the candidate found nothing")


def written(fork_server: ForkServer, *paths: Path | str) -> list[str]:
    """The files of these that a worker could write."""
    text = f"""
found["written"] = []
for path in {[str(p) for p in paths]!r}:
    try:
        pathlib.Path(path).write_text("")
        found["written"].append(path)
    except OSError:
        pass
"""
    result: list[str] = said(fork_server, text)["written"]
    return result


def test_a_candidate_cannot_open_the_locks_of_the_build_cache(walled: ForkServer) -> None:
    """A lock that a candidate holds would stop the judge."""
    files = [str(path) for path in itertools.islice(cache.locks().iterdir(), 100)]
    opens = f"""
found["opened"] = []
for path in {files!r}:
    try:
        os.close(os.open(path, os.O_RDONLY))
        found["opened"].append(path)
    except OSError:
        pass
"""
    opened = said(walled, opens)["opened"]
    walls = walled._kind is Kind.NAMESPACES or (walled._kind is not Kind.NONE and landlock.version() > 0)
    assert files and opened == ([] if walls else files)


# ------------------------------------------------------------------------------------------ one GPU


@pytest.mark.parametrize("kind", WALLS)
def test_a_worker_sees_its_gpu_alone_and_cannot_open_the_device_files_of_others(kind: Kind) -> None:
    Emulated().prepare()
    attempts = f"""
found["variable"] = os.environ["CUDA_VISIBLE_DEVICES"]
found["opened"] = []
for path in ["/dev/null", "{OTHER_GPU}"]:
    try:
        os.close(os.open(path, os.O_RDWR))
        found["opened"].append(path)
    except OSError:
        pass
"""
    with ForkServer(kind) as fork_server:
        fork_server.prepare(SecondGpu.name)
        found = said(fork_server, attempts, SecondGpu.name)

    walled = kind is Kind.NAMESPACES or (kind is not Kind.NONE and landlock.version() > 0)
    assert found == {"variable": "GPU-second", "opened": ["/dev/null", *([] if walled else [str(OTHER_GPU)])]}


def test_the_next_device_of_a_fork_server_replaces_the_last_one(started_server: ForkServer) -> None:
    fork_server = behind(best(), started_server)
    opens = f"""found["opens"] = os.access("{OTHER_GPU}", os.W_OK)"""
    assert said(fork_server, opens)["opens"]
    fork_server.prepare(SecondGpu.name)
    hidden = said(fork_server, opens, SecondGpu.name)["opens"]
    fork_server.prepare("cpu")

    assert (hidden, said(fork_server, opens)["opens"]) == (False, True)


# ------------------------------------------------------------------------------------------ the probe


def test_the_probe_finds_no_gap_in_a_wall(walled: ForkServer) -> None:
    assert "not stopped" not in walled.isolation


def test_the_probe_finds_every_gap_without_a_wall(started_server: ForkServer, tmp_path: Path) -> None:
    fork_server = behind(Kind.NONE, started_server, tmp_path)

    for gap in ("read the judge's environment", "kill the judge", "kill the fork server", "write to the checkout",
                "write to the build cache", f"write to the {tmp_path.name}"):  # fmt: skip
        assert gap in fork_server.isolation
    for gap, cheat in (("read the judge's memory", "reads_the_judge"), ("open a connection", "opens_a_connection")):
        assert gap in fork_server.isolation or stopped_by_the_machine(cheat)


def test_the_probe_leaves_no_file_behind(started_server: ForkServer, tmp_path: Path) -> None:
    behind(Kind.NONE, started_server, tmp_path)

    assert not list(tmp_path.iterdir())
    assert not list(ROOT.glob(".probe-*"))


def test_a_wall_that_no_worker_can_enter_is_replaced_by_the_next(
    started_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, tried = started_server.spawn, []

    def failing(limits: Limits) -> Any:
        tried.append(started_server._kind)
        if started_server._kind is Kind.NAMESPACES:
            raise WorkerCrashed("cannot enter the wall")
        return spawn(limits)

    monkeypatch.setattr(started_server, "spawn", failing)
    fork_server = behind(Kind.NAMESPACES, started_server)

    assert tried[0] is Kind.NAMESPACES
    assert fork_server.isolation.split(";")[0] == (Kind.LANDLOCK if landlock.version() else Kind.NONE)


def test_without_bwrap_on_the_path_the_best_wall_needs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert shutil.which("bwrap") is None
    assert best() is not Kind.BUBBLEWRAP


# ------------------------------------------------------------------------------------------- files


def test_a_worker_writes_to_its_own_folder_only(walled: ForkServer, tmp_path: Path) -> None:
    places = [tmp_path / "x", ROOT / "x", ROOT / "results" / "x", Path.home() / "x", Path("/var/tmp/x"), Path("/etc/x")]

    assert written(walled, "x", *places) == ["x"]
    assert not any(place.exists() for place in places)


@pytest.mark.skipif(not HERE[Kind.NAMESPACES], reason="no namespaces on this machine")
def test_behind_namespaces_a_worker_has_a_folder_tmp_of_its_own(started_server: ForkServer) -> None:
    """Candidates write sources to /tmp and make build folders there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as there:
        (Path(there) / "file").write_text("the machine's")
        server = behind(Kind.NAMESPACES, started_server)
        mine = f"/tmp/{Path(there).name}-of-a-worker"
        first, second = (
            said(server, f"""
found["before"] = os.path.exists({mine!r})
os.makedirs({mine!r} + "/build")
found["read"] = pathlib.Path({there!r}, "file").read_text()
try:
    pathlib.Path({there!r}, "file").write_text("a worker's")
except OSError as error:
    found["refused"] = error.errno
""")
            for _ in range(2)
        )  # fmt: skip

        assert first == second == {"before": False, "read": "the machine's", "refused": errno.EROFS}
        assert not Path(mine).exists()


def test_a_worker_starts_in_an_empty_folder_which_is_its_home_and_its_place_for_temporary_files(
    walled: ForkServer,
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


def test_a_worker_cannot_read_what_another_has_in_its_folder(walled: ForkServer) -> None:
    client = WorkerClient(walled, "cpu", Limits())
    try:
        client.load("writes.py", f"open('note', 'w').write('an answer')\n{MODEL}", "ModelNew")
        read = said(walled, f"""
try:
    found["note"] = pathlib.Path({str(client.worker._folder / "note")!r}).read_text()
except OSError:
    pass
""")  # fmt: skip
    finally:
        client.close()

    assert read == {}


def test_a_workers_folder_is_gone_when_it_is(walled: ForkServer) -> None:
    before = {p for p in walled._folder.iterdir()}
    with walled.spawn(Limits()) as worker:
        worker.request(Ping(), Done, timeout_s=30).taken()

    assert {p for p in walled._folder.iterdir()} == before


NESTS_FOLDERS = """
import os
for _ in range(3000):
    os.mkdir("nested")
    os.chdir("nested")
os.chdir(os.environ["HOME"])
"""


def test_a_folder_with_thousands_of_nested_ones_is_gone_with_its_worker(walled: ForkServer) -> None:
    client = WorkerClient(walled, "cpu", Limits())
    client.load("nests.py", MODEL + NESTS_FOLDERS, "ModelNew")
    client.close()

    assert not client.worker._folder.exists()


def test_hidden_files_cannot_be_read_and_their_neighbours_can(walled: ForkServer) -> None:
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


def test_the_paths_beside_the_hidden_ones_are_all_others(tmp_path: Path) -> None:
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
def test_hidden_files_read_as_empty(started_server: ForkServer) -> None:
    hides = behind(Kind.NAMESPACES, started_server, ROOT / "problems", ROOT / "README.md")
    found = said(hides, f"""
found["files"] = os.listdir({str(ROOT / "problems")!r})
found["text"] = pathlib.Path({str(ROOT / "README.md")!r}).read_text()
""")  # fmt: skip

    assert found == {"files": [], "text": ""}


@pytest.mark.skipif(not HERE[Kind.NAMESPACES], reason="no namespaces on this machine")
def test_a_workers_folder_holds_a_gigabyte_and_no_more(started_server: ForkServer) -> None:
    sizes = '[os.statvfs(p).f_blocks * os.statvfs(p).f_bsize for p in (".", "/dev/shm")]'
    found = said(behind(Kind.NAMESPACES, started_server), f'found["size"] = {sizes}')

    assert found == {"size": [1 << 30, 1 << 30]}


@pytest.mark.skipif(not HERE[Kind.NAMESPACES], reason="no namespaces on this machine")
@pytest.mark.parametrize("folder", [".", pytest.param("/dev/shm", marks=pytest.mark.slow)])
def test_files_in_memory_count_as_memory(folder: str, started_server: ForkServer) -> None:
    fills = f"""
import time
with open("{folder}/filler", "wb") as file:
    for _ in range(900):
        file.write(bytes(1 << 20))
time.sleep(100)
"""
    client = WorkerClient(behind(Kind.NAMESPACES, started_server), "cpu", Limits(memory_bytes=800 << 20))
    with pytest.raises(Fault, match="MiB of memory"):
        client.load("fills.py", MODEL + fills, "ModelNew")
    client.close()


# ------------------------------------------------------------------------------------------ processes


def test_a_worker_has_no_capabilities_and_gets_no_new_ones(walled: ForkServer) -> None:
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


def test_a_worker_can_neither_signal_nor_read_another_worker_or_the_fork_server(walled: ForkServer) -> None:
    with walled.spawn(Limits()) as other:
        other.request(Ping(), Done, timeout_s=30).taken()
        found = said(
            walled,
            f"""
for pid in {[other.pid, other._inner_pid, walled._process.pid]}:
    try:
        os.kill(pid, 0)
        started = int(pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[19])
        # In another namespace, the number may belong to one of the worker's own processes.
        found[pid] = started in {[started(pid) for pid in (other.pid, walled._process.pid)]}
    except OSError:
        pass
    try:
        pathlib.Path(f"/proc/{{pid}}/environ").read_bytes()
    except OSError:
        pass
""",
        )
        assert other.request(Ping(), Done, timeout_s=30).taken() == Done()

    assert not any(found.values())


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


SLOWS_DOWN = """
import ctypes, resource
libc, one = ctypes.CDLL(None), (ctypes.c_int * 12)(1)
calls = {
    "sched_setaffinity": lambda: libc.sched_setaffinity(PID, 8, one),
    "sched_setscheduler": lambda: libc.sched_setscheduler(PID, 5, (ctypes.c_int * 1)(0)),
    "sched_setparam": lambda: libc.sched_setparam(PID, (ctypes.c_int * 1)(0)),
    "prlimit": lambda: libc.prlimit(PID, 4, one, None),
    "setpriority of a process": lambda: libc.setpriority(0, PID, 19),
    "setpriority of a user": lambda: libc.setpriority(2, 0, 19),
}
found["worked"] = [name for name, call in calls.items() if call() == 0]
for me in (0, os.getpid()):
    os.sched_setaffinity(me, os.sched_getaffinity(me))
    os.setpriority(os.PRIO_PROCESS, me, 19)
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_worker_can_slow_down_no_process_but_itself(walled: ForkServer) -> None:
    with walled.spawn(Limits()) as other:
        other.request(Ping(), Done, timeout_s=30).taken()
        process = psutil.Process(process_tree.pids(other.pid)[-1])
        before = process.cpu_affinity(), process.nice(), process.rlimit(psutil.RLIMIT_CORE)
        found = said(walled, SLOWS_DOWN.replace("PID", str(process.pid)))
        after = process.cpu_affinity(), process.nice(), process.rlimit(psutil.RLIMIT_CORE)

    assert after == before
    # In a process namespace, all processes of the user are the worker's own.
    assert found["worked"] == (["setpriority of a user"] if Kind.NAMESPACES in walled.isolation else [])


FANOTIFY = f"syscall({system.number('fanotify_init')}, 0, 0)"
NOTIFIERS = ["inotify_init()", "inotify_init1(0)", FANOTIFY, "fcntl(0, 1026, 1)"]


def test_a_worker_is_not_told_of_the_use_of_files(walled: ForkServer) -> None:
    calls = "; ".join(f"found[{call!r}] = libc.{call}, ctypes.get_errno()" for call in NOTIFIERS)
    found = said(walled, f"import ctypes; libc = ctypes.CDLL(None, use_errno=True); {calls}")

    assert found == {call: [-1, errno.EACCES] for call in NOTIFIERS}


QUEUE = 0x6B68
SENDS = f"""
import ctypes
libc = ctypes.CDLL(None)
found["sent"] = []
def put(what, send):
    try:
        found["sent"] += [what] if send() is not False else []
    except OSError:
        pass
def by_netlink():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2) as end:
        end.bind(({QUEUE}, 0))
put("netlink", by_netlink)
put("shared memory", lambda: libc.shmget({QUEUE}, 4096, 0o1600) >= 0)
put("semaphores", lambda: libc.semget({QUEUE}, 1, 0o1600) >= 0)
put("messages", lambda: libc.msgget({QUEUE}, 0o1600) >= 0)
put("POSIX messages", lambda: libc.mq_open(b"/kernel-harness", 0o102, 0o600, None) >= 0)
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE).close()
"""


def test_a_worker_leaves_nothing_in_queues_and_shared_memory_of_the_linux_kernel(walled: ForkServer) -> None:
    """In namespaces of its own, it may use all but netlink, which then reaches no other process."""
    libc = ctypes.CDLL(None)
    found = said(walled, SENDS)

    assert [libc.shmget(QUEUE, 0, 0), libc.semget(QUEUE, 0, 0), libc.msgget(QUEUE, 0)] == [-1] * 3
    assert "netlink" not in found["sent"]
    assert found["sent"] == [] or Kind.NAMESPACES in walled.isolation


def test_a_pause_ends_a_worker_that_exceeds_its_limits_in_short_calls(
    walled: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = (
        "import threading, time\nfor _ in range(30):\n    threading.Thread(target=time.sleep, args=(99,)).start()\n"
    )
    monkeypatch.setattr("kernel_harness.workers.process._CHECK_S", 0.0)
    monkeypatch.setattr(WorkerProcess, "_await_reply", lambda self, deadline: None)  # no wait is long
    monkeypatch.setattr("kernel_harness.workers.process._TICK_S", 30.0)
    client = WorkerClient(walled, "cpu", Limits(tasks=30))
    client.load("grows.py", starts + MODEL, "ModelNew")
    client.worker.pause()
    with pytest.raises(Fault, match="at most 30 are allowed"):
        client.ping()
    client.close()


# Where Linux shows the number of a process's threads, the process's name or the state of its first thread hides it.
HIDES_THREADS = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
def start():
    for _ in range(40):
        threading.Thread(target=time.sleep, args=(99,)).start()
"""
HIDDEN_THREADS = {
    "by a name": r"libc.prctl(15, b'Threads:\t1', 0, 0, 0); start()",
    "in a child whose first thread has ended": "if os.fork() == 0: start(); libc.pthread_exit(None)",
}


@pytest.mark.parametrize("hides", HIDDEN_THREADS.values(), ids=HIDDEN_THREADS.keys())
def test_hidden_threads_count_as_tasks_and_end_with_their_worker(hides: str, walled: ForkServer) -> None:
    client = WorkerClient(walled, "cpu", Limits(tasks=30))
    with pytest.raises(Fault, match="at most 30 are allowed"):
        client.load("hides.py", f"{MODEL}{HIDES_THREADS}{hides}\ntime.sleep(99)\n", "ModelNew")

    assert not process_tree.group(client.worker.pid)


# Linux sends the signal of F_SETSIG (10) to the owner of a socket when the socket can be read.
SIGNALS_BY_A_SOCKET = """
import fcntl, os, signal, socket, struct, sys
from kernel_harness.sandbox import privileges
privileges.drop(others_visible=True, own_signals_only=sys.argv[1] == "own")
owner = int(sys.argv[2])
ours, theirs = socket.socketpair()
fcntl.fcntl(ours, 10, signal.SIGKILL)
fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
means = [
    lambda: fcntl.fcntl(ours, 8, owner),
    lambda: fcntl.fcntl(ours, 15, struct.pack("ii", 1, owner)),
    lambda: fcntl.ioctl(ours, 0x8901, struct.pack("i", owner)),
    lambda: fcntl.ioctl(ours, 0x8902, struct.pack("i", owner)),
]
try:
    means[int(sys.argv[3])]()
except PermissionError:
    pass
theirs.send(b"x")
"""


@pytest.mark.parametrize("means", range(4), ids=["F_SETOWN", "F_SETOWN_EX", "FIOSETOWN", "SIOCSPGRP"])
@pytest.mark.parametrize(("signals", "ended"), [("own", False), ("all", True)])
def test_only_the_filter_of_signals_keeps_a_socket_from_killing_its_owner(
    signals: str, ended: bool, means: int
) -> None:
    """Landlock refuses signals to other processes only since version 6; before it, the filter does."""
    with subprocess.Popen(["sleep", "60"]) as owner:
        words = [sys.executable, "-c", SIGNALS_BY_A_SOCKET, signals, str(owner.pid), str(means)]
        subprocess.run(words, check=True, cwd=ROOT)
        killed = owner.poll() if not ended else owner.wait(10)
        owner.kill()

    assert killed == (-signal.SIGKILL if ended else None)


def test_a_processor_of_another_architecture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """OSError is what the search for a usable wall expects."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="riscv64 allows no full wall"):
        privileges._program(others_visible=False, own_signals_only=True)


def test_the_reason_names_the_signal_that_ended_a_worker(walled: ForkServer) -> None:
    source = MODEL + "import os\nos.abort()\n"
    client = WorkerClient(walled, "cpu", Limits())
    with pytest.raises(Fault) as caught:
        client.load("aborts.py", source, "ModelNew")
    client.close()

    assert caught.value.status is Status.CRASHED
    assert "SIGABRT" in caught.value.reason


LEAVES_A_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
"""


def test_a_daemon_that_a_worker_started_ends_with_it(walled: ForkServer) -> None:
    before = set(alive_below(walled))
    client = WorkerClient(walled, "cpu", Limits())
    client.load("leaves.py", MODEL + LEAVES_A_DAEMON, "ModelNew")
    during = set(alive_below(walled))
    client.close()

    assert len(during) >= len(before) + 2
    end = time.monotonic() + 10
    while not set(alive_below(walled)) <= before:
        assert time.monotonic() < end  # a killed process takes a moment to end


# Each process runs a busy loop until it is killed. Its child waits for that, becomes an orphan, and does the same.
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


def test_orphans_are_counted_stopped_and_ended_with_the_worker(walled: ForkServer) -> None:
    before = set(alive_below(walled))
    client = WorkerClient(walled, "cpu", Limits())
    client.load("orphans.py", MODEL + GOES_ON_IN_ORPHANS, "ModelNew")
    orphans = set(alive_below(walled)) - before - {client.worker.pid}
    counted = {process.pid for process in process_tree.group(client.worker.pid)}
    client.worker.pause()
    stopped = [psutil.Process(pid).status() for pid in orphans]
    client.close()

    assert len(orphans) >= 2  # the worker below its reaper, and the busy process
    assert orphans <= counted
    assert set(stopped) == {psutil.STATUS_STOPPED}
    assert set(alive_below(walled)) <= before


# Each process lives for a moment, most of which it spends in a fork.
FORKS_AND_ENDS = """
import os

if os.fork() == 0:
    while True:
        if os.fork():
            os._exit(0)
"""


def test_a_chain_of_forks_is_stopped_by_every_pause(walled: ForkServer) -> None:
    client = WorkerClient(walled, "cpu", Limits())
    client.load("chain.py", MODEL + FORKS_AND_ENDS, "ModelNew")
    appeared: set[int] = set()
    with walled.spawn(Limits()) as other:
        for _ in range(10):
            client.worker.pause()
            before = set(process_tree.pids(client.worker.pid))
            other.request(Ping(), Done, timeout_s=30).taken()
            appeared |= set(process_tree.pids(client.worker.pid)) - before
            client.worker.resume()
            client.ping()
    client.close()

    assert not appeared


# Each helper resumes all processes of the group: the worker, the helpers and itself.
RESUME_EACH_OTHER = """
import os, signal

for _ in range(HELPERS):
    if os.fork() == 0:
        while True:
            os.kill(0, signal.SIGCONT)
"""


@pytest.mark.parametrize("helpers", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_helpers_that_resume_each_other_do_not_run_in_a_pause(walled: ForkServer, helpers: int) -> None:
    client = WorkerClient(walled, "cpu", Limits())
    client.load("helpers.py", MODEL + RESUME_EACH_OTHER.replace("HELPERS", str(helpers)), "ModelNew")
    used_ns = []
    with walled.spawn(Limits()) as other:
        for _ in range(10):
            client.worker.pause()
            before = cpu_ns_below(client)
            for _ in range(100):
                other.request(Ping(), Done, timeout_s=30).taken()
            used_ns.append(cpu_ns_below(client) - before)
            client.ping()
    client.close()

    assert max(used_ns) < 1e6


def cpu_ns_below(client: WorkerClient) -> int:
    return sum(map(process_tree.cpu_ns, process_tree.pids(client.worker.pid)))


def load_cheat(client: WorkerClient, name: str) -> None:
    """Loads a cheat, and starts the processes that its first call starts."""
    source = (ROOT / "tests" / "adversarial" / "cheats" / f"{name}.py").read_text()
    client.load(f"{name}.py", source + "\nModelNew()(torch.ones(1, 1), torch.ones(1, 1))\n", "ModelNew")


def test_a_process_that_a_timer_resumes_is_found_and_ended(walled: ForkServer) -> None:
    client = WorkerClient(walled, "cpu", Limits())
    load_cheat(client, "resumed_by_a_timer")
    with pytest.raises(Fault) as caught, walled.spawn(Limits()) as other:
        for _ in range(50):  # three would do if the timers were set before the first
            client.worker.pause()
            for _ in range(100):
                other.request(Ping(), Done, timeout_s=30).taken()
            client.ping()
    client.close()

    assert caught.value.status is Status.CRASHED
    assert "ran 3 times while it was stopped" in caught.value.reason


def test_a_worker_that_cannot_be_stopped_in_time_is_ended_with_the_reason(
    walled: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_harness.workers.process._PAUSE_S", 0.0)  # less than any pause takes
    with walled.spawn(Limits()) as worker:
        worker.pause()
        with pytest.raises(WorkerMisbehaved, match="could not all be stopped"):
            worker.request(Ping(), Done, timeout_s=30).taken()


def test_a_pause_does_not_wait_for_the_parent_of_a_vfork_child(walled: ForkServer) -> None:
    client = WorkerClient(walled, "cpu", Limits())
    load_cheat(client, "waits_in_vfork")
    processes = [client.worker.pid]
    while not any(map(waits_uninterruptibly, processes)):
        processes = process_tree.pids(client.worker.pid)
    client.worker.pause()
    waiting = [pid for pid in processes if waits_uninterruptibly(pid)]
    states = [psutil.Process(pid).status() for pid in processes if pid not in waiting]
    client.close()

    assert waiting  # its parent did not have to leave that state
    assert set(states) == {psutil.STATUS_STOPPED}


def waits_uninterruptibly(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_DISK_SLEEP


def test_orphans_end_when_their_worker_exits_by_itself(walled: ForkServer) -> None:
    before = set(alive_below(walled))
    client = WorkerClient(walled, "cpu", Limits())
    with pytest.raises(Fault):
        client.load("orphans.py", GOES_ON_IN_ORPHANS + "os._exit(0)", "ModelNew")
    client.close()

    assert set(alive_below(walled)) <= before


def alive_below(fork_server: ForkServer) -> Iterator[int]:
    for process in psutil.Process(fork_server._process.pid).children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid
        except psutil.NoSuchProcess:
            continue


def test_a_killed_fork_server_is_a_clear_error() -> None:
    with ForkServer() as fork_server:
        os.kill(fork_server._process.pid, signal.SIGKILL)
        with pytest.raises(ForkServerGone, match="ended from outside"):
            fork_server.prepare("cpu")


def test_a_late_reply_of_the_fork_server_is_not_taken_for_that_to_the_next_request() -> None:
    with ForkServer() as fork_server:
        fork_server.prepare("cpu")
        with stopped(fork_server), pytest.raises(ForkServerGone):
            fork_server._ask(PrepareDevice("cpu", {}), Done, timeout_s=0.1)
        with pytest.raises(ForkServerGone):
            fork_server._ask(SetWall(Kind.NONE, ()), Done)
        with pytest.raises(ForkServerGone):
            fork_server.spawn(Limits())


def test_a_reply_that_an_interruption_left_unread_is_not_taken_for_that_to_the_next_request() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with ForkServer() as fork_server:
        fork_server.prepare("cpu")
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with stopped(fork_server), pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                fork_server._ask(PrepareDevice("cpu", {}), Done)
        finally:
            signal.signal(signal.SIGALRM, before)
        with pytest.raises(ForkServerGone):
            fork_server._ask(SetWall(Kind.NONE, ()), Done)


@contextmanager
def stopped(fork_server: ForkServer) -> Iterator[None]:
    os.kill(fork_server._process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(fork_server._process.pid, signal.SIGCONT)


# ------------------------------------------------------------------------------------------- network


def test_a_worker_has_no_network(walled: ForkServer) -> None:
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


def test_a_worker_gets_only_the_allowed_environment_variables(
    walled: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMEBODYS_TOKEN", "secret")

    assert "SOMEBODYS_TOKEN" not in said(walled, "found.update(os.environ)")
