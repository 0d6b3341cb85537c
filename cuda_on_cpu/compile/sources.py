"""Checks the arguments that a candidate passes to load_inline, and brings them into one form, `Sources`.

Lists of flags are split into words in the same way as by torch. All builds and their cache keys start from `Sources`:
what is compiled may depend on nothing else of a candidate, because candidates with equal sources share one library.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile.errors import BuildFailed


class Unreadable(Exception):
    """The error raised if a JSON value from a worker is not the JSON form of a Sources object."""


@dataclass(frozen=True)
class Sources:
    """The arguments of one load_inline call that decide what is built.

    `cpp` and `cuda` are the C++ and the CUDA source, empty if there is none. `functions` maps the name of each exported
    function to its docstring; None means that the source has its own bindings. Each flag is one word of the compiler's
    or the linker's command line. With `error_handling`, torch's wrapper turns C++ exceptions of torch into Python
    exceptions. `with_cuda` None means: true if there is a CUDA source. With `implicit_headers`, load_inline puts
    torch/extension.h and torch/types.h first.
    """

    name: str
    cpp: str
    cuda: str
    functions: Mapping[str, str] | None
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    error_handling: bool
    with_cuda: bool | None
    implicit_headers: bool

    @property
    def cpp_file(self) -> str:
        """Returns the neutral name of `cpp`: the file name that compilers show for it, such as `tile.cpp_sources`."""
        return f"{self._plain_name}.cpp_sources"

    @property
    def cuda_file(self) -> str:
        """Returns the neutral name of `cuda`: the file name that compilers show for it, such as `tile.cuda_sources`."""
        return f"{self._plain_name}.cuda_sources"

    @property
    def _plain_name(self) -> str:
        return re.sub(r"\W", "_", self.name, flags=re.ASCII)[:100]

    @property
    def bindings(self) -> str:
        """Returns the C++ code with which load_inline would define the Python module.

        Returns an empty string if the candidate's source defines the module itself.
        """
        if self.functions is None:
            return ""
        wrapped = "torch::wrap_pybind_function({})" if self.error_handling else "{}"
        lines = [f'  m.def("{name}", {wrapped.format(name)}, "{doc}");' for name, doc in self.functions.items()]
        return "\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"])


def named(source: str, file: str) -> str:
    """Returns `source` behind a #line directive, so that compilers count its lines from 1 and call it `file`.

    `file` is a neutral name: `Sources.cpp_file` or `Sources.cuda_file`. It must not depend on the path of the
    candidate's file. The library may contain `__FILE__` and `__LINE__`, but its key in the build cache does not contain
    the path.
    """
    return f'#line 1 "{file}"\n{source}'


def write_shown(sources: Sources, folder: Path) -> None:
    """Writes the sources to files of their neutral names in `folder`, the working directory of a compiler.

    Compilers read the text from elsewhere, but show the lines of these files in their messages.
    """
    (folder / sources.cpp_file).write_text(sources.cpp, encoding="utf-8")
    (folder / sources.cuda_file).write_text(sources.cuda, encoding="utf-8")


def parts_of_key(sources: Sources) -> dict[str, Any]:
    """Returns all that `sources` hold, for a key of the build cache. The order of the functions is kept."""
    functions = None if sources.functions is None else list(sources.functions.items())
    return {**asdict(sources), "functions": functions}


_TEXTS = ("name", "cpp", "cuda")
_LISTS = ("cflags", "cuda_cflags", "ldflags", "include_paths")


def to_json(sources: Sources) -> dict[str, Any]:
    """Returns `sources` as a JSON object, in which a worker asks the judge for a build."""
    return asdict(sources)


def from_json(data: Any) -> Sources:
    """Returns the Sources that the JSON value `data` describes.

    `data` comes from a worker, so it may be anything. Raises Unreadable if it does not have the form that `to_json`
    gives.
    """
    if not isinstance(data, dict) or set(data) != {f.name for f in fields(Sources)}:
        raise Unreadable("the data does not have the fields of sources")
    texts = [data[name] for name in _TEXTS]
    for name in _LISTS:
        texts += data[name] if isinstance(data[name], list) else [None]
    functions = data["functions"]
    if functions is not None:
        texts += [*functions, *functions.values()] if isinstance(functions, dict) else [None]
    flags = (data["error_handling"], data["implicit_headers"], data["with_cuda"] or False)
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(f, bool) for f in flags):
        raise Unreadable(
            f"{', '.join(_TEXTS)} must be strings; {', '.join(_LISTS)} lists of strings; functions null or an object "
            "of strings; and the other fields booleans (with_cuda may be null)"
        )
    return Sources(**{**data, **{name: tuple(data[name]) for name in _LISTS}})


def from_arguments(*args: Any, **kwargs: Any) -> Sources:
    """Returns the Sources of the call `load_inline(*args, **kwargs)`.

    Raises TypeError or ValueError for arguments that load_inline does not accept, and BuildFailed for flags that a
    shell cannot split into words.
    """
    try:
        bound = signature().bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"load_inline() {error}{_did_you_mean(kwargs)}") from None
    bound.apply_defaults()
    a = bound.arguments
    if a.get("sycl_sources"):
        raise TypeError(
            "load_inline() takes no sycl_sources here. It is the fourth argument since torch 2.7, before functions: "
            "name the argument (functions=[...])"
        )
    return Sources(
        name=a["name"],
        cpp="\n".join(_strings(a["cpp_sources"])),
        cuda="\n".join(_strings(a["cuda_sources"])),
        functions=_functions(a["functions"]),
        cflags=_words(a, "extra_cflags"),
        cuda_cflags=_words(a, "extra_cuda_cflags"),
        ldflags=_words(a, "extra_ldflags"),
        include_paths=_folders(a, "extra_include_paths"),
        error_handling=a["with_pytorch_error_handling"],
        with_cuda=a["with_cuda"],
        implicit_headers=not a["no_implicit_headers"],
    )


def options(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the words of a compiler's command line in groups, in order.

    A group is one word, or two: a word that begins with `-`, and the next word if that does not begin with `-`. The
    second word is taken to be the value of the option.
    """
    groups: list[tuple[str, ...]] = []
    for word in words:
        if groups and len(groups[-1]) == 1 and groups[-1][0].startswith("-") and not word.startswith("-"):
            groups[-1] = (*groups[-1], word)
        else:
            groups.append((word,))
    return groups


@functools.cache
def signature() -> inspect.Signature:
    """Returns the signature of torch's load_inline, and keeps it for later calls.

    The first call must come before load_inline is replaced in this process.
    """
    from torch.utils import cpp_extension  # here, because a process that needs no torch must not wait for it

    return inspect.signature(cpp_extension.load_inline)


def _did_you_mean(keywords: Mapping[str, Any]) -> str:
    for unknown in (k for k in keywords if k not in signature().parameters):
        close = difflib.get_close_matches(unknown, signature().parameters, n=1)
        if close:
            return f"; did you mean {close[0]!r}?"
    return ""


def _words(arguments: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Returns the words of the flags in the load_inline argument `name`, such as `extra_cflags`.

    torch joins the list with spaces, and a shell splits the result. So `[""]` gives no word, and `["-O3 -DX=2"]` gives
    two words. Raises TypeError if the argument contains a value that is not a string, and BuildFailed if a shell cannot
    split the flags.
    """
    line = " ".join(_texts(arguments, name))
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise BuildFailed(f"load_inline: {name} cannot be split into words: {error} in {line!r}.") from None


def _folders(arguments: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Returns the folders in the load_inline argument `name`, which is `extra_include_paths`.

    As in torch, the spaces around each folder are removed, and a folder is not split into words. Raises TypeError if
    the argument contains a value that is not a string.
    """
    return tuple(filter(None, (folder.strip() for folder in _texts(arguments, name))))


def _texts(arguments: Mapping[str, Any], name: str) -> list[str]:
    texts = _strings(arguments[name])
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"load_inline() takes a string or a list of strings in {name}, but got {texts!r}")
    return texts


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
