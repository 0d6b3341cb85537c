"""A pool of device workers, for programs that want verdicts on many kernels of many problems at once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.closing import Closing
from kernel_harness.problem import lookup
from kernel_harness.results.record import Result, without_emulated_speedup
from kernel_harness.results.reward import reward
from kernel_harness.session.settings import Settings, TimeShapes, check_baseline
from kernel_harness.suite import allocation
from kernel_harness.suite.device_worker import SuiteProblem, Task, Verdict
from kernel_harness.suite.scheduler import LocalScheduler, results

# So many items of evaluate_many wait for each candidate that is judged or built.
_WAITING = 2


class EvaluatorPool(Closing):
    """Evaluator processes for kernels of any problems: one for each GPU, or without a GPU one for each processor core.

    All methods are safe to call from several threads at the same time. A kernel gets the verdict that
    `kernel_harness.evaluate` would give it. While a process judges one kernel, it builds the next ones.

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
        sanitize: on a GPU, look for races and accesses outside of memory in a kernel that passed, which takes longer.
            Findings are remarks. Under emulation this is always done if it takes seconds.
        time_shapes: further shapes at which each kernel is timed, as for `kernel_harness.evaluate`.
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
        sanitize: bool = False,
        time_shapes: TimeShapes = None,
        seed: int | None = None,
    ) -> None:
        chosen = allocation.of_this_machine(device, gpus, jobs)
        check_baseline(baseline, emulated=chosen.emulated)
        settings = Settings.of(
            budget_s=chosen.budget_s(budget_s, quick=quick), precision=precision, baseline=baseline, quick=quick,
            jobs=chosen.builds, compiled=False, call_s=timeout_s, seed=seed, sanitize=sanitize,
            time_shapes=time_shapes,
        )  # fmt: skip
        self._room = _WAITING * len(chosen.devices) * (chosen.ahead + 1)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._problems: dict[Path, SuiteProblem] = {}
        self._scheduler = LocalScheduler(chosen, settings)

    def close(self) -> None:
        """Ends all processes of the pool. Calls that wait for a result raise UserError. Safe to call twice."""
        self._scheduler.close()

    def evaluate(self, problem: str | Path, source: str | Path) -> Result:
        """Judges one kernel of one problem and returns the result; the arguments are as for `kernel_harness.evaluate`.

        Raises NotFound for a problem or a file that does not exist, ProblemError for a problem that cannot be used,
        EnvironmentLacking if this machine cannot judge kernels, and UserError if the pool is closed.
        """
        return _result(*self._submitted(problem, source))

    def reward(self, problem: str | Path, source: str | Path) -> float:
        """Judges one kernel of one problem and returns its reward (`results.reward.reward`).

        Raises what `evaluate` raises.
        """
        return reward(self.evaluate(problem, source))

    def evaluate_many(self, items: Iterable[tuple[str | Path, str | Path]]) -> Iterator[tuple[int, Result]]:
        """Judges kernels, given as pairs (problem, source). Yields (index of the item, result) when a result is known.

        `items` may be endless: it is read only as far as the pool needs. Raises what `evaluate` raises as soon as one
        item cannot be judged. Results that have not been yielded by then are lost.
        """
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        waiting: dict[int, tuple[Task, Future[Verdict]]] = {}
        for index, item in enumerate(items):
            if len(waiting) >= self._room:
                finished = done.get()
                yield finished, _result(*waiting.pop(finished))
            waiting[index] = self._submitted(*item)
            waiting[index][1].add_done_callback(lambda _, index=index: done.put(index))  # type: ignore[misc]
        while waiting:
            finished = done.get()
            yield finished, _result(*waiting.pop(finished))

    def _submitted(self, problem: str | Path, source: str | Path) -> tuple[Task, Future[Verdict]]:
        candidate = lookup.source(source)
        path = lookup.existing_problem_path(str(problem), Path.cwd()).resolve()
        with self._lock:
            # A task is known by its problem and the name of its candidate, which need not differ here.
            task = Task(self._problem(path), replace(candidate, name=f"{candidate.name}-{next(self._numbers)}"))
        return task, self._scheduler.submit([task])[0]

    def _problem(self, path: Path) -> SuiteProblem:
        """Returns the problem of a file, with a name of its own among the problems of this pool."""
        if path not in self._problems:
            taken = {problem.name for problem in self._problems.values()}
            names = itertools.chain([path.stem], (f"{path.stem}_{number}" for number in itertools.count(2)))
            self._problems[path] = SuiteProblem(next(name for name in names if name not in taken), path)
        return self._problems[path]


def _result(task: Task, verdict: Future[Verdict]) -> Result:
    """Waits for a verdict and returns the result, without the number in the kernel's name."""
    result = results(task, verdict.result())[0]
    return replace(without_emulated_speedup(result), kernel=task.candidate.name.rpartition("-")[0])
