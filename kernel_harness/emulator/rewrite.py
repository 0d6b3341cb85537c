"""CUDA C++ that g++ cannot read, said in C++ it can: launches and dynamic shared memory.

Everything else is done by headers. Every edit keeps its line, so that messages name the author's own lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HEADERS = Path(__file__).parent / "include" / "cuda"
# Families of CUDA's headers; those of them that lie in our folder are ours.
_CUDA_HEADERS = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]("
    r"cuda_fp\w+\.h(?:pp)?|cuda_pipeline\w*\.h|cuda_awbarrier\w*\.h|mma\.h|cooperative_groups[\w/]*\.h|cub/[\w/.]+|thrust/[\w/.]+"
    r"|cuda/[\w/.]+|nv/\w+|cute/[\w/.]+|cutlass/[\w/.]+|curand\w*\.h|cufft\w*\.h|cusparse\w*\.h|cusolver\w*\.h|cudnn\w*\.h|nvrtc\.h"
    r")[>\"]",
    re.MULTILINE,
)
_INLINE_PTX = re.compile(r"\b(?:asm|__asm__|__asm)\b(?=\s*(?:volatile|__volatile__)?\s*\()")
_DYNAMIC_SHARED = re.compile(r"\b(?:extern\b[^;{}]*\b__shared__|__shared__\s+extern)\b[^;{}]*;")
_COMMENT_OR_CONTINUATION = re.compile(r"//[^\n]*|/\*.*?\*/|\\\n", re.DOTALL)
_ALIGNMENT = re.compile(r"\b(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\))?[^()]*\)|__attribute__\s*\(\([^;]*?\)\)")
_ARRAY = re.compile(r"^(?P<type>.*?)\s*\b(?P<name>\w+)\s*\[\s*\](?P<rest>(?:\s*\[[^\]]*\])*)\s*;$", re.DOTALL)
# `__shared__ alignas(16) T x` and `static __shared__ T x`, which nvcc reads and C++ does not.
_WORDS = re.compile(
    r"\b__shared__\s+(?P<align>alignas\s*\([^()]*(?:\([^()]*\))?[^()]*\))|\bstatic\s+__shared__\b"
    r"|(?<!\()\b__noinline__\b"
)
_TAKES_KERNEL = re.compile(r"\b(?P<call>cudaFuncSetAttribute|cudaLaunchKernel|cudaLaunchCooperativeKernel)\s*\(")
_VOID = r"(?:const\s+)?void\s*(?:const\s*)?\*"
_VOID_CAST = re.compile(
    rf"\s*(?:\(\s*{_VOID}\s*\)(?P<rest>.*)|(?:reinterpret_cast|static_cast)\s*<\s*{_VOID}\s*>\s*\((?P<inner>.*)\)\s*)$",
    re.DOTALL,
)
_KERNEL = re.compile(r"\b__global__\b[^;{}]*?\b(\w+)\s*\((?![^()]*\)\s*\w+\s*\()")


@dataclass(frozen=True)
class Unsupported:
    """A construct the emulation cannot run. `line` counts from 1 within the source given."""

    construct: str
    line: int


def unsupported(source: str) -> Unsupported | None:
    """The first construct of a CUDA source that only a GPU can run, or None."""
    code = blank(source)
    found = [(m.start(), "inline PTX (asm)") for m in _INLINE_PTX.finditer(code)]
    # A header's name may be in quotes, which blanking removes: look it up where the directive itself is code.
    found += [
        (m.start(1), f"the header {m[1]}")
        for m in _CUDA_HEADERS.finditer(source)
        if not (_HEADERS / m[1]).is_file() and code[m.start() : m.start(1)].strip()
    ]
    if not found:
        return None
    at, construct = min(found)
    return Unsupported(construct, source.count("\n", 0, at) + 1)


def rewrite(source: str) -> str:
    """The source as g++ reads it against the emulator's headers; as many lines, each with its own content.

    Raises ValueError where a launch is not balanced.
    """
    return _rewrite_launches(_rewrite_calls(_rewrite_words(_rewrite_dynamic_shared(source))))


def blank(source: str) -> str:
    """The source with comments, literals and continuations as spaces: same length, same lines, only code left."""
    pattern = re.compile(
        r"""//(?:[^\n\\]|\\.)*|/\*.*?\*/|R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"|"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)*'""",
        re.DOTALL,
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source).replace("\\\n", " \n")


def _rewrite_dynamic_shared(source: str) -> str:
    """`extern __shared__ T name[];` becomes a pointer to the block's dynamic shared memory."""
    code = blank(source)
    for match in reversed(list(_DYNAMIC_SHARED.finditer(code))):
        text = source[match.start() : match.end()]
        plain = _ALIGNMENT.sub(" ", text)
        plain = re.sub(r"\b(?:extern|__shared__)\b", " ", plain).strip()
        array = _ARRAY.match(plain)
        if not array:
            continue
        element = " ".join(array["type"].split())
        rest = array["rest"].strip()
        pointer = f"{element} (*{array['name']}){rest}" if rest else f"{element} *{array['name']}"
        cast = f"{element} (*){rest}" if rest else f"{element} *"
        lines = "\n" * text.count("\n")
        source = (
            source[: match.start()]
            + f"{pointer} = reinterpret_cast<{cast}>(::emulator::dynamic_shared);{lines}"
            + source[match.end() :]
        )
    return source


def _rewrite_words(source: str) -> str:
    """Qualifiers that no macro can stand for: `alignas` goes first, `static` once, and libstdc++ has `__noinline__`."""
    code = blank(source)
    for match in reversed(list(_WORDS.finditer(code))):
        if match["align"]:
            edited = f"{source[match.start('align') : match.end('align')]} __shared__"
        else:
            edited = "__attribute__((noinline))" if match[0] == "__noinline__" else "__shared__"
        source = source[: match.start()] + edited + _breaks(match[0]) + source[match.end() :]
    return source


def _rewrite_calls(source: str) -> str:
    """Calls that take a kernel as a value get its name first, and the kernel as itself where a cast hid its type."""
    code = blank(source)
    for match in reversed(list(_TAKES_KERNEL.finditer(code))):
        start = match.end()
        end = _argument_end(code, start)
        text = source[start:end]
        cast = _VOID_CAST.match(text)
        kernel = (cast["inner"] or cast["rest"]) if cast else text
        if cast and text.count("\n") != kernel.count("\n"):
            kernel += "\n" * (text.count("\n") - kernel.count("\n"))
        name = re.sub(r"<.*", "", kernel.strip().lstrip("&(*").strip(), flags=re.DOTALL).split("::")[-1].strip(" )")
        known = name if name in _kernels(code) else ""
        opening = f'emulator_{match["call"]}{source[match.end("call") : start]}"{known}", '
        source = source[: match.start()] + opening + kernel + source[end:]
    return source


def _kernels(code: str) -> set[str]:
    """The names of the kernels that a source defines or declares."""
    return set(_KERNEL.findall(code))


def _argument_end(code: str, start: int) -> int:
    """Where a call's argument ends: at its comma or bracket, template arguments being part of it."""
    depth, angles = 0, 0
    for i in range(start, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            if not depth:
                return i
            depth -= 1
        elif code[i] == "<" and re.search(r"\w\s*$", code[start:i]):
            angles += 1
        elif code[i] == ">" and angles and code[i - 1] != "-":
            angles -= 1
        elif code[i] == "," and not depth and not angles:
            return i
    return len(code)


def _rewrite_launches(source: str) -> str:
    """`kernel<<<configuration>>>(arguments)` becomes a call that takes the same texts in the same order."""
    code = blank(source)
    at = code.rfind("<<<")
    while at >= 0:
        start = _kernel_start(code, at)
        if start is not None:
            close = _matching(code, at + 3, ">>>")
            opening = close + 3 + len(code[close + 3 :]) - len(code[close + 3 :].lstrip())
            if code[opening : opening + 1] != "(":
                raise ValueError(f"line {source.count(chr(10), 0, at) + 1}: a launch without its arguments")
            end = _matching(code, opening + 1, ")")
            configuration, arguments = source[at + 3 : close], source[opening + 1 : end]
            flat = " ".join(_COMMENT_OR_CONTINUATION.sub(" ", source[start:at]).split())
            name = flat.replace("\\", "\\\\").replace('"', '\\"')
            if "cudaFuncSetAttribute" in code and re.fullmatch(r"\w+", name) and name not in _kernels(code):
                name = f"({name})"  # a variable: any kernel's name may be behind it
            comma = ", " if code[opening + 1 : end].strip() else ""
            before, between = _breaks(source[start:at]), _breaks(source[close + 3 : opening])
            call = (
                f"::emulator::Configuration({before}{configuration})({between}"
                f'"{name}", [&](auto... emulator_arguments) {{ {flat}(emulator_arguments...); }}{comma}{arguments})'
            )
            source = source[:start] + call + source[end + 1 :]
            # What stands before is untouched, so earlier positions still hold; only the text behind changed.
            code = blank(source)
        at = code.rfind("<<<", 0, at)
    return source


def _breaks(text: str) -> str:
    """The line breaks of a text, those of a macro with their backslashes."""
    return "".join(re.findall(r"\\?\n", text))


def _kernel_start(code: str, at: int) -> int | None:
    """Where the expression that names the kernel begins, reading backwards from `<<<`."""
    i = at
    while True:
        i = len(code[:i].rstrip())
        if i and code[i - 1] == ">":
            i = _matching_back(code, i - 1, "<", ">")
            continue
        if i and code[i - 1] == ")":
            return _matching_back(code, i - 1, "(", ")")
        word = re.search(r"\w+$", code[:i])
        if not word:
            return None
        i = word.start()
        before = code[:i].rstrip()
        if before.endswith("::"):
            i = len(before) - 2
            if not re.search(r"[\w>]\s*$", code[:i]):
                return i
            continue
        return i


def _matching_back(code: str, at: int, opening: str, closing: str) -> int:
    depth = 0
    i = at + 1
    while i > 0:
        i -= 1
        if code[i] == ")" and closing == ">":
            i = _matching_back(code, i, "(", ")")
        elif code[i] == closing and not (closing == ">" and code[i - 1] == "-"):
            depth += 1
        elif code[i] == opening:
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"line {code.count(chr(10), 0, at) + 1}: a '{closing}' without its '{opening}'")


def _matching(code: str, start: int, closing: str) -> int:
    """Where `closing` stands at the depth of `start`; brackets in between are balanced."""
    depth = 0
    i = start
    while i < len(code):
        if depth == 0 and code.startswith(closing, i):
            return i
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
        i += 1
    raise ValueError(f"line {code.count(chr(10), 0, start) + 1}: a launch that never ends with '{closing}'")
