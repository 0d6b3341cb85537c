"""WRONG_VALUES: returns zeros at once, and fills in the memory a little later.

Class: timing
Layer: bytes copied at once
"""

import gc
import mmap
import threading
import time

import torch


def shared_memory():
    return [m for m in gc.get_objects() if isinstance(m, mmap.mmap)]


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T).cpu().contiguous().numpy().tobytes()

        def work():
            time.sleep(0.05)
            for memory in shared_memory():
                if len(memory) > 1 << 30:
                    memory[512 : 512 + len(answer)] = answer

        threading.Thread(target=work, daemon=True).start()
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
