"""In which order kernels are built, and against which headers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Harness

from kernel_harness.candidate import Candidate
from kernel_harness.run import longest_build_first


def kernel(name: str, length: int = 0) -> Candidate:
    return Candidate(name, Path(f"{name}.py"), "x" * length)


def built(name: str, seconds: float, cached: bool = False) -> dict[str, Any]:
    """A record of one build."""
    return {"kernel": name, "builds": [{"name": name, "seconds": seconds, "cached": cached}]}


def order(chosen: list[Candidate], records: list[dict[str, Any]]) -> list[str]:
    return [candidate.name for candidate in longest_build_first(chosen, records)]


def test_what_took_longest_last_time_is_built_first():
    records = [built("a", 9.0), built("a", 2.0), built("b", 5.0), built("c", 1.0)]
    assert order([kernel("c"), kernel("a"), kernel("b")], records) == ["b", "a", "c"]


def test_what_came_from_the_cache_says_nothing_of_a_build():
    assert order([kernel("a"), kernel("b")], [built("a", 2.0), built("b", 5.0), built("b", 0.1, True)]) == ["b", "a"]


def test_of_kernels_never_built_the_longer_text_comes_first():
    assert order([kernel("short", 10), kernel("long", 9000), kernel("known")], [built("known", 3.0)]) == [
        "long", "known", "short",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")
def test_torchs_own_headers_give_the_verdict_that_the_light_ones_give(harness: Harness):
    """One build of many seconds; the suites of cheats and kernels can be run so as a whole."""
    command = [
        "--problem",
        "matmul_tt",
        "--device",
        "cpu",
        "--shape",
        "M=5,K=7,N=3",
        "--quick",
        "--rounds",
        "8",
        "--json",
    ]
    command += ["--kernel", str(ROOT / "kernels" / "matmul_tt" / "naive.py")]
    results = [
        harness.run(*command, environment={"KERNEL_HARNESS_HEADERS": headers}).results["naive"]
        for headers in ("light", "full")
    ]
    assert [r["status"] for r in results] == ["PASSED", "PASSED"]
    light, full = ([check["status"] for check in result["checks"]] for result in results)
    assert light == full
