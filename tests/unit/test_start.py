"""What a run does before its first build: it imports no package that it does not need, and plans beside other work."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.command import ROOT
from support.product import PROBLEM

from kernel_harness.device.cpu import Emulated
from kernel_harness.session import session
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.settings import Settings

SLOW = "pandas", "rich", "matplotlib", "jinja2", "sympy", "triton", "torch._dynamo", "torch._inductor"

FILES = {
    "linear": """
import torch

batch_size, in_features, out_features = 1024, 2048, 4096

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features)
        self.norm = torch.nn.LayerNorm(out_features)

    def forward(self, x):
        x = self.norm(self.linear(x))
        x = torch.where(x > 0, x, torch.cat([x[:1], x[1:]]))
        return torch.log_softmax(x, 1) / torch.linalg.norm(x) + torch.tril(x).cumsum(0)

def get_inputs():
    return [torch.rand(batch_size, in_features)]
""",
    "convolution": """
import torch

batch_size, in_channels, out_channels, kernel_size = 64, 16, 64, 3
height = width = 128

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(in_channels, out_channels, kernel_size)
        self.norm = torch.nn.BatchNorm2d(out_channels)

    def forward(self, x):
        return torch.relu(torch.max_pool2d(self.norm(self.conv(x)), 2))

def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]
""",
}
SHAPES = """
import sys
from pathlib import Path
from kernel_harness.checking.plan import plan
from kernel_harness.problem.problem import load
of = load("p", Path(sys.argv[1]))
for here in (of, of.on(emulated=True)):
    print(*dict.fromkeys("x".join(str(size) for _, size in case.shape) for case in plan(here, 1)))
"""
# The sizes at which each file is judged on a GPU, then those in the emulation: the timed ones first, drawn ones last.
CHOSEN = {
    "linear": ["1024x2048x4096 871x1569x3831", "514x512x256 128x256x4096 128x2048x256 479x393x217"],
    "convolution": [
        "64x16x64x3x128x128 49x13x49x3x119x119",
        "17x16x18x3x32x32 8x10x9x3x128x128 17x8x13x3x29x29",
    ],
}


def python(code: str, *arguments: str) -> list[str]:
    """The lines that a new Python process prints. The last line has those of the slow packages that it has imported."""
    code += f"\nimport sys\nprint(*[name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_a_run_starts_without_packages_that_it_needs_later_or_on_a_terminal_only() -> None:
    start = (
        "from kernel_harness.cli.progress import Progress\nfrom kernel_harness.session import stored_run\nProgress()"
    )
    assert python(start) == [""]


@pytest.mark.parametrize("name", FILES)
def test_sizes_are_chosen_without_torch_s_compiler(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_HARNESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "p.py").write_text(FILES[name])
    *shapes, imported = python(SHAPES, str(tmp_path / "p.py"))
    assert shapes == CHOSEN[name]
    assert "torch._dynamo" not in imported


def test_cases_are_planned_while_the_device_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    planning, plan = threading.Event(), session.plan

    class Prepared(Emulated):
        def prepare(self, *tell: Any) -> None:
            assert planning.wait(60)
            super().prepare(*tell)

    def noted(*of: Any, **how: Any) -> Any:
        planning.set()
        return plan(*of, **how)

    monkeypatch.setattr(session, "plan", noted)
    with session.Session(PROBLEM, Prepared(), Settings(seed=1), SilentObserver()) as made:
        assert made.cases == plan(PROBLEM, 1)
