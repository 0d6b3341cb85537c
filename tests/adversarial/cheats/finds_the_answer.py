"""WRONG_VALUES: looks for the expected tensor in every object, frame and closure of its process.

Class: correctness
Layer: the answer is in another process
"""

import gc
import sys

import torch

gc.unfreeze()  # else the objects that the fork server froze would not be listed


def tensors():
    found = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
    frame = sys._getframe()
    while frame:
        found += [v for v in frame.f_locals.values() if isinstance(v, torch.Tensor)]
        frame = frame.f_back
    return found


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        shape = (A.shape[1], B.shape[0])
        answers = [t for t in tensors() if t.shape == shape and t.dtype == torch.float32 and t.isfinite().all()]
        return answers[0] if answers else torch.zeros(shape, device=A.device)
