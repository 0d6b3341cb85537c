"""A candidate that is a `.cu` file: its function `forward`, and the Python module that makes a model of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile.cuda_source import code_only, on_one_line, tokenize
from cuda_on_cpu.compile.errors import BuildFailed

_RETURNED = r"(?:(?:(?:torch|at)::)?Tensor|std::(?:tuple|pair|vector)\s*<[^;{}()]*>)"
_PARAMETERS = r"\s+forward\s*\(([^()]*)\)"
_FORWARD = re.compile(
    rf"(?:^|[;}}])[ \t]*({_RETURNED}{_PARAMETERS}|auto{_PARAMETERS}\s*->\s*{_RETURNED})\s*\{{", re.MULTILINE
)
_TENSOR = re.compile(r"(?<![\w:])Tensor\b")
_NAMES_TENSOR = re.compile(r"\busing\s+(?:namespace\s+(?:torch|at)|(?:Tensor\s*=\s*)?(?:torch|at)::Tensor)\s*;")
# The definition of a function: what stands before its name, the name, and the parameters. None of it is in a comment.
_FUNCTION = re.compile(r"^[ \t]*(\w[^\n;{}()#/]*?)\b(\w+)\s*\(([^(){};]*)\)\s*\{", re.MULTILINE)
_ON_DEVICE = re.compile(r"__(?:global|device)__[^;{}]*$")
_EXAMPLE = (
    "forward gets the problem's inputs as tensors and returns the output, or a std::tuple or std::vector of several: "
    "torch::Tensor forward(torch::Tensor a, ...) { auto out = torch::empty(...); "
    "kernel<<<...>>>(a.data_ptr<float>(), ..., out.data_ptr<float>()); return out; }. "
    "The command `new PROBLEM NAME --cu` writes a file to start from"
)


@dataclass(frozen=True)
class Forward:
    """The definition of `forward` in a `.cu` file.

    `declaration` is its C++ text up to the parameter list, on one line without a semicolon. `line` is the line of the
    file where it starts, counted from 1. `parameters` are the names of the parameters.
    """

    declaration: str
    line: int
    parameters: tuple[str, ...]


def forward_of(source: str) -> Forward | None:
    """Returns the first definition of `torch::Tensor forward(...)`, or with `at::Tensor`, in the text of a `.cu` file.

    It may also return a `std::tuple`, `std::pair` or `std::vector` of tensors, behind its parameters, too: `auto
    forward(...) -> torch::Tensor`. With `using torch::Tensor;` in the file, `Tensor` is `torch::Tensor`. Returns None
    if there is no such definition.
    """
    code = code_only(source)
    for found in _FORWARD.finditer(code):
        declaration = on_one_line(tokenize(source[slice(*found.span(1))]))
        if _NAMES_TENSOR.search(code):  # the declaration is compiled in a file of its own
            declaration = _TENSOR.sub("torch::Tensor", declaration)
        if not _TENSOR.search(declaration):
            line = source.count("\n", 0, found.start(1)) + 1
            return Forward(declaration, line, tuple(_parameters(found[2] or found[3] or "")))
    return None


def _parameters(text: str) -> list[str]:
    """Returns the names in a C++ parameter list. A parameter without a name gets the last word of its type."""
    words = [re.findall(r"[A-Za-z_]\w*", part.split("=")[0]) for part in _without_brackets(text).split(",")]
    return [each[-1] for each in words if each]


def _without_brackets(text: str) -> str:
    """Returns the text without the arguments of templates, in which a comma separates no parameters."""
    kept: list[str] = []
    opened: list[int] = []  # where in `kept` each bracket is that has not been closed
    for character in text:
        if character == ">" and opened:
            kept[opened.pop() :] = " "
            continue
        if character == "<":
            opened.append(len(kept))
        kept.append(character)
    return "".join(kept)


def as_module(file: str, source: str) -> str:
    """Returns the Python source of a candidate whose file `file` has the content `source`.

    For a `.py` file this is `source` itself. For a `.cu` file it is a module that defines a class ModelNew, which calls
    the C++ function `forward` of the file. Raises BuildFailed if a `.cu` file has no such function.
    """
    return module_text(file, source) if file.endswith(".cu") else source


def module_text(file: str, source: str) -> str:
    """Returns the Python source of a module for the `.cu` file `file` with the text `source`.

    The module builds `source` with load_inline. It defines a class ModelNew, which calls the C++ function `forward`.
    The constructor of ModelNew takes the state of the reference: a mapping from names to tensors, empty by default.
    Raises BuildFailed if `source` neither defines `torch::Tensor forward(...)` nor contains PYBIND11_MODULE.
    """
    forward = forward_of(source)
    binds_itself = "PYBIND11_MODULE" in source
    if forward is None and not binds_itself:
        raise BuildFailed(_no_forward(file, source))
    declaration = "" if binds_itself or forward is None else f"{forward.declaration};"
    name = re.sub(r"\W", "_", Path(file).stem, flags=re.ASCII)  # Python loads a library of another name differently
    return (
        "import torch\n"
        "from torch.utils import cpp_extension\n"
        "from kernel_harness.compile import cu_file\n"
        f"_extension = cpp_extension.load_inline(name={name!r}, cpp_sources={json.dumps(declaration)},\n"
        f"    cuda_sources={json.dumps(source)}, functions={None if binds_itself else ['forward']!r})\n"
        f"_forward = {forward and f'cu_file.Forward(*{astuple(forward)!r})'}\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def __init__(self, state={}):\n"
        "        super().__init__()\n"
        "        self.names = list(state)\n"
        "        for index, tensor in enumerate(state.values()):\n"
        "            self.register_buffer(f'state_{index}', tensor)\n"
        "    def forward(self, *inputs):\n"
        "        state = {name: getattr(self, f'state_{i}') for i, name in enumerate(self.names)}\n"
        f"        arguments = cu_file.arguments({file!r}, _forward, inputs, state, {not binds_itself})\n"
        "        return _extension.forward(*arguments)\n"
    )


def _no_forward(file: str, source: str) -> str:
    """Returns the message for a `.cu` file without `torch::Tensor forward(...)`, with a hint.

    The message shows the line of a host function called `forward`, else of the last host function, if there is one.
    """
    missing = "no 'torch::Tensor forward(...)' is defined"
    on_host = [f for f in _FUNCTION.finditer(source) if not _ON_DEVICE.search(source, 0, f.end(1)) and f[1] != "else "]
    if not on_host:
        return f"{file}: error: {missing}\n  hint: {_EXAMPLE}"
    place = next((f for f in on_host if f[2] == "forward"), on_host[-1])
    takes_pointers = "*" in place[3]
    what, hint = missing, _EXAMPLE
    if place[2] == "forward":
        what = (
            "forward takes pointers"
            if takes_pointers
            else f"forward returns '{place[1].strip()}', not torch::Tensor, or a std::tuple or std::vector of it"
        )
    elif takes_pointers or "Tensor" not in place[1]:
        hint = f"write a function forward that calls '{place[2]}'. {_EXAMPLE}"
    else:
        hint = f"give the function '{place[2]}' the name 'forward'"
    line = source.count("\n", 0, place.start(1)) + 1
    text = source.split("\n")[line - 1]
    return f"{file}:{line}: error: {what}\n  {line} | {text}\n  hint: {hint}"


def arguments(
    file: str, forward: Forward | None, inputs: Sequence[Any], state: Mapping[str, Any], known: bool
) -> Sequence[Any]:
    """Returns the arguments of a call of `forward` in the `.cu` file `file`: `inputs`, or `inputs` and `state`.

    `state` is the state of the reference: its parameters and buffers by name, in the order of its state dict. The
    number of parameters of `forward` decides:
    - As many as `inputs`, or `forward` is None: returns `inputs`.
    - As many as `inputs` and `state` together: returns `inputs`, then the tensors of `state`. Raises TypeError if a
      parameter has the name of a tensor of `state` that stands at another place.
    - Any other number: raises TypeError if `known`. Otherwise the file binds its functions itself, perhaps with default
      arguments, so this function returns `inputs`.
    """
    if forward is None or len(forward.parameters) == len(inputs):
        return inputs
    names = [cpp_name(name) for name in state]
    own = forward.parameters[len(inputs) :]
    if len(forward.parameters) != len(inputs) + len(names):
        if not known:
            return inputs
        inputs_of = f"{len(inputs)} input{'' if len(inputs) == 1 else 's'}"
        takes = f"{len(forward.parameters)} argument{'' if len(forward.parameters) == 1 else 's'}"
        problem = f"forward takes {takes}, but the problem has {inputs_of}"
    elif any(mine != name and mine in names for mine, name in zip(own, names, strict=True)):
        problem = f"forward takes {', '.join(own)} in this order after the inputs"
    else:
        return [*inputs, *state.values()]
    raise TypeError(f"{problem}. {_rule(inputs, state)} (raised at {file}:{forward.line})")


def left_out(source: str, inputs: int, state: Mapping[str, Any]) -> str:
    """Returns a sentence that lists the tensors of `state` if `forward` in the text of a `.cu` file takes none of them.

    `state` is the state of the reference, and `inputs` the number of the problem's inputs. Returns an empty text if
    `forward` has more than `inputs` parameters, if `state` is empty, if there is no `forward`, or if the file binds its
    functions itself, perhaps with default arguments.
    """
    forward = forward_of(source)
    if forward is None or not state or "PYBIND11_MODULE" in source or len(forward.parameters) > inputs:
        return ""
    return f"forward takes no parameter of the reference. It takes all of them after the inputs: {_listed(state)}."


def _rule(inputs: Sequence[Any], state: Mapping[str, Any]) -> str:
    rule = f"A .cu file's forward gets the problem's inputs in order ({', '.join(map(_shown, inputs))})"
    if not state:
        return f"{rule}; the reference has no parameters."
    return f"{rule}, and then either nothing or all parameters of the reference in this order: {_listed(state)}."


def _listed(state: Mapping[str, Any]) -> str:
    return ", ".join(f"{cpp_name(name)} ({_shown(value)})" for name, value in state.items())


def cpp_name(name: str) -> str:
    """Returns the name in C++ of a tensor of the reference's state, such as `linear_weight` for `linear.weight`."""
    return re.sub(r"^(?=\d)", "_", re.sub(r"\W", "_", name))


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else "x".join(map(str, shape)) or "one number"
