"""A process of its own that loads one kernel and calls it twice, the second time under the profiler's eyes.

`python -m kernel_harness.profile.one_call --problem P --kernel K --device D`: nothing is checked here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from kernel_harness import build, find, tensors
from kernel_harness import device as devices
from kernel_harness.build import cache
from kernel_harness.cases import FORWARD_SEED
from kernel_harness.device.profiled import assembled
from kernel_harness.examine import file_name
from kernel_harness.paths import KERNELS, ROOT
from kernel_harness.problem import WEIGHT_SEED
from kernel_harness.verbs.arguments import shape
from kernel_harness.worker import run_file


def main() -> None:
    """Writes what nvcc says of the kernel to --assembled."""
    options = _options()
    problem = find.problem(options.problem, ROOT)
    (candidate,) = find.kernels([options.kernel], problem.name, ROOT)[:1]
    device = devices.named(options.device)
    problem = problem.on(emulated=device.emulated).at(options.shape)
    device.prepare()
    device.prepare_worker()
    device.open()
    sys.path.insert(0, str(KERNELS))
    heard: list[dict[str, str]] = []
    arch = f"sm_{''.join(map(str, torch.cuda.get_device_capability()))}"

    def builder(sources: Any, mark: Any) -> tuple[Path, bool]:
        heard.append(assembled(sources, mark, arch))
        folder, cached = cache.get_or_build(
            "one-call", device.build_key(sources), lambda folder: device.build(sources, mark, folder)
        )
        return next(folder.glob("*.so")), cached

    file = file_name(candidate)
    build.install(builder, Path(file), candidate.source)
    module = run_file(file, candidate.source, build.as_module(file, candidate.source))
    options.assembled.write_text(json.dumps(heard))
    torch.manual_seed(WEIGHT_SEED)
    with torch.no_grad():
        model = module.ModelNew(*problem.init_inputs()).to(device.torch_device)
        structure, found = tensors.flatten(problem.inputs(0))
        inputs = tensors.unflatten(structure, [t.to(device.torch_device) for t in found])
        for watched in (False, True):
            torch.manual_seed(FORWARD_SEED)
            _call(model, inputs, watched=watched and not device.emulated)


def _call(model: Any, inputs: Any, *, watched: bool) -> None:
    if watched:
        torch.cuda.profiler.start()
    model(*inputs)
    torch.cuda.synchronize()
    if watched:
        torch.cuda.profiler.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problem", required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--shape", type=shape, default={})
    parser.add_argument("--assembled", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
