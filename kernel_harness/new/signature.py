"""What a problem's reference takes and gives: names, types and shapes, found out without computing anything."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernel_harness.problem import Problem

# Names that C++ or the generated code has other uses for.
_TAKEN_IN_CPP = frozenset(
    [
        "alignas", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "const", "default", "delete", "do",
        "double", "enum", "explicit", "export", "extern", "false", "float", "friend", "goto", "inline", "int", "long",
        "mutable", "namespace", "new", "operator", "private", "protected", "public", "register", "requires", "short",
        "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "typedef", "typename",
        "union", "unsigned", "using", "virtual", "void", "volatile", "xor",
        "n", "i", "out", "result", "torch", "at", "copy_kernel", "forward", "run",
    ]
)  # fmt: skip
_CPP_TYPES = ((torch.Tensor, "torch::Tensor"), (bool, "bool"), (int, "int64_t"), (float, "double"))


@dataclass(frozen=True)
class Input:
    """One argument of forward: its name in Python and in C++, and its type there, "" where C++ does not get it."""

    name: str
    value: Any

    @property
    def is_tensor(self) -> bool:
        """Whether it is one tensor."""
        return isinstance(self.value, torch.Tensor)

    @property
    def cpp_name(self) -> str:
        """The name, with an underscore where it would clash."""
        return f"{self.name}_" if self.name in _TAKEN_IN_CPP else self.name

    @property
    def cpp_type(self) -> str:
        """Such as torch::Tensor."""
        return next((cpp for kind, cpp in _CPP_TYPES if isinstance(self.value, kind)), "")

    @property
    def note(self) -> str:
        """Such as `A: (8192, 2048) float32`."""
        if not self.is_tensor:
            return f"{self.name}: {self.value!r}"
        return f"{self.name}: {tuple(self.value.shape)} {str(self.value.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Signature:
    """The inputs in order, and what comes out: fake tensors in their structure, None if that could not be told."""

    inputs: tuple[Input, ...]
    output: Any


def signature(problem: Problem) -> Signature:
    """Of the reference, at the problem's own shape. The tensors in it have shapes and no memory."""
    names = _names(problem.module.Model)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            inputs = problem.inputs(0)
            output = problem.model("cpu")(*inputs)
    except Exception:  # a reference that looks at values cannot be run without them
        inputs, output = problem.at(problem.cpu_shape).inputs(0), None
    named = zip(_enough(names, inputs), inputs, strict=True)
    return Signature(tuple(Input(name, value) for name, value in named), output)


def _names(model: type) -> list[str]:
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]  # type: ignore[attr-defined]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in positional]


def _enough(names: Sequence[str], inputs: Sequence[Any]) -> list[str]:
    """As many names as inputs: those that *args takes are numbered."""
    return [names[i] if i < len(names) else f"input_{i}" for i in range(len(inputs))]
