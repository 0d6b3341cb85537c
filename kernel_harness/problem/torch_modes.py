"""The base classes of what looks at, or replaces, each function or operator of torch that is called in a context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch
    """A TorchDispatchMode for which torch does not import its compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch asks this. After a yes it imports its compiler, which takes 2 s and makes a folder for temporary files.
        return False


class FunctionMode(TorchFunctionMode):  # type: ignore[misc]  # mypy does not follow torch
    """A context in which `result_of` computes the result of each torch function that is called."""

    def result_of(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Returns the result of the call `func(*args, **kwargs)`."""
        raise NotImplementedError

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Calls `result_of`. torch calls this method; see torch.overrides for the arguments."""
        return self.result_of(func, args, kwargs or {})
