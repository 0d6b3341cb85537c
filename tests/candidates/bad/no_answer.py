"""CRASHED: it says something on the judge's channel that is no answer.

Says: no answer
"""

import json
import os
import socket
import struct

import torch

reply = json.dumps({"error": {"kind": []}}).encode()
socket.socket(fileno=os.dup(3)).sendall(struct.pack("<I", len(reply)) + reply)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
