"""Runs a worker under NVIDIA's compute-sanitizer, and parses the log of compute-sanitizer into findings."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cuda_on_cpu.emulator.findings import Finding, Kind, Place, source_line
from kernel_harness.core import folder_removal
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.paths import IMPORT_ROOT
from kernel_harness.ipc import channel
from kernel_harness.workers.fork_server_process import environment
from kernel_harness.workers.process import Limits, WorkerFactory, WorkerHandles, WorkerProcess

_EXIT_TIMEOUT_S = 120
# One line of a report: a function, its file and its line. The innermost function comes first: a function inlined from a
# header, then the function that contains it.
_AT = re.compile(r"(?:\bat|^Device Frame:) (?P<function>.+?)(?:\+0x[0-9a-f]+)? in (?P<file>.+?):(?P<line>\d+)\b")
_BY = re.compile(r"\bby thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
# What the CUDA runtime prints for an assertion of a kernel that fails.
_ASSERTION = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+): (?P<function>.+?): "
    r"block: \[(\d+),(\d+),(\d+)\], thread: \[(\d+),(\d+),(\d+)\] Assertion `(?P<condition>.+)` failed",
    re.MULTILINE,
)
_HAZARDS = re.compile(r"\[(\d+) hazards?\]")
_SIZE = re.compile(r"of size (\d+)")
# For each pattern of the first words of a report: the kind of finding that the report becomes.
_KINDS = (
    (re.compile(r"Invalid __\w+__ (?:read|(?:system-scoped )?atomic)"), Kind.OUT_OF_BOUNDS_READ),
    (re.compile(r"Invalid __\w+__ write"), Kind.OUT_OF_BOUNDS_WRITE),
    (re.compile(r"Uninitialized __\w+__ memory read"), Kind.UNINITIALISED_READ),
    (re.compile(r"(?:Error|Warning): Race reported|Race reported"), Kind.RACE),
    (re.compile(r"Barrier error detected"), Kind.DIVERGENT_BARRIER),
)


def executable() -> str:
    """Returns the path of the program compute-sanitizer, found on the PATH or in the CUDA toolkit.

    The toolkit is `$CUDA_HOME`, else `$CUDA_PATH`, else /usr/local/cuda. Raises EnvironmentLacking if the program is in
    neither.
    """
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=f"{toolkit}/bin")
    if found is None:
        raise EnvironmentLacking(
            "compute-sanitizer is neither on the PATH nor in the CUDA toolkit. Install it with the CUDA toolkit, "
            "or sanitize on the emulated device with --device cpu."
        )
    return found


class WatchedWorkers(Closing):
    """Starts workers for the judge: the first one under compute-sanitizer, all later ones without it.

    `tool` is the tool of compute-sanitizer, such as "memcheck". `builders` starts the later workers, which only compile
    for the first one. `variables` are the environment variables of the device (`JudgeDevice.worker_variables`). The
    constructor raises EnvironmentLacking if compute-sanitizer is not installed.
    """

    def __init__(self, tool: str, builders: WorkerFactory, variables: Mapping[str, str]) -> None:
        self._builders, self._variables = builders, variables
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-harness-"))
        self._log = self._folder / "log"
        self._command = [
            executable(), "--tool", tool, "--target-processes", "application-only", "--log-file", str(self._log),
            "--print-limit", "100", sys.executable, "-m", "kernel_harness.diagnostics.sanitizer.alone",
        ]  # fmt: skip
        self._end: socket.socket | None = None
        self._wrapper: subprocess.Popen[bytes] | None = None

    def spawn(self, limits: Limits) -> WorkerProcess:
        """Starts a worker and returns it.

        The first call starts the worker that runs the candidate under compute-sanitizer. Later calls start workers that
        only compile for the first worker. They run without compute-sanitizer.
        """
        if self._wrapper is not None:
            return self._builders.spawn(limits)
        self._end, theirs = channel.pair()
        read, write = os.pipe2(os.O_CLOEXEC)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        # With torch's cache of device memory, several tensors would share one allocation, and compute-sanitizer would
        # only see the bounds of the allocation.
        variables = {**environment(folder), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", **self._variables}
        try:
            self._wrapper = subprocess.Popen(
                [*self._command, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                stdout=write, stderr=write, cwd=IMPORT_ROOT, start_new_session=True, env=variables,
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(write)
        pid = self._wrapper.pid
        return WorkerProcess(self, WorkerHandles(pid, pid, self._end, read, folder), limits)

    def file_bytes(self, pid: int, folder: Path) -> int:
        """Returns 0: the worker has no wall, so its files are on disk and take no memory."""
        return 0

    def exit_status(self, pid: int) -> int | None:
        """Returns the exit status of compute-sanitizer, encoded like a status of `os.waitpid`; None while it runs."""
        assert self._wrapper
        code = self._wrapper.poll()
        return None if code is None else -code if code < 0 else code << 8

    def log(self) -> str:
        """Closes the connection to the worker and waits until compute-sanitizer exits. Returns its log.

        The wait is at most 120 s. The log is empty if compute-sanitizer wrote none.
        """
        assert self._end and self._wrapper
        if self._wrapper.poll() is None:
            self._end.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wrapper.wait(_EXIT_TIMEOUT_S)
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        """Kills compute-sanitizer and removes the temporary folder of its log and of the worker.

        It does not close the `WorkerProcess` that `spawn` returned. The caller does that.
        """
        if self._end and self._wrapper:
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)  # this also ends the worker, a child of compute-sanitizer
            self._wrapper.kill()
            self._wrapper.wait()
        folder_removal.remove(self._folder)


def read(log: str, file: str, source: Sequence[str], case: str) -> list[Finding]:
    """Parses the log of compute-sanitizer. Returns one finding per kind of mistake and line of the candidate.

    `file` is the candidate's file name, `source` its lines, and `case` the name of the case that ran. The count of a
    finding is that of all its reports. A report of another kind, or that names no line of the candidate, is left out.
    """
    found: dict[tuple[Kind, int], Finding] = {}
    for finding in (_finding(report, file, source, case) for report in _reports(log)):
        if finding is not None:
            key = (finding.kind, finding.here.line)
            before = found.get(key)
            found[key] = replace(before, count=before.count + finding.count) if before else finding
    return [*found.values()]


def failed_assertions(printed: str, file: str, source: Sequence[str]) -> list[Finding]:
    """Returns one finding per assertion of the candidate that failed, by what its worker has printed.

    The reports of compute-sanitizer do not name the line of an assertion. `file` and `source` are as for `read`.
    """
    found: dict[int, list[re.Match[str]]] = {}
    for match in _ASSERTION.finditer(printed):
        if _same_file(match["file"], file):
            found.setdefault(int(match["line"]), []).append(match)
    return [_assertion(matches, Place(file, line), source) for line, matches in found.items()]


def _assertion(matches: Sequence[re.Match[str]], here: Place, source: Sequence[str]) -> Finding:
    first = matches[0]
    bx, by, bz, x, y, z = map(int, first.groups()[3:9])
    return Finding(
        kind=Kind.TRAP,
        kernel=first["function"].split("(")[0].split()[-1],
        here=replace(here, thread=(x, y, z), block=(bx, by, bz)),
        source=source_line(source, here.line),
        detail=f"the assertion `{first['condition']}` fails",
        count=len(matches),
    )


def _reports(log: str) -> Iterator[list[str]]:
    """Yields the reports in the log of compute-sanitizer, each as a list of its lines without indentation.

    In the log, the first line of a report is indented by one space, and its other lines by more.
    """
    report: list[str] = []
    for line in log.splitlines():
        text = line.removeprefix("=========")
        if text.strip() and not text.startswith("  "):
            yield report
            report = []
        report.append(text.strip())
    yield report


def _finding(report: list[str], file: str, source: Sequence[str], case: str) -> Finding | None:
    head = report[0] if report else ""
    kind = next((kind for pattern, kind in _KINDS if pattern.match(head)), None)
    found = [m for line in report if (m := _AT.search(line)) and _same_file(m["file"], file)]
    if kind is None or not found:
        return None
    if any("is misaligned" in line for line in report):
        kind = Kind.MISALIGNED
    here, there = _sides(found, file) if kind is Kind.RACE else (Place(file, int(found[0]["line"]), *_by(report)), None)
    size, hazards = _SIZE.search(head), _HAZARDS.search(" ".join(report))
    return Finding(
        kind=kind,
        kernel=found[0 if kind is Kind.RACE else -1]["function"].split("(")[0],
        here=here,
        source=source_line(source, here.line),
        there=there,
        bytes=int(size[1]) if size else 0,
        detail=_detail(kind, report),
        count=int(hazards[1]) if hazards else 1,
        case=case,
    )


def _sides(found: Sequence[re.Match[str]], file: str) -> tuple[Place, Place | None]:
    """Returns the places of the two accesses of a race. The second is None if the report names only one.

    `found` has a match for each line of the report that names a line of `file`, the candidate. If one access is a read
    and the other a write, the read comes first.
    """
    first, *others = (Place(file, int(m["line"]), writes="Read access" not in m.string[: m.start()]) for m in found)
    other = min(others, key=lambda place: place.writes, default=None)
    return (other, first) if other and first.writes and not other.writes else (first, other)


def _detail(kind: Kind, report: Sequence[str]) -> str:
    """Returns what a report of compute-sanitizer says about the address or the barrier, for use in a sentence.

    Returns an empty text if the report says nothing about it.
    """
    if kind is Kind.DIVERGENT_BARRIER:
        return report[0].removeprefix("Barrier error detected.").strip().rstrip(".").lower()
    if kind is Kind.MISALIGNED:
        return "at a misaligned address"
    if "__shared__" in report[0]:
        return "an address outside the block's shared memory"
    nearest = next((line for line in report if line.startswith("and is ")), "")
    return f"an address that {nearest.removeprefix('and ')}" if nearest else ""


def _by(report: list[str]) -> tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]:
    """Returns the indices (x, y, z) of the thread, and those of its block, that made the mistake in a report.

    Both are None if the report does not name a thread.
    """
    for line in report:
        if by := _BY.search(line):
            x, y, z, i, j, k = map(int, by.groups())
            return (x, y, z), (i, j, k)
    return None, None


def _same_file(said: str, file: str) -> bool:
    return said == file or said.endswith("/" + file) or Path(said).name == Path(file).name
