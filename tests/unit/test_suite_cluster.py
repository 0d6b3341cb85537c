"""Which GPUs of a Ray cluster a suite uses. The descriptions of the nodes are those that `ray.nodes` returns."""

from __future__ import annotations

from kernel_harness.suite.cluster import gpus

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
