"""Measures which share of a call's work the candidate's own kernels do, after the candidate was timed.

On a GPU it is their share of the kernels' time. Under emulation, where times mean nothing, it is the share of the
output's elements that change if the candidate's kernels are skipped. The worker process reports both, so a candidate
could forge them. They therefore lead only to remarks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import torch

from kernel_harness.checking.cases import Case
from kernel_harness.core.phases import phase
from kernel_harness.diagnostics.profile.resources import base_name
from kernel_harness.ipc.messages import KernelTimes
from kernel_harness.problem.distributions import OWN
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.faults import Fault, Refused

_SKIPPED_PATIENCE = 0.2  # the part of a call's time limit that a call without kernels may take


@phase("own kernels")
def measure(trial: Trial, *, emulated: bool) -> None:
    """Stores in a timed trial what its own kernels do: `Trial.own_share`, and on a GPU `Trial.launches`.

    The calls are made with the size constants (`M`, `N`, ...) at which candidates are timed. The trial stays unchanged
    if a call fails or cannot tell. At the end, the worker process is paused.
    """
    try:
        if emulated:
            _compare_without_kernels(trial)
        else:
            _count_launches(trial)
    except (Fault, Refused):
        pass
    finally:
        trial.running.worker.pause()


def _count_launches(trial: Trial) -> None:
    packed = trial.reference.inputs(_timed(trial.cases))
    # The profiler sometimes reports no kernel of a call at all, as for 1 of 30 candidates on two H200s.
    kernels = trial.running.kernels(packed)
    kernels = kernels if kernels.names else trial.running.kernels(packed)
    trial.running.release_large()
    if kernels.names:
        names = own(kernels.names, trial.candidate.source, trial.running.libraries)
        trial.launches, trial.own_share = len(names), share_of_time(kernels, set(names))


def _compare_without_kernels(trial: Trial) -> None:
    """Stores the share of the output that the candidate's kernels make, on the emulated device.

    One call skips the kernels, and the next call, with the same inputs, runs them. The inputs are new: an old result
    that the candidate has kept in a buffer is therefore not the result of these calls. Nothing is stored if the
    candidate has no launches, or if the outputs have other shapes than the right answer of the case with the problem's
    own inputs.
    """
    if not trial.launches:
        return
    client, packed = trial.running, trial.reference.new_inputs()
    client.skip_kernels(True)
    try:
        # Code that polls memory until a kernel has written to it waits without end.
        without = client.call(packed, patience=_SKIPPED_PATIENCE).outputs
    finally:
        client.skip_kernels(False)
    full = client.call(packed).outputs
    _, right = trial.reference.expectation(_timed(trial.cases))
    if [output.shape for output in full] == [expected.shape for expected in right.of_outputs.expected]:
        trial.own_share = share_of_output(without, full)


def share_of_time(kernels: KernelTimes, names: Collection[str]) -> float | None:
    """Returns the share of the kernels' time that belongs to the kernels with the base names `names`, from 0 to 1.

    Returns None if the profiler reports no time.
    """
    times = [(base_name(kernel), time or 0.0) for kernel, time in zip(kernels.names, kernels.times_us, strict=False)]
    total = sum(time for _, time in times)
    return sum(time for name, time in times if name in names) / total if total else None


def share_of_output(without: Sequence[torch.Tensor], full: Sequence[torch.Tensor]) -> float | None:
    """Returns the share of the outputs' elements that skipping the candidate's kernels changes, from 0 to 1.

    `without` are the outputs of a call that skipped the kernels, and `full` those of a call with the same inputs that
    ran them. Elements are compared bit by bit. All elements of an output that `without` lacks, or has with another
    shape or dtype, count as changed. An element that is zero in both is not counted: torch may have zeroed the memory
    before a kernel that writes only the other elements. Returns None if no element is counted.
    """
    counted = changed = 0
    for i, tensor in enumerate(full):
        now = _elements(tensor)
        # An output of another size is another output. It may be so large that there is no memory for a copy of it.
        comparable = i < len(without) and without[i].shape == tensor.shape and without[i].dtype == tensor.dtype
        before = _elements(without[i]) if comparable else ~now
        counted += int((before.bool() | now.bool()).any(1).sum())
        changed += int((before != now).any(1).sum())
    return changed / counted if counted else None


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of a tensor, one row for each element. Not every dtype can be compared directly."""
    flat = tensor.reshape(-1).contiguous().view(torch.uint8)
    return flat.view(tensor.numel(), tensor.element_size())


def _timed(cases: Sequence[Case]) -> Case:
    """Returns the case whose inputs are like those of timed calls. Another distribution may be invalid."""
    return next(case for case in cases if case.timed_shape and case.distribution == OWN)


def own(kernels: Sequence[str], source: str, libraries: Sequence[Path]) -> list[str]:
    """Returns the base names of those `kernels` that occur in the candidate's source or in a library built from it.

    `kernels` has one name for each launch, as the profiler reports it. A name may occur again, also in the result.
    """
    written = set(re.findall(r"\w+", source))
    built = [library.read_bytes() for library in libraries if library.exists()]  # the build cache may evict some
    names = [name for kernel in kernels if (name := base_name(kernel))]
    return [name for name in names if name in written or any(_mangled(name) in each for each in built)]


def _mangled(name: str) -> bytes:
    """Returns a kernel's name as a C++ symbol contains it: the length, then the name (Itanium C++ ABI, 5.1.2)."""
    return f"{len(name)}{name}".encode()
