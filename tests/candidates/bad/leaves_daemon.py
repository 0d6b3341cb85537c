"""PASSED: it leaves a process of its own session behind, which does not outlive the run."""

import subprocess

import torch

subprocess.Popen(["sh", "-c", "setsid sleep 86399 &"], start_new_session=True)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
