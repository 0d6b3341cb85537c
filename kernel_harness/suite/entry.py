"""The verdict on one candidate of a suite: its dataclass, its key, and its form as a line of suite.jsonl."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernel_harness.core.status import Status
from kernel_harness.results import record, roofline
from kernel_harness.results.record import Result
from kernel_harness.suite.collection import Task
from kernel_harness.timing.statistics import Interval

SCHEMA_VERSION = 1
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Entry:
    """The verdict on one candidate of one problem.

    `key` identifies what was judged: entries with an equal key have one verdict. `same_as` is the name of the candidate
    that was judged in place of this one, because their sources are equal; None if this candidate was judged. `reason`
    has the first _LONGEST_REASON characters of the result's reason. `time_ms` is the time of a call; None if none was
    timed. `speedup` is the time of `baseline` divided by the time of the candidate. It is None without a time, and for
    emulated times, which say nothing about a GPU. `share_of_bound` is the least time that any correct kernel needs,
    divided by `time_ms`; None if it is unknown. `run` is the id of the run that judged the candidate, or the
    candidate in its place. `seconds` is the time from the beginning of the checks to the verdict. `phases_s` has the
    seconds of each phase of the evaluator's work since its last verdict, including work for other candidates. If
    `same_as` is not None, `seconds` is 0 and `phases_s` is empty.
    """

    problem: str
    candidate: str
    key: str
    source_sha256: str
    status: Status
    reason: str = ""
    same_as: str | None = None
    time_ms: float | None = None
    speedup: Interval | None = None
    share_of_bound: float | None = None
    baseline: str = ""
    emulated: bool = False
    run: str = ""
    measured_at: str = ""
    seconds: float = 0.0
    phases_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def id(self) -> tuple[str, str]:
        """Returns (name of the problem, name of the candidate), which no other task of the suite has."""
        return self.problem, self.candidate

    @property
    def passed(self) -> bool:
        """Whether the candidate passed every check."""
        return self.status is Status.PASSED


def key(task: Task, label: str, settings: Mapping[str, Any]) -> str:
    """Returns the key of a task: a hash of the problem file, the candidate's source, the device and the settings.

    The problem file determines the shape. `label` is the name of the device's folder of results. The kind of file
    (Python or CUDA) is a part of the key, the candidate's name is not.
    """
    parts = {
        "problem": task.problem.sha256, "source": task.candidate.sha256, "suffix": task.candidate.path.suffix,
        "device": label, "settings": dict(settings),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def of_result(task: Task, key: str, result: Result, seconds: float) -> Entry:
    """Returns the entry of a task from the result of its candidate."""
    timing = result.timing
    return Entry(
        task.problem.name, task.candidate.name, key, task.candidate.sha256, result.status,
        result.reason[:_LONGEST_REASON], None, timing.time_ms if timing else None,
        timing.speedup if timing and not result.emulated else None, roofline.share_of_bound(result),
        result.settings.baseline, result.emulated, result.run, result.measured_at, seconds,
    )  # fmt: skip


def to_line(entry: Entry) -> str:
    """Returns the entry as one line of JSON, without a line break."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(entry)}, allow_nan=False)


def from_line(line: str) -> Entry:
    """Returns the entry in a line that `to_line` wrote. Raises record.NotARecord for any other line."""
    found: Entry = record.parsed(line, Entry, SCHEMA_VERSION)
    return found
