"""The Python interface of cuda_on_cpu, each in a process of its own: `enable` cannot be undone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import ROOT

SUMS = '''
import torch
import cuda_on_cpu

SOURCE = """
__global__ void sums(const float* x, float* y) {
  __shared__ float part[64];
  part[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  for (int step = 32; step; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty({x.size(0)}, x.options());
  sums<<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}
"""

def build():
    return cuda_on_cpu.load_inline("sums_of_rows", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])
'''
BARRIER_IN_LOOP = "    __syncthreads();\n  }\n"


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python file with the content `text`, called program.py."""
    (folder / "program.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True)


def test_load_inline_runs_a_kernel_on_the_cpu(tmp_path: Path) -> None:
    done = run(tmp_path, SUMS + "x = torch.ones(3, 64); print(build().run(x.cuda() if build() else x))")

    assert done.stdout == "tensor([64., 64., 64.], device='cuda:0')\n", done.stderr


def test_the_harness_is_not_imported(tmp_path: Path) -> None:
    done = run(tmp_path, SUMS + "import sys; build(); print([n for n in sys.modules if n.startswith('kernel_h')])")

    assert done.stdout == "[]\n", done.stderr


@pytest.mark.slow
def test_sanitize_returns_a_race_with_file_line_thread_and_text(tmp_path: Path) -> None:
    program = (
        SUMS.replace(BARRIER_IN_LOOP, "  }\n")
        + """
cuda_on_cpu.enable(sanitize=True)
sums = build()
for found in cuda_on_cpu.sanitize(sums.run, torch.ones(3, 64, device="cuda")):
    print(found.kind, found.here.file, found.here.line, len(found.here.thread), found.source, sep="|")
"""
    )
    done = run(tmp_path, program)

    line = program.split("\n").index("    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];") + 1
    text = "if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];"
    assert f"race|program.py|{line}|3|{text}" in done.stdout.splitlines(), done.stdout + done.stderr


@pytest.mark.slow
def test_sanitize_finds_nothing_in_a_right_kernel(tmp_path: Path) -> None:
    program = SUMS + "print(cuda_on_cpu.sanitize(lambda: build().run(torch.ones(3, 64, device='cuda'))))"

    assert run(tmp_path, program).stdout == "[]\n"


@pytest.mark.slow
def test_sanitize_names_an_element_that_no_kernel_wrote(tmp_path: Path) -> None:
    program = (
        SUMS.replace("sums<<<x.size(0), 64>>>", "sums<<<x.size(0) - 1, 64>>>")
        + """
cuda_on_cpu.enable(sanitize=True)
sums = build()
print(*(found.sentence for found in cuda_on_cpu.sanitize(sums.run, torch.ones(3, 64, device="cuda"))))
"""
    )
    done = run(tmp_path, program)

    assert done.stdout.startswith("never written: program.py:"), done.stdout + done.stderr


def test_sanitize_refuses_extensions_that_were_built_without_it(tmp_path: Path) -> None:
    done = run(tmp_path, SUMS + "sums = build()\ncuda_on_cpu.sanitize(sums.run, torch.ones(1, 64, device='cuda'))")

    assert "Call cuda_on_cpu.enable(sanitize=True) before the first build" in done.stderr
