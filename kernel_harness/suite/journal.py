"""The stored verdicts of a suite: `suite.json` with its settings, `suite.jsonl` with a line for each verdict.

The full results are in `<problem>/<device>/runs.jsonl` below the same folder, in the form of all other results, so the
verbs `report` and `compare` read them too.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_harness.core.atomic_file import replace_text
from kernel_harness.core.errors import UserError
from kernel_harness.results import codec, record
from kernel_harness.results.journal import Journal, append_line, writing
from kernel_harness.suite import entry
from kernel_harness.suite.entry import Entry


@dataclass(frozen=True)
class Facts:
    """What all verdicts of a suite share, in suite.json.

    `label` is the name of the device's folder of results, `device` the device's own name. `seed` is the secret seed of
    all inputs that candidates are checked on. `created_at` is the time in UTC at which the suite began. `settings` has
    the settings, by name, that may change a verdict or a time.
    """

    label: str
    device: str
    seed: int
    created_at: str
    settings: dict[str, Any] = field(default_factory=dict)
    schema_version: int = entry.SCHEMA_VERSION


class SuiteJournal:
    """The files of one suite in `folder`. At most one driver at a time may write to them (`exclusive`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "suite.jsonl"
        self._facts_path = folder / "suite.json"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Returns a context in which no other process writes to this suite. Creates the folder.

        Raises UserError if another process writes to it, and Unwritable if the folder cannot be written.
        """
        with writing(self.path):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
            lock = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"another process judges the suite in {self.folder}; choose another --name") from None
            for unfinished in self.folder.glob(".*-*"):  # of core.atomic_file, if a driver was killed meanwhile
                unfinished.unlink(missing_ok=True)
            yield
        finally:
            os.close(lock)

    def facts(self) -> Facts | None:
        """Returns the facts in suite.json, or None if there is no such file. Raises UserError if it is damaged."""
        try:
            fields = json.loads(self._facts_path.read_text())
            found: Facts = codec.decoder(Facts)(fields)
        except FileNotFoundError:
            return None
        except ValueError as error:  # codec.Undecodable is one, too
            raise UserError(f"{self._facts_path} cannot be read: {error}") from None
        return found

    def begin(self, facts: Facts) -> None:
        """Stores the facts. Raises Unwritable if the file cannot be written."""
        with writing(self._facts_path):
            replace_text(self._facts_path, json.dumps(asdict(facts), indent=2) + "\n")

    def details(self, problem: str, label: str) -> Journal:
        """Returns the journal of the full results of one problem."""
        return Journal(self.folder / problem / label)

    def append(self, finished: Sequence[Entry]) -> None:
        """Appends a line for each entry and waits until the lines are on the disk. Raises Unwritable if that fails."""
        for each in finished:
            append_line(self.path, entry.to_line(each))

    def read(self) -> list[Entry]:
        """Returns the last entry of each candidate, in the order in which the candidates first occur in suite.jsonl.

        Lines that are no entries of this schema version are skipped, such as a line that is cut short. Returns an empty
        list if there is no such file.
        """
        found: dict[tuple[str, str], Entry] = {}
        with suppress(FileNotFoundError), self.path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with suppress(record.NotARecord):
                    one = entry.from_line(line)
                    found[one.id] = one
        return list(found.values())
