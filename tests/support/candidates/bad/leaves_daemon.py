"""PASSED: it leaves processes behind, in sessions of their own, which do not outlive the run."""

import subprocess

import torch

subprocess.Popen(["sleep", "86399"], start_new_session=True)
subprocess.Popen(["sh", "-c", "setsid sleep 86399 &"])  # an orphan, once the shell is done


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
