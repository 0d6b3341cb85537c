"""A harness that checks whether a GPU kernel computes the right answer and measures how fast the kernel is.

Programs call `kernel_harness.evaluate(problem, source)`, or create an `Evaluator` for many
kernels of one problem, or an `EvaluatorPool` for many kernels of many problems.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import TYPE_CHECKING, Any

from cuda_on_cpu.core import names

if TYPE_CHECKING:
    from cuda_on_cpu.compile.errors import NoCompiler as NoCompiler
    from kernel_harness.api import Evaluator as Evaluator
    from kernel_harness.api import evaluate as evaluate
    from kernel_harness.core.errors import EnvironmentLacking as EnvironmentLacking
    from kernel_harness.core.errors import NotFound as NotFound
    from kernel_harness.core.errors import UserError as UserError
    from kernel_harness.core.status import Status as Status
    from kernel_harness.problem.errors import ProblemError as ProblemError
    from kernel_harness.results.record import Result as Result
    from kernel_harness.results.reward import reward as reward
    from kernel_harness.suite.pool import EvaluatorPool as EvaluatorPool

__version__ = "0.1.0"

# First of all: the build cache of the harness and its variables, such as $KERNEL_HARNESS_CACHE.
names.use("KERNEL_HARNESS", "kernel-harness")

_MODULES = {
    "evaluate": "kernel_harness.api",
    "Evaluator": "kernel_harness.api",
    "EvaluatorPool": "kernel_harness.suite.pool",
    "reward": "kernel_harness.results.reward",
    "Result": "kernel_harness.results.record",
    "Status": "kernel_harness.core.status",
    "UserError": "kernel_harness.core.errors",
    "EnvironmentLacking": "kernel_harness.core.errors",
    "NotFound": "kernel_harness.core.errors",
    "ProblemError": "kernel_harness.problem.problem",
    "NoCompiler": "cuda_on_cpu.compile.errors",
}
__all__ = [*_MODULES]

# torch's OpenMP threads wait for each other by running in a loop of 300,000 turns. Other processes of the harness,
# which run at the same time, lose that time: where all cores are busy, an operation of torch takes up to 50 times as
# long.
# With no turns, a convolution of 384 groups takes 15 times as long on idle cores. OpenMP reads the variable when torch
# is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# torch asks for pages of 2 MiB for large tensors on the CPU. With pages of 4 KiB, a virtual machine spent a third of
# the time of a check of 100 million weights on handing out pages.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# On a machine with a CUDA toolkit and without a GPU, torch logs a warning on import. Emulation usually runs there.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


def __getattr__(name: str) -> Any:
    """Imports the module that defines the public name `name`, and returns the object of that name.

    The import is lazy because worker processes import this package and must not load the judge.
    Raises AttributeError for a name that is not public.
    """
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
