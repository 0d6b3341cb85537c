"""The CUDA device's code without a GPU, with the emulated torch.cuda in place of the real one.

Times mean nothing here; the tests in tests/gpu check them on a GPU.
"""

import json
import subprocess
import sys

import pytest
import torch
from torch.autograd.profiler import profile, record_function

from kernel_harness.device.cuda import times_on

SCRIPT = """
import json
import torch
from kernel_harness.device import Sleep, cuda
from tests.support.rehearsal import Rehearsal
from kernel_harness.ipc.tensors import layout
from kernel_harness.ipc.input_memory import write

device = Rehearsal()
device.prepare()

slept = []
torch.cuda._sleep = slept.append
device.open()

tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
leaves, size = layout([tensor.t()])
buffer = device.share(size)
memory = device.map(buffer.descriptor, size, on_device=buffer.on_device)
write(buffer.bytes, leaves, [tensor.t()])
placed = device.place(memory, leaves)
(on_device,) = placed.tensors
seen = {"device": str(on_device.device), "stride": on_device.stride()}
seen["equal"] = torch.equal(on_device.cpu(), tensor.t())
on_device.zero_()
placed.write_back()
seen["written_back"] = leaves[0].view(buffer.bytes).abs().sum().item() == 0

on_device.add_(3)
device.fetch([on_device], leaves, memory)
seen["fetched"] = leaves[0].view(buffer.bytes).unique().tolist() == [3]

result, cold = cuda.Cuda.timed(device, lambda: on_device + 1, hold=Sleep(), cold=True)
seen["cold"] = vars(cold)
_, warm = device.timed(lambda: on_device + 1, hold=Sleep(7), cold=False)
seen["warm"] = vars(warm)
seen["slept"] = slept
with device.memory(poisoned=True):
    seen["poisoned"] = torch.are_deterministic_algorithms_enabled()
seen["restored"] = not torch.are_deterministic_algorithms_enabled()
seen["label"] = cuda.Cuda("cuda").label
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_inputs_are_copied_to_the_device(seen):
    assert seen["device"] == "cuda:0" and seen["equal"]


def test_inputs_keep_their_strides(seen):
    assert seen["stride"] == [1, 3]


def test_inputs_that_a_call_changed_are_copied_back_for_the_judge(seen):
    assert seen["written_back"]


def test_outputs_are_copied_to_the_memory_that_the_judge_reads(seen):
    assert seen["fetched"]


def test_a_timed_call_is_launched_behind_a_sleep_and_has_a_time(seen):
    assert seen["slept"] == [1 << 20, 7]
    assert seen["cold"]["device_ms"] >= 0 and seen["warm"]["device_ms"] >= 0


def test_a_call_that_was_not_enqueued_during_the_sleep_is_reported_as_exposed(seen):
    """The emulated device does not sleep, so an event is done when it is recorded."""
    assert seen["cold"]["exposed"]


def test_poisoning_ends_with_the_call(seen):
    assert seen["poisoned"] and seen["restored"]


def test_the_folder_of_results_is_a_plain_name(seen):
    assert seen["label"] == "emulated-cuda-device"


def test_the_names_and_times_of_profiled_events_are_separated_by_device() -> None:
    with profile(use_kineto=True) as profiler:
        torch.ones(3) + 1

    assert dict(times_on(torch.autograd.DeviceType.CPU, profiler))["aten::add"] > 0
    assert times_on(torch.autograd.DeviceType.CUDA, profiler) == []


def test_a_range_that_a_candidate_names_is_no_kernel() -> None:
    with profile(use_kineto=True) as profiler, record_function("tiled"):
        torch.ones(3) + 1

    names = [name for name, _ in times_on(torch.autograd.DeviceType.CPU, profiler)]
    assert "aten::add" in names and "tiled" not in names
