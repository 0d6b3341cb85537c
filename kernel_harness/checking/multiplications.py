"""Finds out whether a model multiplies matrices: products, convolutions, attention and recurrent layers do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

# The names of torch's operators that sum up products, on a CPU and on a GPU.
_NAMES = re.compile(
    r"(?!upsample).*(mm|mv|dot|matmul|linear|convolution|conv[123]d|attention|lstm|gru|rnn|transformer|cdist)"
)


class Seen(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch
    """A context in which `any` becomes True as soon as an operator sums up products."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls `func`, an operator that was called within the context."""
        self.any = self.any or _NAMES.match(func.__name__) is not None
        return func(*args, **(kwargs or {}))
