"""Declares a source's kernels to the runtime, and whose `__shared__` variables each kernel may use.

A launch then gets shared memory for the variables of its own kernel, and not for those of other kernels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from cuda_on_cpu.compile.cuda_source import (
    Function,
    Kind,
    Token,
    code_only,
    functions,
    includes_any,
    kernels_of,
    places_of,
    previous_code,
    text_at,
    tokenize,
)

# What a GPU guarantees only where shared memory begins at a multiple of more than 16 bytes: an alignment that is not a
# small number, and the swizzles of inline PTX and of tensor maps. A header of the program may have either.
_SMALL = r"(?:1|2|4|8|16|alignof\s*\([\s\w:<>]*\)|sizeof\s*\([\s\w:<>]*\))"
_WIDE = re.compile(rf"\b(?:__align__|alignas|aligned|__aligned__)\s*\((?!\s*{_SMALL}\s*\))|::emulator::ptx::")
_OWN_HEADER = re.compile(r'"(?!(?:torch|ATen|c10)/|cuda_(?:runtime|fp16|bf16)\b)')
_WIDE_HEADER = re.compile(r"<(?:cuda\.h|cudaTypedefs\.h|cuda/(?:ptx|barrier)|cute/|cutlass/)")


def declaration(source: str, rewritten: str) -> str:
    """Returns a line of C++ that declares the kernels of a CUDA source. `rewritten` is the source as C++.

    The text has the name of each kernel, behind it `+` and the name of each function with `__shared__` variables that
    the kernel may call, and `-` and the name of each other one. Functions of which that is not known are not named.
    """
    has_own_header = includes_any(_OWN_HEADER, source)
    wide = has_own_header or bool(_WIDE.search(code_only(rewritten))) or includes_any(_WIDE_HEADER, source)
    # A macro of an unknown header may call any function, and so may one that pastes names.
    text = " ".join(_described(source, uncertain=has_own_header or "##" in source))
    call = f'::emulator::declare_kernels(&emulator_declared, "{text}", {str(wide).lower()})'
    return f"namespace {{ [[maybe_unused]] const bool emulator_declared = {call}; }}\n"


def _described(source: str, *, uncertain: bool) -> list[str]:
    tokens = list(tokenize(source))
    found = functions(tokens)
    others = {word for each in found if "__global__" not in each.head for word in each.head}
    kernels = sorted(kernels_of(tokens) - others)
    calls = {} if uncertain else _calls(tokens, found)
    having = [each for each in found if places_of(tokens, "__shared__", start=each.opening, end=each.closing)]
    shared = sorted(name for each in having if "__global__" not in each.head and (name := _name(tokens, each)))
    out = []
    for kernel in kernels:
        out.append(kernel)
        if kernel in calls:
            reached = _closure(calls, calls[kernel] | calls[""], set(kernels))
            out += [f"{'+' if name in reached else '-'}{name}" for name in dict.fromkeys(shared)]
    return out


def _calls(tokens: list[Token], found: list[Function]) -> dict[str, set[str]]:
    """Returns the words in the bodies of all functions of a name. A call of a function has its name.

    The words under the empty name are those elsewhere: in macros, in classes, and in functions that are not known to be
    device code. What they name, any kernel may call: through an operator, or by a template's argument.
    """
    calls: dict[str, set[str]] = defaultdict(set)
    outside, last = list[Token](), 0
    for each in found:
        name = _name(tokens, each)
        if name and {"__device__", "__global__"} & set(each.head):
            calls[name] |= _words(tokens[each.opening : each.closing])
            outside += [*tokens[last : each.at], *tokens[each.at + 1 : each.opening]]
            last = each.closing
    calls[""] = _words([*outside, *tokens[last:]])
    return calls


def _closure(calls: dict[str, set[str]], names: set[str], kernels: set[str]) -> set[str]:
    """Returns what `names` call, directly or not. Device code calls no kernel."""
    reached, left = set(kernels), list(names)
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += calls.get(name, ())
    return reached


def _name(tokens: Sequence[Token], function: Function) -> str:
    """Returns the name of a function that is no member and no operator, else an empty text."""
    is_member = function.in_class or text_at(tokens, previous_code(tokens, function.at)) == "::"
    return "" if is_member or "operator" in function.head else function.name


def _words(tokens: list[Token]) -> set[str]:
    return {token.text for token in tokens if token.kind is Kind.WORD}
