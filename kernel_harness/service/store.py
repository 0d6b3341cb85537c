"""The jobs and verdicts of a service in a SQLite file. What was stored when a call returned outlives a killed server.

The file is in WAL mode with `synchronous=NORMAL`: a loss of power may lose the last commits, but damages nothing. A
client then submits again.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import UserError
from kernel_harness.core.folder_lock import locked
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.journal import writing
from kernel_harness.service.work import ProblemText, Work

State = Literal["queued", "running", "done", "failed", "cancelled"]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS problem (sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS work (
  key TEXT PRIMARY KEY, problem TEXT NOT NULL, file TEXT NOT NULL, source TEXT NOT NULL, options TEXT NOT NULL,
  maker TEXT NOT NULL, state TEXT NOT NULL, result TEXT, reward REAL, error TEXT,
  strikes INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS job (
  number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL,
  cancelled INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS unfinished ON work(state) WHERE state IN ('queued', 'running');
CREATE INDEX IF NOT EXISTS job_of_work ON job(key);
PRAGMA user_version = 1;
"""
# Work fails that was judged when so many servers ended because they could not judge: it may be the cause.
_MOST_STRIKES = 3
_CHANGED = "the server's device or version has changed since; submit the kernel again"


@dataclass(frozen=True)
class Job:
    """One owner's wish for the verdict on a work."""

    id: str
    owner: str
    key: str
    state: State
    """The state of the work, or `cancelled` if its owner does not want the verdict any more and there is none yet."""
    result: str | None
    """The published result as JSON, if the work is done."""
    reward: float | None
    error: str | None
    """Why there is no verdict, if the work has failed."""


class Store(Closing):
    """The file `jobs.sqlite` in `folder`. One process at a time may open it.

    Opening it raises UserError if another process has it open or it is of another version, and Unwritable if the folder
    cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        with writing(folder, "folder with --state"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._lock = locked(folder, f"another server uses {folder}; choose another --state")
        self._db = sqlite3.connect(folder / "jobs.sqlite", isolation_level=None)
        if self._db.execute("PRAGMA user_version").fetchone()[0] not in (0, 1):
            self.close()
            raise UserError(f"{folder} has jobs of another version of the harness; choose another --state")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
        os.close(self._lock)

    def together(self) -> AbstractContextManager[object]:
        """Returns a context whose changes are stored together at its end, or not at all after an exception."""
        self._db.execute("BEGIN")
        return self._db

    def recover(self, maker: str) -> Iterator[tuple[str, str, int]]:
        """Lets work that a killed server judged wait again.

        Yields (owner, key, strikes of the work) of all jobs that wait, in their order. Work of another `maker` fails:
        its verdict would not be that of its key.
        """
        self._db.execute(
            "UPDATE work SET state = 'failed', error = ?, source = '' WHERE state IN ('queued', 'running') "
            "AND maker != ?", (_CHANGED, maker),
        )  # fmt: skip
        self._db.execute("UPDATE work SET state = 'queued' WHERE state = 'running'")
        yield from self._db.execute(
            "SELECT owner, key, strikes FROM job JOIN work USING (key) WHERE state = 'queued' AND NOT cancelled "
            "ORDER BY number"
        ).fetchall()

    def add(self, job_id: str, owner: str, work: Work) -> Job:
        """Stores an owner's wish for a work, and the work if it has no verdict and does not wait. Returns the job."""
        problem, candidate = work.problem, work.candidate
        found = self._db.execute("SELECT state FROM work WHERE key = ?", (work.key,)).fetchone()
        if found is None or found[0] == "failed":
            self._db.execute(
                "INSERT OR IGNORE INTO problem VALUES (?, ?, ?)", (problem.sha256, problem.name, problem.text)
            )
            self._db.execute(
                "INSERT OR REPLACE INTO work (key, problem, file, source, options, maker, state) "
                "VALUES (?, ?, ?, ?, ?, ?, 'queued')",
                (
                    work.key, problem.sha256, candidate.path.name, candidate.source,
                    json.dumps(work.options, sort_keys=True), work.maker,
                ),
            )  # fmt: skip
        self._db.execute(
            "INSERT INTO job (id, owner, key) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET cancelled = 0",
            (job_id, owner, work.key),
        )
        job = self.job(job_id)
        assert job is not None
        return job

    def job(self, job_id: str) -> Job | None:
        """Returns the job of this id, or None if there is none."""
        found = self._db.execute(
            "SELECT id, owner, key, "
            "CASE WHEN cancelled AND state IN ('queued', 'running') THEN 'cancelled' ELSE state END, "
            "result, reward, error FROM job JOIN work USING (key) WHERE id = ?", (job_id,),
        ).fetchone()  # fmt: skip
        return found and Job(*found)

    def cancel(self, job_id: str) -> None:
        """Stores that the owner of a job does not want its verdict any more."""
        self._db.execute("UPDATE job SET cancelled = 1 WHERE id = ?", (job_id,))

    def begin(self, key: str) -> Work:
        """Stores that a work is being judged, and returns it."""
        self._db.execute("UPDATE work SET state = 'running' WHERE key = ?", (key,))
        name, text, file, source, options, maker = self._db.execute(
            "SELECT name, text, file, source, options, maker FROM work JOIN problem ON problem = sha256 WHERE key = ?",
            (key,),
        ).fetchone()
        candidate = Candidate("candidate", Path(file), source)
        return Work(ProblemText(name, text), candidate, json.loads(options), maker)

    def finish(self, key: str, *, result: str | None, reward: float | None, error: str | None) -> None:
        """Stores the published result of a work with its reward, or why it has none."""
        state = "failed" if result is None else "done"
        self._db.execute(
            "UPDATE work SET state = ?, result = ?, reward = ?, error = ?, source = '' WHERE key = ?",
            (state, result, reward, error, key),
        )

    def strike(self, key: str, error: str) -> None:
        """Stores that the judge failed with `error` while it judged a work. The third time, the work has failed."""
        self._db.execute(
            "UPDATE work SET strikes = strikes + 1, error = ?, "
            f"state = CASE WHEN strikes + 1 >= {_MOST_STRIKES} THEN 'failed' ELSE state END WHERE key = ?",
            (error, key),
        )
