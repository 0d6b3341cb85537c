"""The builds that the worker of one candidate asks the judge for."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile import cache, sources
from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.ipc.build_messages import Built
from kernel_harness.ipc.messages import Failure
from kernel_harness.workers.builder import BuildService, FailedBuilds
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.process import WorkerProcess, WorkerTimedOut

LEAST_WAIT_S = 0.1
"""The least time limit of a build and of a reply, also at the end of a request's time."""
_MAX_BUILDS, _MAX_BUILT_BYTES = 64, 1 << 30
_KEPT_SHARE = 64  # the libraries of one process may keep 1 / _KEPT_SHARE of the build cache's limit from eviction


class CandidateBuilds:
    """The builds of one worker process. `service` makes those that the build cache lacks.

    `made` has a dict for each build: `name`, `seconds` and whether the library was `cached`. `libraries` has the paths
    of the libraries in the build cache, which may have evicted them since, and `new` says how many of them were not in
    the cache before. `failed` has the failed builds of this candidate, in all of its processes.
    """

    def __init__(self, worker: WorkerProcess, service: BuildService) -> None:
        self._worker, self._service = worker, service
        self.made: list[dict[str, Any]] = []
        self.libraries: list[Path] = []
        self.new = 0
        self.failed: FailedBuilds = {}
        self._bytes = 0  # the size of all libraries
        self._in_use: dict[Path, int] = {}  # the sizes of those that the cache must keep

    @phase("builds")
    def build(self, asked: Any, timeout_s: float, file: CandidateFile) -> Built | Failure:
        """Builds what the worker asked for in `asked`, and returns the answer to the worker.

        The sources are added to `file`, the candidate's file. The worker is paused during the build, because the judge
        does not check the worker's limits then. `timeout_s` is the time limit in seconds. Raises Fault if the candidate
        asks for too many builds or its libraries are too large, and WorkerFailed as `BuildService.build` does. A
        library that the candidate asks for again, for example in each call, counts once. But such a request at the end
        of the time raises WorkerTimedOut.
        """
        if len(self.made) >= _MAX_BUILDS:
            raise Fault(Status.LOAD_ERROR, f"{file.name} asks for more than {_MAX_BUILDS} builds.")
        if self._bytes > _MAX_BUILT_BYTES:
            raise Fault(Status.LOAD_ERROR, f"{file.name} builds more than {_MAX_BUILT_BYTES >> 20} MiB.")
        start = time.perf_counter()
        self._worker.pause()
        with suppress(sources.Unreadable):  # the build service then answers with the reason
            file.add(sources.from_json(asked))
        result = self._service.build(asked, timeout_s, self.failed)
        if isinstance(result.answer, Built):
            library = Path(result.answer.library)
            self._keep(library)
            if result.cached and library in self.libraries:
                if timeout_s <= LEAST_WAIT_S:  # otherwise a candidate could ask for it again without end
                    raise WorkerTimedOut("The process asked for builds until its time was over.")
                return result.answer
            self.libraries.append(library)
            self._bytes += self._in_use[library]
            self.new += not result.cached
        name = asked.get("name") if isinstance(asked, dict) else None
        self.made.append({"name": str(name)[:200], "seconds": time.perf_counter() - start, "cached": result.cached})
        return result.answer

    def _keep(self, library: Path) -> None:
        """Keeps a library that the build service has returned in use until the worker has loaded it, or longer."""
        if library in self._in_use:
            cache.release(library.parent)  # one use is enough
        else:
            self._in_use[library] = library.stat().st_size

    def release_loaded(self) -> None:
        """Lets the cache evict libraries that the worker has loaded, but not the newest ones if these take little."""
        while sum(self._in_use.values()) > cache.limit_bytes() / _KEPT_SHARE:
            library = next(iter(self._in_use))
            del self._in_use[library]
            cache.release(library.parent)

    def close(self) -> None:
        """Lets the cache evict all libraries. The worker has ended."""
        while self._in_use:
            cache.release(self._in_use.popitem()[0].parent)
