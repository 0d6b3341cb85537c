"""A problem file -> Problem: the reference, its inputs and its numbers, at any shape. Runs no candidate."""

from __future__ import annotations

import ast
import difflib
import math
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from kernel_harness.errors import UserError
from kernel_harness.precision import Tolerance, default_tolerance

Shape = Mapping[str, int]

# KernelBench seeds with this before it builds either model, so that both have the same weights.
WEIGHT_SEED = 42
_GENERATOR = threading.Lock()


class ProblemError(UserError):
    """The problem file cannot be used; the message says why and where."""


def shape_text(shape: Shape) -> str:
    """`M=64,K=128,N=96`, as --shape takes it."""
    return ",".join(f"{name}={value}" for name, value in shape.items())


@dataclass(frozen=True)
class Problem:
    """A problem at one shape. `text` is the source with the shape's constants, `module` that text executed."""

    name: str
    path: Path
    source: str
    shape: Shape
    text: str
    module: ModuleType

    def at(self, shape: Shape) -> Problem:
        """The same problem with constants replaced. Raises ProblemError for a constant it does not have."""
        if not shape:
            return self
        return _execute(self.name, self.path, self.source, {**self.shape, **shape})

    def on(self, *, emulated: bool) -> Problem:
        """The same problem at the size that a device takes by default."""
        return self.at(self.cpu_shape) if emulated else self

    @property
    def cpu_shape(self) -> Shape:
        """The size for emulation; empty where the file names none."""
        return dict(getattr(self.module, "CPU_SHAPE", {}))

    @property
    def check_shapes(self) -> list[Shape]:
        """Further shapes for correctness."""
        return [dict(shape) for shape in getattr(self.module, "CHECK_SHAPES", [])]

    @property
    def stress(self) -> dict[str, dict[str, Any]]:
        """Further input distributions and their parameters."""
        return dict(getattr(self.module, "STRESS", {}))

    def tolerance(self, dtype: torch.dtype) -> Tolerance:
        """The file's own, else the dtype's."""
        own = getattr(self.module, "TOLERANCE", None)
        return Tolerance(**own) if own else default_tolerance(dtype)

    def inputs(self, seed: int, distribution: str = "own") -> Any:
        """What get_inputs returns, drawn with `seed`; its floating tensors redrawn from another distribution."""
        try:
            with _seeded(seed):
                inputs = self.module.get_inputs()
        except Exception as error:
            where = f"{self.path}: get_inputs() at {shape_text(self.shape)}"
            raise ProblemError(f"{where}: {type(error).__name__}: {error}") from error
        if distribution == "own":
            return inputs
        generator = torch.Generator().manual_seed(seed)
        parameters = self.stress[distribution]
        return [_redraw(value, distribution, parameters, generator) for value in inputs]

    def init_inputs(self) -> Any:
        """What get_init_inputs returns; nothing where the file has none."""
        with _seeded(WEIGHT_SEED):
            return getattr(self.module, "get_init_inputs", list)()

    def model(self, device: str) -> Any:
        """The reference on a device, its weights seeded as the candidate's are."""
        init = self.init_inputs()
        with _seeded(WEIGHT_SEED), torch.no_grad():
            return self.module.Model(*init).to(device)

    def number(self, name: str) -> float | None:
        """One of flops, bytes_moved, min_flops, min_bytes; None where the file has no such function."""
        function = getattr(self.module, name, None)
        return None if function is None else float(function())

    def error_scale(self, inputs: Any) -> Any:
        """The magnitude rounding is measured against, or None."""
        function = getattr(self.module, "error_scale", None)
        return None if function is None else function(*inputs)


def load(name: str, path: Path) -> Problem:
    """The problem in a file, at the shape its constants give. Raises ProblemError."""
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProblemError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is no text: {error}") from None
    return _execute(name, path, source, {})


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """torch's own generator, which all threads share, for this one alone."""
    with _GENERATOR:
        torch.manual_seed(seed)
        yield


def _execute(name: str, path: Path, source: str, shape: Shape) -> Problem:
    try:
        tree = ast.parse(source, str(path))
    except SyntaxError as error:
        raise ProblemError(f"{path}:{error.lineno}: {error.msg}") from None
    except ValueError as error:  # what Python before 3.11.4 says of a null byte
        raise ProblemError(f"{path}: {error}") from None
    constants = _constants(tree)
    for wanted in shape:
        if wanted not in constants:
            close = difflib.get_close_matches(wanted, constants, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(constants) or 'none'}"
            raise ProblemError(f"{path} has no constant {wanted}{hint}")
    _replace(tree, shape)
    module = ModuleType(f"problem_{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(tree, str(path), "exec"), module.__dict__)
    except Exception as error:
        raise ProblemError(f"{path}: {type(error).__name__}: {error}") from error
    for required in ("Model", "get_inputs"):
        if not hasattr(module, required):
            raise ProblemError(f"{path} defines no {required}; a problem needs Model, get_inputs and get_init_inputs")
    values = {n: getattr(module, n) for n in constants if n in shape or _is_literal(constants[n])}
    numbers = {n: v for n, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}
    text = ast.unparse(tree) if shape else source
    return Problem(name, path, source, MappingProxyType(numbers), text, module)


def _assignments(tree: ast.Module) -> list[tuple[ast.Name, ast.expr]]:
    """Module-level `name = value` pairs, those of `a, b = 1, 2` included."""
    pairs: list[tuple[ast.Name, ast.expr]] = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            value = node.value  # type: ignore[attr-defined]
            if isinstance(target, ast.Name):
                pairs.append((target, value))
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                both = zip(target.elts, value.elts, strict=False)
                pairs += [(t, v) for t, v in both if isinstance(t, ast.Name)]
    return pairs


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What a shape may replace: names assigned a number or arithmetic."""
    numeric = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Name)
    return {target.id: value for target, value in _assignments(tree) if isinstance(value, numeric)}


def _is_literal(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int


def _replace(tree: ast.Module, shape: Shape) -> None:
    """Puts the shape's numbers where the file assigns its own; what is derived from them follows."""
    for target, value in _assignments(tree):
        if target.id in shape:
            number = ast.copy_location(ast.Constant(shape[target.id]), value)
            for node in tree.body:
                if isinstance(node, ast.Assign):
                    _swap(node, value, number)


def _swap(node: ast.Assign, old: ast.expr, new: ast.expr) -> None:
    if node.value is old:
        node.value = new
    elif isinstance(node.value, ast.Tuple):
        node.value.elts = [new if each is old else each for each in node.value.elts]


def _redraw(value: Any, distribution: str, parameters: Mapping[str, Any], generator: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    shape, dtype = tuple(value.shape), value.dtype
    if distribution == "integers":
        limit = int(parameters["limit"])
        return torch.randint(-limit, limit + 1, shape, generator=generator).to(dtype)
    normal = torch.randn(shape, generator=generator)
    if distribution == "scaled":
        reach = int(parameters["log2_range"])
        for dim, size in enumerate(shape):
            powers = torch.randint(-reach, reach + 1, (size,), generator=generator)
            extents = [size if d == dim else 1 for d in range(len(shape))]
            normal = normal * torch.exp2(powers / math.sqrt(len(shape))).reshape(extents)
    return normal.to(dtype)
