"""Lets kernels check their attributes: `__launch_bounds__` and `__cluster_dims__`.

A launch with more threads in a block than the bounds fails, as on a GPU. A launch gets the clusters of the attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Kind,
    Token,
    brackets_after,
    declared_function,
    end_of_name,
    in_directive,
    kernels_of,
    line_breaks,
    next_code,
    on_one_line,
    places_of,
    text_at,
)

_CLUSTER = "__cluster_dims__"
# On a GPU, the results of these functions depend on the kernel's bounds. The emulator's do not, so a block size that a
# source takes from them may be too large here only.
_ASKS_FOR_BLOCK_SIZE = ("cudaOccupancy", "cudaFuncGetAttributes")


def checks(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits with which a kernel with an attribute starts with a macro of the attribute's arguments.

    The macros are `EMULATOR_LAUNCH_BOUNDS` and `EMULATOR_CLUSTER`.

    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#launch-bounds: "A kernel will fail to launch if executed with
    more threads per block than its launch bound maxThreadsPerBlock." A kernel whose bounds are uncertain gets no check:
    where the attribute is a part of a macro, a preprocessor directive is between the attribute and the body, or a
    parameter of the kernel has a name that the bounds use. An uncertain cluster is an error that the compiler reports.
    """
    yield from _checks(tokens, _CLUSTER, "EMULATOR_CLUSTER")
    if not any(token.kind is Kind.WORD and token.text.startswith(_ASKS_FOR_BLOCK_SIZE) for token in tokens):
        yield from _checks(tokens, "__launch_bounds__", "EMULATOR_LAUNCH_BOUNDS")


def _checks(tokens: Sequence[Token], attribute: str, macro: str) -> Iterator[Edit]:
    kernels = kernels_of(tokens)
    for at in places_of(tokens, attribute):
        brackets = brackets_after(tokens, at)
        values = tokens[brackets[0] + 1 : brackets[1]] if brackets else []
        if not brackets or not any(token.is_code for token in values):
            continue
        names = {token.text for token in values if token.kind is Kind.WORD}
        body = None if in_directive(tokens, at) else _body(tokens, brackets[1] + 1, kernels)
        if body is not None and not names & _declared(tokens, brackets[1] + 1, body):
            yield body + 1, body + 1, f"{macro}({on_one_line(values)})"
        elif attribute == _CLUSTER:  # g++ looks the name up, which is not there
            yield at, brackets[1] + 1, f"__attribute__((aligned(::{_CLUSTER})))" + line_breaks(values)


def _body(tokens: Sequence[Token], start: int, kernels: set[str]) -> int | None:
    """Returns the index of the `{` that begins the body of the kernel whose declaration continues at index `start`.

    Returns None if it is no kernel or has no body, or if a directive or a `requires` makes it uncertain.
    """
    name = declared_function(tokens, start)
    parameters = brackets_after(tokens, end_of_name(tokens, name) - 1) if text_at(tokens, name) in kernels else None
    body = parameters[1] if parameters else len(tokens)
    while text_at(tokens, body) not in ("{", "}", ";", "requires", ""):
        body += 1
    return body if text_at(tokens, body) == "{" and not places_of(tokens, "#", start=start, end=body) else None


def _declared(tokens: Sequence[Token], start: int, end: int) -> set[str]:
    """Returns the words between two indices that may be names of parameters: those before a `,`, `)`, `=` or `[`."""
    return {
        tokens[i].text
        for i in range(start, end)
        if tokens[i].kind is Kind.WORD and text_at(tokens, next_code(tokens, i + 1)) in (",", ")", "=", "[")
    }
