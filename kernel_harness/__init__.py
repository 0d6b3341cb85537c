"""Is a GPU kernel right, and how fast is it? A harness whose answer can be believed.

As a library: `kernel_harness.evaluate(problem, source)`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_harness.library import evaluate as evaluate

__version__ = "0.1.0"

# torch warns on import where there is a CUDA toolkit and no GPU, which is what the emulation is for.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


def __getattr__(name: str) -> Any:
    """`evaluate`, imported when it is asked for: workers import this package and must not load the judge."""
    if name == "evaluate":
        from kernel_harness.library import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
