"""The resources of Triton kernels in a profile: what Triton's compiler needs for each kernel on an H200."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_harness.core.terminal import printable
from kernel_harness.diagnostics.profile import resources, show
from kernel_harness.diagnostics.profile.resources import LANES, Resources, number, occupancy
from kernel_harness.results.cells import table

NOT_COUNTED = (
    "Triton's compiler made this code for an H200; nothing was run to find these numbers. The bytes that a Triton "
    "kernel moves, and its lines, are not counted without a GPU."
)
_LONGEST = 200  # characters of the text for one specialization


@dataclass(frozen=True)
class Compiled:
    """A Triton kernel for one specialization: what ptxas reports, and what the launch asks for.

    `shared_bytes` is the shared memory of a block. `warps` are those of a block, and `stages` is the depth to which
    Triton pipelines loops. `specialization` names the constants.
    """

    resources: Resources
    shared_bytes: int
    warps: int
    stages: int
    specialization: str

    @staticmethod
    def parse(message: Mapping[str, Any]) -> Compiled:
        """Returns what `message` describes, a mapping from a worker (`triton_compiler.Compiler.reports`).

        Raises KeyError, TypeError or ValueError if it is malformed, as the candidate may have changed it.
        """
        (kernel,) = resources.ptxas(str(message["ptxas"]))
        text = printable(str(message["specialization"])).replace("\n", " ")[:_LONGEST]
        return Compiled(
            kernel, number(message["shared"]), number(message["warps"], least=1), number(message["stages"]), text
        )


def compiled(found: Sequence[Compiled]) -> str:
    """Returns a table with a row for each kernel and specialization: its resources, and the occupancy on an H200."""
    rows = []
    for each in found:
        kernel = each.resources
        fits = occupancy(kernel.registers, each.shared_bytes, each.warps * LANES)
        rows.append([
            kernel.kernel, each.specialization, kernel.registers, show.size_text(each.shared_bytes),
            show.size_text(kernel.spill_store_bytes + kernel.spill_load_bytes), each.warps, each.stages, fits.blocks,
            f"{100 * fits.share:.0f}%", fits.limit,
        ])  # fmt: skip
    headers = [
        "Triton, sm_90", "constants", "registers", "shared", "spills", "warps", "stages", "blocks/SM", "occupancy",
        "limited by",
    ]  # fmt: skip
    return table(headers, rows, align=("left", "left", *["right"] * 7, "left"))
