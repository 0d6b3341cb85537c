"""CRASHED: it says something on the judge's channel that is no answer.

Says: no answer
"""

import json
import os
import socket
import struct
import sys

import torch


def number():
    """Of the judge's question, which an answer must bear."""
    frame = sys._getframe()
    while not isinstance(frame.f_locals.get("message"), dict):
        frame = frame.f_back
    return frame.f_locals["message"]["number"]


reply = json.dumps({"error": {"kind": []}, "number": number()}).encode()
socket.socket(fileno=os.dup(3)).sendall(struct.pack("<I", len(reply)) + reply)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
