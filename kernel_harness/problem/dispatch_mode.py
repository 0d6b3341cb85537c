"""The base class of what looks at each operator that torch calls."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch
    """A TorchDispatchMode for which torch does not import its compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch asks this. After a yes it imports its compiler, which takes 2 s and makes a folder for temporary files.
        return False
