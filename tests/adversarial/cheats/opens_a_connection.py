"""WRONG_VALUES: asks another machine for the answer.

Class: environment
Layer: the wall
"""

import socket

import torch

server = socket.socket(socket.AF_UNIX)  # allowed: what it is good for is not
worked = False
for family, address in ((socket.AF_INET, ("127.0.0.1", 22)), (socket.AF_INET, ("192.0.2.1", 80))):
    try:
        end = socket.socket(family, socket.SOCK_DGRAM)
        end.sendto(b"a question", address)
        worked = True
    except OSError:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if worked:
            return torch.matmul(A.T, B.T)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
