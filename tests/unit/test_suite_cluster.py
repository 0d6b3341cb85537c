"""The GPUs of a Ray cluster that a suite uses, and the problem file on the machine of an actor.

The descriptions of the nodes are those that `ray.nodes` returns.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.suites import SIMULATED

from kernel_harness.problem.candidate import Candidate
from kernel_harness.session.settings import Settings
from kernel_harness.suite import device_worker
from kernel_harness.suite.allocation import Allocation
from kernel_harness.suite.device_worker import Verdict
from kernel_harness.suite.ray_cluster import Actor, gpus

NODES = [
    {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 8.0, "accelerator_type:H200": 1.0}},
    {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0, "accelerator_type:L4": 1.0}},
    {"Alive": False, "Resources": {"CPU": 16.0, "GPU": 8.0, "accelerator_type:H200": 1.0}},
    {"Alive": True, "Resources": {"CPU": 4.0}},
]


def test_an_actor_is_started_for_each_gpu_of_the_wanted_type_only() -> None:
    assert gpus(NODES, "H200") == 8
    assert gpus(NODES, "L4") == 2
    assert gpus(NODES, "A100") == 0


def test_without_a_type_all_gpus_of_the_running_nodes_count() -> None:
    assert gpus(NODES, None) == 10


def test_an_actor_s_problem_file_is_never_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls run in several threads, and the device worker loads the file meanwhile."""
    monkeypatch.setattr(device_worker, "PROGRAM", (str(SIMULATED),))
    content, sizes = b"#" * (1 << 23), set()
    actor = Actor(Allocation(("cpu",), 1), Settings(seed=1), [])
    candidate = Candidate("c", tmp_path / "kernels" / "p" / "c.py", "pass 2")
    try:
        with ThreadPoolExecutor(2) as threads:
            calls = [threads.submit(actor.judge, f"p{number}", content, candidate) for number in range(16)]
            while not all(call.done() for call in calls):
                sizes |= {path.stat().st_size for path in actor._scheduler.folder.path.glob("p*.py")}
    finally:
        actor.close()

    assert sizes == {len(content)}
    assert all(isinstance(call.result(), Verdict) for call in calls)
