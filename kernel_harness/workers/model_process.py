"""The owner of the worker process of one model: a candidate, a baseline or the sentinel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_harness.workers.builder import FailedBuilds
from kernel_harness.workers.subject import RightOutputs, Subject


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

    `subject` is the client of the present process, which may have ended; None before the first start. `start` starts a
    worker process without a model. `right` knows the outputs of the reference and the problem at the timed sizes.
    """

    def __init__(self, source: ModelSource, start: Callable[[], Subject], right: RightOutputs) -> None:
        self.source = source
        self.subject: Subject | None = None
        self._start, self._right = start, right
        self._failed_builds: FailedBuilds = {}

    @property
    def running(self) -> Subject:
        """Returns the client of the present process. There must have been a start."""
        assert self.subject is not None
        return self.subject

    @property
    def is_alive(self) -> bool:
        """Returns whether there is a process that has not been ended here."""
        return self.subject is not None and not self.subject.closed

    def restart(self, first: Callable[[Subject], object] = lambda subject: None) -> None:
        """Starts a worker process in place of the present one, and builds the model there for the timed sizes.

        `first` is called with the new process before it takes its place. Builds that have failed in an earlier process
        are not tried again. Raises Fault or Refused if the process cannot be started, the model cannot be built or
        `first` raises it. The new process has ended then, and so has the old one.
        """
        self.close()
        subject = self._started()
        try:
            self._load(subject)
            subject.make(self._right.problem, compiled=self.source.compile_mode)
            first(subject)
        except BaseException:
            subject.close()
            raise
        self.subject = subject

    def sibling(self) -> ModelProcess:
        """Returns the owner of a further process of this model, which has not been started."""
        other = ModelProcess(self.source, self._start, self._right)
        other._failed_builds = self._failed_builds
        return other

    def pause(self) -> None:
        """Stops the present process until its next request, if there is one (`WorkerProcess.pause`)."""
        if self.subject is not None:
            self.subject.worker.pause()

    def close(self) -> None:
        """Ends the present process if there is one. Safe to call twice."""
        if self.subject is not None:
            self.subject.close()

    def _started(self) -> Subject:
        subject = self._start()
        subject.builds.failed, subject.right = self._failed_builds, self._right
        return subject

    def _load(self, subject: Subject) -> None:
        subject.load(self.source.file, self.source.text, self.source.class_name)
