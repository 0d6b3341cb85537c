"""How wrong the harness's own times are, against goals, on this machine.

    python benchmarks/timing_quality.py [--device cpu|cuda] [--part NAME ...] [--runs N] [--load N] [--out DIR]

same       two copies of one kernel, many runs: how often they are called different, how far their ratio is from 1;
           beside it the same calls made one kernel after the other, as most tools do
slower     kernels slowed by known amounts: what is measured
clock      kernels that time themselves: their time against the harness's (on a GPU)
processes  fresh processes: how far their ratios disagree

On a GPU the kernels spin for a given time; on the CPU they are plain C++ loops, and --load N runs N processes beside
that keep a core busy by fits and starts. Every sample goes to DIR.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import multiprocessing
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from timing_goals import BY_ITSELF, DOSE, FRESH, IN_A_ROW, ITSELF, SAME, table  # noqa: E402

from kernel_harness import device as devices  # noqa: E402
from kernel_harness.cases import pack  # noqa: E402
from kernel_harness.channel import SharedBuffer  # noqa: E402
from kernel_harness.device import Device  # noqa: E402
from kernel_harness.examine import Subject  # noqa: E402
from kernel_harness.judge import Nobody, Session, companions, new_subject  # noqa: E402
from kernel_harness.problem import load as load_problem  # noqa: E402
from kernel_harness.race import BASELINE, SENTINEL, Arm, Cohort, Stop, race  # noqa: E402
from kernel_harness.results import environment  # noqa: E402
from kernel_harness.settings import Settings  # noqa: E402
from kernel_harness.tensors import write  # noqa: E402

BENCHMARKS = Path(__file__).resolve().parent
MICROSECONDS = (5.0, 20.0, 200.0)
DOSES = (0.5, 1.0, 2.0)  # percent slower, on a GPU
CPU_DOSE = 10.0
CYCLES_PER_US = 1980.0  # of an H200 under load; other devices spin a little longer or shorter


def main() -> None:
    """Prints the table; raw samples go to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[Bench], None]] = {
        "same": same, "slower": slower, "clock": clock, "processes": processes,
    }  # fmt: skip
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", action="append", choices=list(parts))
    parser.add_argument("--runs", type=int, help="of the same kernel twice (default 200 on a GPU, 40 on the CPU)")
    parser.add_argument("--microseconds", type=float, action="append", help="durations of the same kernel twice")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further run after these")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="processes that disturb")
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "measured")
    options = parser.parse_args()
    bench = Bench(devices.named(options.device), options.runs, options.microseconds, options.seconds)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with load(options.load):
            for name in options.part or list(parts):
                parts[name](bench)
    finally:
        print(bench.save(options.out), flush=True)
        print(table(bench.samples, bench.environment))


class Bench:
    """A device, and every sample taken on it."""

    def __init__(self, device: Device, runs: int | None, microseconds: Sequence[float] | None, seconds: float) -> None:
        self.device = device
        self._until = time.monotonic() + seconds
        self.microseconds = microseconds or ((4000.0,) if device.emulated else MICROSECONDS)
        self.runs = runs or (40 if device.emulated else 200)
        self.environment = {**device.environment(), **environment(), "resolution_ms": device.resolution_ms}
        self.samples: dict[str, Any] = {}
        self.problem = load_problem("increment", BENCHMARKS / "increment.py")

    @contextmanager
    def session(self, kernels: Mapping[str, str]) -> Iterator[Stand]:
        """Processes of the kernels (name -> source), of the baseline and of the sentinel."""
        with ExitStack() as stack:
            session = stack.enter_context(Session(self.problem, self.device, Settings(), Nobody()))
            subjects = {}
            with ThreadPoolExecutor() as pool:
                for name, subject in zip(
                    kernels, pool.map(lambda item: ready(session, *item), kernels.items()), strict=True
                ):
                    subjects[name] = subject
                    stack.callback(subject.close)
            beside = [a for a in stack.enter_context(companions(session)) if a.name in (BASELINE, SENTINEL)]
            yield Stand(self, session, subjects, beside)

    def repeat(self, times: int, least: int = 2) -> Iterator[int]:
        """Counts runs, as far as there is time for them."""
        for number in range(times):
            if number >= least and time.monotonic() > self._until:
                return
            yield number

    def keep(self, what: str, cohort: Cohort) -> None:
        """Notes the samples of one run."""
        samples = [{arm: round(ms, 7) for arm, ms in r.samples_ms.items()} for r in cohort.rounds]
        rejected = {i: r.rejected for i, r in enumerate(cohort.accepted) if r.rejected}
        self.samples.setdefault(what, []).append({"rounds_ms": samples, "rejected": rejected})

    def save(self, folder: Path) -> Path:
        """Writes all samples, and where they were taken, beside what other parts left there."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"timing_quality-{self.device.label}.json.gz"
        before = json.loads(gzip.decompress(path.read_bytes()))["samples"] if path.exists() else {}
        found = {"environment": self.environment, "samples": {**before, **self.samples}}
        path.write_bytes(gzip.compress(json.dumps(found, default=str).encode(), mtime=0))
        return path


def ready(session: Session, name: str, source: str) -> Subject:
    """A process that has a kernel's model."""
    subject = new_subject(session)
    subject.load(f"{name}.py", source, "ModelNew")
    subject.make(session.problem)
    return subject


class Stand:
    """Warm processes, raced as often as wanted."""

    def __init__(self, bench: Bench, session: Session, subjects: Mapping[str, Subject], beside: Sequence[Arm]) -> None:
        self._bench, self._session, self.subjects, self._beside = bench, session, subjects, beside

    def race(self, what: str, rounds: int) -> Cohort:
        """One run of the harness's own timing. Raises RuntimeError where an arm failed."""
        arms = [Arm(name, subject) for name, subject in self.subjects.items()]
        cohort = Cohort([*arms, *(Arm(a.name, a.subject, trusted=True) for a in self._beside)], self._bench.device)
        stop = Stop(budget_s=600, half_width=0.005, rounds=rounds)
        race(cohort, self._session.reference, stop, lambda text: None)
        for arm in cohort.arms:
            if arm.fault is not None:
                raise RuntimeError(f"{arm.name}: {arm.fault.reason}")
        self._bench.keep(what, cohort)
        return cohort

    def one_after_the_other(self, calls: int) -> dict[str, list[float]]:
        """Each kernel's calls in a row, on the same inputs: what interleaving is compared with."""
        packed = pack(self._bench.problem.inputs(1))
        buffer = SharedBuffer(packed.size)
        write(buffer.memory, packed.leaves, packed.tensors, packed.size)
        found: dict[str, list[float]] = {}
        for name, subject in self.subjects.items():
            subject.worker.resume()
            answers = [subject.call(packed, buffer, hold=1 << 20) for _ in range(calls + 2)][2:]
            found[name] = [a.clocked.device_ms or a.bracket_ms for a in answers]
            subject.worker.pause()
        buffer.close()
        return found


def same(bench: Bench) -> None:
    """Two copies of one kernel, at several durations; on the CPU beside one that is 10% slower."""
    rounds = 32 if not bench.device.emulated else 64
    for microseconds in bench.microseconds:
        kernels = {"copy_1": kernel(bench, microseconds), "copy_2": kernel(bench, microseconds)}
        if bench.device.emulated:
            kernels[f"{CPU_DOSE:g}% slower"] = kernel(bench, microseconds * (1 + CPU_DOSE / 100))
        what = f"{SAME}, {microseconds:g} us"
        with bench.session(kernels) as stand:
            for _ in bench.repeat(bench.runs):
                stand.race(what, rounds)
                bench.samples.setdefault(what + IN_A_ROW, []).append(stand.one_after_the_other(rounds))


def slower(bench: Bench) -> None:
    """Known doses."""
    doses = (CPU_DOSE,) if bench.device.emulated else DOSES
    unit_us = 4000.0 if bench.device.emulated else 200.0
    kernels = {"plain": kernel(bench, unit_us), **{f"{d:g}%": kernel(bench, unit_us * (1 + d / 100)) for d in doses}}
    with bench.session(kernels) as stand:
        for _ in bench.repeat(max(4, bench.runs // 10)):
            stand.race(DOSE, 128)


def clock(bench: Bench) -> None:
    """Kernels that read %globaltimer at their start and end and tell the difference; they need a GPU."""
    if bench.device.emulated:
        return
    durations = (5.0, 20.0, 100.0, 1000.0, 10000.0)
    kernels = {f"{us:g} us": SPIN.format(unit="ns", amount=int(1000 * us)) for us in durations}
    with bench.session(kernels) as stand:
        stand.race(ITSELF, 32)
        bench.samples[ITSELF + BY_ITSELF] = {
            name: [int(n) / 1e3 for n in re.findall(r"self (\d+)", subject.worker.output)]
            for name, subject in stand.subjects.items()
        }


def processes(bench: Bench) -> None:
    """The same two kernels in ten fresh sets of processes."""
    unit_us = 4000.0 if bench.device.emulated else 200.0
    kernels = {"plain": kernel(bench, unit_us), "more": kernel(bench, unit_us * 1.1)}
    for _ in bench.repeat(10):
        with bench.session(kernels) as stand:
            stand.race(FRESH, 64)


def kernel(bench: Bench, microseconds: float) -> str:
    """A candidate's file that takes about this long."""
    if bench.device.emulated:
        return LOOP.format(steps=int(microseconds * 750))
    return SPIN.format(unit="cycles", amount=int(microseconds * CYCLES_PER_US))


@contextmanager
def load(count: int) -> Iterator[None]:
    """Processes that are busy by fits and starts, as other people's are."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_disturb, args=(i,), daemon=True) for i in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.terminate()


def _disturb(seed: int) -> None:
    rng = random.Random(seed)
    while True:
        until = time.monotonic() + rng.uniform(0.02, 0.4)
        while time.monotonic() < until:
            pass
        time.sleep(rng.uniform(0.02, 0.4))


# Dependent multiplications: nothing to overlap, so that twice the steps take twice the time.
LOOP = '''
import torch
from torch.utils.cpp_extension import load_inline

CPP = """
torch::Tensor work(torch::Tensor x) {{
    double value = 1.0;
    for (long i = 0; i < {steps}; ++i) value = value * 1.0000000001 + 1e-12;
    return x + (value > 0 ? 1.0 : 0.0);
}}
"""
ops = load_inline(name="work_{steps}", cpp_sources=CPP, functions=["work"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ops.work(x)
'''

# Spins for a number of clock cycles, or of nanoseconds by a timer that all of the device shares; the second tells,
# through memory of the host, how long the last launch took by that timer.
SPIN = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cstdio>

__device__ unsigned long long nanoseconds() {{
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}}

__global__ void spin_cycles(const float* x, float* y, int n, long long amount, unsigned long long* took) {{
    const long long start = clock64();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + 1.0f;
    while (clock64() - start < amount) {{}}
}}

__global__ void spin_ns(const float* x, float* y, int n, long long amount, unsigned long long* took) {{
    const unsigned long long start = nanoseconds();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + 1.0f;
    unsigned long long now = start;
    while (now - start < (unsigned long long)amount) now = nanoseconds();
    if (threadIdx.x == 0) *took = now - start;
}}

torch::Tensor spin(torch::Tensor x, int64_t amount) {{
    static volatile unsigned long long* took = nullptr;
    if (!took) {{
        void* memory;
        C10_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(*took), cudaHostAllocMapped));
        took = static_cast<volatile unsigned long long*>(memory);
        *took = 0;
    }}
    if (*took) std::printf("self %llu\\n", *took);
    std::fflush(stdout);
    auto y = torch::empty_like(x);
    spin_{unit}<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), amount, const_cast<unsigned long long*>(took));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}}
"""
ops = load_inline(
    name="spin_{unit}", cpp_sources="torch::Tensor spin(torch::Tensor x, int64_t amount);", cuda_sources=CUDA,
    functions=["spin"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ops.spin(x, {amount})
'''

if __name__ == "__main__":
    main()
