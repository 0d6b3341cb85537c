"""The process that ncu profiles: it loads one kernel and calls it twice. ncu records the second call.

The process does not check the outputs. Command: `python -m kernel_harness.diagnostics.profile.one_call CALL FILE`. CALL
is an `ncu.Call` as JSON: the problem, the kernel, the device and the sizes. The process writes nvcc's reports about the
kernel's resources to FILE, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from cuda_on_cpu.compile import cache, load_inline
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.sources import Sources
from kernel_harness import device as devices
from kernel_harness.compile import nvcc
from kernel_harness.core.paths import kernel_folders
from kernel_harness.device import Device
from kernel_harness.device.profiled import assembled
from kernel_harness.diagnostics.profile.ncu import Call
from kernel_harness.ipc import tensors
from kernel_harness.problem import candidate as candidates
from kernel_harness.problem import problem as problems
from kernel_harness.problem.candidate import Candidate, file_name
from kernel_harness.problem.problem import FORWARD_SEED, WEIGHT_SEED
from kernel_harness.worker import candidate_module


def main(call: Call, assembled_file: Path) -> None:
    """Builds the kernel in `call`, writes nvcc's reports to `assembled_file`, and calls the kernel twice."""
    device = devices.named(call.device)
    problem = problems.load(call.problem.stem, call.problem).sized(call.shape, emulated=device.emulated)
    device.prepare()
    device.prepare_worker()
    device.open()
    candidate = candidates.read(call.kernel)
    module, reports = loaded(candidate, device)
    assembled_file.write_text(json.dumps(reports))
    torch.manual_seed(WEIGHT_SEED)
    with torch.no_grad():
        model = module.ModelNew(*problem.constructor_arguments(file_name(candidate))).to(device.torch_device)
        structure, found = tensors.flatten(problem.inputs(0))
        inputs = tensors.unflatten(structure, [t.to(device.torch_device) for t in found])
        for recorded in (False, True):
            torch.manual_seed(FORWARD_SEED)
            _call(model, inputs, recorded=recorded and not device.emulated)


def loaded(candidate: Candidate, device: Device) -> tuple[Any, list[dict[str, str]]]:
    """Runs the kernel file as a module. Returns the module, and nvcc's report about each library that it built.

    A report is a dict with one key: `ptxas`, the output of nvcc about registers and memory of each kernel, or
    `missing`, the reason why there is none. The file builds its libraries by calls of `load_inline`.
    """
    sys.path[:0] = map(str, kernel_folders())
    reports: list[dict[str, str]] = []
    arch = f"sm_{''.join(map(str, torch.cuda.get_device_capability()))}"

    def builder(sources: Sources) -> tuple[Path, bool]:
        reports.append({key: own.translated(text) for key, text in assembled(sources, arch).items()})

        def build(folder: Path) -> list[str]:
            device.build(sources, folder)
            return nvcc.files_read(sources, folder)

        folder, cached = cache.get_or_build("one-call", device.build_key(sources), build)
        return next(folder.glob("*.so")), cached

    file = file_name(candidate)
    own = CandidateFile(file, candidate.source)
    load_inline.install(builder, own)
    return candidate_module.run(file, candidate.source), reports


def _call(model: Any, inputs: Any, *, recorded: bool) -> None:
    if recorded:
        torch.cuda.profiler.start()
    model(*inputs)
    torch.cuda.synchronize()
    if recorded:
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(Call.parse(sys.argv[1]), Path(sys.argv[2]))
