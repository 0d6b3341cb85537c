"""A forked command behaves as a new process: what it sees when it starts, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support import forked_command, warm_fork_server
from support.command import ROOT
from support.forked_command import ForkedCommand

from kernel_harness.workers.fork_server import ForkServer

pytestmark = pytest.mark.slow  # the server imports torch

SEES = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path[0], "own": os.environ.get("OWN"),
    "home": "HOME" in os.environ, "main": __name__, "torch": "torch" in sys.modules,
    "stdin": sys.stdin.read(), "modules": [name for name in sys.modules if name.startswith("kernel_harness")],
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
}))
print("an error", file=sys.stderr)
sys.exit(3)
"""


def forked(tmp_path: Path, program: str) -> ForkedCommand:
    script = tmp_path / "program.py"
    script.write_text(program)
    return ForkedCommand(script, ["a word"], tmp_path, {"OWN": "set", "PATH": os.environ["PATH"]})


def test_it_has_its_own_arguments_folder_environment_and_pipes_and_nothing_of_the_harness(tmp_path: Path) -> None:
    process = forked(tmp_path, SEES)
    stdout, stderr = process.communicate()

    assert (process.returncode, stderr) == (3, "an error\n")
    assert json.loads(stdout) == {
        "argv": [str(tmp_path / "program.py"), "a word"], "cwd": str(tmp_path), "path": str(tmp_path), "own": "set",
        "home": False, "stdin": "", "modules": [], "main": "__main__", "torch": True, "descriptors": [0, 1, 2],
    }  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_that_ends_it_is_its_exit_status(tmp_path: Path, number: signal.Signals) -> None:
    process = forked(tmp_path, "import signal\nprint('ready', flush=True)\nsignal.pause()")
    assert process.stdout.readline() == "ready\n" and process.poll() is None
    process.send_signal(number)

    assert process.wait() == -number
    assert not psutil.pid_exists(process.pid)


def test_ctrl_c_raises_a_keyboard_interrupt_in_it(tmp_path: Path) -> None:
    process = forked(tmp_path, "import signal\nprint('ready', flush=True)\nsignal.pause()")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)

    assert "KeyboardInterrupt" in process.communicate()[1]
    assert process.returncode == -signal.SIGINT


def test_it_is_waited_for_until_the_time_is_up(tmp_path: Path) -> None:
    process = forked(tmp_path, "import signal\nsignal.pause()")
    for wait in (process.wait, process.communicate):
        with pytest.raises(subprocess.TimeoutExpired):
            wait(timeout=0.01)
    process.kill()

    assert process.communicate() == ("", "") and process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "PYTHONPATH", "CUDA_HOME", "LC_ALL"])
def test_a_variable_that_is_read_at_the_start_needs_a_new_process(variable: str) -> None:
    environment = forked_command.SERVER_ENVIRONMENT
    assert forked_command.fits({**environment, "TMPDIR": "another"})
    assert not forked_command.fits({**environment, variable: "another"})


def test_the_environment_of_the_tests_needs_no_new_process() -> None:
    """With another environment all tests pass, but each run of the command imports torch twice."""
    assert forked_command.fits(os.environ)


def descriptors(pid: int) -> dict[str, str]:
    """The kind or path of each file that a fork server holds open while it waits and has no worker.

    While it runs, or would if a processor were free, it may have a file open for a moment. For each worker, such as
    the one that tries the wall, it holds a pipe until it has collected the worker.
    """
    process = psutil.Process(pid)
    before, now = None, None
    while now is None or now != before:
        time.sleep(0.1)
        before, now = now, _descriptors(pid)
        if process.children() or process.status() != psutil.STATUS_SLEEPING:
            now = None
    return now


def _descriptors(pid: int) -> dict[str, str]:
    links = {}
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):  # closed meanwhile
            links[number] = os.readlink(f"/proc/{pid}/fd/{number}").split(":")[0]  # noqa: PTH115
    return {number: link for number, link in links.items() if not link.startswith("/proc/")}


def about(fork_server: ForkServer) -> dict[str, object]:
    """What a fork server's process has, once it answers."""
    fork_server.prepare("cpu")
    pid = fork_server._process.pid
    links = descriptors(pid)
    return {
        "session": os.getsid(pid) == pid, "folder": psutil.Process(pid).cwd(), "wall": fork_server.isolation,
        "threads": psutil.Process(pid).num_threads(), "sockets": [fd for fd, link in links.items() if link == "socket"],
        "descriptors": sorted(links.values()), "input": links["0"],
    }  # fmt: skip


def test_a_warm_fork_server_has_what_a_new_process_has() -> None:
    with ForkServer() as warm:
        is_warm = isinstance(warm._process, warm_fork_server.Started)
        found = about(warm)
    warm_fork_server.take_back()
    with ForkServer() as new:
        assert is_warm and not isinstance(new._process, warm_fork_server.Started)
        assert found == about(new)

    assert found["folder"] == str(ROOT)
    assert not psutil.pid_exists(warm._process.pid)


def test_a_warm_fork_server_is_waited_for_until_it_is_no_zombie() -> None:
    with ForkServer() as fork_server:
        process = fork_server._process
        starter = psutil.Process(psutil.Process(process.pid).ppid())
        waiting = threading.Thread(target=process.wait)
        starter.suspend()  # so that it cannot remove its child
        try:
            process.kill()
            waiting.start()
            waiting.join(0.2)
            assert waiting.is_alive()
        finally:
            starter.resume()
        waiting.join()

        assert not psutil.pid_exists(process.pid)
