"""CRASHED: it starts thread upon thread. The count is bounded, so that nobody is harmed where it is not stopped.

Says: at most 512 are allowed
"""

import threading
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        for _ in range(2000):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        time.sleep(1)
        return torch.matmul(A.T, B.T)
