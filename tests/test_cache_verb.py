"""The build cache as its user meets it: what it holds, what it drops, and who finds what somebody else built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from conftest import ROOT, Harness

from kernel_harness import problem
from kernel_harness.build import cache
from kernel_harness.candidate import Candidate
from kernel_harness.device.cpu import Emulated
from kernel_harness.judge import Nobody, Session
from kernel_harness.settings import Settings
from kernel_harness.status import Status

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")

SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

# {mark}
CPP = """
torch::Tensor product(torch::Tensor a, torch::Tensor b) {{ /* {mark} */ return at::matmul(a.t(), b.t()); }}
"""
ops = load_inline(name="product", cpp_sources=CPP, functions=["product"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return ops.product(a, b)
'''
COMMAND = ["--problem", "matmul_tt", "--device", "cpu", "--shape", "M=4,K=8,N=4", "--quick", "--rounds", "8", "--json"]


def entry(name: str, size: int, age_s: float) -> Path:
    """An entry of some bytes, used that long ago."""
    folder, _ = cache.get_or_build("things", name * 32, lambda folder: (folder / "data").write_bytes(bytes(size)))
    then = time.time() - age_s
    os.utime(folder / "manifest.json", (then, then))
    return folder


def test_what_was_used_longest_ago_is_dropped_first(own_cache):
    old, middle, new = (entry(name, 1000, age) for name, age in (("a", 9000), ("b", 6000), ("c", 3000)))
    cache.evict(2000)
    assert [folder.exists() for folder in (old, middle, new)] == [False, True, True]


def test_using_an_entry_saves_it(own_cache):
    old, new = entry("a", 1000, 9000), entry("b", 1000, 6000)
    cache.get_or_build("things", "a" * 32, lambda folder: pytest.fail("it was there"))
    cache.evict(1000)
    assert old.exists() and not new.exists()


def test_an_entry_that_somebody_was_just_given_stays_even_over_the_limit(own_cache):
    fresh = entry("a", 1000, 10)
    cache.evict(0)
    assert fresh.exists()


def test_a_build_makes_room_for_itself(own_cache, monkeypatch):
    old = entry("a", 1000, 9000)
    monkeypatch.setenv("KERNEL_HARNESS_CACHE_BYTES", "1500")
    new = entry("b", 1000, 0)
    assert new.exists() and not old.exists()


def verb(*words: str) -> str:
    """What `harness.py cache` prints."""
    done = subprocess.run([sys.executable, ROOT / "harness.py", "cache", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_verb_shows_what_there_is_and_drops_it(own_cache):
    folder = entry("a", 3 << 20, 10)
    assert str(own_cache) in verb() and "things" in verb()
    assert verb("--clear") == "3 MiB freed\n"
    assert not folder.exists()


@needs_compiler
def test_another_checkout_finds_what_this_one_built(harness: Harness, tmp_path):
    kernel = tmp_path / "product.py"
    kernel.write_text(SOURCE.format(mark=uuid.uuid4().hex))
    first = harness.run(*COMMAND, "--kernel", kernel).results["product"]
    checkout = tmp_path / "checkout"
    for part in ("harness.py", "kernel_harness", "problems", "kernels"):
        source = ROOT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        (checkout / part).parent.mkdir(exist_ok=True)
        copy(source, checkout / part)
    other = subprocess.run(
        [sys.executable, "harness.py", *COMMAND, "--kernel", kernel, "--results", tmp_path / "others"],
        cwd=checkout, capture_output=True, text=True,
    )  # fmt: skip
    second = next(r for r in map(json.loads, other.stdout.splitlines()) if r["kernel"] == "product")
    assert [b["cached"] for b in first["builds"]] == [False]
    assert [b["cached"] for b in second["builds"]] == [True]


@needs_compiler
def test_two_runs_at_once_build_a_kernel_once(harness: Harness, tmp_path):
    kernel = tmp_path / "product.py"
    kernel.write_text(SOURCE.format(mark=uuid.uuid4().hex))
    runs = [harness.start(*COMMAND, "--kernel", kernel) for _ in range(2)]
    printed = [run.communicate()[0] for run in runs]
    records = [next(r for r in map(json.loads, text.splitlines()) if r["kernel"] == "product") for text in printed]
    assert sorted(b["cached"] for record in records for b in record["builds"]) == [False, True]


@needs_compiler
def test_what_builds_share_may_be_evicted_while_a_run_goes_on(stocked_cache, tmp_path):
    small = problem.load("product", ROOT / "tests" / "candidates" / "problem" / "product.py")
    one = Candidate("product", tmp_path / "product.py", SOURCE.format(mark=uuid.uuid4()))
    with Session(small, Emulated(), Settings(rounds=2, quick=True), Nobody()) as session:
        shutil.rmtree(stocked_cache / "shared")
        (result, *_) = session.judge([one], lambda result: None)

    assert result.status is Status.PASSED, result.reason
