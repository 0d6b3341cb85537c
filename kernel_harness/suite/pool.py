"""A pool of evaluator processes, for programs that want verdicts on many kernels of many problems at once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.precision import Precision
from kernel_harness.core.status import Status
from kernel_harness.problem import lookup
from kernel_harness.problem.problem import ProblemError
from kernel_harness.results.record import Result, from_line, without_emulated_speedup
from kernel_harness.results.reward import reward
from kernel_harness.sandbox.process import Limits
from kernel_harness.session.settings import Settings, check_baseline
from kernel_harness.suite import staffing
from kernel_harness.suite.collection import SuiteProblem, Task
from kernel_harness.suite.desk import Desk, Outcome
from kernel_harness.suite.dispatcher import Broken, NoVerdict, Verdict

# So many items of evaluate_many wait for each candidate that is judged or built.
_WAITING = 2


class EvaluatorPool:
    """Evaluator processes for kernels of any problems: one for each GPU, or without a GPU one for each processor core.

    All methods are safe to call from several threads at the same time. A kernel gets the verdict that
    `kernel_harness.evaluate` would give it. While an evaluator judges one kernel, it builds the next ones.

    >>> import kernel_harness
    >>> with kernel_harness.EvaluatorPool(device="cpu", jobs=1) as pool:
    ...     pool.reward("matmul_tt", "raise ValueError")
    0.0

    Args:
        device: "cuda", "cpu" (CUDA is emulated) or "auto", which is "cuda" if there is a GPU.
        gpus: the numbers of the GPUs to use; None means all.
        jobs: the number of processor cores to use: with GPUs they build kernels, without one each judges kernels. None
            means all, or fewer if there is no GPU and little free memory.
        precision, timeout_s, baseline: as for `kernel_harness.evaluate`.
        budget_s: the most seconds to spend on timing one kernel; None means 10 on a GPU and 0.3 under emulation.
        quick: check fewer shapes, and spend a quarter of the default time on timing.
        seed: the seed of all inputs that kernels are checked on; None draws a secret seed.

    Raises UserError for an argument that cannot be used. A pool is a context manager. Without a `with` block, call
    `close`, which ends its processes.
    """

    def __init__(
        self,
        *,
        device: str = "auto",
        gpus: Sequence[int] | None = None,
        jobs: int | None = None,
        precision: str | None = None,
        timeout_s: float = 60.0,
        budget_s: float | None = None,
        baseline: str = BASELINE,
        quick: bool = False,
        seed: int | None = None,
    ) -> None:
        chosen = staffing.staffing(device, gpus, jobs)
        check_baseline(baseline, emulated=chosen.emulated)
        drawn: dict[str, Any] = {} if seed is None else {"seed": seed}
        self._settings = Settings(
            budget_s=chosen.budget_s(budget_s, quick=quick), precision=Precision.named(precision), baseline=baseline,
            quick=quick, jobs=chosen.builds, compiled=False, limits=Limits(call_s=timeout_s), **drawn,
        )  # fmt: skip
        self._staff = chosen.staff
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._problems: dict[Path, SuiteProblem] = {}
        self._desk = Desk(chosen.staff, self._settings)

    def __enter__(self) -> EvaluatorPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes of the pool. Calls that wait for a result raise UserError. Safe to call twice."""
        self._desk.close()

    def evaluate(self, problem: str | Path, source: str | Path) -> Result:
        """Judges one kernel of one problem and returns the result; the arguments are as for `kernel_harness.evaluate`.

        Raises NotFound for a problem or a file that does not exist, ProblemError for a problem that cannot be used,
        EnvironmentLacking if this machine cannot judge kernels, and UserError if the pool is closed.
        """
        return _result(self._submitted(problem, source).result())

    def reward(self, problem: str | Path, source: str | Path) -> float:
        """Judges one kernel of one problem and returns its reward (`results.reward.reward`).

        Raises what `evaluate` raises.
        """
        return reward(self.evaluate(problem, source))

    def evaluate_many(self, items: Iterable[tuple[str | Path, str | Path]]) -> Iterator[tuple[int, Result]]:
        """Judges kernels, given as pairs (problem, source). Yields (index of the item, result) when a result is known.

        `items` may be endless: it is read only as far as the evaluators need. Raises what `evaluate` raises as soon as
        one item cannot be judged. Results that have not been yielded by then are lost.
        """
        done: queue.SimpleQueue[tuple[int, Future[Outcome]]] = queue.SimpleQueue()
        room = _WAITING * len(self._staff.devices) * (self._staff.ahead + 1)
        under_way = 0
        for index, (problem, source) in enumerate(items):
            if under_way >= room:
                finished, future = done.get()
                under_way -= 1
                yield finished, _result(future.result())
            self._submitted(problem, source).add_done_callback(lambda each, index=index: done.put((index, each)))  # type: ignore[misc]
            under_way += 1
        for _ in range(under_way):
            finished, future = done.get()
            yield finished, _result(future.result())

    def _submitted(self, problem: str | Path, source: str | Path) -> Future[Outcome]:
        candidate = lookup.source(source)
        path = lookup.existing_problem_path(str(problem), Path.cwd()).resolve()
        with self._lock:
            # A task is known by its problem and the name of its candidate, which need not differ here.
            named = replace(candidate, name=f"{candidate.name}-{next(self._numbers)}")
            return self._desk.submit(Task(self._problem(path), named))

    def _problem(self, path: Path) -> SuiteProblem:
        """Returns the problem of a file, with a name of its own among the problems of this pool."""
        if path not in self._problems:
            taken = {problem.name for problem in self._problems.values()}
            names = itertools.chain([path.stem], (f"{path.stem}_{number}" for number in itertools.count(2)))
            self._problems[path] = SuiteProblem(next(name for name in names if name not in taken), path, "")
        return self._problems[path]


def _result(outcome: Outcome) -> Result:
    """Returns the result in an outcome, without the number in the kernel's name. Raises ProblemError for NoVerdict."""
    candidate = outcome.task.candidate
    name = candidate.name.rpartition("-")[0]
    match outcome:
        case Verdict(_, lines):
            return replace(without_emulated_speedup(from_line(lines[0])), kernel=name)
        case Broken(_, reason):
            return Result(name, Status.CRASHED, reason, {}, candidate.sha256)
        case NoVerdict(_, reason):
            raise ProblemError(reason)
