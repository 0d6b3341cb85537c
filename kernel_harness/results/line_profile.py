"""The stored profile of one kernel, for the report: what each line costs, and the largest causes of lost time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_harness.core.atomic_file import replace_text
from kernel_harness.core.codec import reader
from kernel_harness.results.journal import writing

_ENDING = ".lines.json"


@dataclass(frozen=True)
class LineCosts:
    """What one line of a kernel's file costs in all launches of one call of the model.

    `line` counts from 1, and `text` is the line. `sectors` counts the sectors of 32 bytes of global memory that the
    line accesses, and `extra_sectors` those beyond the least possible number. `extra_wavefronts` counts the accesses to
    the banks of shared memory that bank conflicts add, and atomic updates of one address. `idle` counts the
    basic blocks that warps execute, each times the share of the warp's threads that do not take part. If only some
    blocks were recorded, these are estimates for all blocks.
    """

    line: int
    text: str
    sectors: float
    extra_sectors: float
    extra_wavefronts: float
    idle: float


@dataclass(frozen=True)
class StoredProfile:
    """The profile of `kernel`, line by line, at the size constants in `shape`.

    `source_sha256` is the hash of the kernel's file. `causes` are sentences about the largest causes of lost time.
    `sampled` says whether only a part of the accesses was recorded.
    """

    kernel: str
    source_sha256: str
    shape: Mapping[str, int]
    sampled: bool
    causes: tuple[str, ...]
    lines: tuple[LineCosts, ...]

    def write(self, folder: Path) -> None:
        """Stores this profile in `folder`, in place of an earlier one. Raises Unwritable if it cannot be written."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(folder / f"{self.kernel}{_ENDING}", json.dumps(asdict(self)))


def stored(folder: Path) -> dict[str, StoredProfile]:
    """Returns the profiles that are stored in `folder`, by the kernel's name. Leaves out files that are not valid."""
    found = {}
    for path in sorted(folder.glob(f"*{_ENDING}")):
        try:
            one: StoredProfile = reader(StoredProfile)(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
        found[one.kernel] = one
    return found
