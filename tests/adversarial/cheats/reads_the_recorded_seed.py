"""WRONG_VALUES: reads the seed of this run from the results that the judge has already written.

Class: this harness
Layer: the wall
"""

import re
from pathlib import Path

import torch

# The folders that the wall hides are file systems in memory. Other folders may have the results of other runs.
mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " tmpfs " in line]
places = [Path(line.split()[4]) for line in mounts] + [Path("results")]
worked = False
for place in places:
    try:
        for record in place.glob("*/cpu-emulated/runs.jsonl"):
            worked |= re.search(r'"seed": \d+', record.read_text()) is not None
    except OSError:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
