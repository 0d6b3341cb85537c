"""What a candidate hands to load_inline, checked as load_inline checks it. Builders take it from here."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils import cpp_extension

_SIGNATURE = inspect.signature(cpp_extension.load_inline)


@dataclass(frozen=True)
class Sources:
    """The arguments of one load_inline call that decide what is built."""

    name: str
    cpp: str
    cuda: str
    functions: Mapping[str, str] | None  # exported name -> docstring; None: the source binds itself
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    error_handling: bool  # torch's exceptions become Python's by torch's own wrapper
    with_cuda: bool | None  # None: where there is a CUDA source
    implicit_headers: bool  # torch/extension.h and torch/types.h come first

    @property
    def bindings(self) -> str:
        """The module definition that load_inline generates; empty where the source has its own."""
        if self.functions is None:
            return ""
        wrapped = "torch::wrap_pybind_function({})" if self.error_handling else "{}"
        lines = [f'  m.def("{name}", {wrapped.format(name)}, "{doc}");' for name, doc in self.functions.items()]
        return "\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"])


def from_arguments(*args: Any, **kwargs: Any) -> Sources:
    """The Sources of `load_inline(*args, **kwargs)`. Raises what load_inline itself would raise."""
    try:
        bound = _SIGNATURE.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"load_inline() {error}{_did_you_mean(kwargs)}") from None
    bound.apply_defaults()
    a = bound.arguments
    return Sources(
        name=a["name"],
        cpp="\n".join(_strings(a["cpp_sources"])),
        cuda="\n".join(_strings(a["cuda_sources"])),
        functions=_functions(a["functions"]),
        cflags=tuple(_strings(a["extra_cflags"])),
        cuda_cflags=tuple(_strings(a["extra_cuda_cflags"])),
        ldflags=tuple(_strings(a["extra_ldflags"])),
        include_paths=tuple(_strings(a["extra_include_paths"])),
        error_handling=a["with_pytorch_error_handling"],
        with_cuda=a["with_cuda"],
        implicit_headers=not a["no_implicit_headers"],
    )


def _did_you_mean(keywords: Mapping[str, Any]) -> str:
    for unknown in (k for k in keywords if k not in _SIGNATURE.parameters):
        close = difflib.get_close_matches(unknown, _SIGNATURE.parameters, n=1)
        if close:
            return f"; did you mean {close[0]!r}?"
    return ""


def _strings(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def _functions(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return value
    if isinstance(value, (str, list)):
        return {name: name for name in _strings(value)}
    raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(value)}")
