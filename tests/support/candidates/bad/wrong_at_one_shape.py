"""WRONG_VALUES: right at the timed shape, wrong at an odd one, where the last row is missing.

Says: M=33,K=5,N=17:
Says: the first at [32, 0]: got 0
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        product = torch.matmul(A.T, B.T)
        product[32:] = 0
        return product
