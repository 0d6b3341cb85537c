"""The order in which kernels are built, and light headers against torch's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.command import Harness

from kernel_harness.core.status import Status
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Build, Result
from kernel_harness.session.stored_run import longest_build_first


def kernel(name: str, length: int = 0) -> Candidate:
    return Candidate(name, Path(f"{name}.py"), "x" * length)


def built(name: str, seconds: float, cached: bool = False) -> Result:
    """The result of a kernel with one build."""
    return Result(name, Status.PASSED, "", {}, "", builds=(Build(name, seconds, cached),))


def order(chosen: list[Candidate], results: list[Result]) -> list[str]:
    return [candidate.name for candidate in longest_build_first(chosen, results)]


def test_the_kernel_with_the_longest_last_build_is_built_first():
    results = [built("a", 9.0), built("a", 2.0), built("b", 5.0), built("c", 1.0)]
    assert order([kernel("c"), kernel("a"), kernel("b")], results) == ["b", "a", "c"]


def test_a_cached_build_does_not_count_as_a_build_time():
    assert order([kernel("a"), kernel("b")], [built("a", 2.0), built("b", 5.0), built("b", 0.1, True)]) == ["b", "a"]


def test_of_kernels_never_built_the_longer_source_comes_first():
    assert order([kernel("short", 10), kernel("long", 9000), kernel("known")], [built("known", 3.0)]) == [
        "long", "known", "short",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")
@pytest.mark.slow
def test_full_and_light_headers_give_the_same_verdict(harness: Harness):
    """One kernel only: a build with torch's own headers takes many seconds."""
    small = ["--device", "cpu", "--shape", "M=5,K=7,N=3", "--quick", "--rounds", "8"]
    command = ["--problem", "matmul_tt", "--kernel", "naive", *small, "--json"]
    results = [
        harness.run(*command, environment={"KERNEL_HARNESS_HEADERS": headers}).results["naive"]
        for headers in ("light", "full")
    ]
    assert [r["status"] for r in results] == ["PASSED", "PASSED"]
    light, full = ([check["status"] for check in result["checks"]] for result in results)
    assert light == full
