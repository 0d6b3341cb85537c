"""What is being timed, on the disk round by round: whoever reads the results next sums up what a killed run left.

A run that sums its cohort up itself needs the file no more. Times and verdicts are summary's.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass, replace
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kernel_harness.results import Journal, Result, Unwritable, now, to_json, write_whole, writing
from kernel_harness.status import Status
from kernel_harness.timing import Round

# Whoever finds that nothing was left has not waited for torch.
if TYPE_CHECKING:
    from kernel_harness.cohort import Cohort
    from kernel_harness.summary import Terms

_LOG = logging.getLogger(__name__)
_FORMAT = 1
# A record's fields that come from its checks, of which a Result that is read back has none.
_OF_CHECKS = ("checks", "precision", "max_abs_error", "relative_error")


class UnderWay:
    """The file of one cohort: a line that says who is timed, and a line for each round.

    It is locked while its run lives, and by nobody once that has ended, however. Without a journal to put it beside
    there is none. Raises Unwritable where it cannot be begun.
    """

    def __init__(self, journal: Journal | None, cohort: Cohort, results: Sequence[Result], terms: Terms) -> None:
        self._cohort, self._start = cohort, time.monotonic()
        self._told: dict[str, int] = {}
        self._failing = False
        self._file: FileIO | None = None
        if journal is None:
            return
        path = journal.path.with_name(f"{_beginning(journal)}{results[0].run}-{secrets.token_hex(2)}.jsonl")
        header = {
            "format": _FORMAT, "at": now(), "arms": {arm.name: arm.trusted for arm in cohort.arms},
            "results": [to_json(result, "") for result in results], "terms": asdict(terms),
            "resolution_ms": cohort.device.resolution_ms,
        }  # fmt: skip
        with writing(path):
            self._file = path.open("xb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                write_whole(self._file, _line(header), sync=True)
            except OSError:
                self.done()  # or a file that tells nothing would stay
                raise

    def note(self) -> None:
        """Writes down what the cohort has learned since the last time. Where that fails it will be tried again."""
        if self._file is None:
            return
        learned = _lists(self._cohort)
        news = {
            "at": now(), "seconds": time.monotonic() - self._start,
            "more": {name: items[self._told.get(name, 0) :] for name, items in learned.items()},
            "hold_cycles": self._cohort.hold.cycles, "waiting": sorted(self._cohort.hold.waiting),
            "audits": self._cohort.audits, "processes": self._cohort.processes,
            "peak_bytes": self._cohort.peak_bytes, "steady": self._cohort.steady,
        }  # fmt: skip
        try:
            write_whole(self._file, _line(news), sync=False)
        except OSError as error:
            if not self._failing:
                _LOG.warning("%s: %s; what is timed now is lost if the run is killed.", self._file.name, error.strerror)
            self._failing = True
        else:
            self._told, self._failing = {name: len(items) for name, items in learned.items()}, False

    def done(self) -> None:
        """All of it is among the results."""
        if self._file is not None:
            Path(self._file.name).unlink(missing_ok=True)
            self._file.close()


def read(journal: Journal) -> list[dict[str, Any]]:
    """Every result, oldest first. What a run that was cut short left of its timing is made results of before."""
    unwritten = _take_in(journal)
    return [*journal.read(), *unwritten]


def _take_in(journal: Journal) -> list[dict[str, Any]]:
    """Adds to a journal what runs that are no more noted beside it, a sentence for each; returns what cannot be added.

    A file that cannot be read stays where it is, and is named.
    """
    unwritten = []
    for path in sorted(journal.path.parent.glob(f"{_beginning(journal)}*.jsonl")):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Or it is just being begun, or its run has only now removed it.
                if (text := file.read()) and os.fstat(file.fileno()).st_nlink:
                    unwritten += _taken_in(path, text, journal)
        except (BlockingIOError, FileNotFoundError):
            continue  # its run lives, or is done with it
        except (OSError, ValueError, LookupError, TypeError) as error:
            _LOG.warning("%s, which a run that was cut short left, cannot be read: %s", path, error)
    return unwritten


def _taken_in(path: Path, text: bytes, journal: Journal) -> list[dict[str, Any]]:
    kept = journal.read()
    new = [record for record in _summed_up(text) if not any(_same_rounds(record, other) for other in kept)]
    if new:
        timed = ", ".join(record["kernel"] for record in new if record["kind"] == "candidate")
        rounds = _rounds(new[0]["settings"]["orders"])
        _LOG.warning("Kept %s of run %s, which was cut short while it timed %s.", rounds, new[0]["run"], timed)
    try:
        journal.add(new)
    except Unwritable:
        return new
    with suppress(OSError):
        path.unlink()
    return []


def _summed_up(text: bytes) -> Iterator[dict[str, Any]]:
    """The records that the run would have written had it been interrupted instead. Raises ValueError and the like."""
    from kernel_harness.cohort import Arm, Cohort
    from kernel_harness.summary import Terms, timed

    first, *rest = text.decode(errors="replace").split("\n")
    header = json.loads(first)
    if header["format"] != _FORMAT:
        raise ValueError(f"it is of another version of the harness (format {header['format']})")
    gone: Any = None  # the processes
    device: Any = SimpleNamespace(resolution_ms=header["resolution_ms"])  # which may be another machine's
    cohort = Cohort([Arm(name, gone, trusted=trusted) for name, trusted in header["arms"].items()], device)
    at, seconds = header["at"], 0.0
    for line in rest:
        try:
            news = json.loads(line)
        except ValueError:
            continue  # cut short with the run
        _learn(cohort, news)
        at, seconds = news["at"], news["seconds"]
    results = timed(map(_result, header["results"]), cohort, Terms(**header["terms"]), seconds)
    for result, before in zip(results, header["results"], strict=True):
        if result.timing is not None and result.kind == "candidate":
            reason = f"{result.reason} The run was cut short when it had timed {_rounds(cohort.rounds)}; who may have "
            reason += "disturbed the others had not been looked for."
            result = replace(result, reason=reason.strip())
        yield {**to_json(result, at), **{key: before[key] for key in _OF_CHECKS}}


def _lists(cohort: Cohort) -> dict[str, Sequence[Any]]:
    """What a cohort learns that only grows; of arms, under `what/arm`."""
    return {
        "warmup": cohort.warmup, "rounds": cohort.rounds, "states": cohort.states,
        **{f"warm_ms/{name}": samples for name, samples in cohort.warm_ms.items()},
        **{f"trials/{name}": trials for name, trials in cohort.trials.items()},
        **{f"fault/{arm.name}": [[f.status, f.reason, f.log]] for arm in cohort.arms if (f := arm.fault)},
    }  # fmt: skip


def _learn(cohort: Cohort, news: Mapping[str, Any]) -> None:
    """What `note` wrote down."""
    from kernel_harness.device import Steady
    from kernel_harness.evidence import Evidence
    from kernel_harness.examine import Fault

    for name, items in news["more"].items():
        what, _, of = name.partition("/")
        if what in ("warmup", "rounds"):
            getattr(cohort, what).extend(Round(**{**each, "order": tuple(each["order"])}) for each in items)
        elif what == "states":
            cohort.states += items
        elif what == "warm_ms":
            cohort.warm_ms.setdefault(of, []).extend(items)
        elif what == "trials":
            cohort.trials.setdefault(of, []).extend(Evidence(**each) for each in items)
        else:
            for status, reason, log in items:
                (arm,) = (arm for arm in cohort.arms if arm.name == of)
                arm.fault = Fault(Status(status), reason, log)
    cohort.hold.cycles, cohort.hold.waiting = news["hold_cycles"], set(news["waiting"])
    cohort.audits, cohort.processes = news["audits"], Counter(news["processes"])
    cohort.peak_bytes = news["peak_bytes"]
    cohort.steady = {name: Steady(**told) if isinstance(told, dict) else told for name, told in news["steady"].items()}


def _result(record: Mapping[str, Any]) -> Result:
    """A result that has not been timed, without its checks."""
    given = {f.name: record[f.name] for f in fields(Result) if f.name not in ("checks", "timing")}
    return Result(**{**given, "status": Status(record["status"])})


def _same_rounds(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a run that was cut short had come to write the other itself."""
    orders = record["settings"]["orders"]
    one = all(record[key] == other[key] for key in ("run", "kernel"))
    return one and other["settings"].get("orders", ())[: len(orders)] == orders


def _rounds(rounds: Sequence[Any]) -> str:
    return f"{len(rounds)} round{'' if len(rounds) == 1 else 's'}"


def _beginning(journal: Journal) -> str:
    """Of the names of files beside it."""
    return f"{journal.path.stem}-under-way-"


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, default=_plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
