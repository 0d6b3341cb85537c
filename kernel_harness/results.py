"""The record of a run: one JSON line per result, appended under a lock. Tables are derived elsewhere."""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_harness.errors import EnvironmentLacking
from kernel_harness.status import Status
from kernel_harness.timing import Timing

# What reads records need not wait for torch.
if TYPE_CHECKING:
    from kernel_harness.verify import Check

SCHEMA_VERSION = 1
# Of a log of megabytes a line keeps the beginning; the whole is in a file of its own.
_KEPT_LOG = 20_000


@dataclass(frozen=True)
class Result:
    """What became of one candidate (or baseline) at one shape. A timing is there only if it passed.

    Raises ValueError for a result that cannot be.
    """

    kernel: str
    status: Status
    reason: str
    shape: Mapping[str, int]
    source_sha256: str
    kind: str = "candidate"
    title: str = ""
    checks: tuple[Check, ...] = ()
    timing: Timing | None = None
    restricted_to: tuple[str, ...] = ()
    phases_s: Mapping[str, float] = field(default_factory=dict)
    builds: tuple[Mapping[str, Any], ...] = ()
    log: str = ""
    remark: str = ""  # what the sanitizer saw; it has no part in the verdict
    reproduce: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    information: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""

    def __post_init__(self) -> None:
        if self.timing is not None and self.status is not Status.PASSED:
            raise ValueError(f"{self.kernel} is {self.status} and cannot have a time")

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.status is Status.PASSED

    @property
    def precision(self) -> str:
        """The coarsest number format any check showed; empty where none could tell."""
        shown = [c.precision for c in self.checks if c.precision is not None]
        return str(max(shown, key=lambda p: p.epsilon)) if shown else ""

    @property
    def max_abs_error(self) -> float | None:
        """The largest at the timed shape's own inputs."""
        return _first(c.max_abs_error for c in self.checks if c.case.endswith(":own"))

    @property
    def relative_error(self) -> float | None:
        """The largest Frobenius error of any check."""
        return max((c.relative_error for c in self.checks if c.relative_error is not None), default=None)


def _first(values: Iterator[float | None] | Any) -> float | None:
    return next((v for v in values if v is not None), None)


def to_json(result: Result, measured_at: str) -> dict[str, Any]:
    """A result as its line in runs.jsonl."""
    record = asdict(result)
    timing = result.timing
    record["timing"] = timing and {
        "time_ms": timing.time_ms, "time_ms_low": timing.time_ms_low, "time_ms_high": timing.time_ms_high,
        "speedup": timing.speedup and asdict(timing.speedup), "samples_ms": timing.samples_ms,
        "rejected": [asdict(r) for r in timing.rejected],
    }  # fmt: skip
    derived = {
        "precision": result.precision, "max_abs_error": result.max_abs_error, "relative_error": result.relative_error,
    }  # fmt: skip
    record["log"] = result.log[:_KEPT_LOG]
    line = {"schema_version": SCHEMA_VERSION, "measured_at": measured_at, **record, **derived}
    return {key: _strict(value) for key, value in line.items()}


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _strict(each) for key, each in value.items()}
    return [_strict(each) for each in value] if isinstance(value, (list, tuple)) else value


def now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_run_id() -> str:
    """Names what is measured together; sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class Unwritable(EnvironmentLacking):
    """Results cannot be kept where they should be; what was there before is as it was."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what goes wrong with a file within it into Unwritable."""
    try:
        yield
    except OSError as error:
        raise Unwritable(
            f"{path} cannot be written: {error.strerror or error}. What was there before is as it was; "
            "make room or name another folder with --results."
        ) from None


def write_whole(file: FileIO, lines: bytes, *, sync: bool) -> None:
    """At the end of an unbuffered file: all, or none where it raises OSError. `sync`: until it is on the disk."""
    written = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(lines)
        while rest:
            rest = rest[file.write(rest) :]
        if sync:
            os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), written)  # half a line is no record
        raise


class Journal:
    """`runs.jsonl` of one problem and device. Raises Unwritable where it cannot be written."""

    def __init__(self, folder: Path, name: str = "runs.jsonl") -> None:
        self.path = folder / name

    def check_writable(self) -> None:
        """Finds out before hours of work whether its results can be kept."""
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()

    def append(self, result: Result) -> None:
        """Adds a line and makes sure it is on the disk."""
        self.add([to_json(result, now())])

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Adds their lines, all or none. A line cut short by a kill is closed off first."""
        lines = b"".join(json.dumps(r, default=str, allow_nan=False).encode() + b"\n" for r in records)
        with writing(self.path), self.path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                lines = lines if file.read(1) == b"\n" else b"\n" + lines
            write_whole(file, lines, sync=True)

    def keep_log(self, result: Result) -> Path | None:
        """Writes a failure's whole log to a file beside the results. Its path; None for a result without a log."""
        if not result.log.strip():
            return None
        path = self.path.parent / "logs" / f"{result.kernel}.log"
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(result.log, encoding="utf-8", errors="replace")
        return path

    def read(self) -> list[dict[str, Any]]:
        """Every whole line, oldest first. `underway.read` also has what runs that were cut short left."""
        records = []
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("schema_version") == SCHEMA_VERSION:
                records.append(_in_today_s_words(record))
        return records


def _in_today_s_words(record: dict[str, Any]) -> dict[str, Any]:
    """What a record of before runs had names, baselines were chosen and peaks had a format would say today."""
    settings, numbers = (record.setdefault(key, {}) for key in ("settings", "numbers"))
    if not record.get("run"):
        record["run"] = f"seed-{settings.get('seed')}"
    settings.setdefault("baseline", "torch")
    if "peak_flops_per_s" in numbers:
        numbers["peak_float32_flops_per_s"] = numbers.pop("peak_flops_per_s")
    return record


def environment() -> dict[str, Any]:
    """Facts of this run that no device knows."""
    import platform

    return {"python": sys.version.split()[0], "platform": f"{platform.system()} {platform.machine()}", **_git()}


def _git() -> dict[str, Any]:
    folder = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
        if commit.returncode:
            return {}
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--", ":!results"], cwd=folder, capture_output=True, text=True
        )
    except OSError:
        return {}
    return {"commit": commit.stdout.strip(), "dirty": bool(changes.stdout.strip())}
