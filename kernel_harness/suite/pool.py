"""A pool of device workers, for programs that want verdicts on many kernels of many problems at once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.closing import Closing
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result, without_emulated_speedup
from kernel_harness.results.reward import reward
from kernel_harness.session.settings import Settings, TimeShapes, check_baseline
from kernel_harness.suite import allocation
from kernel_harness.suite.device_worker import Ready, SuiteProblem, Task, Verdict
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
        time_shapes, require_own_kernels: as for `kernel_harness.evaluate`.
        seed: the seed of all inputs that kernels are checked on; None draws a secret seed.
        hidden: paths that no kernel may read, beside problem files and results.

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
        require_own_kernels: float | None = None,
        seed: int | None = None,
        hidden: Sequence[Path] = (),
    ) -> None:
        self._allocation = allocation.of_this_machine(device, gpus, jobs)
        self._options: dict[str, Any] = {
            "precision": precision, "timeout_s": timeout_s, "budget_s": budget_s, "baseline": baseline, "quick": quick,
            "sanitize": sanitize, "seed": seed, "time_shapes": time_shapes, "require_own_kernels": require_own_kernels,
        }  # fmt: skip
        settings = self.settings()
        self._options["seed"] = settings.seed
        self.capacity = len(self._allocation.devices) * (self._allocation.ahead + 1)
        """The number of kernels that the pool judges or builds at the same time."""
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._problems: dict[tuple[Path, str], SuiteProblem] = {}
        self._scheduler = LocalScheduler(self._allocation, settings, hidden)

    @property
    def device(self) -> Ready:
        """The device of the first process that is ready, for which this property waits.

        Raises EnvironmentLacking if this machine cannot judge kernels, and UserError if the pool is closed.
        """
        return self._scheduler.first.result()

    def settings(self, **options: Any) -> Settings:
        """Returns the settings of kernels that are submitted with these options, such as `quick`.

        Raises UserError for a value that cannot be used.
        """
        of = self._options | options
        check_baseline(of["baseline"], emulated=self._allocation.emulated)
        return Settings.of(
            budget_s=self._allocation.budget_s(of["budget_s"], quick=of["quick"]), precision=of["precision"],
            baseline=of["baseline"], quick=of["quick"], jobs=self._allocation.builds, compiled=False,
            call_s=of["timeout_s"], seed=of["seed"], sanitize=of["sanitize"], time_shapes=of["time_shapes"],
            require_own_kernels=of["require_own_kernels"],
        )  # fmt: skip

    def close(self) -> None:
        """Ends all processes of the pool. Calls that wait for a result raise UserError. Safe to call twice."""
        self._scheduler.close()

    def evaluate(self, problem: str | Path, source: str | Path) -> Result:
        """Judges one kernel of one problem and returns the result; the arguments are as for `kernel_harness.evaluate`.

        Raises NotFound for a problem or a file that does not exist, ProblemError for a problem that cannot be used,
        EnvironmentLacking if this machine cannot judge kernels, and UserError if the pool is closed.
        """
        return self.submit(problem, source).result()

    def submit(self, problem: str | Path, source: str | Path | Candidate, **options: Any) -> Future[Result]:
        """Adds one kernel of one problem to those that wait, and returns the future of its result.

        `options` are arguments of the constructor, from `precision` to `sanitize`, with other values for this kernel.
        Raises NotFound for a problem or a file that does not exist, and UserError for an option that cannot be used.
        The future raises what else `evaluate` raises. Its callbacks must not call the pool.
        """
        candidate = source if isinstance(source, Candidate) else lookup.source(source)
        path = lookup.existing_problem_path(str(problem), Path.cwd()).resolve()
        with self._lock:
            # A task is known by its problem and the name of its candidate, which need not differ here.
            named = replace(candidate, name=f"{candidate.name}-{next(self._numbers)}")
            task = Task(self._problem(path, options), named)
        result: Future[Result] = Future()
        self._scheduler.submit([task])[0].add_done_callback(partial(_settle, result, task))
        return result

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
        waiting: dict[int, Future[Result]] = {}
        for index, item in enumerate(items):
            if len(waiting) >= _WAITING * self.capacity:
                finished = done.get()
                yield finished, waiting.pop(finished).result()
            waiting[index] = self.submit(*item)
            waiting[index].add_done_callback(lambda _, index=index: done.put(index))  # type: ignore[misc]
        while waiting:
            finished = done.get()
            yield finished, waiting.pop(finished).result()

    def _problem(self, path: Path, options: dict[str, Any]) -> SuiteProblem:
        """Returns the problem of a file under some options, with a name of its own among the problems of this pool."""
        settings = self.settings(**options) if options else None
        key = path, repr(settings)
        if key not in self._problems:
            taken = {problem.name for problem in self._problems.values()}
            names = itertools.chain([path.stem], (f"{path.stem}_{number}" for number in itertools.count(2)))
            name = next(name for name in names if name not in taken)
            self._problems[key] = SuiteProblem(name, path, settings=settings)
        return self._problems[key]


def _settle(future: Future[Result], task: Task, verdict: Future[Verdict]) -> None:
    """Gives `future` the result of a verdict, without the number in the kernel's name, or its exception."""
    try:
        result = results(task, verdict.result())[0]
    except BaseException as error:  # the caller of the future waits for it
        future.set_exception(error)
    else:
        future.set_result(replace(without_emulated_speedup(result), kernel=task.candidate.name.rpartition("-")[0]))
