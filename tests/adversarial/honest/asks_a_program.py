"""PASSED: asks a program for the number of cores."""

import subprocess

import torch

CORES = int(subprocess.run(["nproc"], capture_output=True, check=True).stdout)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
