"""The messages between the driver of a suite and its evaluator processes: lines of JSON on a socket pair.

Both ends are processes of the judge. Results travel as the lines that `results.record` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernel_harness.results import codec


@dataclass(frozen=True)
class Judge:
    """Driver to evaluator: build this candidate as soon as possible, then judge it.

    `number` identifies the request. `problem` is the name of the problem and `problem_path` its file. `name` is the
    name of the candidate, `path` its file and `source` the text of this file.
    """

    number: int
    problem: str
    problem_path: str
    name: str
    path: str
    source: str


@dataclass(frozen=True)
class Finish:
    """Driver to evaluator: end after the present candidate. A killed driver closes the connection without Finish."""


@dataclass(frozen=True)
class Ready:
    """Evaluator to driver: the device, whose own name is `device`, can be used. Its folder of results is `label`."""

    label: str
    device: str


@dataclass(frozen=True)
class Began:
    """Evaluator to driver: the checks of the candidate of request `number` begin."""

    number: int


@dataclass(frozen=True)
class Judged:
    """Evaluator to driver: the candidate of request `number` has its verdict.

    `lines` holds the candidate's result, then the results of the baselines that were timed beside it, each as a line of
    JSON (`results.record`). `seconds` is the time from the beginning of the checks to the verdict. `phases_s` has the
    seconds of each phase of the evaluator's work since its last verdict (`core.phases`).
    """

    number: int
    lines: tuple[str, ...]
    seconds: float
    phases_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Unusable:
    """Evaluator to driver: the problem of request `number` cannot be used, so its candidate gets no verdict."""

    number: int
    reason: str


@dataclass(frozen=True)
class Lacking:
    """Evaluator to driver: this machine cannot judge candidates on this device, for example without a compiler."""

    reason: str


Message = Judge | Finish | Ready | Began | Judged | Unusable | Lacking
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Judge, Finish, Ready, Began, Judged, Unusable, Lacking)}


def to_line(message: Message) -> bytes:
    """Returns the message as one line of JSON, with its line break."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """Returns the message in a line that `to_line` wrote. Raises ValueError or another error for any other line."""
    fields = json.loads(line)
    found: Message = codec.decoder(_KINDS[fields.pop("kind")])(fields)
    return found
