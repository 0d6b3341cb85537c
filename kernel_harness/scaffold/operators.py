"""Expresses a problem's reference as calls of torch's C++ operators."""

from __future__ import annotations

import math
import operator
import re
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from kernel_harness.problem.problem import Problem
from kernel_harness.scaffold.signature import Signature


class NotPlain(Exception):
    """The error raised if calls of torch's C++ operators cannot express the reference. The message says why."""


def lines(problem: Problem, described: Signature) -> list[str]:
    """Returns lines of C++ that compute the output of the problem's reference: `result`, or `result_1` and so on.

    `described` holds the inputs, the state (parameters and buffers) and the output of the reference, whose C++ names
    the lines use. Raises NotPlain if an input is neither a tensor nor a number, if the output is neither a tensor nor a
    tuple or list of tensors, or if calls of torch's C++ operators cannot express the reference.
    """
    unknown = [each.name for each in (*described.inputs, *described.state) if not each.cpp_type]
    if unknown:
        raise NotPlain(f"forward takes {', '.join(unknown)}, which is neither a tensor nor a number")
    outputs = described.outputs
    if not outputs:
        raise NotPlain("the output is neither a tensor nor a tuple of tensors")
    # A number that is traced is the input's value at one size. A whole number may be another constant.
    names: dict[Any, str] = {
        each.value: each.cpp_name
        for each in described.inputs
        if isinstance(each.value, float) and not each.value.is_integer()
    }
    found: list[str] = []
    given = iter((*described.state, *described.inputs))
    for node in _traced(problem).graph.nodes:
        if node.op == "placeholder":
            names[node] = next(given).cpp_name
        elif node.op == "output":
            (result,) = node.args
            nodes = [result] if isinstance(result, Node) else list(result)
            found += [f"torch::Tensor {name} = {names[node]};" for name, node in zip(outputs, nodes, strict=True)]
        elif node.op == "call_function":
            names[node] = f"t{len(found) + 1}"
            found.append(f"auto {names[node]} = {_call(node, names)};")
        else:
            raise NotPlain("the reference holds tensors besides its inputs")
    return found


def _traced(problem: Problem) -> GraphModule:
    """Returns the graph of the torch operators that the problem's reference calls, in order.

    The graph takes the tensors of the reference's state, and then its inputs. Raises NotPlain if torch cannot trace the
    reference.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            model, inputs = problem.model("cpu"), problem.inputs(0)
            state = model.state_dict()

            def call(*given: Any) -> Any:
                return functional_call(model, dict(zip(state, given, strict=False)), given[len(state) :])

            return make_fx(call, pre_dispatch=True)(*state.values(), *inputs)
    except Exception as error:
        raise NotPlain(f"the reference cannot be written as operators ({type(error).__name__})") from None


def _call(node: Node, names: dict[Any, str]) -> str:
    target: Any = node.target
    if target is operator.getitem:
        return f"std::get<{node.args[1]}>({_literal(node.args[0], names)})"
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        raise NotPlain(f"the reference calls {target}")
    schema = target._schema
    given = list(node.args)
    # C++ has no keyword arguments: each parameter before the last given argument needs a value, such as its default.
    last = max((i for i, argument in enumerate(schema.arguments) if argument.name in node.kwargs), default=-1)
    given += [node.kwargs.get(each.name, each.default_value) for each in schema.arguments[len(given) : last + 1]]
    words = [
        _normalized_sizes(given[0], len(value), names) if each.name == "normalized_shape" else _literal(value, names)
        for each, value in zip(schema.arguments, given, strict=False)
    ]
    name = schema.name.split("::")[1]
    if _is_function(name):
        return f"at::{name}({', '.join(words)})"
    return f"{words[0]}.{name}({', '.join(words[1:])})"


def _normalized_sizes(normalized: Any, count: int, names: dict[Any, str]) -> str:
    """Returns C++ code for the last `count` sizes of the tensor that `normalized` computes.

    Layer norms take these sizes as an argument. As numbers they would be right at the traced shape only.
    """
    return f"{names[normalized]}.sizes().slice({normalized.meta['val'].dim() - count})"


def _is_function(name: str) -> bool:
    """Returns whether torch's C++ namespace `at` declares the operator `name` as a function.

    Some operators exist only as methods of a tensor.
    """
    header = Path(torch.__file__).parent / "include" / "ATen" / "ops" / f"{name}.h"
    return header.is_file() and re.search(rf"^inline .*\b{name}\(", header.read_text(), re.MULTILINE) is not None


def _literal(value: Any, names: dict[Any, str]) -> str:
    if isinstance(value, Node) or (isinstance(value, float) and value in names):
        return names[value]
    if value is None:
        return "{}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        finite = math.isfinite(value)
        return repr(value) if finite else _NOT_FINITE["nan" if math.isnan(value) else "inf" if value > 0 else "-inf"]
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(_literal(item, names) for item in value) + "}"
    if isinstance(value, torch.dtype) and value in _SCALAR_TYPES:
        return f"at::{_SCALAR_TYPES[value]}"
    raise NotPlain(f"the reference passes {value!r} to an operator")


_LIMITS = "std::numeric_limits<double>::"
_NOT_FINITE = {"nan": f"{_LIMITS}quiet_NaN()", "inf": f"{_LIMITS}infinity()", "-inf": f"-{_LIMITS}infinity()"}
_SCALAR_TYPES = {
    torch.float32: "kFloat", torch.float64: "kDouble", torch.float16: "kHalf", torch.bfloat16: "kBFloat16",
    torch.int64: "kLong", torch.int32: "kInt", torch.uint8: "kByte", torch.bool: "kBool",
}  # fmt: skip
