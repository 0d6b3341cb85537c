"""The Python interface, for programs that write kernels and want a verdict on them. It prints and stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import UserError
from kernel_harness.device import selection
from kernel_harness.problem import lookup
from kernel_harness.results.record import Result, without_emulated_speedup
from kernel_harness.results.reward import reward
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings, TimeShapes, check_baseline, check_shape
from kernel_harness.workers.fork_server import ForkServer


def evaluate(
    problem: str | Path,
    source: str | Path,
    *,
    device: str | None = None,
    shape: Mapping[str, int] | None = None,
    precision: str | None = None,
    timeout_s: float = 60.0,
    budget_s: float | None = None,
    baseline: str = BASELINE,
    seed: int | None = None,
    quick: bool = False,
    sanitize: bool = False,
    time_shapes: TimeShapes = None,
    require_own_kernels: float | None = None,
) -> Result:
    """Checks one kernel, times it if it is right, and returns the verdict with the time.

    >>> import kernel_harness
    >>> source = '''
    ... import torch
    ...
    ... class ModelNew(torch.nn.Module):
    ...     def forward(self, A, B):
    ...         return torch.matmul(A.T, B.T)
    ... '''
    >>> result = kernel_harness.evaluate("matmul_tt", source, device="cpu", budget_s=0.2)
    >>> result.status is kernel_harness.Status.PASSED
    True
    >>> result.timing.time_ms > 0
    True

    Args:
        problem: the name of a problem, or the path of a problem file. A name is looked up in `./problems` first, and
            then among the problems that the package ships.
        source: the text of a kernel file, or the path of a kernel file. A path is a `Path`, or a string of
            one line that ends in .py or .cu. Any other string is the text of a kernel file. It is read as a .cu file if
            it begins with a C++ comment or a preprocessor line, otherwise as Python code that defines `ModelNew`.
        device: "cpu" (CUDA is emulated), "cuda" or "cuda:N"; None selects the GPU if there is one, else "cpu".
        shape: values for the problem's size constants, such as `{"M": 64}`. A constant that `shape` does not name keeps
            the problem's usual value for the device. If `shape` is None, all constants have their usual values.
        precision: the coarsest number format that the kernel may compute in: "tf32", "float16" or "bfloat16". None
            allows only the format of the outputs.
        timeout_s: the time limit of each call of the kernel, in seconds.
        budget_s: the time to spend on timing, in seconds; None uses the device's default.
        baseline: what speedups are relative to: "torch" (the reference, run eagerly), or on a GPU "torch.compile" or
            "torch.compile:max-autotune". Under emulation only "torch" is allowed, and the speedup is None.
        seed: the seed of the inputs that the kernel is checked on; None draws a secret seed. The inputs of timed calls
            do not depend on `seed`.
        quick: check fewer shapes, and spend a quarter of the default time on timing.
        sanitize: on a GPU, look for races and accesses outside of memory in a kernel that passed, which takes longer.
            Findings are remarks. Under emulation this is always done if it takes seconds.
        time_shapes: further shapes at which the kernel is checked and timed, beside those of the problem file: a number
            of shapes to draw around the problem's size, or a list of shapes such as `[{"M": 64}, {"M": 256}]`, in which
            a constant that a shape does not name keeps its value. A 0 leaves out the shapes of the file. The drawn
            shapes follow from `seed`, and they are in `Result.further`: do not show them to what writes the kernels.
        require_own_kernels: the least percentage of a call's time on the GPU that the kernel's own CUDA kernels must
            take (under emulation: of the output that they must make). With a smaller or unknown one, the kernel has no
            rank and the least reward (`Result.is_excluded`). None asks for nothing.

    Returns a Result also if the kernel does not build, crashes, hangs or is wrong.
    Several processes may call `evaluate` at the same time.
    Raises UserError for an argument that cannot be used. Its subclass NotFound is raised for a problem or file that
    does not exist, and its subclass ProblemError for a problem file that cannot be used.
    Raises EnvironmentLacking if this machine cannot run the evaluation. Its subclass NoCompiler is raised if there is
    no compiler.
    """
    with Evaluator(
        problem, device=device, shape=shape, precision=precision, timeout_s=timeout_s, budget_s=budget_s,
        baseline=baseline, seed=seed, quick=quick, sanitize=sanitize, time_shapes=time_shapes,
        require_own_kernels=require_own_kernels,
    ) as evaluator:  # fmt: skip
        return evaluator.evaluate(source)


class Evaluator(Closing):
    """Judges kernels of one problem. It starts shared processes once instead of once for each kernel.

    The method `evaluate` gives each kernel the verdict and time that the function `kernel_harness.evaluate` would give.
    Between the calls, an Evaluator keeps the fork server, the reference with the answers computed so far, and the
    worker processes of the baselines. The baselines are paused between the calls. A kept process that has died is
    replaced by a new one.

    >>> import kernel_harness
    >>> with kernel_harness.Evaluator("matmul_tt", device="cpu", budget_s=0.2) as evaluator:
    ...     results = [evaluator.evaluate(source) for source in ("import torch", "raise ValueError")]
    >>> [str(result.status) for result in results]
    ['LOAD_ERROR', 'LOAD_ERROR']

    `kernel_harness.evaluate` documents the arguments and the exceptions. All kernels are checked on the same inputs,
    which `seed` determines. `Result.settings` contains the seed: do not show it to the program that writes the kernels,
    because that program could predict the inputs.
    An Evaluator runs one evaluation at a time. Create one Evaluator for each thread. Its constructor starts a process:
    call `close` at the end, or use a `with` block.
    """

    def __init__(
        self,
        problem: str | Path,
        *,
        device: str | None = None,
        shape: Mapping[str, int] | None = None,
        precision: str | None = None,
        timeout_s: float = 60.0,
        budget_s: float | None = None,
        baseline: str = BASELINE,
        seed: int | None = None,
        quick: bool = False,
        sanitize: bool = False,
        time_shapes: TimeShapes = None,
        require_own_kernels: float | None = None,
    ) -> None:
        _check_types(problem, device, shape)
        self._session: Session | None = None
        self._open = ExitStack()
        self._device = selection.selected(device or "auto")
        check_baseline(baseline, emulated=self._device.emulated)
        found = lookup.problem(str(problem), Path.cwd())
        self._settings = Settings.of(
            budget_s=budget_s, precision=precision, baseline=baseline, jobs=1, compiled=False, call_s=timeout_s,
            seed=seed, quick=quick, sanitize=sanitize, time_shapes=time_shapes,
            require_own_kernels=require_own_kernels,
        )  # fmt: skip
        # The fork server imports torch while this process chooses the problem's size.
        self._fork_server: ForkServer | None = self._open.enter_context(ForkServer())
        try:
            self._problem = found.sized(shape or {}, emulated=self._device.emulated)
            self._problem.check_inputs()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Evaluator:
        self._opened()
        return self

    def evaluate(self, source: str | Path) -> Result:
        """Checks one kernel, times it if it is right, and returns the verdict with the time.

        `source` is the text or the path of a kernel file; `kernel_harness.evaluate` documents how they are told apart.
        Raises NotFound for a path without a file, UserError for a file that cannot be used, and EnvironmentLacking if
        this machine cannot run the evaluation.
        """
        if not isinstance(source, (str, Path)):
            raise UserError(f"source must be a string or a Path, not {type(source).__name__}")
        candidate = lookup.source(source)
        session = self._opened()
        try:
            result = session.judge_one(candidate)[0]
        except BaseException:
            self.close()  # processes may be gone or in the middle of a call: the next evaluation starts new ones
            raise
        return without_emulated_speedup(result)

    def reward(self, source: str | Path) -> float:
        """Judges one kernel and returns its reward for a program that learns to write kernels.

        The reward is 0 if the kernel did not pass, else the lower bound of its speedup's 95% interval, and at least
        0.01 (`kernel_harness.results.reward`). Under emulation, a kernel that passed gets 1. Raises as `evaluate`.
        """
        return reward(self.evaluate(source))

    def close(self) -> None:
        """Ends all processes of this Evaluator. A later `evaluate` starts new ones."""
        self._session = self._fork_server = None
        self._open.close()

    def _opened(self) -> Session:
        if self._session is None:
            try:
                if self._fork_server is None:
                    self._fork_server = self._open.enter_context(ForkServer())
                session = Session(self._problem, self._device, self._settings, SilentObserver(), self._fork_server)
                self._session = self._open.enter_context(session)
            except BaseException:
                self.close()
                raise
        return self._session


def _check_types(problem: object, device: object, shape: object) -> None:
    """Raises UserError for arguments of other types than `evaluate` documents."""
    if not isinstance(problem, (str, Path)):
        raise UserError(f"problem must be a string or a Path, not {type(problem).__name__}")
    if device is not None and not isinstance(device, str):
        raise UserError(f"device must be a string or None, not {device!r}")
    if shape is not None:
        check_shape("shape", shape)
