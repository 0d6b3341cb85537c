"""Finds the size constants in the syntax tree of a problem file, and replaces their values.

A constant is a name at module level, such as `M`, or an element of a tuple or list of numbers, such as `shape[0]`. Its
value in the file is a literal, a name, or an arithmetic expression.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

_NUMERIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Name)


@dataclass(frozen=True)
class Constant:
    """A size constant of a problem file. `value` is its expression in the syntax tree; `put` replaces `value`."""

    name: str
    value: ast.expr
    put: Callable[[ast.expr], None]

    @property
    def independent(self) -> bool:
        """Whether the value is a number or arithmetic of numbers, and so does not depend on other constants."""
        parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
        return all(isinstance(node, parts) for node in ast.walk(self.value))


def find(tree: ast.Module) -> list[Constant]:
    """Returns the size constants that assignments at module level define, in the order of the file.

    Replaces `a = b = 1` in the tree by one assignment for each name, so that `a` and `b` can get different values.
    """
    tree.body = [part for node in tree.body for part in _separate(node)]
    assigned = [each for node in tree.body if isinstance(node, ast.Assign) for each in _assigned(node)]
    return [each for constant in assigned for each in (constant, *_elements(constant)) if _is_numeric(each.value)]


def replace(constants: Sequence[Constant], values: Mapping[str, Any]) -> None:
    """Replaces the values of the constants that `values` names, in the syntax tree.

    A value that the file computes from these constants changes when the tree is executed.
    """
    for constant in constants:
        if constant.name in values:
            constant.put(ast.copy_location(ast.Constant(values[constant.name]), constant.value))


def spread(values: Mapping[str, Any], constants: Sequence[Constant]) -> dict[str, Any]:
    """Returns `values` with each tuple or list replaced by its elements: `shape=(8, 64)` by `shape[0]` and `shape[1]`.

    Raises ValueError if a tuple has another number of elements than in the file, if one number is given for a tuple of
    the file, or a tuple for one number.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        count = len({each.name for each in constants if each.name.startswith(f"{name}[")})
        given = len(value) if isinstance(value, (tuple, list)) else None
        if given is None and not count:
            found[name] = value
        elif given == count:
            found |= {f"{name}[{i}]": each for i, each in enumerate(value)}
        else:
            wanted = f"a tuple of {count} elements, written like {name}=(8,64)" if count else "not a tuple"
            raise ValueError(f"{name} is {wanted}; {value!r} does not fit")
    return found


def value(namespace: Mapping[str, Any], name: str) -> Any:
    """Returns the value that the constant `name`, such as `M` or `shape[0]`, has after the problem file was executed.

    `namespace` has the names that the file has defined, with their values. Raises KeyError or IndexError if the
    constant is not among them.
    """
    base, _, index = name.partition("[")
    return namespace[base][int(index[:-1])] if index else namespace[base]


def _separate(node: ast.stmt) -> list[ast.stmt]:
    """Returns one assignment for each name of `height = width = 128`, and any other statement as it is, in a list."""
    if not isinstance(node, ast.Assign) or len(node.targets) == 1 or not _is_numeric(node.value):
        return [node]
    return [ast.copy_location(ast.Assign([target], copy.deepcopy(node.value)), node) for target in node.targets]


def _assigned(node: ast.Assign) -> Iterator[Constant]:
    """Yields the constants of `name = value`, and those of each pair in `a, b = 1, 2`."""
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield Constant(target.id, node.value, partial(setattr, node, "value"))
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for i, (name, value) in enumerate(zip(target.elts, node.value.elts, strict=False)):
                if isinstance(name, ast.Name):
                    yield Constant(name.id, value, partial(node.value.elts.__setitem__, i))


def _elements(constant: Constant) -> Iterator[Constant]:
    if isinstance(constant.value, (ast.Tuple, ast.List)) and all(map(_is_numeric, constant.value.elts)):
        for i, element in enumerate(constant.value.elts):
            yield Constant(f"{constant.name}[{i}]", element, partial(constant.value.elts.__setitem__, i))


def _is_numeric(value: ast.expr) -> bool:
    return isinstance(value, _NUMERIC)
