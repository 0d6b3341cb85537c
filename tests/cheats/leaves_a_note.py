"""WRONG_VALUES: works only where it finds what it or its twin wrote to the disk before.

Class: environment
Layer: HOME and TMP fresh per worker
"""

import contextlib
import os
import time
from pathlib import Path

import torch

places = [Path(p) for p in (os.environ["HOME"], os.environ["TMPDIR"], "/tmp", "/var/tmp", "/dev/shm", "..", ".")]
notes = [place / "note-of-a-kernel-candidate" for place in places]
found = any(note.exists() and time.time() - note.stat().st_mtime < 3600 for note in notes)
for note in notes:
    with contextlib.suppress(OSError):
        note.write_text("an answer")


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if found:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
