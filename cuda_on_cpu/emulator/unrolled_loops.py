"""Marks the loops of a CUDA source that nvcc unrolls by four although it does not know how many steps they have.

Its code does four steps at a time in one loop, and those that remain in another one, before or behind it. So threads
with different numbers of steps are at different instructions. The rules below were read off the SASS that nvcc 13.0
makes of 56 small loops.
"""

from __future__ import annotations

import re

from cuda_on_cpu.emulator.tokens import code_only

_DEVICE, _CONSTEXPR = re.compile(r"\b__(?:global|device)__\b"), re.compile(r"\bconst(?:eval|expr)\b(?!\s*\()")
_FOR = re.compile(r"\bfor\s*\(")
_TEST = re.compile(r"\s*(\w+)\s*(?:<=?|>=?|!=)([^<>=!&|?,]+)")
_STEP = re.compile(r"\s*(?:\+\+\s*\w+|--\s*\w+|\w+\s*\+\+|\w+\s*--|\w+\s*[-+]=([^,?]+))")
_NAME = re.compile(r"[A-Za-z_]\w*")
# Declarations of names whose value nvcc knows, such as `constexpr int A = 1, B = 2` and `template <int A, int B>`.
_CONSTANTS = re.compile(r"\b(?:constexpr|template\s*<)([^;{}<>()]*)")
_CONSTANT = re.compile(r"(\w+)\s*(?:=[^,]*)?(?:,|$)")
_KNOWN = re.compile(r"\b(?:const\s+\w+|\w+\s+const)\s+(\w+)\s*=\s*(?:\d|sizeof)|#\s*define\s+(\w+)")
# nvcc does not unroll a loop around another one, one with a second exit, or one that works on a whole warp or calls
# large functions. Beyond so many operations, it unrolls by two or not at all: chains of 20 FMAs and of 24.
_NOT_UNROLLED = re.compile(
    r"\b(?:for|while|do|break|return|goto|asm|__asm__|\w*(?:sync|shfl|ballot|activemask)\w*|"
    r"(?:sin|cos|tan|sincos|pow|erf|lgamma|tgamma)[fp]?i?f?)\b"
)
_OPERATION = re.compile(r"[-+*/%&|^?<>=]+")
_MOST_OPERATIONS = 40
# The remaining steps come last if an integer that changes in the loop has a constant value before it.
_INTEGER = (
    r"\b(?:int|unsigned|long|short|char|bool|(?:u?int\d+|size)_t)\b[^;(){{}}]*"
    r"\b{name}\s*=\s*(?:-?\d\w*|true|false)\s*[;,]"
)
_CHANGED = re.compile(r"(?<![\].\w])(\w+)\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)\s*(\w+)|(\w+)\s*(?:\+\+|--)")
_STORE = re.compile(r"\]\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\batomic")


def marks(source: str) -> list[tuple[int, str]]:
    """Returns texts to add to the source (`tokens.with_additions`), and the indices before which they are added.

    With them, such loops report their begin, each step and their end (emulator/loops.h).
    """
    code = code_only(source)
    known = {name for names in _KNOWN.findall(code) for name in names if name}
    known |= {name for names in _CONSTANTS.findall(code) for name in _CONSTANT.findall(names)}
    added: list[tuple[int, str]] = []
    for found in _FOR.finditer(code):
        end = _closing(code, found.end() - 1)
        parts = code[found.end() : end].split(";")
        if len(parts) != 3 or not _is_in_device_code(source, code, found.start()):
            continue
        test, step = _TEST.fullmatch(parts[1]), _STEP.fullmatch(parts[2])
        body = _body(code, end + 1)
        if test and step and test[1] in step[0] and _is_unrolled(test[2], step[1] or "", body, known):
            last = _comes_last(test[1], parts[0], code[: found.start()], body)
            added.append((found.start(), f"EMULATOR_UNROLLED({str(last).lower()}) "))
            added.append((end - len(parts[2]) - 1, f" && ::emulator::begins_step(emulator_loop, {test[1]})"))
    return added


def _is_unrolled(bound: str, step: str, body: str, known: set[str]) -> bool:
    steps, bounds = (set(_NAME.findall(text)) for text in (step, bound))
    return (
        steps <= known
        and not bounds <= known
        and not ("[" in bound and _STORE.search(body))  # the store may change the bound
        and not _NOT_UNROLLED.search(body)
        and len(_OPERATION.findall(body)) <= _MOST_OPERATIONS
    )


def _comes_last(counter: str, begin: str, before: str, body: str) -> bool:
    """Returns whether nvcc's code runs the steps that remain after groups of four behind these groups, not before them.

    `counter` is the name of the loop's variable, `begin` the first statement of the loop's head, `before` the code
    before the loop and `body` the body of the loop. The result is true if `begin` declares `counter` with a constant
    value, or if `before` declares an integer with a constant value and `body` changes it.
    """
    changed = {name for names in _CHANGED.findall(body) for name in names if name}
    texts = [(counter, f"{begin};"), *((name, before) for name in changed)]
    return any(re.search(_INTEGER.format(name=name), text) for name, text in texts)


def _is_in_device_code(source: str, code: str, at: int) -> bool:
    """Returns whether a loop is in a function for the GPU, but not in a macro or its arguments, and has no pragma.

    A constexpr function does not count, because the compiler may run it.
    """
    start = source.rfind("\n", 0, at) + 1
    in_macro = source[start:at].lstrip().startswith("#") or source[: max(start - 1, 0)].endswith("\\")
    directive = code[:start].rstrip().rpartition("\n")[2].lstrip().startswith("#")
    heads = " ".join(_heads(code, at))
    in_function = _DEVICE.search(heads) and not _CONSTEXPR.search(heads)
    return bool(in_function) and not in_macro and not directive and code.count("(", 0, at) == code.count(")", 0, at)


def _heads(code: str, at: int) -> list[str]:
    """Returns what comes before each of the braces around the place `at`."""
    opened: list[int] = []
    for brace in re.finditer(r"[{}]", code[:at]):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            opened.pop()
    return [code[max(code.rfind(end, 0, brace) for end in ";{}") + 1 : brace] for brace in opened]


def _body(code: str, at: int) -> str:
    """Returns the statement that begins at `at`, without the `else` behind a block."""
    end = re.compile(r"[;{]").search(code, at)
    if not end:
        return ""
    return code[at : _closing(code, end.start()) if end[0] == "{" else end.start()]


def _closing(code: str, at: int) -> int:
    """Returns the index in `code` of the bracket that closes the `(` or `{` at index `at`.

    Returns the length of `code` if no bracket closes it.
    """
    opening, depth = code[at], 0
    for bracket in re.compile(r"[()]" if opening == "(" else r"[{}]").finditer(code, at):
        depth += 1 if bracket[0] == opening else -1
        if not depth:
            return bracket.start()
    return len(code)
