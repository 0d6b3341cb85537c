"""The profile of one kernel as it is stored for the report: what each line costs, and the causes as sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_harness.core.atomic_file import replace_text
from kernel_harness.results.codec import Undecodable, decoder
from kernel_harness.results.journal import writing

_ENDING = ".lines.json"


@dataclass(frozen=True)
class LineCosts:
    """What one line costs in all launches of the call, in proportion to the recorded warps.

    `line` counts from 1, and `text` is the line. `sectors` are of 32 bytes of global memory, and `extra_sectors` those
    beyond the least. `extra_wavefronts` are those of bank conflicts. `idle` are instructions of warps, each times the
    share of the warp's threads that do not take part.
    """

    line: int
    text: str
    sectors: float
    extra_sectors: float
    extra_wavefronts: float
    idle: float


@dataclass(frozen=True)
class StoredProfile:
    """A profile by line. `source_sha256` is that of the kernel's file, and `shape` has the problem's size constants.

    `target` is the GPU that the shares in the sentences `causes` are for. `sampled` says whether warps were left out.
    """

    kernel: str
    source_sha256: str
    shape: Mapping[str, int]
    target: str
    sampled: bool
    causes: tuple[str, ...]
    lines: tuple[LineCosts, ...]

    def write(self, folder: Path) -> None:
        """Stores this profile in `folder`, in place of an earlier one. Raises Unwritable if it cannot be written."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(folder / f"{self.kernel}{_ENDING}", json.dumps(asdict(self)))


def stored(folder: Path) -> dict[str, StoredProfile]:
    """Returns the profiles that are stored in `folder`, by kernel. Leaves out files that cannot be read."""
    found = {}
    for path in sorted(folder.glob(f"*{_ENDING}")):
        try:
            one: StoredProfile = decoder(StoredProfile)(json.loads(path.read_text()))
        except (OSError, ValueError, Undecodable):
            continue
        found[one.kernel] = one
    return found
