"""A run that stores its results: it finds the kernels, judges them, writes the results to a journal and ranks them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_harness.checking import timed_shapes
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import NotFound
from kernel_harness.core.phases import phase
from kernel_harness.device import selection
from kernel_harness.problem import lookup, variants
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import Shape, shape_text
from kernel_harness.results import leaderboard, rows
from kernel_harness.results.journal import Journal
from kernel_harness.results.record import Result
from kernel_harness.session.reproduce import kernel_file
from kernel_harness.session.run import Observer
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings, check_baseline
from kernel_harness.workers.fork_server import ForkServer

_POLL_S = 0.1
# The build time of a kernel that was never built is estimated from the length of its source.
_SECONDS_PER_BYTE = 1e-3


@dataclass(frozen=True)
class Board:
    """A leaderboard. Kernels in `gone`, whose file is gone, have a stored result and no row in `table`.

    `title` also names the file's own sizes if the harness chose others.
    """

    title: str
    table: Sequence[rows.Row]
    gone: list[str]


class StoredRun(Closing):
    """A run that judges kernels of one problem in one Session and stores the results in a journal.

    `problem` is a name or a path. `kernels` are names, globs or paths; without any, all kernels of the problem are
    judged. With `settings.defines`, their variants are judged instead. A StoredRun is a context manager. At the end of
    the context every process that the run started is ended.
    Creating a StoredRun raises UserError if something that is named does not exist or cannot be used, and Unwritable
    if results cannot be stored.
    """

    @phase("planning")
    def __init__(
        self, problem: str, kernels: Sequence[str], settings: Settings, observer: Observer, fork_server: ForkServer
    ) -> None:
        self._kernels, self._settings = kernels, settings
        device = selection.selected(settings.device, strict=settings.strict)
        found = lookup.problem(problem, Path.cwd())
        usual = found.on(emulated=device.emulated)
        self._usual, self.problem_name, self.problem_text = usual, usual.name, found.source
        self._own_shape = {} if found.cpu_shape or settings.shape != {} else found.shape
        self.candidates = self._found()
        sized = found.sized(None, emulated=device.emulated) if settings.shape is None else usual.at(settings.shape)
        names = [candidate.name for candidate in self.candidates]
        check_baseline(settings.baseline, emulated=device.emulated, kernels=names)
        self.shape = sized.shape
        sized.check_inputs()
        self.journal = Journal(settings.results / sized.name / device.label)
        self.journal.check_writable()
        self.stored: set[str] = set()
        self._session = Session(sized, device, settings, observer, fork_server, [settings.results])

    def __enter__(self) -> StoredRun:
        self._session.__enter__()
        return self

    def close(self) -> None:
        """Ends every process that the run started. The end of a `with` block calls this method."""
        self._session.close()

    def judge(self, chosen: Sequence[Candidate], run: str = "") -> None:
        """Builds, checks and times the candidates in `chosen`, and writes their results to the journal.

        Sets `stored` to the names of the kernels and baselines of which a result was written, interim results included.
        If the settings limit the run to one case, no result is written, because the result shows nothing about the
        other cases. `run` is the id of the run if it has several shapes; each of them has its own StoredRun.
        Raises EnvironmentLacking if the device has too little memory to compute the right answer.
        """
        self.stored = set()
        self._session.judge(longest_build_first(chosen, self.journal.read()), self._store, run)

    def _store(self, result: Result) -> None:
        if self._settings.case is None:
            self.journal.append(result)
            self.stored.add(result.kernel)

    def wait_for_change(self) -> list[Candidate]:
        """Waits until a selected kernel file is new or has changed, and returns the candidates of all such files.

        The files are read every _POLL_S seconds. A file has changed if its text differs from the text in `candidates`
        and is not empty. Then sets `candidates` to the present files.
        """
        before = {candidate.name: candidate.source for candidate in self.candidates}
        while True:
            time.sleep(_POLL_S)
            try:
                found = self._found()
            except (NotFound, OSError):
                continue  # an editor may remove a file for a moment while it replaces it
            changed = [c for c in found if c.source.strip() and before.get(c.name) != c.source]
            if changed:
                self.candidates = found
                return changed

    def _found(self) -> list[Candidate]:
        return variants.of(lookup.kernels(self._kernels, self.problem_name, Path.cwd()), self._settings.defines)

    @property
    def table_name(self) -> str:
        """Returns the name of the leaderboard's CSV file."""
        return f"{self._stem}.csv"

    def tables(self, path: Path) -> list[Path]:
        """Returns the CSV files of this run's leaderboard: at several shapes that of each, and `path` as the last."""
        return [leaderboard.of_each_shape(path), path] if self._session.further_shapes else [path]

    @property
    def left_out(self) -> list[Shape]:
        """The shapes of the file's TIME_SHAPES at which no kernel is timed, because they cost too much for a CPU."""
        return [] if 0 in self._settings.time_shapes else timed_shapes.too_large(self._session.problem)

    @cached_property
    def _stem(self) -> str:
        usual = [there.shape for there in timed_shapes.of_file(self._usual)]
        return leaderboard.file_stem(self.shape, self._usual.shape, self._session.further_shapes, usual)

    def board(self) -> Board:
        """Returns the leaderboard of all results stored at this run's size constants (`M`, ...), in any run so far.

        A kernel's file is gone if its last result names a file that is not in its folder any more. In a folder that is
        not on this machine, no file is gone.
        """
        results, further = self.journal.read(), self._session.further_shapes
        last = {result.kernel: result for result in results if dict(result.shape) == dict(self.shape)}
        paths = {name: kernel_file(result.reproduce) for name, result in last.items()}
        gone = sorted(name for name, path in paths.items() if path and path.parent.is_dir() and not path.is_file())
        larger = {name: size for name, size in self._own_shape.items() if size != self.shape[name]}
        note = f"; the file's own size is {shape_text(larger)}" if larger else ""
        return Board(
            leaderboard.heading(self.problem_name, results, self.shape, further) + note,
            leaderboard.rank([result for result in results if result.kernel not in gone], self.shape, further),
            gone,
        )

    def save(self, board: Board) -> Path:
        """Writes the leaderboard's files and returns the path of the CSV file.

        Raises Unwritable if a file cannot be written.
        """
        return leaderboard.save(self.journal.path.parent, self._stem, board.title, board.table)


def longest_build_first(chosen: Sequence[Candidate], results: Sequence[Result]) -> list[Candidate]:
    """Returns the candidates sorted by their build time, longest first, so that no long build starts last.

    The build time of a candidate is taken from its last entry in `results` whose build was not cached. Without such an
    entry it is estimated from the length of the source.
    """
    took = {r.kernel: r.build_s for r in results if r.build_s is not None and not any(b.cached for b in r.builds)}
    return sorted(chosen, key=lambda c: took.get(c.name, len(c.source) * _SECONDS_PER_BYTE), reverse=True)
