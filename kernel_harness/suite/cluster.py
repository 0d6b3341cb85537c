"""A dispatcher whose evaluators are on the machines of a Ray cluster.

There is one Ray actor for each GPU, or a chosen number of actors that emulate CUDA. Ray places the actors on machines.
It starts an actor again that has ended, and repeats the actor's calls at most twice. Each actor keeps one evaluator
process on its machine (`Desk`). The harness must be installed on every machine.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from kernel_harness.core.atomic_file import replace_bytes
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.paths import python_path
from kernel_harness.problem.candidate import Candidate
from kernel_harness.session.settings import Settings
from kernel_harness.suite import evaluator
from kernel_harness.suite.backlog import Backlog
from kernel_harness.suite.collection import SuiteProblem, Task
from kernel_harness.suite.desk import Desk, Outcome
from kernel_harness.suite.dispatcher import Broken, DeviceKnown, Event, NoVerdict, Staff

LOCAL = "local"
"""The address that stands for a new cluster of this machine alone."""
_TICK_S = 0.5
# Ray may kill the processes below an actor, so an actor first ends its evaluator, within this time.
_ENDING_S = 30.0
# How often Ray repeats a call whose actor has ended before the call counts as broken.
_RETRIES = 2


class Dispatching(Protocol):
    """The interface of an object that gives tasks to evaluators: `Dispatcher` on this machine, or `RayDispatcher`."""

    @property
    def busy(self) -> bool:
        """Whether an evaluator has an unfinished task."""

    def step(self, backlog: Backlog) -> list[Event]:
        """Gives waiting tasks to evaluators that have room, waits at most 0.5 s for events, and returns the events.

        An evaluator has room if it has at most `ahead` unfinished tasks. Raises EnvironmentLacking if a machine cannot
        judge candidates.
        """

    def finish(self) -> None:
        """Ends the evaluators, which have no tasks."""


@dataclass(frozen=True)
class Cluster:
    """The actors of a suite on a Ray cluster.

    `address` is Ray's address of the cluster, or LOCAL. `device` is the device of each actor: `cuda:0`, the only GPU
    that Ray shows to it, or `cpu`. `actors` is the number of actors; None means one for each GPU of the cluster of
    the type `gpu_type`, which is Ray's name of it, such as `H200`. If `gpu_type` is None, GPUs of any type count.
    `ahead` is the most candidates that an actor has beside the one that it judges; it builds them meanwhile. `threads`
    is the number of OpenMP threads of an evaluator; None leaves it to OpenMP.
    """

    address: str
    device: str
    actors: int | None
    ahead: int
    gpu_type: str | None = None
    threads: int | None = None


def gpus(nodes: Iterable[Mapping[str, Any]], gpu_type: str | None) -> int:
    """Returns the number of GPUs of the nodes that run. `nodes` is the result of `ray.nodes()`.

    If `gpu_type` is not None, only nodes with GPUs of this type count. All GPUs of a node are taken to be of one type.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    return sum(int(r.get("GPU", 0)) for r in resources if gpu_type is None or f"accelerator_type:{gpu_type}" in r)


def require() -> Any:
    """Returns the module ray. Raises UserError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs the package ray: pip install ray, or '.[ray]' in a checkout") from None
    return ray


class Actor:
    """The Ray actor: it keeps one evaluator process for its device. Its calls run in several threads at the same time.

    The problem file travels with each call, because the machines need not share files.
    """

    def __init__(self, staff: Staff, parameters: str) -> None:
        given = evaluator.parsed(parameters)
        self._desk = Desk(staff, given.settings, given.hidden)

    def device(self) -> tuple[str, str]:
        """Waits until the evaluator is ready. Returns (name of the device's folder of results, device's own name)."""
        known = self._desk.device.result()
        return known.label, known.device

    def judge(self, problem: str, content: bytes, candidate: Candidate) -> Outcome:
        """Judges one candidate of the problem named `problem`, whose file contains `content`, and returns the outcome.

        The outcome's `task` names a copy of the problem file on this machine. The caller replaces it by its own task.
        """
        path = self._desk.folder / f"{problem}.py"
        if not path.exists():  # a problem keeps its content; the evaluator may load the file at any moment
            replace_bytes(path, content)
        return self._desk.submit(Task(SuiteProblem(problem, path, ""), candidate)).result()

    def close(self) -> None:
        """Ends the evaluator process with all its processes and files."""
        self._desk.close()


class RayDispatcher:
    """Evaluators on a Ray cluster that work on a backlog. A context manager, which ends the actors at its end.

    The constructor raises UserError if Ray is not installed. Entering the context raises EnvironmentLacking if the
    cluster cannot be reached, or if there is to be an actor for each GPU and the cluster has no GPU of the wanted type.
    """

    def __init__(self, cluster: Cluster, settings: Settings, hidden: Sequence[Path]) -> None:
        self._ray, self._cluster = require(), cluster
        self._parameters = evaluator.parameters(settings, hidden)
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, tuple[int, Task]] = {}
        self._asked: list[Any] = []
        self._contents: dict[Path, bytes] = {}
        self._connected = False

    def __enter__(self) -> RayDispatcher:
        ray, cluster = self._ray, self._cluster
        local = cluster.address == LOCAL
        handler = signal.getsignal(signal.SIGTERM)
        try:
            if not ray.is_initialized():
                environment = {"env_vars": {"PYTHONPATH": python_path()}} if local else None
                ray.init(
                    None if local else cluster.address, runtime_env=environment, include_dashboard=False,
                    num_cpus=cluster.actors if local else None, log_to_driver=False, logging_level="ERROR",
                )  # fmt: skip
                self._connected = True
                signal.signal(signal.SIGTERM, handler)  # Ray has set its own, which ends this process at once
            count = cluster.actors or gpus(ray.nodes(), cluster.gpu_type)
        except (OSError, RuntimeError, ValueError) as error:
            raise EnvironmentLacking(f"the Ray cluster {cluster.address} cannot be used: {error}") from None
        if not count:
            self.__exit__(None, None, None)
            wanted = f" of the type {cluster.gpu_type}" if cluster.gpu_type else ""
            raise EnvironmentLacking(f"the Ray cluster {cluster.address} has no GPU{wanted}")
        for number in range(count):
            self._actors[number] = self._start()
        self._asked = [actor.device.remote() for actor in self._actors.values()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(self._ray.exceptions.RayError):  # an actor that has ended has ended its evaluator, too
            self._ray.get([actor.close.remote() for actor in self._actors.values()], timeout=_ENDING_S)
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._connected:
            self._ray.shutdown()

    @property
    def busy(self) -> bool:
        """Whether an evaluator has an unfinished task."""
        return bool(self._calls)

    def step(self, backlog: Backlog) -> list[Event]:
        """Gives waiting tasks to actors that have room, waits at most 0.5 s for events, and returns the events.

        An actor has room if it has at most `ahead` unfinished tasks. Raises EnvironmentLacking if a machine of the
        cluster cannot judge candidates.
        """
        for number, actor in self._actors.items():
            mine = sum(each == number for each, _ in self._calls.values())
            while backlog and mine <= self._cluster.ahead and (task := backlog.take(number)) is not None:
                try:
                    content = self._content(task.problem.path)
                except OSError as error:
                    return [NoVerdict(task, f"{task.problem.path}: {error.strerror}")]
                call = actor.judge.remote(task.problem.name, content, task.candidate)
                self._calls[call] = number, task
                mine += 1
        waited = [*self._asked, *self._calls]
        done, _ = self._ray.wait(waited, num_returns=len(waited), timeout=_TICK_S) if waited else ([], [])
        return [self._event(each) for each in done]

    def finish(self) -> None:
        """Does nothing: the end of the context ends the evaluators."""

    def _content(self, path: Path) -> bytes:
        """Returns the content of a problem file, which is read once. Raises OSError if it cannot be read."""
        if path not in self._contents:
            self._contents[path] = path.read_bytes()
        return self._contents[path]

    def _start(self) -> Any:
        cluster = self._cluster
        gpu = cluster.device != "cpu"
        options = {"num_gpus": 1} if gpu else {"num_cpus": 1}
        if cluster.gpu_type:
            options["accelerator_type"] = cluster.gpu_type  # type: ignore[assignment]
        made = self._ray.remote(Actor).options(
            **options, max_restarts=-1, max_task_retries=_RETRIES, max_concurrency=cluster.ahead + 3
        )
        return made.remote(Staff((cluster.device,), cluster.ahead, cluster.threads), self._parameters)

    def _event(self, done: Any) -> Event:
        if done in self._asked:
            self._asked.remove(done)
            return DeviceKnown(*self._got(done))
        _, task = self._calls.pop(done)
        try:
            outcome: Outcome = self._got(done)
        except self._ray.exceptions.RayActorError as error:
            return Broken(task, f"The actor ended {_RETRIES + 1} times while it had this candidate. {error}")
        return replace(outcome, task=task)

    def _got(self, done: Any) -> Any:
        try:
            return self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):  # as on this machine
                raise error.cause from None
            raise
