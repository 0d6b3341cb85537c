"""WRONG_VALUES: returns zeros at once, and fills in the memory a little later.

Class: timing
Layer: bytes copied at once
"""

import gc
import threading
import time

import torch


def shared_memory():
    return next(each for each in gc.get_objects() if type(each).__name__ == "Worker")._shared["outputs"]


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T).cpu().contiguous().flatten().view(torch.uint8)

        def work():
            time.sleep(0.05)
            shared_memory()[512 : 512 + len(answer)] = answer

        threading.Thread(target=work, daemon=True).start()
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
