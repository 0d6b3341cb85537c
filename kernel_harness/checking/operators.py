"""Finds out which kinds of torch's operators a model calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kernel_harness.problem.torch_modes import DispatchMode

PRODUCTS = re.compile(
    r"(?!upsample).*(mm|mv|dot|matmul|linear|convolution|conv[123]d|attention|lstm|gru|rnn|transformer|cdist)"
)
"""The names of operators that sum up products, on a CPU and on a GPU."""
EXPONENTIALS = re.compile(
    r".*(exp(?!and)|softmax|sigmoid|tanh|softplus|mish|silu|(?<!r)elu|sinh|cosh|attention|lstm|gru|rnn|transformer)"
)
"""The names of operators whose usual formulas overflow for large numbers."""

COMPOSITES = re.compile(EXPONENTIALS.pattern[:-1] + "|norm|erf|var|std|mean|sqrt|div|pow|log)")
"""The names of operators that a kernel may compute as several, each of which rounds its result."""

_SEARCHES = "(sort|topk|kthvalue|median|quantile)"
MAXIMA = re.compile(f".*((?<!soft|amp_)max(?!imum)|{_SEARCHES})")
MINIMA = re.compile(f".*((?<!soft|amp_)min(?!imum)|{_SEARCHES})")
"""The names of operators that search for the largest or the smallest number along a dimension."""


class Called(DispatchMode):
    """A context that notes the names of the operators that are called within it."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()

    def any(self, names: re.Pattern[str]) -> bool:
        """Returns whether an operator was called whose name matches `names`."""
        return any(map(names.match, self._names))

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls `func`, an operator that was called within the context."""
        self._names.add(func.__name__)
        return func(*args, **(kwargs or {}))
