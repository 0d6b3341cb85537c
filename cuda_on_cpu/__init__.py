"""CUDA on the CPU: builds CUDA sources for the host's processor, runs and checks them there.

Programs call `cuda_on_cpu.enable()`, `load_inline`, `load` and `sanitize`. The command `python -m cuda_on_cpu` runs a
program unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuda_on_cpu.api import enable as enable
    from cuda_on_cpu.api import load as load
    from cuda_on_cpu.api import load_inline as load_inline
    from cuda_on_cpu.api import sanitize as sanitize

__all__ = ["enable", "load", "load_inline", "sanitize"]


def __getattr__(name: str) -> Any:
    """Imports the interface, and returns its object of the public name `name`.

    The import is lazy, because it imports torch. Raises AttributeError for a name that is not public.
    """
    if name in __all__:
        from cuda_on_cpu import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
