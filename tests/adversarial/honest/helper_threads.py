"""PASSED: two threads do half of the work each, and are joined.

Device: work on other threads inside a timed call
"""

from concurrent.futures import ThreadPoolExecutor

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        middle = A.shape[1] // 2
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda a: torch.matmul(a, B.T), (A.T[:middle], A.T[middle:])))
        return torch.cat(parts)
