"""What the command advises: for a wrong answer that one case shows too little of, and for a race that passed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import Harness

from kernel_harness import Evaluator
from kernel_harness.explain import passed

pytestmark = pytest.mark.slow
PROBLEM = """
import torch

N, M = 96, 2048

class Model(torch.nn.Module):
    def forward(self, x):
        return {right}

def get_inputs():
    return [torch.randn(N, M)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {wrong}
"""
TILED = """
#include <torch/extension.h>

__global__ void sums(const float* x, float* y, int columns) {{
    float {sum};
    for (int i = 0; i < {steps}; i += 32)
        for (int j = 0; j < 32 && i + j < columns; ++j) sum += x[blockIdx.x * columns + i + j];
    y[blockIdx.x] = sum;
}}

torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty({{x.size(0)}}, x.options());
    sums<<<x.size(0), 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}}
"""


SUM, TAIL = KERNEL.format(wrong="x.square().sum()"), TILED.format(sum="sum = 0", steps="columns / 32 * 32")
CAUSES = {
    "size": (
        "x.square().mean()",
        "k.py",
        SUM,
        "is the number of elements of input 1 times what",
        "look for a division",
    ),
    "factor": (
        "x.mean()",
        "k.py",
        KERNEL.format(wrong="2 * x.mean()"),
        "is 2 times what it should be, in each of",
        "look",
    ),
    "tile": ("x.sum(1)", "k.cu", TAIL, "N and M are multiples of", "look at the last, partial tile"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_named(name: str, tmp_path: Path) -> None:
    right, file, source, said, advised = CAUSES[name]
    (tmp_path / "p.py").write_text(PROBLEM.format(right=right))
    (tmp_path / file).write_text(source)
    told = Harness(tmp_path).run("--problem", tmp_path / "p.py", "--kernel", tmp_path / file, "--device", "cpu")
    assert told.code == 1 and "WRONG_VALUES" in told.stdout, told.stdout + told.stderr
    assert said in told.stdout and f"try: {advised}" in told.stdout, told.stdout


RACE = """
#include <torch/extension.h>

__global__ void sums(const float* x, float* y, int columns) {
    __shared__ float parts[64];
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += 64) sum += x[blockIdx.x * columns + i];
    parts[threadIdx.x] = sum;
    BARRIER
    if (threadIdx.x == 63) {
        float all = 0;
        for (int i = 0; i < 64; ++i) all += parts[i];
        y[blockIdx.x] = all;
    }
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sums<<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""
PAST = """
#include <torch/extension.h>

__global__ void sums(const float* x, float* y, int columns) {
    float sum = 0;
    for (int i = 0; i <= columns; ++i) sum += x[blockIdx.x * columns + i] * (i < columns);
    y[blockIdx.x] = sum;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sums<<<x.size(0), 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""
# Its value is not used, so the outputs are right.
UNSET = PAST.replace("i <= columns", "i < columns").replace("float sum", "float all;\n    all += 1;\n    float sum")
UNSET = UNSET.replace("= sum;", "= columns < 0 ? all : sum;")


@pytest.mark.parametrize(
    ("source", "said", "line", "advised"),
    [
        (RACE.replace("BARRIER", ""), "race: ", 12, "put __syncthreads() between the two accesses"),
        (PAST, "out-of-bounds read: ", 6, "such as i <= n for i < n"),
        (UNSET, "Line 5: all has no value before line 6 uses it", 5, "give all its first value, such as all = 0"),
    ],
    ids=["race", "past-the-end", "register"],
)
def test_a_mistake_that_the_outputs_do_not_show_is_a_remark(
    source: str, said: str, line: int, advised: str, tmp_path: Path
) -> None:
    (tmp_path / "p.py").write_text(PROBLEM.format(right="x.sum(1)"))
    (tmp_path / "k.cu").write_text(source)
    harness = Harness(tmp_path)
    told = harness.run("--problem", tmp_path / "p.py", "--kernel", tmp_path / "k.cu", "--device", "cpu")
    assert told.code == 0 and "PASSED" in told.stdout, told.stdout + told.stderr
    assert f"k: Sanitizer: {said}" in " ".join(told.stdout.split()) and "  try: " in told.stdout, told.stdout
    remarks = [r for record in harness.journal("p") for r in record["remarks"] if record["kernel"] == "k"]
    (remark,) = (r for r in remarks if r["kind"] == "sanitizer")
    assert remark["line"] == line and advised in remark["advice"]


def test_a_right_kernel_gets_no_finding_and_one_that_takes_too_long_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.py").write_text(PROBLEM.format(right="x.sum(1)"))
    kernel = tmp_path / "k.cu"
    kernel.write_text(RACE.replace("BARRIER", "__syncthreads();"))
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        assert "races" not in evaluator.evaluate(kernel).reason
        monkeypatch.setattr(passed, "_SANITIZED_S", 0.0)
        told = evaluator.evaluate(kernel)
    assert told.passed and "races and accesses outside of memory were not looked for" in told.reason
    assert f"sanitize {tmp_path / 'p.py'} {kernel} --device cpu --shape N=96,M=2048" in told.reason
