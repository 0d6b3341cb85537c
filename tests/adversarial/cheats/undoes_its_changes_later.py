"""MUTATED_INPUT: uses an input as scratch memory; a thread restores it once the call has returned.

Class: correctness
Layer: inputs compared
"""

import threading
import time

import torch


def restore(A, kept):
    time.sleep(0.05)
    A.copy_(kept)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        kept, answer = A.clone(), torch.matmul(A.T, B.T)
        A.zero_()
        threading.Thread(target=restore, args=(A, kept), daemon=True).start()
        return answer
