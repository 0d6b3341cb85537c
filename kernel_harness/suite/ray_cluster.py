"""Device workers on the machines of a Ray cluster.

There is one Ray actor for each GPU, or a chosen number of actors that emulate CUDA. Ray places the actors on machines.
It starts an actor again that has ended, and repeats the actor's calls at most twice. Each actor keeps one device worker
on its machine. The harness must be installed on every machine.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from kernel_harness.core.atomic_file import replace_bytes
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.paths import python_path
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.errors import ProblemError
from kernel_harness.session.settings import Settings
from kernel_harness.suite.allocation import Allocation
from kernel_harness.suite.device_worker import Lacking, Message, SuiteProblem, Task, Unusable, Verdict, Worker, send
from kernel_harness.suite.scheduler import LocalScheduler, Scheduler
from kernel_harness.workers.process import Limits

LOCAL = "local"
"""The address that stands for a new cluster of this machine alone."""
# Ray may kill the processes below an actor, so an actor first ends its device worker, within this time.
_ENDING_S = 30.0
# How often Ray repeats a call whose actor has ended before the candidate is CRASHED.
_RETRIES = 2


def require() -> Any:
    """Returns the module ray. Raises UserError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs the package ray: pip install ray, or '.[ray]' in a checkout") from None
    return ray


def gpus(nodes: Iterable[Mapping[str, Any]], gpu_type: str | None) -> int:
    """Returns the number of GPUs of the nodes that run. `nodes` is the result of `ray.nodes()`.

    If `gpu_type` is not None, only nodes with GPUs of this type count. All GPUs of a node are taken to be of one type.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    return sum(int(r.get("GPU", 0)) for r in resources if gpu_type is None or f"accelerator_type:{gpu_type}" in r)


@contextmanager
def on_cluster(
    address: str, gpu_type: str | None, allocation: Allocation, settings: Settings, hidden: Sequence[Path]
) -> Iterator[Scheduler]:
    """Returns a context with a Scheduler of device workers on the Ray cluster at `address`, or LOCAL.

    If `allocation` has no devices, there is a worker for each GPU of the type `gpu_type`, which is Ray's name of it,
    such as `H200` (None: any type). No candidate may read paths in `hidden`. Raises UserError if Ray is not installed,
    and EnvironmentLacking if the cluster cannot be reached or has no such GPU.
    """
    ray, local, handler = require(), address == LOCAL, signal.getsignal(signal.SIGTERM)
    with ExitStack() as at_end:
        try:
            if not ray.is_initialized():
                environment = {"env_vars": {"PYTHONPATH": python_path()}} if local else None
                ray.init(
                    None if local else address, runtime_env=environment, include_dashboard=False,
                    num_cpus=(len(allocation.devices) or None) if local else None, log_to_driver=False,
                    logging_level="ERROR",
                )  # fmt: skip
                at_end.callback(ray.shutdown)
                signal.signal(signal.SIGTERM, handler)  # Ray has set its own, which ends this process at once
            devices = allocation.devices or ("cuda:0",) * gpus(ray.nodes(), gpu_type)
        except (OSError, RuntimeError, ValueError) as error:
            raise EnvironmentLacking(f"the Ray cluster {address} cannot be used: {error}") from None
        if not devices:
            wanted = f" of the type {gpu_type}" if gpu_type else ""
            raise EnvironmentLacking(f"the Ray cluster {address} has no GPU{wanted}")
        options = {"num_cpus": 1} if allocation.emulated else {"num_gpus": 1}
        made = ray.remote(Actor).options(
            **options, **({"accelerator_type": gpu_type} if gpu_type else {}), max_restarts=-1,
            max_task_retries=_RETRIES, max_concurrency=allocation.ahead + 3,
        )  # fmt: skip
        paths = [path.absolute() for path in hidden]
        start = [
            partial(RayWorker, ray, partial(made.remote, replace(allocation, devices=(each,)), settings, paths))
            for each in devices
        ]
        yield at_end.enter_context(Scheduler(start, allocation.ahead))


class Actor:
    """The Ray actor: it keeps one device worker. Its calls run in several threads at the same time.

    The problem file travels with each call, because the machines need not share files.
    """

    def __init__(self, allocation: Allocation, settings: Settings, hidden: Sequence[Path]) -> None:
        limits = Limits(settings.limits.call_s, settings.limits.build_s)  # with the memory of this machine
        self._scheduler = LocalScheduler(allocation, replace(settings, limits=limits), hidden)

    def device(self) -> Message:
        """Waits until the device worker is ready, and returns its message Ready, or Lacking if its device is not."""
        try:
            return self._scheduler.first.result()
        except UserError as error:
            return Lacking(str(error))

    def judge(self, problem: str, content: bytes, candidate: Candidate) -> Message:
        """Judges one candidate of the problem named `problem`, whose file contains `content`. Returns the verdict.

        Or the message that says why there is none.
        """
        path = self._scheduler.folder.path / f"{problem}.py"
        if not path.exists():  # a problem keeps its content; the device worker may load the file at any moment
            replace_bytes(path, content)
        task = Task(SuiteProblem(problem, path), candidate)
        try:
            return self._scheduler.submit([task])[0].result()
        except ProblemError as error:
            return Unusable(task.id, str(error))
        except UserError as error:
            return Lacking(str(error))

    def close(self) -> None:
        """Ends the device worker with all its processes and files."""
        self._scheduler.close()


class RayWorker(Worker):
    """The device worker of a Ray actor. `make` creates the actor. Ray's threads send its answers to `connection`."""

    def __init__(self, ray: Any, make: Any) -> None:
        ours, self._theirs = Pipe()
        super().__init__(ours)
        self._ray, self._actor, self._lock = ray, make(), threading.Lock()
        self._ends: Any = None
        self._report(self._actor.device.remote())

    def _send(self, task: Task) -> None:
        try:
            content = _content(task.problem.path)
        except OSError as error:
            unusable = Unusable(task.id, f"{task.problem.path}: {error.strerror}")
            # In a thread, because the present one may be the only reader of a full connection.
            threading.Thread(target=self._told, args=(unusable,)).start()
            return
        self._report(self._actor.judge.remote(task.problem.name, content, task.candidate), task.id)

    def _report(self, call: Any, task: tuple[str, ...] = ()) -> None:
        """Sends the answer of a call of the actor to `connection` when it arrives."""

        def arrived(answer: Any) -> None:
            try:
                message: Message = answer.result()
            except self._ray.exceptions.RayActorError as error:
                reason = f"The actor ended {_RETRIES + 1} times while it had this candidate. {error}"
                message = Verdict(task, crashed=reason) if task else Lacking(str(error))
            except Exception as error:  # also an error of the harness, whose text has the traceback
                message = Lacking(f"an actor of the Ray cluster failed: {error}")
            self._told(message)

        call.future().add_done_callback(arrived)

    def _told(self, message: Message) -> None:
        with self._lock, suppress(OSError):  # at the end, the connection is closed
            send(self._theirs, message)

    def interrupt(self) -> None:
        """Makes the actor end its device worker."""
        self._ends = self._actor.close.remote()

    def kill(self) -> None:
        """Does nothing: the actor ends a device worker that is silent for too long."""

    def close(self) -> str:
        """Waits until the actor has ended its device worker, and ends the actor."""
        with suppress(self._ray.exceptions.RayError):  # an actor that has ended has ended its device worker, too
            self._ray.get(self._ends, timeout=_ENDING_S)
        self._ray.kill(self._actor)
        self.connection.close()
        return "The actor ended."


@cache
def _content(path: Path) -> bytes:
    """Returns the content of a problem file, which is read once. Raises OSError if it cannot be read."""
    return path.read_bytes()
