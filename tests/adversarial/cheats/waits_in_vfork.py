"""PASSED: a process waits for its vfork child without end, and cannot be stopped meanwhile.

The child opens a pipe that has no writer, before it executes a program. Until then Linux keeps its parent in an
uninterruptible wait.

Class: timing
Layer: other workers are stopped
"""

import os

import torch

started = False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global started
        if not started:
            started = True
            os.mkfifo("never_written")
            if os.fork() == 0:
                reads = (os.POSIX_SPAWN_OPEN, 0, "never_written", os.O_RDONLY, 0)
                os.posix_spawn("/bin/true", ["true"], {}, file_actions=[reads])
        return torch.matmul(A.T, B.T)
