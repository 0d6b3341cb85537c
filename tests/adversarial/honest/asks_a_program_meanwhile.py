"""PASSED: a thread starts a program over and over, also between the calls."""

import subprocess
import threading
import time

import torch


def watch():
    while True:
        subprocess.run(["uname", "-a"], capture_output=True, check=True)
        time.sleep(0.005)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        threading.Thread(target=watch, daemon=True).start()

    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
