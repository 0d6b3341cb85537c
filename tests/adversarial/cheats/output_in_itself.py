"""RUNTIME_ERROR: returns a list that contains itself.

Class: this harness
Layer: messages are checked
Says: recursion
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = [torch.matmul(A.T, B.T)]
        answer.append(answer)
        return answer
