"""NVIDIA's compute-sanitizer around a worker of its own: started, hung up on, its log read as findings.

Which kernels and cases are looked at is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_harness import channel
from kernel_harness.errors import EnvironmentLacking
from kernel_harness.paths import ROOT
from kernel_harness.process import Limits, Worker
from kernel_harness.sanitizer.findings import Finding, Kind, Place, source_line
from kernel_harness.spawn import Template, environment

_LAST_WORDS_S = 120
# Where an access stands, innermost first: what the compiler put in from a header, then what that stands in.
_AT = re.compile(r"(?:\bat|^Device Frame:) (?P<function>.+?)(?:\+0x[0-9a-f]+)? in (?P<file>.+?):(?P<line>\d+)\b")
_BY = re.compile(r"\bby thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_HAZARDS = re.compile(r"\[(\d+) hazards?\]")
_SIZE = re.compile(r"of size (\d+)")
# How a report begins, and what it is called here.
_KINDS = (
    (re.compile(r"Invalid __\w+__ (?:read|(?:system-scoped )?atomic)"), Kind.OUT_OF_BOUNDS_READ),
    (re.compile(r"Invalid __\w+__ write"), Kind.OUT_OF_BOUNDS_WRITE),
    (re.compile(r"Uninitialized __\w+__ memory read"), Kind.UNINITIALISED_READ),
    (re.compile(r"(?:Error|Warning): Race reported|Race reported"), Kind.RACE),
    (re.compile(r"Barrier error detected"), Kind.DIVERGENT_BARRIER),
)


def executable() -> str:
    """The program: on the path, or in the toolkit. Raises EnvironmentLacking."""
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=f"{toolkit}/bin")
    if found is None:
        raise EnvironmentLacking(
            "There is no compute-sanitizer on the path or in the CUDA toolkit: install it with the toolkit, "
            "or sanitize under emulation with --device cpu."
        )
    return found


class Wrapped(Template):
    """Starts the first worker as a program that compute-sanitizer runs; builders are forked as ever."""

    def __init__(self, tool: str, builders: Template) -> None:
        self._builders = builders
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-harness-"))
        self._log = self._folder / "log"
        self._command = [
            executable(), "--tool", tool, "--target-processes", "application-only", "--log-file", str(self._log),
            "--print-limit", "100", sys.executable, "-m", "kernel_harness.sanitizer.alone",
        ]  # fmt: skip
        self._end: socket.socket | None = None
        self._wrapper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Wrapped:
        return self

    def spawn(self, limits: Limits) -> Worker:
        """The worker that is watched; after it, what builds for it."""
        if self._wrapper is not None:
            return self._builders.spawn(limits)
        self._end, theirs = channel.pair()
        read, write = os.pipe2(os.O_CLOEXEC)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            self._wrapper = subprocess.Popen(
                [*self._command, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                stdout=write, stderr=write, cwd=ROOT, start_new_session=True,
                env=_environment(folder),
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(write)
        return Worker(self, self._wrapper.pid, self._wrapper.pid, self._end, read, folder, limits)

    def bytes_in(self, pid: int, folder: Path) -> int:
        """None that are memory: there is no wall around the tool."""
        return 0

    def status_of(self, pid: int) -> int | None:
        """How the program ended, as waitpid has it; None while it runs."""
        assert self._wrapper
        code = self._wrapper.poll()
        return None if code is None else -code if code < 0 else code << 8

    def log(self) -> str:
        """Hangs up on the worker, waits for the program's last words, and gives all it wrote."""
        assert self._end and self._wrapper
        if self._wrapper.poll() is None:
            self._end.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wrapper.wait(_LAST_WORDS_S)
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        """Leaves nothing behind; the worker itself is its holder's to close."""
        if self._end and self._wrapper:
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)  # what the program started ends with it
            self._wrapper.kill()
            self._wrapper.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    """Of memory that torch has cached only the outermost bounds are known, so it caches none."""
    return {**environment(folder), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def read(log: str, file: str, source: Sequence[str], case: str) -> list[Finding]:
    """The log's reports as findings, each line's first; what names no line of the candidate is left out."""
    found: dict[tuple[Kind, int], Finding] = {}
    counts: dict[tuple[Kind, int], int] = {}
    for report in _reports(log):
        finding = _finding(report, file, source, case)
        if finding is None:
            continue
        key = (finding.kind, finding.here.line)
        found.setdefault(key, finding)
        counts[key] = counts.get(key, 0) + finding.count
    return [Finding(**{**vars(f), "count": counts[key]}) for key, f in found.items()]


def _reports(log: str) -> Iterator[list[str]]:
    """Runs of lines that belong together: a report's first line is indented by one space, the rest by more."""
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
    """Of a race the access that is told first and one that clashes with it, from the side of who reads."""
    first, *others = (Place(file, int(m["line"]), writes="Read access" not in m.string[: m.start()]) for m in found)
    other = min(others, key=lambda place: place.writes, default=None)
    return (other, first) if other and first.writes and not other.writes else (first, other)


def _detail(kind: Kind, report: Sequence[str]) -> str:
    """What the report says of the memory, or of the barrier."""
    if kind is Kind.DIVERGENT_BARRIER:
        return report[0].removeprefix("Barrier error detected.").strip().rstrip(".").lower()
    if any("misaligned" in line for line in report):
        return "a misaligned address"
    if "__shared__" in report[0]:
        return "an address outside the block's shared memory"
    nearest = next((line for line in report if line.startswith("and is ")), "")
    return f"an address that {nearest.removeprefix('and ')}" if nearest else ""


def _by(report: list[str]) -> tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]:
    """Thread and block."""
    for line in report:
        if by := _BY.search(line):
            x, y, z, i, j, k = map(int, by.groups())
            return (x, y, z), (i, j, k)
    return None, None


def _same_file(said: str, file: str) -> bool:
    return said == file or said.endswith("/" + file) or Path(said).name == Path(file).name
