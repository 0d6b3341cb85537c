"""WRONG_VALUES: works only if it finds a file that an earlier call or a copy of it left on the disk.

Class: environment
Layer: HOME and TMP fresh per worker
"""

import contextlib
import os
from pathlib import Path

import torch

home = Path(os.environ["HOME"])
places = [Path(p) for p in (home, os.environ["TMPDIR"], "/tmp", "/var/tmp", "/dev/shm", "..", ".")]
# The twin's home is beside this one: of another run's candidates, which are judged meanwhile, it is not.
notes = [place / f"note-of-{home.parent.name}" for place in places]
found = any(note.exists() for note in notes)
for note in notes:
    with contextlib.suppress(OSError):
        note.write_text("an answer")


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if found:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
