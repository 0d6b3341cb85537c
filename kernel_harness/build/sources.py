"""What a candidate hands to load_inline, checked as load_inline checks it. Builders take it from here."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


class Unreadable(Exception):
    """Data that describes no sources."""


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


_TEXTS = ("name", "cpp", "cuda")
_LISTS = ("cflags", "cuda_cflags", "ldflags", "include_paths")


def to_json(sources: Sources) -> dict[str, Any]:
    """As they travel from a worker to the judge."""
    return asdict(sources)


def from_json(data: Any) -> Sources:
    """Sources as a worker describes them, which may be anything. Raises Unreadable."""
    if not isinstance(data, dict) or set(data) != {f.name for f in fields(Sources)}:
        raise Unreadable("not a description of sources")
    texts = [data[name] for name in _TEXTS]
    for name in _LISTS:
        texts += data[name] if isinstance(data[name], list) else [None]
    functions = data["functions"]
    if functions is not None:
        texts += [*functions, *functions.values()] if isinstance(functions, dict) else [None]
    flags = (data["error_handling"], data["implicit_headers"], data["with_cuda"] or False)
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(f, bool) for f in flags):
        raise Unreadable("names, sources, flags and functions must be strings")
    return Sources(**{**data, **{name: tuple(data[name]) for name in _LISTS}})


def from_arguments(*args: Any, **kwargs: Any) -> Sources:
    """The Sources of `load_inline(*args, **kwargs)`. Raises what load_inline itself would raise."""
    try:
        bound = signature().bind(*args, **kwargs)
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


@functools.cache
def signature() -> inspect.Signature:
    """load_inline's own, which must be asked for before anything takes its place."""
    from torch.utils import cpp_extension  # here, so that whoever needs no torch need not wait for it

    return inspect.signature(cpp_extension.load_inline)


def _did_you_mean(keywords: Mapping[str, Any]) -> str:
    for unknown in (k for k in keywords if k not in signature().parameters):
        close = difflib.get_close_matches(unknown, signature().parameters, n=1)
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
