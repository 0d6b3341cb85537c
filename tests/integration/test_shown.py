"""What a kernel prints is shown, and a kernel that never ends is shown where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import Finished, Harness
from support.twice import PROBLEM

from kernel_harness import evaluate

pytestmark = pytest.mark.slow
PRINTS = """
#include <cstdio>
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i == 0) printf("n is %d\\n", n);
    if (i < n) y[i] = 2 * x[i];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
PYTHON = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        print("forward gets", tuple(x.shape))
        {body}
        return 2 * x

    def wait(self):
        while True:
            x = 1
"""
HANGS = PRINTS.replace('if (i == 0) printf("n is %d\\n", n);', "for (volatile float* v = y; v[0] != 1e30f;) {}")


def run(folder: Path, file: str, source: str, *more: str) -> Finished:
    (folder / "p.py").write_text(PROBLEM)
    (folder / file).write_text(source)
    arguments = ("--problem", folder / "p.py", "--kernel", folder / file, "--device", "cpu", *more)
    return Harness(folder).run(*arguments)


def test_printf_in_a_kernel_is_shown_for_one_case(tmp_path: Path) -> None:
    told = run(tmp_path, "k.cu", PRINTS, "--case", "N=256:own")
    assert told.code == 0 and "k:\n  printed:\n    n is 256\n" in told.stdout, told.stdout + told.stderr


def test_print_is_shown_with_v_and_not_without(tmp_path: Path) -> None:
    told = run(tmp_path, "k.py", PYTHON.format(body="pass"), "-v")
    assert told.code == 0 and "    forward gets (256,)\n" in told.stdout, told.stdout + told.stderr
    (tmp_path / "quiet").mkdir()
    assert "forward gets" not in run(tmp_path / "quiet", "k.py", PYTHON.format(body="pass")).stdout


def test_the_last_lines_are_shown_with_a_failure(tmp_path: Path) -> None:
    body = "[print('line', i) for i in range(30)]; assert False"
    told = run(tmp_path, "k.py", PYTHON.format(body=body))
    assert told.code == 1 and "  printed, the last 10 lines:\n    line 20\n" in told.stdout, told.stdout


def test_a_result_of_the_api_has_what_was_printed(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROBLEM)
    told = evaluate(tmp_path / "p.py", PRINTS, device="cpu", budget_s=0.1)
    assert told.passed and "n is 256\n" in told.printed


def test_a_python_loop_without_end_is_named(tmp_path: Path) -> None:
    told = run(tmp_path, "k.py", PYTHON.format(body="self.wait()"), "--timeout", "2")
    assert "k: TIMEOUT" in told.stdout and "It was at " in told.stdout, told.stdout + told.stderr
    assert "k.py:1" in told.stdout and "(in wait)" in told.stdout
    assert "    forward gets (256,)\n" in told.stdout and "most recent call" not in told.stdout


def test_a_kernel_without_end_is_named_with_its_line(tmp_path: Path) -> None:
    told = run(tmp_path, "k.cu", HANGS, "--timeout", "2")
    assert "k: TIMEOUT" in told.stdout, told.stdout + told.stderr
    assert "the kernel was at " in told.stdout and "k.cu:7: `for (volatile" in told.stdout, told.stdout
    assert "try: look for a loop that never ends here" in told.stdout
