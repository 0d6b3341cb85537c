"""The owner of the worker process of one model: a candidate, a baseline or the control."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_harness.workers.builder import FailedBuilds
from kernel_harness.workers.worker_client import RightOutputs, WorkerClient


@dataclass(frozen=True)
class ModelSource:
    """A Python source text that defines a model class. A worker process executes the text and creates the model.

    `file` is the file name for error messages. `class_name` is the name of the model class in `text`. `compile_mode` is
    the mode in which torch.compile compiles the model; None runs the model eagerly.
    """

    file: str
    text: str
    class_name: str
    compile_mode: str | None = None


class ModelProcess:
    """The owner of one model's worker process. It alone starts the process, replaces it and ends it.

    `client` is the client of the present process, which may have ended; None before the first start. `start` starts a
    worker process without a model. `right` knows the outputs of the reference and the problem at the timed sizes.
    """

    def __init__(self, source: ModelSource, start: Callable[[], WorkerClient], right: RightOutputs) -> None:
        self.source = source
        self.client: WorkerClient | None = None
        self._start, self._right = start, right
        self._failed_builds: FailedBuilds = {}

    @property
    def running(self) -> WorkerClient:
        """Returns the client of the present process. There must have been a start."""
        assert self.client is not None
        return self.client

    @property
    def is_alive(self) -> bool:
        """Returns whether there is a process that has not been ended here."""
        return self.client is not None and not self.client.closed

    def restart(self, first: Callable[[WorkerClient], object] = lambda client: None) -> None:
        """Starts a worker process in place of the present one, and builds the model there for the timed sizes.

        `first` is called with the new process before it takes its place. Builds that have failed in an earlier process
        are not tried again. Raises Fault or Refused if the process cannot be started, the model cannot be built or
        `first` raises it. The new process has ended then, and so has the old one.
        """
        self.close()
        client = self.further()
        try:
            client.make(self._right.problem, compiled=self.source.compile_mode)
            first(client)
        except BaseException:
            client.close()
            raise
        self.client = client

    def further(self) -> WorkerClient:
        """Starts a further process and executes the file there. The caller ends it.

        Raises Fault or Refused if the process cannot be started or the file cannot be loaded.
        """
        client = self._started()
        try:
            self._load(client)
        except BaseException:
            client.close()
            raise
        return client

    def sibling(self) -> ModelProcess:
        """Returns the owner of a further process of this model, which has not been started."""
        other = ModelProcess(self.source, self._start, self._right)
        other._failed_builds = self._failed_builds
        return other

    def pause(self) -> None:
        """Stops the present process until its next request, if there is one (`WorkerProcess.pause`)."""
        if self.client is not None:
            self.client.worker.pause()

    def close(self) -> None:
        """Ends the present process if there is one. Safe to call twice."""
        if self.client is not None:
            self.client.close()

    def _started(self) -> WorkerClient:
        client = self._start()
        client.builds.failed, client.right = self._failed_builds, self._right
        return client

    def _load(self, client: WorkerClient) -> None:
        client.load(self.source.file, self.source.text, self.source.class_name)
