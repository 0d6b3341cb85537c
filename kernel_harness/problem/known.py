"""Keeps what is known of a problem from one run to the next, in the build cache."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from cuda_on_cpu.compile import cache

if TYPE_CHECKING:
    from kernel_harness.problem.problem import Problem

T = TypeVar("T")

_PACKAGE = Path(__file__).parents[1]
_CODE = tuple(_PACKAGE / name for name in ("problem", "checking", "explain"))


def known(problem: Problem, what: str, compute: Callable[[], T], **more: str | bool | None) -> T:
    """Returns what `compute` returns, which must be made of lists, dicts with text as keys, text and numbers.

    The value that an earlier run has computed is returned if the problem file, the sizes, torch and the code of this
    package are the same, and all in `more`. So nothing that fails a candidate may depend on the value alone. `what`
    names the value. Nothing is kept if the build cache cannot be written.
    """
    parts = {"what": what, "source": problem.source, "shape": dict(problem.shape), "emulated": problem.emulated, **more}
    key = cache.key(torch=torch.__version__, code=_code(), **parts)
    value: T = cache.keep("problems", key, lambda: (compute(), _modules_beside(problem.path)))
    return value


def _modules_beside(path: Path) -> list[str]:
    """Returns the files of modules that the problem file at `path` may have imported from its own folder."""
    files: list[Any] = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    folder = f"{path.parent.absolute()}{os.sep}"  # resolving the paths of thousands of modules takes 0.1 s
    return [file for file in files if file and file.startswith(folder) and file != str(path.absolute())]


@functools.cache
def _code() -> str:
    return cache.digest_of(*cache.modules(*_CODE))
