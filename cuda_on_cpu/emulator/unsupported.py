"""Recognizes CUDA constructs that the emulator lacks.

A construct refuses a candidate only if its code runs. `marks` replaces inline PTX without a translation by a call that
reports it, and `find_in_log` finds other constructs by their errors in the compiler's log. The function with such an
error then gets a body that reports the construct (`without_bodies`). A name that CUDA does not have is the author's
mistake and stays an ordinary compile error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Token,
    brackets_after,
    edited,
    functions,
    includes,
    joined,
    line_breaks,
    line_of,
    next_code,
    places_of,
    text_at,
    tokenize,
    told_line_of,
)
from cuda_on_cpu.emulator import ptx

_HERE = Path(__file__).parent
_HEADERS = _HERE / "include" / "cuda"
# The names of CUDA's headers. The emulator has those headers that are in the folder _HEADERS.
_CUDA_HEADERS = re.compile(
    r"cuda_fp\w+\.h(?:pp)?|cuda_pipeline\w*\.h|cuda_awbarrier\w*\.h|mma\.h|cooperative_groups[\w/]*\.h|cub/[\w/.]+"
    r"|thrust/[\w/.]+|cuda/[\w/.]+|nv/\w+|cute/[\w/.]+|cutlass/[\w/.]+|curand\w*\.h|cufft\w*\.h|cusparse\w*\.h"
    r"|cusolver\w*\.h|cudnn\w*\.h|cublas\w*\.h|nvrtc\.h|surface\w*\.h|texture\w*\.h|nccl\.h|npp\w*\.h|nvtx3/[\w/.]+"
)
_TORCH_STREAMS = ("getStreamFromPool", "CUDAStreamGuard", "setCurrentCUDAStream")
_ASM, _VOLATILE = ("asm", "__asm__", "__asm"), ("volatile", "__volatile__")
_KERNEL_ATTRIBUTES = ("__block_size__",)  # of thread block clusters
_QUOTED = r"[\u2018'](?P<name>[\w:~]+)(?:\(.*?\))?[\u2019']"
_UNKNOWN_NAME = re.compile(
    rf"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: (?:fatal )?error: {_QUOTED} "
    r"(?:was not declared|(?:is not a member|in namespace)(?: of)?(?: [\u2018'](?P<space>\w+))?|has not been declared"
    r"|does not name|is not a class|is not a namespace-name)",
    re.MULTILINE,
)
# A class or function of a library that the emulator has, with other arguments or members than it knows.
_LIBRARY = r"(?:cub|thrust|cooperative_groups|cuda)::"
_UNKNOWN_FORM = re.compile(
    r"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: error: "
    rf"(?:no matching function for call to [\u2018'](?P<called>{_LIBRARY}\w+(?:::\w+)*)"
    r"|no match for call to [\u2018']\((?:const )?(?P<algorithm>thrust::)details::"
    rf"|(?=[^\n]*(?:class|struct) (?P<type>{_LIBRARY}\w+))[^\n]* has no member named [\u2018'](?P<member>\w+))",
    re.MULTILINE,
)
_LONGEST_PTX = 100
_DIRECTIVE = re.compile(r"\s*#\s*(if(?:n?def)?|elif|else|endif)\b")
_MISSING_HEADER = re.compile(
    r"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: fatal error: (?P<header>\S+): No such file", re.MULTILINE
)
# `marks` replaces the #include of a header that the emulator does not have by a note of the compiler with this text.
_LEFT_OUT = "emulator_leaves_out "
_NOTE = re.compile(rf"#pragma message: {_LEFT_OUT}(?P<header>[^\s\u2019']+)")
# The names that a header declares begin with this part of the header's name, such as `cudnn` or `cutlass`.
_LIBRARY_OF_HEADER = re.compile(r"[a-z]+(?:_[a-z]+)*", re.IGNORECASE)
# A header of the emulator has a static assertion with this text for a construct that the emulator does not implement.
_ASSERTION = re.compile(
    r"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: error: static assertion failed: "
    r"emulator_unsupported: (?P<construct>[^\n]*)",
    re.MULTILINE,
)
# The headers have static assertions with these texts of nvcc and ptxas for what these refuse.
_REFUSED = re.compile(r"error: static assertion failed: (?:asm operand|Argument \d)")
_ANY_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):\d+(?::\d+)?: (?:fatal )?error: ", re.MULTILINE)
_TORCH_CUDA_HEADER = re.compile(r"/torch/include/(?P<name>(?:ATen/(?:\w+/)*cuda|c10/cuda)/[\w/.]+)$")
_INCLUDED_FROM = re.compile(r"^(?:In file included| +) from (?P<place>[^\s:][^:\n]*:\d+)[:,]", re.MULTILINE)
_PATTERNS = (_UNKNOWN_NAME, _UNKNOWN_FORM, _MISSING_HEADER, _ASSERTION)
_REQUIRED_FROM = re.compile(r"^(?P<place>[^\s:][^:\n]*:\d+):\d+:\s+required from", re.MULTILINE)


def marks(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits of a CUDA source with which what the emulator cannot run is reported.

    Inline PTX (`asm`) is translated, or replaced by a call that reports it when it runs. Headers of CUDA that the
    emulator does not have are left out. The compiler reports attributes for clusters, and calls of
    cudaStreamBeginCapture in a source that sets torch's streams.
    """
    yield from _translations(tokens)
    for i in places_of(tokens, *_KERNEL_ATTRIBUTES):
        brackets = brackets_after(tokens, i)
        if brackets is not None:  # g++ looks the name up, which is not there
            text = f"__attribute__((aligned(::{tokens[i].text})))"
            yield i, brackets[1] + 1, text + line_breaks(tokens[i : brackets[1] + 1])
    if places_of(tokens, *_TORCH_STREAMS):
        for i in places_of(tokens, "cudaStreamBeginCapture"):
            yield i, i + 1, "emulator_capture_beside_torch"
    for include in includes(tokens):
        header = include.header.strip('<">')
        if _CUDA_HEADERS.fullmatch(header) and not (_HEADERS / header).is_file():
            yield include.start, include.end, f'#pragma message "{_LEFT_OUT}{header}"'


def _translations(tokens: Sequence[Token]) -> Iterator[Edit]:
    for i in places_of(tokens, *_ASM):
        behind = next_code(tokens, i + 1)
        brackets = brackets_after(tokens, behind if text_at(tokens, behind) in _VOLATILE else i)
        if brackets is not None:
            inside = tokens[brackets[0] + 1 : brackets[1]]  # an operand may have another one
            found = edited(inside, _translations(inside))
            if text := _each_way(found):
                yield i, brackets[1] + 1, f"{text}#line {told_line_of(tokens, brackets[1])}\n"
            else:
                yield i, brackets[1] + 1, _translated(found) + line_breaks(tokens[i : brackets[1] + 1])


def _each_way(tokens: Sequence[Token]) -> str:
    """Returns the translations of an `asm` statement whose text has an `#if` in it, one for each of its branches.

    They are in lines of their own. Returns an empty text if the statement has no `#if`.
    """
    lines = joined(tokens).split("\n")
    kinds = [match[1] if (match := _DIRECTIVE.match(line)) else "" for line in lines]
    first = next((i for i, kind in enumerate(kinds) if kind.startswith("if")), None)
    if first is None:
        return ""
    depth, parts, last = 0, [first], len(lines)
    for i in range(first, len(lines)):
        depth += (kinds[i] in ("if", "ifdef", "ifndef")) - (kinds[i] == "endif")
        if depth == 1 and kinds[i] in ("elif", "else"):
            parts.append(i)
        if depth == 0:
            last = i
            break
    out = ""
    for start, end in zip(parts, [*parts[1:], last], strict=True):
        out += f"\n{lines[start]}\n{_one_way([*lines[:first], *lines[start + 1 : end], *lines[last + 1 :]])}"
    if kinds[parts[-1]] != "else":
        out += f"\n#else\n{_one_way([*lines[:first], *lines[last + 1 :]])}"
    return f"{out}\n#endif\n"


def _one_way(lines: Sequence[str]) -> str:
    tokens = tokenize("\n".join(lines))
    return _each_way(tokens) or _translated(tokens)


def _translated(tokens: Sequence[Token]) -> str:
    """Returns the C++ translation of an `asm` statement. `tokens` are the tokens between its parentheses.

    If the emulator has no translation, returns code that reports this when it runs.
    """
    try:
        return ptx.translation(tokens)
    except ptx.UnknownPtx as error:
        return ptx.without_translation(tokens, _report(f"the inline PTX {str(error)[:_LONGEST_PTX]}"))


def _report(construct: str) -> str:
    """Returns a C++ expression that reports `construct` as unsupported, with the place of the expression."""
    text = re.sub(r'[^ -~]|["\\]', " ", construct)
    return f'EMULATOR_LACK("{text}")'


def without_bodies(source: str, constructs: Mapping[int, str]) -> str | None:
    """Returns the CUDA source with other bodies of the functions that have constructs which the emulator lacks.

    `constructs` maps lines of the source, from 1, to constructs. A body in which there is such a line is replaced by a
    report of the construct. Its lines keep their numbers. Returns None if the first of the lines is in no function.
    """
    tokens, edits = tokenize(source), list[Edit]()
    first = next(iter(constructs))
    found = [(function.opening, function.closing) for function in functions(tokens)]
    bodies = [(at, end, line_of(tokens, at), line_of(tokens, end)) for at, end in found]
    if not any(start <= first <= last for _, _, start, last in bodies):
        return None
    for at, end, start, last in bodies:
        line = next((line for line in constructs if start <= line <= last), None)
        if line is not None:
            report = "\n" * (line - start) + _report(constructs[line]) + ";" + "\n" * (last - line)
            edits.append((at, end + 1, f"{{{report}}}"))
    return joined(edited(tokens, edits))


def reports_in(library: Path) -> list[str]:
    """Returns the sentences with which the code in a candidate's library would report what the emulator lacks.

    Each names the place in the source and the construct. The order is that of the names. The list is empty if the file
    is not there any more.
    """
    try:
        found = re.findall(rb"emulator_lack ([ -~]+)", library.read_bytes())
    except OSError:
        return []
    return sorted({sentence.decode() for sentence in found})


def find_in_log(log: str) -> tuple[str, str] | None:
    """Returns the first pair of `all_in_log`, or None if there is none."""
    return next(iter(all_in_log(log)), None)


def all_in_log(log: str) -> list[tuple[str, str]]:
    """Returns the place (`file:line`) and the name of each CUDA construct that the emulator lacks, in order.

    `log` is the output of a compiler. The function looks for errors about an unknown name, a missing header, an unknown
    member or unknown arguments of CUDA's C++ libraries, or a construct that a header marks. Returns an empty list if
    the first such error is a mistake of the author: a name or a header that CUDA does not have either. Also returns an
    empty list if nvcc refuses an operand of inline PTX: another error may be a consequence of that one.
    """
    if _REFUSED.search(log):
        return []
    matches = sorted((match for pattern in _PATTERNS for match in pattern.finditer(log)), key=re.Match.start)
    found = [_construct(match, log) for match in matches]
    return [each for each in found if each] if found and found[0] else []


def _construct(error: re.Match[str], log: str) -> tuple[str, str] | None:
    """Returns the place and the construct of an error in `log`, or None if the error is a mistake of the author."""
    if error.re is _UNKNOWN_NAME:
        name = error["name"].split("::")[-1]
        if name in _names() or f"{error['space']}::{name}" in _names():
            return error["place"], name
        header = _left_out(error["name"], log) or _left_out(error["space"] or "", log)
        return (error["place"], f"{name} of the header {header}") if header else None
    if error.re is _UNKNOWN_FORM:
        member = f"{error['type']}::{error['member']}"
        called = "an algorithm of thrust" if error["algorithm"] else error["called"]
        return _own_place(log, error), f"{called} with these arguments" if called else member
    if error.re is _MISSING_HEADER:
        header = error["header"]
        return (error["place"], f"the header {header}") if _CUDA_HEADERS.fullmatch(header) else None
    return _own_place(log, error), error["construct"]


def _left_out(name: str, log: str) -> str:
    """Returns the header that declares `name` among those that the log says were left out, or an empty text."""
    headers = [match["header"] for match in _NOTE.finditer(log)]
    stems = ((_LIBRARY_OF_HEADER.match(header), header) for header in headers)
    return next((header for stem, header in stems if stem and name.lower().startswith(stem[0].lower())), "")


def find_in_torch_headers(log: str) -> tuple[str, str] | None:
    """Returns the place (`file:line`) of an `#include` and the header of torch whose CUDA code g++ cannot compile.

    `log` is the output of a compiler. Returns None if its first error is not in such a header.
    """
    error = _ANY_ERROR.search(log)
    header = _TORCH_CUDA_HEADER.search(error["file"]) if error else None
    if not error or not header:
        return None
    places = [m["place"] for m in _INCLUDED_FROM.finditer(log[: error.start()])] + ["source"]
    own = (place for place in places if "/torch/include/" not in place and str(_HERE) not in place)
    return next(own), f"the header {header['name']}"


def _own_place(log: str, error: re.Match[str]) -> str:
    """Returns the place (`file:line`) in the candidate's source where `error` is, or that led to it from a header.

    Returns "source" if the log names only headers of the emulator.
    """
    places = [m["place"] for m in _REQUIRED_FROM.finditer(log)] + [error["place"]]
    own = [place for place in places if str(_HERE) not in place]
    return own[-1] if own else "source"


@functools.cache
def _names() -> frozenset[str]:
    lines = (_HERE / "unsupported_names.txt").read_text().splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
