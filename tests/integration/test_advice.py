"""What the command advises: for a wrong answer that one case shows too little of, and for a race that passed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import Harness

from kernel_harness import Evaluator, Status
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


@pytest.mark.parametrize("kernel", ["softmax", "softplus"])
def test_an_overflow_for_large_inputs_is_a_remark(kernel: str, tmp_path: Path) -> None:
    right = {"softmax": "x.softmax(1)", "softplus": "torch.nn.functional.softplus(x)"}[kernel]
    wrong = {"softmax": "x.exp() / x.exp().sum(1, keepdim=True)", "softplus": "(1 + x.exp()).log()"}[kernel]
    (tmp_path / "p.py").write_text(PROBLEM.format(right=right))
    with Evaluator(tmp_path / "p.py", device="cpu", shape={"M": 256}, budget_s=0.1) as evaluator:
        told = evaluator.evaluate(KERNEL.format(wrong=wrong))
        assert told.passed and "with inputs of up to 150" in told.reason and "overflow" in told.reason
        assert any("subtract the largest number" in remark.advice for remark in told.remarks)
        assert "overflow" not in evaluator.evaluate(KERNEL.format(wrong=right)).reason


@pytest.mark.parametrize("function", ["silu", "gelu", "tanh", "sigmoid", "elu"])
def test_an_honest_form_for_large_inputs_has_no_remark(function: str, tmp_path: Path) -> None:
    honest = {
        "silu": "x / (1 + (-x).exp())",
        "gelu": "0.5 * x * (1 + torch.erf(x * 0.70710678))",
        "tanh": "1 - 2 / ((2 * x).exp() + 1)",
        "sigmoid": "1 / (1 + (-x).exp())",
        "elu": "torch.where(x > 0, x, x.exp() - 1)",
    }
    scope = "torch" if function in ("tanh", "sigmoid") else "torch.nn.functional"
    (tmp_path / "p.py").write_text(PROBLEM.format(right=f"{scope}.{function}(x)"))
    with Evaluator(tmp_path / "p.py", device="cpu", shape={"M": 256}, budget_s=0.1) as evaluator:
        told = evaluator.evaluate(KERNEL.format(wrong=honest[function]))
    assert told.passed and "overflow" not in told.reason, told.reason


def test_a_failure_by_an_overflow_says_so(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROBLEM.format(right="(4 * x).softmax(1)"))
    with Evaluator(tmp_path / "p.py", device="cpu", shape={"M": 256}, budget_s=0.1) as evaluator:
        told = evaluator.evaluate(KERNEL.format(wrong="(4 * x).exp() / (4 * x).exp().sum(1, keepdim=True)"))
    assert told.status is Status.WRONG_VALUES and "It overflows: inputs of up to" in told.reason, told.reason


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


def test_a_quick_run_sanitizes_at_the_shapes_of_a_full_run(harness: Harness, tmp_path: Path) -> None:
    shapes = "CHECK_SHAPES = [dict(N=1, M=4), dict(N=3, M=8), dict(N=7, M=12), dict(N=17, M=33)]"
    (tmp_path / "p.py").write_text(PROBLEM.format(right="x.sum(1)") + shapes)
    (tmp_path / "k.cu").write_text(PAST.replace("i <= columns", "i < (columns + 3) / 4 * 4"))
    quick = ("--device", "cpu", "--quick", "--rounds", "2", "--seed", "1")
    told = harness.run("--problem", tmp_path / "p.py", "--kernel", tmp_path / "k.cu", *quick)
    assert told.code == 0 and "out-of-bounds read: " in told.stdout and "(case N=17,M=33:" in told.stdout, told.stdout


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("__shfl_down_sync(0xffffffff, sum, 1)", "divergent barrier: {}/k.cu:10: `__syncthreads();`"),
        ("__shfl_down_sync(0xf, sum, 1)", "divergent warp: {}/k.cu:14"),
    ],
)
def test_a_barrier_that_threads_never_reach_is_told_with_its_line(
    other: str, said: str, harness: Harness, tmp_path: Path
) -> None:
    barrier = f"if (threadIdx.x < 16) {{\n__syncthreads();\n}} else {{\n\n\nparts[0] = {other};\n}}"
    (tmp_path / "p.py").write_text(PROBLEM.format(right="x.sum(1)"))
    (tmp_path / "k.cu").write_text(RACE.replace("BARRIER", barrier))
    told = harness.run("--problem", tmp_path / "p.py", "--kernel", tmp_path / "k.cu", "--device", "cpu")
    assert told.code == 1 and "k: RUNTIME_ERROR" in told.stdout, told.stdout
    assert f"Sanitizer: {said.format(tmp_path)}" in told.stdout, told.stdout


@pytest.mark.parametrize(("barrier", "races"), [("__syncthreads();", False), ("", True)])
def test_a_kernel_in_clusters_is_sanitized(barrier: str, races: bool, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROBLEM.format(right="x.sum(1)"))
    source = RACE.replace("BARRIER", barrier).replace("blockIdx.x", "min(blockIdx.x, rows - 1)")
    source = source.replace("__global__ void", "__global__ void __cluster_dims__(2, 1, 1)")
    source = source.replace("int columns)", "int columns, unsigned rows)").replace(
        "x.size(1))", "x.size(1), x.size(0))"
    )
    kernel = tmp_path / "k.cu"
    kernel.write_text(source.replace("<<<x.size(0),", "<<<(x.size(0) + 1) / 2 * 2,"))
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        told = evaluator.evaluate(kernel)
    assert told.passed or races, told.reason
    assert ("race" in told.reason) is races


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
