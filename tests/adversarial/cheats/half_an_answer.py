"""CRASHED: sends half of an answer, and starts many processes while the judge waits for the other half.

Class: this harness
Layer: tasks counted
Says: tasks
"""

import os
import struct
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        os.write(3, struct.pack("<I", 1000) + b"{")
        for _ in range(600):
            os.posix_spawn("/bin/sleep", ["sleep", "100"], {})
        time.sleep(100)
