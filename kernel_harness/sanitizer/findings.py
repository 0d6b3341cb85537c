"""What a sanitizer found, as values, and as a sentence each. Who looks for them, and where, is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_LONGEST_TEXT = 300


class Kind(StrEnum):
    """What is wrong with a kernel."""

    OUT_OF_BOUNDS_READ = "out-of-bounds read"
    OUT_OF_BOUNDS_WRITE = "out-of-bounds write"
    USE_AFTER_FREE = "use after free"
    UNINITIALISED_READ = "uninitialised read"
    RACE = "race"
    DIVERGENT_BARRIER = "divergent barrier"
    DIVERGENT_WARP = "divergent warp"
    INPUT_WRITTEN = "write to an input"
    FAILED_LAUNCH = "failed launch"
    NEVER_WRITTEN = "never written"
    ORDER_DEPENDENCE = "order dependence"


@dataclass(frozen=True)
class Place:
    """A thread at a line of the candidate. Indices are (x, y, z)."""

    file: str
    line: int
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    writes: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory that was meant. `offset` is where the access begins, in bytes from the buffer's start."""

    place: str  # device, shared or dynamic shared
    name: str
    bytes: int
    offset: int


@dataclass(frozen=True)
class Finding:
    """One mistake of a kernel, at one line, however often it was made. `there` is the other half of a conflict."""

    kind: Kind
    kernel: str
    here: Place
    source: str
    there: Place | None = None
    buffer: Buffer | None = None
    bytes: int = 0
    detail: str = ""
    count: int = 1
    case: str = ""
    order: int | None = None  # the seed that shows it

    @property
    def sentence(self) -> str:
        """Kind, file, line and source, who did it and to what."""
        text = f"{self.kind}: {self.here.file}:{self.here.line}: `{self.source}`: {_SAY[self.kind](self)}"
        if self.count > 1:
            text += f", and {self.count - 1} times more"
        return text + (f" (case {self.case})." if self.case else ".")


def read(described: Any, case: str, source: Sequence[str]) -> list[Finding]:
    """Findings as a worker describes them. It is not trusted: what is no finding is left out."""
    found = []
    for each in described if isinstance(described, list) else []:
        try:
            found.append(_read(each, case, source))
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _read(each: Mapping[str, Any], case: str, source: Sequence[str]) -> Finding:
    kind = "divergent barrier" if each["kind"] == "skipped barrier" else each["kind"]
    here = _place(each["here"]) if "here" in each else Place(_text(each["launch_file"]), int(each["launch_line"]))
    buffer = each.get("buffer")
    return Finding(
        kind=Kind(kind),
        kernel=_text(each["kernel"]),
        here=here,
        source=source_line(source, here.line),
        there=_place(each["there"]) if "there" in each else None,
        buffer=buffer
        and Buffer(_text(buffer["place"]), _text(buffer["name"]), int(buffer["bytes"]), int(buffer["offset"])),
        bytes=int(each["bytes"]),
        detail=_text(each["detail"]),
        count=int(each["count"]),
        case=case,
    )


def source_line(source: Sequence[str], line: int) -> str:
    """A line of the candidate without its indentation; empty where there is none."""
    return source[line - 1].strip()[:_LONGEST_TEXT] if 0 < line <= len(source) else ""


def _place(each: Mapping[str, Any]) -> Place:
    return Place(
        _text(each["file"]), int(each["line"]), _index(each["thread"]), _index(each["block"]), bool(each["write"])
    )


def _index(value: Any) -> tuple[int, int, int]:
    x, y, z = (int(v) for v in value)
    return x, y, z


def _text(value: Any) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in str(value))[:_LONGEST_TEXT]


def _who(place: Place) -> str:
    return "a thread" if place.thread is None else f"thread {place.thread} of block {place.block}"


def _doer(f: Finding) -> str:
    return f"{_who(f.here)} of {f.kernel}"


def _what(buffer: Buffer | None) -> str:
    if buffer is None:
        return "an address in no buffer"
    name = buffer.name
    if buffer.place == "shared":
        name = f"the shared array {name}" if name else "static shared memory"
    elif buffer.place == "dynamic shared":
        name = "dynamic shared memory"
    return f"{name or 'a device allocation'}, {buffer.bytes} bytes"


def _out_of_bounds(f: Finding) -> str:
    verb = "reads" if f.kind is Kind.OUT_OF_BOUNDS_READ else "writes"
    access = f"{_doer(f)} {verb} {f.bytes} bytes"
    if f.buffer is None:
        return f"{access} at {f.detail or 'an address in no buffer'}"
    if f.buffer.offset < 0:
        return f"{access} that begin {-f.buffer.offset} bytes before {_what(f.buffer)}"
    past = f.buffer.offset - f.buffer.bytes
    if past < 0:
        return f"{access} that begin inside {_what(f.buffer)}, and end {past + f.bytes} past it"
    return f"{access} that begin {past} bytes past the end of {_what(f.buffer)}"


def _at(f: Finding) -> str:
    return f"byte {f.buffer.offset} of {_what(f.buffer)}" if f.buffer else "memory"


def _race(f: Finding) -> str:
    def does(place: Place) -> str:
        return "writes" if place.writes else "reads"

    other = f.there
    text = f"{_doer(f)} {does(f.here)} {_at(f)}"
    if other is None:
        return text
    return f"{text}, which {_who(other)} {does(other)} at line {other.line} with nothing to order the two"


def _divergent(f: Finding) -> str:
    text = f"{_doer(f)} waits here"
    if f.detail:
        return f"{text} and {f.detail}"
    if f.there is None:
        return text
    if f.there.line and f.there.line != f.here.line:
        return f"{text} while {_who(f.there)} waits at another barrier, line {f.there.line}"
    return f"{text}, but {_who(f.there)} left the kernel without coming by"


def _warp(f: Finding) -> str:
    return f"{_doer(f)} takes part in a warp operation, but {f.detail}"


def _failed_launch(f: Finding) -> str:
    return f"the launch of {f.kernel} fails ({f.detail}) and nobody asks for the error, so its output is what was there"


def _never_written(f: Finding) -> str:
    return f"{f.detail} are written by no thread of {f.kernel}, the first at {_at(f)}"


def _order(f: Finding) -> str:
    name = "in reverse" if f.order == 1 else f"shuffled by seed {f.order}"
    return f"{_doer(f)} writes {_at(f)}: {f.detail} when blocks and threads run {name}"


_SAY = {
    Kind.OUT_OF_BOUNDS_READ: _out_of_bounds,
    Kind.OUT_OF_BOUNDS_WRITE: _out_of_bounds,
    Kind.USE_AFTER_FREE: lambda f: f"{_doer(f)} uses {_at(f)} after it was freed",
    Kind.UNINITIALISED_READ: lambda f: f"{_doer(f)} reads {_at(f)} before anybody wrote it",
    Kind.RACE: _race,
    Kind.DIVERGENT_BARRIER: _divergent,
    Kind.DIVERGENT_WARP: _warp,
    Kind.INPUT_WRITTEN: lambda f: f"{_doer(f)} writes {_at(f)}",
    Kind.FAILED_LAUNCH: _failed_launch,
    Kind.NEVER_WRITTEN: _never_written,
    Kind.ORDER_DEPENDENCE: _order,
}
