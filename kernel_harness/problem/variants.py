"""Variants of a kernel: the text of its file with other values of its compile-time parameters, such as `TILE`.

A variant is a candidate of its own, named `tiled[TILE=32]`. All other code sees its text alone, so builds, checks, the
build cache, line numbers and hashes of sources work as for any other file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kernel_harness.core.errors import NotFound, UserError
from kernel_harness.problem.candidate import Candidate, file_name

MOST_VARIANTS = 100
"""The most variants of all kernels in one run."""

VALUE = r"[+-]?\w[\w.]*"
"""A regular expression for the value of a parameter: a number or a name."""

# A definition of a name: a macro, a flag such as -DTILE=16, a C++ variable or template parameter, or a constant at
# module level of Python code. Its value is one number or name: other values would be replaced in part.
_DEFINITION = r"""
    ( \#[ \t]*define[ \t]+{name}[ \t]+
    | -D[ \t]*{name}=
    | \b(?:const|constexpr|int|unsigned|bool|size_t)\b[^\n;(){{}}]*\b{name}[ \t]*=[ \t]*
    | ^{name}[ \t]*(?::[ \t]*\w+[ \t]*)?=[ \t]*
    )
    (?:{value}|\({value}\))
    (?=[ \t]*(?:[;,>"'\\\#]|//|/\*|$))
"""
_NAME = re.compile(rf"(.+)\[(\w+={VALUE}(?:,\w+={VALUE})*)\]")


def of(kernels: Sequence[Candidate], defines: Iterable[tuple[str, Sequence[str]]]) -> list[Candidate]:
    """Returns the variants of the kernels for all combinations of the values in `defines`, (name, values) each.

    Values of a name that occurs twice are joined. Without `defines`, returns the kernels themselves. Raises NotFound if
    a kernel does not define a name, and UserError for more than MOST_VARIANTS variants.
    """
    values: dict[str, dict[str, None]] = {}
    for name, more in defines:
        values.setdefault(name, {}).update(dict.fromkeys(f"{name}={value}" for value in more))
    chosen = list(itertools.product(*values.values()))
    if values and len(chosen) * len(kernels) > MOST_VARIANTS:
        raise UserError(f"--define makes {len(chosen) * len(kernels)} variants; make at most {MOST_VARIANTS}")
    return [_variant(kernel, defined) for kernel in kernels for defined in chosen]


def only(kernel: Candidate, defines: Iterable[tuple[str, Sequence[str]]]) -> Candidate:
    """Returns the one variant that `defines` makes, as `of` does. Raises UserError if it makes several."""
    one, *more = of([kernel], defines)
    if more:
        raise UserError(f"--define makes {len(more) + 1} variants, and only the verb `run` takes several")
    return one


def parts(name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the kernel's name and the values of a variant: ("tiled", ("TILE=32",)) for `tiled[TILE=32]`.

    There are no values in the name of a kernel that is not a variant.
    """
    found = _NAME.fullmatch(name)
    return (found[1], tuple(found[2].split(","))) if found else (name, ())


def named(name: str, kernels: Mapping[str, Candidate]) -> Candidate | None:
    """Returns the kernel or variant called `name`, made of the kernels by name; None if there is no such definition."""
    kernel, defined = parts(name)
    try:
        return _variant(kernels[kernel], defined)
    except (KeyError, NotFound):
        return None


def _variant(kernel: Candidate, defined: Sequence[str]) -> Candidate:
    source = kernel.source
    for define in defined:
        name, _, value = define.partition("=")
        pattern = _DEFINITION.format(name=name, value=VALUE)
        source, count = re.subn(pattern, rf"\g<1>{value}", source, flags=re.VERBOSE | re.MULTILINE)
        if not count:
            raise NotFound(
                f"--define {name}: {file_name(kernel)} does not define {name} as one number or name. Write "
                f"`#define {name} 16` or `constexpr int {name} = 16;` there, or `{name} = 16` at the start of a line "
                "of Python code, or choose other kernels with --kernel"
            )
    return replace(kernel, name=f"{kernel.name}[{','.join(defined)}]", source=source) if defined else kernel
