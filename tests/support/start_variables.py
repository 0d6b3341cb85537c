"""The variables that Python, torch and the libraries below them read when they start, and never again."""

from __future__ import annotations

import re
from collections.abc import Mapping

_READ_AT_START = re.compile(
    r"PYTHON|LANG|LC_|LD_|OMP_|KMP_|MKL_|OPENBLAS_|GOMP_|MALLOC_|CUDA_|NVIDIA_|TORCH|PYTORCH_|ATEN_|C10_"
)


def same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether these variables are the same in two environments: a fork is then the same as a new process."""
    return _read_at_start(one) == _read_at_start(other)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if _READ_AT_START.match(name)}
