"""The stored verdicts of a suite: `suite.json` with its settings, `suite.jsonl` with a line for each verdict.

The full results are in `<problem>/<device>/runs.jsonl` below the same folder, in the form of all other results, so the
verbs `report` and `compare` read them too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_harness.core import codec
from kernel_harness.core.errors import UserError
from kernel_harness.core.folder_lock import locked
from kernel_harness.core.status import Status
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results import record, roofline
from kernel_harness.results.journal import Journal, append_line, write, writing
from kernel_harness.results.record import Result
from kernel_harness.suite.device_worker import Task, Verdict
from kernel_harness.timing.intervals import Interval

SCHEMA_VERSION = 1
_LONGEST_REASON = 300


def work_key(problem_sha256: str, candidate: Candidate, label: str, settings: Mapping[str, Any]) -> str:
    """Returns a hash of all that decides a verdict: the problem file, the candidate's source, the device, the settings.

    The problem file determines the shape. The kind of file (Python or CUDA) is a part of the key, the candidate's name
    is not. `label` is the name of the device's folder of results.
    """
    parts = {
        "problem": problem_sha256, "source": candidate.sha256, "suffix": candidate.path.suffix, "device": label,
        "settings": settings,
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Facts:
    """What all verdicts of a suite share, in suite.json."""

    label: str
    """The name of the device's folder of results."""
    device: str
    """The device's own name, such as `NVIDIA H200`."""
    seed: int
    """The secret seed of all inputs that candidates are checked on."""
    created_at: str
    """The time in UTC at which the suite began."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings, by name, that may change a verdict or a time."""
    schema_version: int = SCHEMA_VERSION

    def key(self, task: Task) -> str:
        """Returns the key of a task (`work_key`)."""
        return work_key(task.problem.sha256, task.candidate, self.label, self.settings)


@dataclass(frozen=True)
class Entry:
    """The verdict on one candidate of one problem: a line of suite.jsonl."""

    problem: str
    candidate: str
    key: str
    """Identifies what was judged (`Facts.key`): entries with an equal key have one verdict."""
    source_sha256: str
    status: Status
    reason: str = ""
    """The first 300 characters of the result's reason."""
    same_as: str | None = None
    """The candidate that was judged in place of this one, because their sources are equal."""
    time_ms: float | None = None
    """The time of a call; None if none was timed."""
    speedup: Interval | None = None
    """The time of `baseline` divided by that of the candidate, at several shapes the geometric mean.

    None under emulation, without a time at one of the shapes, and for a candidate that is excluded
    (`Result.is_excluded`).
    """
    as_called: Interval | None = None
    """The speedup with launch latency. None without such times, and at several shapes."""
    share_of_bound: float | None = None
    """The least time that any correct kernel needs, divided by `time_ms`; None if it is unknown."""
    baseline: str = ""
    emulated: bool = False
    run: str = ""
    """The id of the run that judged the candidate, or the one in its place."""
    measured_at: str = ""
    seconds: float = 0.0
    """The time from the beginning of the checks to the verdict; 0 with `same_as`."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each phase of the device worker since its last verdict; also of work for other candidates."""

    @property
    def id(self) -> tuple[str, str]:
        """Returns (name of the problem, name of the candidate), which no other entry of the suite has."""
        return self.problem, self.candidate

    @property
    def passed(self) -> bool:
        """Whether the candidate passed every check."""
        return self.status is Status.PASSED

    @staticmethod
    def of(task: Task, key: str, result: Result, verdict: Verdict) -> Entry:
        """Returns the entry of a task, whose candidate's result is `result`."""
        timing = result.timing
        counts = result.is_timed_everywhere and not result.emulated and not result.is_excluded
        return Entry(
            task.problem.name, task.candidate.name, key, task.candidate.sha256, result.status,
            result.reason[:_LONGEST_REASON], None, timing.time_ms if timing else None,
            result.speedup if counts else None,
            result.as_called.speedup if result.as_called and counts and not result.further else None,
            roofline.share_of_bound(result), result.settings.baseline, result.emulated, result.run, result.measured_at,
            verdict.seconds, verdict.phases_s,
        )  # fmt: skip

    def shared_with(self, task: Task) -> Entry:
        """Returns the entry of a task that was not judged, because it has the key of this entry."""
        return replace(
            self, problem=task.problem.name, candidate=task.candidate.name, same_as=self.candidate, seconds=0.0,
            phases_s={},
        )  # fmt: skip


class SuiteStore:
    """The files of one suite in `folder`. At most one driver at a time may write to them (`exclusive`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "suite.jsonl"
        self._facts_path = folder / "suite.json"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Returns a context in which no other process writes to this suite. Creates the folder.

        Raises UserError if another process writes to it, and Unwritable if the folder cannot be written.
        """
        with writing(self.path):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
            lock = locked(self.folder, f"another process judges the suite in {self.folder}; choose another --name")
        try:
            for unfinished in self.folder.glob(".*-*"):  # of core.atomic_file, if a driver was killed meanwhile
                unfinished.unlink(missing_ok=True)
            yield
        finally:
            os.close(lock)

    def facts(self) -> Facts | None:
        """Returns the facts in suite.json, or None if there is no such file. Raises UserError if it is damaged."""
        try:
            found: Facts = codec.reader(Facts)(json.loads(self._facts_path.read_text()))
        except FileNotFoundError:
            return None
        except ValueError as error:  # codec.Malformed is one, too
            raise UserError(f"{self._facts_path} cannot be read: {error}") from None
        return found

    def begin(self, facts: Facts) -> None:
        """Stores the facts. Raises Unwritable if the file cannot be written."""
        write(self._facts_path, json.dumps(asdict(facts), indent=2) + "\n")

    def details(self, problem: str, label: str) -> Journal:
        """Returns the journal of the full results of one problem."""
        return Journal(self.folder / problem / label)

    def append(self, entries: Sequence[Entry]) -> None:
        """Appends a line for each entry and waits until the lines are on the disk. Raises Unwritable if that fails."""
        for each in entries:
            line = {"schema_version": SCHEMA_VERSION, **asdict(each)}
            append_line(self.path, json.dumps(line, allow_nan=False))

    def read(self) -> list[Entry]:
        """Returns the last entry of each candidate, in the order in which the candidates first occur in suite.jsonl.

        Lines that are no entries of this schema version are skipped, such as a line that is cut short. Returns an empty
        list if there is no such file.
        """
        found: dict[tuple[str, str], Entry] = {}
        with suppress(FileNotFoundError), self.path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with suppress(record.NotARecord):
                    one: Entry = record.parsed(line, Entry, SCHEMA_VERSION)
                    found[one.id] = one
        return list(found.values())
