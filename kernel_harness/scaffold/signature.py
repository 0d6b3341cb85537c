"""Describes the inputs and the output of a problem's reference, without computing the output."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from kernel_harness.compile.cu_file import cpp_name
from kernel_harness.problem.problem import Problem

# Names that an argument cannot have in C++: keywords, and names that the generated code uses.
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
_ELEMENTS = {
    torch.float32: "float", torch.float64: "double", torch.int64: "int64_t", torch.int32: "int32_t",
    torch.uint8: "uint8_t", torch.bool: "bool",
}  # fmt: skip
_CPP_TYPES = ((torch.Tensor, "torch::Tensor"), (bool, "bool"), (int, "int64_t"), (float, "double"))


@dataclass(frozen=True)
class Input:
    """One argument of the `forward` of a problem's reference, or one of its parameters and buffers.

    `emulated` is an example at the usual sizes on the emulated device. `value` is one at the sizes in the problem file,
    or `emulated` itself if the reference cannot run on fake tensors.
    """

    name: str
    value: Any
    emulated: Any

    @property
    def is_tensor(self) -> bool:
        """Returns whether the argument is a tensor."""
        return isinstance(self.value, torch.Tensor)

    @property
    def cpp_name(self) -> str:
        """Returns the argument's name in C++. If C++ or the generated code uses this name, an underscore is added."""
        return f"{self.name}_" if self.name in _TAKEN_IN_CPP else self.name

    @property
    def cpp_type(self) -> str:
        """Returns the argument's type in C++, such as `torch::Tensor`; an empty string if C++ has no such type."""
        return next((cpp for kind, cpp in _CPP_TYPES if isinstance(self.value, kind)), "")

    @property
    def note(self) -> str:
        """Returns the text of a comment on the argument.

        It is like `A: (8192, 2048) float32, without a GPU (256, 48)`. The second part is left out if the sizes on the
        emulated device are the same. For an argument that is no tensor, it is like `n: 3`.
        """
        if not self.is_tensor:
            return f"{self.name}: {self.value!r}"
        here, there = (tuple(each.shape) for each in (self.value, self.emulated))
        smaller = f", without a GPU {there}" if there != here else ""
        return f"{self.name}: {here} {str(self.value.dtype).removeprefix('torch.')}{smaller}"


@dataclass(frozen=True)
class Signature:
    """The inputs of a problem's reference, in order, its state, and its output.

    `state` has the parameters and buffers of the reference, in the order of its state dict and with their C++ names.
    `output` has the structure of the real output, with torch's fake tensors, which have a shape but no memory. It is
    None if fake tensors are not enough to find it.
    """

    inputs: tuple[Input, ...]
    state: tuple[Input, ...]
    output: Any

    @property
    def outputs(self) -> list[str]:
        """Returns the C++ names of the output tensors; none if the output is neither a tensor nor a tuple of them."""
        if isinstance(self.output, torch.Tensor):
            return ["result"]
        tensors = isinstance(self.output, (tuple, list)) and all(isinstance(o, torch.Tensor) for o in self.output)
        return [f"result_{i}" for i in range(1, len(self.output) + 1)] if tensors else []

    @property
    def element(self) -> str:
        """Returns the C++ type of the elements of the output.

        Returns `char` if the outputs are unknown, have several dtypes, or have a dtype that _ELEMENTS lacks. A kernel
        then copies bytes.
        """
        found = {leaf.dtype for leaf in pytree.tree_leaves(self.output) if isinstance(leaf, torch.Tensor)}
        return _ELEMENTS.get(found.pop(), "char") if len(found) == 1 else "char"


def signature(problem: Problem) -> Signature:
    """Returns the inputs and the output of the problem's reference, as torch's fake tensors, which have no memory.

    A reference that depends on the values of its inputs cannot run on fake tensors. Its signature has real inputs, in
    the small sizes that the problem gives for the emulated device, and None as the output.
    """
    small = problem.on(emulated=True)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            inputs, model = problem.inputs(0), problem.model("cpu")
            output = problem.forward(model, inputs)
            reduced, reduced_model = small.inputs(0), small.model("cpu")
    except Exception:  # a reference that depends on values cannot run on fake tensors
        reduced, reduced_model = inputs, model = small.inputs(0), small.model("cpu")
        output = None
    names = _names(problem.module.Model, len(inputs))
    state, reduced_state = model.state_dict(), reduced_model.state_dict()
    return Signature(
        tuple(map(Input, names, inputs, reduced)),
        tuple(
            Input(f"{cpp}_" if cpp in names else cpp, value, reduced_state.get(name, value))
            for cpp, (name, value) in zip(map(cpp_name, state), state.items(), strict=True)
        ),
        output,
    )


def _names(model: type, count: int) -> list[str]:
    """Returns one name for each of `count` inputs: those of `forward`, and `input_<index>` for those of `*args`."""
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]  # type: ignore[attr-defined]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional]
    return [names[i] if i < len(names) else f"input_{i}" for i in range(count)]
