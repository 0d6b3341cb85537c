"""Writes the text of a new Python kernel file.

In the new file, a copy of the problem's Model computes the result, and one real kernel copies the result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import torch

from kernel_harness.problem.problem import Problem
from kernel_harness.scaffold.signature import Signature

_ELEMENTS = {
    torch.float32: "float", torch.float64: "double", torch.int64: "int64_t", torch.int32: "int32_t",
    torch.uint8: "uint8_t", torch.bool: "bool",
}  # fmt: skip

KERNEL = """// Replace this kernel with your own: it only copies the result that torch has computed.
__global__ void copy_kernel(const {element}* result, {element}* out, int64_t n) {{
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = result[i];
}}
"""
LAUNCH = """    result = result.contiguous();
    torch::Tensor out = torch::empty_like(result);
    const int64_t n = {count};
    if (n == 0) return out;
    copy_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        {read}, {write}, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();  // a failed launch raises no error by itself
    return out;
"""

_FILE = '''"""{name}: describe the idea here, in one sentence."""

{imports}


{model}


CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <torch/extension.h>

{kernel}
{notes}{declaration} {{
{launch}}}
"""

ops = load_inline(
    name="{extension}",
    cpp_sources="{declaration};",
    cuda_sources=CUDA,
    functions=["run"],
)


{model_new}'''

_MODEL_NEW = """class ModelNew(Model):
    def forward(self, {parameters}):
        # Replace this line: compute the result in your kernel, from the inputs.
        result = super().forward({names})
        return {returned}
"""

_EACH = '''

def _each(value, kernel):
    """Returns the value with `kernel` applied to each tensor in it."""
    if isinstance(value, torch.Tensor):
        return kernel(value)
    if isinstance(value, dict):
        return {key: _each(item, kernel) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each(item, kernel) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)([_each(item, kernel) for item in value])
    return value
'''


def text(problem: Problem, name: str, described: Signature) -> str:
    """Returns the content of a new Python file for the kernel `name` of `problem`, as a start for its author.

    `described` holds the inputs and the output of the problem's reference.
    """
    cpp_inputs = [each for each in described.inputs if each.cpp_type]
    parameters = ", ".join([f"{each.cpp_type} {each.cpp_name}" for each in cpp_inputs] + ["torch::Tensor result"])
    passed = "".join(f"{each.name}, " for each in cpp_inputs)
    single = isinstance(described.output, torch.Tensor)
    call = f"ops.run({passed}result)" if single else f"_each(result, lambda result: ops.run({passed}result))"
    return _FILE.format(
        name=name,
        imports=_imports(problem.source),
        model=_model(problem.source) + ("" if single else _EACH),
        kernel=KERNEL.format(element=_element(described)),
        notes="".join(f"// {each.note}\n" for each in described.inputs),
        declaration=f"torch::Tensor run({parameters})",
        launch=launch(_element(described)),
        extension=re.sub(r"\W", "_", f"{problem.name}_{name}", flags=re.ASCII),
        model_new=_MODEL_NEW.format(
            parameters=", ".join(f"{e.name}: torch.Tensor" if e.is_tensor else e.name for e in described.inputs),
            names=", ".join(each.name for each in described.inputs),
            returned=call,
        ),
    )


def launch(element: str) -> str:
    """Returns C++ code that launches the kernel, which copies the tensor `result`, and returns the copy `out`.

    `element` is the C++ type of the elements.
    """
    if element != "char":
        return LAUNCH.format(
            count="result.numel()", read=f"result.data_ptr<{element}>()", write=f"out.data_ptr<{element}>()"
        )
    read, write = "static_cast<const char*>(result.data_ptr())", "static_cast<char*>(out.data_ptr())"
    return LAUNCH.format(count="result.nbytes()", read=read, write=write)


def _element(described: Signature) -> str:
    """Returns the C++ type of the elements that the kernel in the new file copies: those of the reference's output.

    Returns `char` if the outputs are unknown, have several dtypes, or have a dtype that _ELEMENTS lacks. The kernel
    then copies bytes.
    """
    found = {leaf.dtype for leaf in _leaves(described.output)}
    return _ELEMENTS.get(found.pop(), "char") if len(found) == 1 else "char"


def _leaves(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))


def _imports(source: str) -> str:
    """Returns the imports of the new kernel file: those in `source` that Model needs, and the file's own."""
    tree = ast.parse(source)
    wanted = _wanted(tree)
    lines = ["import torch", "from torch.utils.cpp_extension import load_inline"]
    future = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            future.append(ast.unparse(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [n for n in node.names if n.name == "*" or (n.asname or n.name).split(".")[0] in wanted]
            lines += [ast.unparse(node)] if node.names else []
    ordered = sorted(dict.fromkeys(lines), key=lambda line: (line.startswith("from"), line))
    return "\n".join([*future, *ordered])


def _model(source: str) -> str:
    """Returns the parts of the problem's `source` that define Model and the functions and constants it uses."""
    tree = ast.parse(source)
    wanted = _wanted(tree)
    parts = []
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and wanted & _defines(node):
            parts.append(_text_of(node, source))
    return "\n\n\n".join(parts)


def _wanted(tree: ast.Module) -> set[str]:
    """Returns the names that Model in the problem's syntax tree uses, directly or through other definitions."""
    definitions = {name: node for node in tree.body for name in _defines(node)}
    wanted, new = set[str](), {"Model"}
    while new:
        wanted |= new
        nodes = [definitions[name] for name in new if name in definitions]
        used = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
        new = used - wanted
    return wanted


def _defines(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return {node.name}
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def _text_of(node: ast.stmt, source: str) -> str:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(source.split("\n")[first - 1 : node.end_lineno])
