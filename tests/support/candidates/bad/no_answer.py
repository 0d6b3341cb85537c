"""CRASHED: it sends a malformed reply on the judge's channel.

Says: malformed message
"""

import gc
import json
import os
import socket
import struct

import torch


def number():
    """The number of the judge's request, which a reply must repeat."""
    worker = next(each for each in gc.get_objects() if type(each).__module__ == "kernel_harness.worker.worker")
    return worker.number


reply = json.dumps({"kind": "Failure", "body": {"stage": []}, "number": number()}).encode()
socket.socket(fileno=os.dup(3)).sendall(struct.pack("<I", len(reply)) + reply)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
