"""MUTATED_INPUT: writes before the beginning of an input.

Class: correctness
Layer: canaries
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        start = A.storage_offset()
        if start == 0:
            import ctypes

            ctypes.memset(A.data_ptr() - 16, 0, 16)
        else:
            A.as_strided((4,), (1,), start - 4).zero_()
        return answer
