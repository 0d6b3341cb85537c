"""The build cache: which entries are evicted, the verb `cache`, and sharing between processes and checkouts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from support import forked_command
from support.command import ROOT, Harness
from support.product import PROBLEM

from cuda_on_cpu.compile import cache
from kernel_harness.cli import cache as verb_module
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem.candidate import Candidate
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings

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


def entry(name: str, size: int, age_s: float, *, in_use: bool = False) -> Path:
    """An entry of a size, last used `age_s` seconds ago."""

    def build(folder: Path) -> None:
        (folder / "data").write_bytes(bytes(size))

    folder, _ = cache.get_or_build("things", name * 32, build, in_use=in_use)
    then = time.time() - age_s
    os.utime(folder / "manifest.json", (then, then))
    return folder


def test_the_least_recently_used_entry_is_evicted_first(own_cache):
    old, middle, new = (entry(name, 1000, age) for name, age in (("a", 9000), ("b", 6000), ("c", 3000)))
    cache.evict(2000)
    assert [folder.exists() for folder in (old, middle, new)] == [False, True, True]


def test_a_use_protects_an_entry_from_eviction(own_cache):
    old, new = entry("a", 1000, 9000), entry("b", 1000, 6000)
    cache.get_or_build("things", "a" * 32, lambda folder: pytest.fail("the entry exists"))
    cache.evict(1000)
    assert old.exists() and not new.exists()


def test_an_entry_that_is_marked_as_used_is_kept(own_cache):
    old, newer = entry("a", 1000, age_s=5000), entry("b", 1000, age_s=4000)
    cache.mark_used("things", "a" * 32)
    cache.mark_used("things", "c" * 32)  # no such entry
    cache.evict(1500)
    assert old.exists() and not newer.exists()


def test_an_entry_in_use_stays_even_over_the_limit_and_goes_when_the_last_use_ends(own_cache, monkeypatch):
    monkeypatch.setenv("KERNEL_HARNESS_CACHE_BYTES", "0")
    used = entry("a", 1000, 0, in_use=True)
    entry("a", 1000, 0, in_use=True)
    present = []
    for _ in range(2):
        cache.evict(0)
        present.append(used.exists())
        cache.release(used)

    assert present == [True, True] and not used.exists()


USES = """
import sys
import kernel_harness  # the name of the variable with the cache's path
from cuda_on_cpu.compile import cache
cache.get_or_build("things", "a" * 32, lambda folder: (folder / "data").write_text("") and None, in_use=True)
print("used", flush=True)
sys.stdin.readline()
"""


def test_an_entry_in_use_by_another_process_stays_until_that_process_ends(own_cache):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", USES], env=environment, text=True, **pipes) as process:
        assert process.stdout.readline() == "used\n"
        cache.evict(-1)
        present = len(cache.entries())
        process.kill()
    cache.evict(-1)
    assert present == 1 and not cache.entries()


def test_a_lock_of_a_build_under_way_does_not_stop_an_eviction(own_cache):
    def build(folder: Path) -> None:
        cache.evict(0)
        (folder / "data").write_text("built")

    folder, _ = cache.get_or_build("things", "a" * 32, build)
    assert (folder / "data").read_text() == "built"


def test_the_locks_of_an_entry_go_with_it(own_cache):
    entry("a", 1000, 0)
    with contextlib.suppress(ZeroDivisionError):
        cache.get_or_build("things", "b" * 32, lambda folder: 1 / 0)
    cache.evict(1000)
    assert {lock.name for lock in cache.locks().iterdir()} == {f"things-{'a' * 32}.{each}" for each in ("build", "use")}
    cache.evict(0)
    assert not [*cache.locks().iterdir()]


TAKES = """
import sys, time
import kernel_harness
from cuda_on_cpu.compile import cache
def build(folder):
    with open(sys.argv[1], "a") as log:
        log.write("begin ")
    time.sleep(0.001)
    (folder / "data").write_text("1")
    with open(sys.argv[1], "a") as log:
        log.write("end ")
end = time.time() + 2
while time.time() < end:
    folder, _ = cache.get_or_build("things", "a" * 32, build)
    assert (folder / "data").read_text() == "1"
    cache.release(folder)
    cache.evict(0)
"""


def test_an_eviction_leaves_no_process_with_a_lock_that_others_do_not_see(own_cache, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    typed = [sys.executable, "-c", TAKES, str(tmp_path / "log")]
    running = [subprocess.Popen(typed, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate()[1] for each in running] == ["", "", ""]
    builds = (tmp_path / "log").read_text().split()
    assert len(builds) > 20 and builds == ["begin", "end"] * (len(builds) // 2)


def test_a_value_is_kept_until_it_is_not_asked_for_in_a_month(own_cache):
    asked = [cache.keep("values", "a" * 40, lambda value=value: (value, ())) for value in (1, 2)]
    (kept,) = own_cache.glob("values/*")
    cache.evict(1000)
    assert asked == [1, 1] and kept.exists()
    os.utime(kept, (time.time() - 31 * 24 * 3600,) * 2)
    cache.evict(1000)
    assert not kept.exists()


def test_a_damaged_value_is_computed_again(own_cache):
    cache.keep("values", "a" * 32, lambda: (1, ()))
    (kept,) = own_cache.glob("values/*")
    for damage in ("", "[]", "{}", "1"):
        kept.write_text(damage)
        assert cache.keep("values", "a" * 32, lambda: (2, ())) == 2


def test_what_a_build_has_written_so_far_counts(own_cache, monkeypatch):
    monkeypatch.setenv("KERNEL_HARNESS_CACHE_BYTES", "2000")
    old = entry("a", 1000, 9000)

    def build(folder: Path) -> None:
        (folder / "data").write_bytes(bytes(1500))
        entry("c", 100, 0)  # by another process
        assert not old.exists()

    cache.get_or_build("things", "b" * 32, build)


def test_room_is_made_before_a_library_is_copied(own_cache, monkeypatch):
    monkeypatch.setenv("KERNEL_HARNESS_CACHE_BYTES", "2000")
    old, newer = entry("a", 1000, 9000), entry("b", 1000, 3000)
    cache.make_room(500)
    assert not old.exists() and newer.exists()


FILLS = r"""
import os
import torch
from torch.utils.cpp_extension import load_inline

CPP = r'''
asm(".section .rodata\n.fill 1048576, 8, {mark}NUMBER\n.previous");
int number() {{ return 1; }}
'''
for i in range(4):
    load_inline(name=f"big_{{i}}", cpp_sources=CPP.replace("NUMBER", str(i)), functions=["number"])
    files = (os.path.join(at, name) for at, _, names in os.walk(os.environ["KERNEL_HARNESS_CACHE"]) for name in names)
    taken = sum(map(os.path.getsize, files))
    assert taken <= {limit} + (9 << 20), taken  # with the library that was just loaded


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.t(), b.t())
"""


@needs_compiler
@pytest.mark.slow
def test_a_candidate_that_builds_much_does_not_make_the_cache_exceed_its_limit(stocked_cache, tmp_path, monkeypatch):
    limit = sum(each.bytes for each in cache.entries()) + (4 << 20)
    monkeypatch.setenv("KERNEL_HARNESS_CACHE_BYTES", str(limit))
    source = FILLS.format(mark=time.time_ns() % 10**8, limit=limit)
    with Session(PROBLEM, Emulated(), Settings(rounds=2, quick=True), SilentObserver()) as session:
        (result, *_) = session.judge([Candidate("fills", tmp_path / "fills.py", source)], lambda result: None)
        left = sum(each.bytes for each in cache.entries())

    assert result.status is Status.PASSED and len(result.builds) == 4, result.reason
    assert left <= limit


def test_a_build_over_the_limit_evicts_an_old_entry(own_cache, monkeypatch):
    old = entry("a", 1000, 9000)
    monkeypatch.setenv("KERNEL_HARNESS_CACHE_BYTES", "1500")
    new = entry("b", 1000, 0)
    assert new.exists() and not old.exists()


@pytest.mark.parametrize("limit", ["4GB", "1e9"])
def test_a_limit_that_is_no_number_of_bytes_is_a_usage_error(own_cache, monkeypatch, typed, limit):
    monkeypatch.setenv("KERNEL_HARNESS_CACHE_BYTES", limit)
    done = typed("cache")
    assert done.code == 2
    assert f"$KERNEL_HARNESS_CACHE_BYTES is '{limit}'" in done.stderr
    assert not done.stdout


def test_a_cache_that_passes_a_gigabyte_is_told_once(own_cache, monkeypatch, capsys):
    monkeypatch.setattr(verb_module, "_TOLD_BYTES", 1500)
    for name, told in (("a", False), ("b", True), ("c", False)):
        with verb_module.growth_told():
            entry(name, 1000, 10)
        assert (f"The build cache in {own_cache} takes" in capsys.readouterr().err) is told


def test_the_verb_shows_the_entries_and_clears_them(own_cache, typed):
    folder = entry("a", 3 << 20, 10)
    said = typed("cache").stdout
    assert f"{own_cache}: 3 MiB in 1 entries" in said and "things" in said and "`cache --clear` deletes all" in said
    cleared = typed("cache", "--clear")
    assert (cleared.code, cleared.stdout) == (0, "3 MiB freed\n")
    assert not folder.exists()


@needs_compiler
@pytest.mark.slow
def test_another_checkout_uses_the_builds_of_this_one(harness: Harness, tmp_path):
    kernel = tmp_path / "product.py"
    kernel.write_text(SOURCE.format(mark=uuid.uuid4().hex))
    first = harness.run(*COMMAND, "--kernel", kernel).results["product"]
    checkout = tmp_path / "checkout"
    for part in ("harness.py", "kernel_harness", "cuda_on_cpu", "problems", "kernels"):
        source = ROOT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        (checkout / part).parent.mkdir(exist_ok=True)
        copy(source, checkout / part)
    words = [*COMMAND, "--kernel", kernel, "--results", tmp_path / "others"]
    other = forked_command.run(checkout / "harness.py", words, checkout)
    second = next(r for r in map(json.loads, other.stdout.splitlines()) if r["kernel"] == "product")
    assert [b["cached"] for b in first["builds"]] == [False]
    assert [b["cached"] for b in second["builds"]] == [True]


@needs_compiler
@pytest.mark.slow
def test_two_runs_at_once_build_a_kernel_once(harness: Harness, tmp_path):
    kernel = tmp_path / "product.py"
    kernel.write_text(SOURCE.format(mark=uuid.uuid4().hex))
    runs = [harness.start(*COMMAND, "--kernel", kernel) for _ in range(2)]
    printed = [run.communicate()[0] for run in runs]
    records = [next(r for r in map(json.loads, text.splitlines()) if r["kernel"] == "product") for text in printed]
    assert sorted(b["cached"] for record in records for b in record["builds"]) == [False, True]


@needs_compiler
@pytest.mark.slow
def test_shared_build_entries_may_be_evicted_during_a_run(stocked_cache, tmp_path):
    one = Candidate("product", tmp_path / "product.py", SOURCE.format(mark=uuid.uuid4()))
    with Session(PROBLEM, Emulated(), Settings(rounds=2, quick=True), SilentObserver()) as session:
        shutil.rmtree(stocked_cache / "shared")
        (result, *_) = session.judge([one], lambda result: None)

    assert result.status is Status.PASSED, result.reason
