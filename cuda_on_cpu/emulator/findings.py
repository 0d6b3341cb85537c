"""The findings of a sanitizer: their types, their parser, and one sentence about each finding for the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_LONGEST_TEXT = 300


class Kind(StrEnum):
    """The kind of mistake that a finding reports."""

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
    MISALIGNED = "misaligned access"
    TRAP = "trap"
    ABSENT_LANE = "absent lane"
    NO_PROXY_FENCE = "missing proxy fence"
    STILL_READ = "write before a wait"
    NO_WAIT = "registers before a wait"
    FAILED = "failed instruction"
    HANG = "hang"
    TOO_EARLY = "access before a wait"


# Kinds of mistakes that may be the cause of further findings: an access outside an array may hit memory that another
# thread uses, which looks like a race, and a missed barrier makes a race.
_CAUSES = (
    {Kind.FAILED_LAUNCH, Kind.TRAP, Kind.FAILED},
    {Kind.OUT_OF_BOUNDS_WRITE, Kind.OUT_OF_BOUNDS_READ, Kind.USE_AFTER_FREE, Kind.INPUT_WRITTEN},
    {Kind.DIVERGENT_BARRIER, Kind.DIVERGENT_WARP, Kind.ABSENT_LANE, Kind.HANG},
)


@dataclass(frozen=True)
class Place:
    """A line of the candidate's source that a Finding reports, and the CUDA thread that ran the line.

    `thread` is the index (x, y, z) of the thread in its block, and `block` the index of the block in the grid. Both are
    None if the thread is unknown. `writes` is true if the thread wrote to memory at this line.
    """

    file: str
    line: int
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    writes: bool = False


@dataclass(frozen=True)
class Buffer:
    """The memory that an access belongs to: a tensor or a shared array.

    An access outside all tensors and shared arrays belongs to the nearest of them.

    `place` is "device", "shared" or "dynamic shared". `bytes` is the size of the buffer, and `offset` is where the
    access starts, in bytes from the start of the buffer. `name` is empty if it is unknown.
    """

    place: str
    name: str
    bytes: int
    offset: int


@dataclass(frozen=True)
class Finding:
    """One kind of mistake that a kernel makes at one line.

    `here` is the line of the mistake with its thread, and `source` the text of the line. `there` is the other access if
    two conflict, such as in a race, or None. `buffer` is the memory that was accessed, or None if it is not known.
    `bytes` is the size of the access. `detail` is further text for the sentence. `count` is how often the kernel made
    the mistake. `case` is the name of the case in which it was found, or empty. `order` is set only if outputs depend
    on the order in which threads run: 1 if the reverse order shows it, else the seed of the random order that does.
    """

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
    order: int | None = None

    @property
    def sentence(self) -> str:
        """Returns the finding as a sentence: the kind of mistake, the line, and what the thread did to which memory."""
        text = f"{self.kind}: {self.here.file}:{self.here.line}: `{self.source}`: {_DESCRIBE[self.kind](self)}"
        if self.count > 1:
            text += f", and {self.count - 1} more times"
        return text + (f" (case {self.case})." if self.case else ".")


def causes_first(found: Sequence[Finding]) -> list[Finding]:
    """Returns the findings in their order, except that causes come before what may follow from them."""
    return sorted(found, key=lambda f: next((i for i, kinds in enumerate(_CAUSES) if f.kind in kinds), len(_CAUSES)))


def read(described: Any, case: str, source: Sequence[str]) -> list[Finding]:
    """Returns the findings in `described`, a worker's message: a list with a mapping for each finding.

    Malformed entries are left out, because the candidate may have changed what its worker sends. `case` is the name of
    the case, and `source` has the lines of the candidate.
    """
    found = []
    for each in described if isinstance(described, list) else []:
        try:
            found.append(_read(each, case, source))
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _read(each: Mapping[str, Any], case: str, source: Sequence[str]) -> Finding:
    kind = "divergent barrier" if each["kind"] == "skipped barrier" else each["kind"]
    here = _place(each["here"]) if "here" in each else Place(_text(each["launch_file"]), _int(each["launch_line"]))
    buffer = each.get("buffer")
    return Finding(
        kind=Kind(kind),
        kernel=_text(each["kernel"]),
        here=here,
        source=source_line(source, here.line),
        there=_place(each["there"]) if "there" in each else None,
        buffer=None
        if buffer is None
        else Buffer(_text(buffer["place"]), _text(buffer["name"]), _int(buffer["bytes"]), _int(buffer["offset"])),
        bytes=_int(each["bytes"]),
        detail=_text(each["detail"]),
        count=_int(each["count"]),
        case=case,
    )


def source_line(source: Sequence[str], line: int) -> str:
    """Returns one line of the candidate without indentation; empty if there is no such line.

    `source` has the lines of the candidate, and `line` is a line number, counted from 1. A line is cut after 300
    characters.
    """
    return source[line - 1].strip()[:_LONGEST_TEXT] if 0 < line <= len(source) else ""


def _place(each: Mapping[str, Any]) -> Place:
    return Place(
        _text(each["file"]), _int(each["line"]), _index(each["thread"]), _index(each["block"]), bool(each["write"])
    )


def _index(value: Any) -> tuple[int, int, int]:
    x, y, z = map(_int, value)
    return x, y, z


def _int(value: Any) -> int:
    """Returns `value` as an integer with a magnitude below 2^63.

    Raises ValueError for any other integer, and TypeError or ValueError if Python cannot convert `value`. The limit is
    needed because Python raises ValueError when it writes an integer of thousands of digits as text.
    """
    number = int(value)
    if abs(number) >= 1 << 63:
        raise ValueError("the number is too large")
    return number


def _text(value: Any) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in str(value))[:_LONGEST_TEXT]


def _thread(place: Place) -> str:
    return "a thread" if place.thread is None else f"thread {place.thread} of block {place.block}"


def _actor(f: Finding) -> str:
    return f"{_thread(f.here)} of {f.kernel}"


def _buffer(buffer: Buffer | None) -> str:
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
    access = f"{_actor(f)} {verb} {f.bytes} bytes"
    if f.buffer is None:
        return f"{access} at {f.detail or 'an address in no buffer'}"
    if f.buffer.offset < 0:
        return f"{access} that begin {-f.buffer.offset} bytes before {_buffer(f.buffer)}"
    past = f.buffer.offset - f.buffer.bytes
    if past < 0:
        return f"{access} that begin inside {_buffer(f.buffer)}, and end {past + f.bytes} past it"
    return f"{access} that begin {past} bytes past the end of {_buffer(f.buffer)}"


def _misaligned(f: Finding) -> str:
    access = f"{_actor(f)} accesses {f.bytes} bytes {f.detail}"
    return f"{access}: {_at(f)}" if f.buffer else access


def _at(f: Finding) -> str:
    return f"byte {f.buffer.offset} of {_buffer(f.buffer)}" if f.buffer else "memory"


def _race(f: Finding) -> str:
    def does(place: Place) -> str:
        return "writes" if place.writes else "reads"

    other = f.there
    text = f"{_actor(f)} {does(f.here)} {_at(f)}"
    if other is None:
        return text
    conflict = f"{_thread(other)} {does(other)} the same memory at line {other.line}"
    return f"{text}, and {conflict}; nothing orders the two accesses"


def _divergent(f: Finding) -> str:
    text = f"{_actor(f)} waits here"
    if f.detail:
        return f"{text} and {f.detail}"
    if f.there is None:
        return text
    if f.there.line and f.there.line != f.here.line:
        return f"{text} while {_thread(f.there)} waits at a different barrier, at line {f.there.line}"
    return f"{text}, but {_thread(f.there)} left the kernel without reaching this barrier"


def _warp(f: Finding) -> str:
    return f"{_actor(f)} takes part in a warp operation, but {f.detail}"


def _failed_launch(f: Finding) -> str:
    return f"the launch of {f.kernel} fails ({f.detail}) and the error is not checked; the output keeps its old content"


def _never_written(f: Finding) -> str:
    return f"{f.detail} are not written by any thread of {f.kernel}, the first at {_at(f)}"


def _no_proxy_fence(f: Finding) -> str:
    line = f" at line {f.there.line}" if f.there else ""
    text = f"a bulk copy or wgmma of {_actor(f)} reads {_at(f)}, which {_thread(f.there or f.here)} wrote{line}"
    return f"{text}; no fence.proxy.async is between the two, so it may read what was there before"


def _still_read(f: Finding) -> str:
    line = f" of line {f.there.line}" if f.there else ""
    reads = f"while the bulk copy or wgmma{line} may still read it"
    return f"{_actor(f)} writes {_at(f)} {reads}; nothing waits for its end"


def _no_wait(f: Finding) -> str:
    line = f" of line {f.there.line}" if f.there else ""
    access = "writes" if f.here.writes else "reads"
    return f"{_actor(f)} {access} a register that gets sums of the wgmma{line}, which has not been waited for"


def _too_early(f: Finding) -> str:
    access = "writes" if f.here.writes else "reads"
    return f"host code {access} {f.bytes} bytes of pinned memory before it has waited for the stream that uses them"


def _order(f: Finding) -> str:
    name = "in reverse" if f.order == 1 else f"shuffled by seed {f.order}"
    return f"{_actor(f)} writes {_at(f)}: {f.detail} when blocks and threads run {name}"


_DESCRIBE = {
    Kind.OUT_OF_BOUNDS_READ: _out_of_bounds,
    Kind.OUT_OF_BOUNDS_WRITE: _out_of_bounds,
    Kind.USE_AFTER_FREE: lambda f: f"{_actor(f)} uses {_at(f)} after it was freed",
    Kind.UNINITIALISED_READ: lambda f: f"{_actor(f)} reads {_at(f)} before any thread wrote it",
    Kind.RACE: _race,
    Kind.DIVERGENT_BARRIER: _divergent,
    Kind.DIVERGENT_WARP: _warp,
    Kind.INPUT_WRITTEN: lambda f: f"{_actor(f)} writes {_at(f)}",
    Kind.FAILED_LAUNCH: _failed_launch,
    Kind.NEVER_WRITTEN: _never_written,
    Kind.ORDER_DEPENDENCE: _order,
    Kind.MISALIGNED: _misaligned,
    Kind.TRAP: lambda f: f"{_actor(f)} ends the launch: {f.detail}",
    Kind.ABSENT_LANE: lambda f: f"{_actor(f)} reads from {f.detail}, so the value is undefined",
    Kind.NO_PROXY_FENCE: _no_proxy_fence,
    Kind.STILL_READ: _still_read,
    Kind.NO_WAIT: _no_wait,
    Kind.FAILED: lambda f: f"{_actor(f)} has an error here, {f.detail}",
    Kind.HANG: lambda f: f"{_actor(f)} waits here {f.detail}",
    Kind.TOO_EARLY: _too_early,
}
