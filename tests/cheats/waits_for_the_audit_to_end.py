"""WRONG_VALUES: honest while every timed output is compared, and then works only every other time.

Class: new
Layer: audits after the call
Says: timed call
"""

import sys

import torch

timed = 0


class ModelNew(torch.nn.Module):
    last = None

    def forward(self, A, B):
        global timed
        frame = sys._getframe()
        while frame:
            message = frame.f_locals.get("message")
            timed += isinstance(message, dict) and message.get("hold") is not None
            frame = frame.f_back
        if timed < 6 or timed % 2:
            self.last = torch.matmul(A.T, B.T)
        return self.last
