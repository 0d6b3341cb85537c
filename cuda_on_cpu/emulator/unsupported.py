"""Recognizes CUDA constructs that the emulator lacks.

`mark` changes such constructs in the source so that they are compile errors, and `find_in_log` finds these errors in
the compiler's log. So code that the preprocessor removes does not count. A name that CUDA does not have is the author's
mistake and stays an ordinary compile error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from cuda_on_cpu.emulator import ptx
from cuda_on_cpu.emulator.tokens import (
    Token,
    brackets_after,
    joined,
    line_breaks,
    next_code,
    places_of,
    previous_code,
    text_at,
    tokenize,
)

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
_KERNEL_ATTRIBUTES = ("__cluster_dims__", "__block_size__")  # of thread block clusters
_QUOTED = r"[\u2018'](?P<name>[\w:~]+)(?:\(.*?\))?[\u2019']"
_UNKNOWN_NAME = re.compile(
    rf"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: (?:fatal )?error: {_QUOTED} "
    r"(?:was not declared|is not a member(?: of [\u2018'](?P<space>\w+))?|has not been declared|does not name"
    r"|in namespace|is not a class)",
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
# `mark` puts this folder, which does not exist, before the name of a header that the emulator does not have.
_NOWHERE = "emulator_unsupported/"
_MISSING_HEADER = re.compile(
    rf"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: fatal error: (?:{_NOWHERE})?(?P<header>\S+): No such file", re.MULTILINE
)
# A static assertion with this text stands for each construct that the emulator does not implement: `mark` puts it into
# the source, and a header of the emulator may have it.
_ASSERTION = re.compile(
    r"^(?P<place>[^\s:][^:\n]*:\d+)(?::\d+)?: error: static assertion failed: "
    r"emulator_unsupported: (?P<construct>[^\n]*)",
    re.MULTILINE,
)
_ANY_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):\d+(?::\d+)?: (?:fatal )?error: ", re.MULTILINE)
_TORCH_CUDA_HEADER = re.compile(r"/torch/include/(?P<name>(?:ATen/(?:\w+/)*cuda|c10/cuda)/[\w/.]+)$")
_INCLUDED_FROM = re.compile(r"^(?:In file included| +) from (?P<place>[^\s:][^:\n]*:\d+)[:,]", re.MULTILINE)
_PATTERNS = (_UNKNOWN_NAME, _UNKNOWN_FORM, _MISSING_HEADER, _ASSERTION)
_REQUIRED_FROM = re.compile(r"^(?P<place>[^\s:][^:\n]*:\d+):\d+:\s+required from", re.MULTILINE)


def mark(tokens: list[Token]) -> None:
    """Edits `tokens`, a CUDA source, in place, so that the compiler reports what the emulator cannot run.

    That is inline PTX (`asm`) that has no translation, headers of CUDA that the emulator does not have, attributes for
    clusters, and calls of cudaStreamBeginCapture in a source that sets torch's streams. Inline PTX that has a
    translation is translated.
    """
    for i in places_of(tokens, *_ASM):
        behind = next_code(tokens, i + 1)
        brackets = brackets_after(tokens, behind if text_at(tokens, behind) in _VOLATILE else i)
        if brackets is not None:
            opening, closing = brackets
            text = _translated(tokens[opening + 1 : closing])
            tokens[i : closing + 1] = tokenize(text + line_breaks(tokens[i : closing + 1]))
    for i in places_of(tokens, *_KERNEL_ATTRIBUTES):
        brackets = brackets_after(tokens, i)
        if brackets is not None:  # g++ looks the name up, which is not there
            text = f"__attribute__((aligned(::{tokens[i].text})))"
            tokens[i : brackets[1] + 1] = tokenize(text + line_breaks(tokens[i : brackets[1] + 1]))
    if places_of(tokens, *_TORCH_STREAMS):
        for i in places_of(tokens, "cudaStreamBeginCapture"):
            tokens[i : i + 1] = tokenize("emulator_capture_beside_torch")
    for i in places_of(tokens, "#"):
        header, name = _included(tokens, i)
        if _CUDA_HEADERS.fullmatch(header) and not (_HEADERS / header).is_file():
            tokens[name : name + 1] = tokenize(tokens[name].text[0] + _NOWHERE + tokens[name].text[1:])


def _translated(tokens: Sequence[Token]) -> str:
    """Returns the C++ translation of an `asm` statement. `tokens` are the tokens between its parentheses.

    If the emulator has no translation, returns a `static_assert` that makes the compilation fail.
    """
    try:
        return ptx.translation(tokens)
    except ptx.UnknownPtx as error:
        text = re.sub(r'[^ -~]|["\\]', " ", str(error))[:_LONGEST_PTX]
        return f'static_assert(false, "emulator_unsupported: the inline PTX {text}")'


def find_in_log(log: str) -> tuple[str, str] | None:
    """Returns the place (`file:line`) and the name of a CUDA construct that the emulator lacks, as a pair.

    `log` is the output of a compiler. The function looks for the first error about an unknown name, a missing header,
    an unknown member or unknown arguments of CUDA's C++ libraries, or a construct that `mark` has marked. Returns None
    if there is no such error. Also returns None if the first one is a mistake of the author: a name or a header that
    CUDA does not have either.
    """
    found = [match for match in (p.search(log) for p in _PATTERNS) if match]
    if not found:
        return None
    first = min(found, key=re.Match.start)
    if first.re is _UNKNOWN_NAME:
        name = first["name"].split("::")[-1]
        qualified = f"{first['space']}::{name}"
        return (first["place"], name) if name in _names() or qualified in _names() else None
    if first.re is _UNKNOWN_FORM:
        member = f"{first['type']}::{first['member']}"
        called = "an algorithm of thrust" if first["algorithm"] else first["called"]
        return _own_place(log, first), f"{called} with these arguments" if called else member
    if first.re is _MISSING_HEADER:
        header = first["header"]
        return (first["place"], f"the header {header}") if _CUDA_HEADERS.fullmatch(header) else None
    return _own_place(log, first), first["construct"]


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


def _included(tokens: Sequence[Token], at: int) -> tuple[str, int]:
    """Returns the name of the header in the `#include` whose `#` is the token at index `at`, and where it stands.

    The index is that of the literal with the name, or of the `<` before it. The name is empty if this `#` does not
    start an `#include`.
    """
    before = previous_code(tokens, at)
    if before >= 0 and "\n" not in joined(tokens[before + 1 : at]):
        return "", at
    word = next_code(tokens, at + 1)
    name = next_code(tokens, word + 1)
    if text_at(tokens, word) != "include":
        return "", at
    if text_at(tokens, name) != "<":
        return text_at(tokens, name).strip('"'), name
    text = ""
    for token in tokens[name + 1 :]:
        if token.text == ">" or "\n" in token.text:
            break
        text += token.text
    return text, name


@functools.cache
def _names() -> frozenset[str]:
    lines = (_HERE / "unsupported_names.txt").read_text().splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
