"""Measures how accurate the harness's times are on this machine, and compares the errors with goals.

    python benchmarks/timing_quality.py [--device cpu|cuda] [--part NAME ...] [--runs N] [--load N] [--out DIR]

same    times copies of one kernel: how often the harness reports a difference between two copies, and how far their
        ratio is from 1. For comparison, each kernel is also timed in a row without interleaving, as most tools do.
slower  times kernels that are slower by known amounts: the measured slowdown, and how far fresh processes disagree.
clock   times kernels that time themselves on the device: their own time against the harness's time (GPU only).

On a GPU the kernels spin for a given time. On the CPU they are plain C++ loops. --load N starts N more processes, each
of which keeps a core busy intermittently. All samples are stored in DIR. `timing_goals.py --write` then puts the table
into docs/timing.md.
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
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from timing_goals import BY_ITSELF, DOSE, IN_A_ROW, ITSELF, SAME, table

from kernel_harness import device as devices
from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.ipc.packed import pack
from kernel_harness.problem.problem import load as load_problem
from kernel_harness.results.environment import environment
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.timing.cohort import Arm, Cohort
from kernel_harness.timing.rounds import time_rounds
from kernel_harness.timing.stopping import Stop
from kernel_harness.workers.gated_call import Timed
from kernel_harness.workers.model_process import ModelProcess, ModelSource
from kernel_harness.workers.worker_client import WorkerClient

BENCHMARKS = Path(__file__).resolve().parent
MICROSECONDS = (5.0, 20.0, 200.0)
PROCESSES = 8
DOSES = (0.5, 1.0, 2.0)  # percent by which the slower kernels are slower, on a GPU
CPU_DOSE = 10.0  # percent, on the CPU
CPU_HALF_WIDTH = 0.03  # a third of the dose: an interval of 5% could still include 1 for a kernel 10% slower
BUDGET_S = 60.0  # the longest time of one run
CYCLES_PER_US = 1980.0  # an H200 under load; the spin times of other devices differ a little


def main() -> None:
    """Measures the chosen parts, stores the samples and prints the table of goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[Bench, Stand], None]] = {"same": same, "slower": slower, "clock": clock}
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument(
        "--part", action="append", choices=list(parts), help="measure this part only; may be given several times"
    )
    parser.add_argument(
        "--sets", type=int, help="sets of runs, each with fresh processes (default: 10 on a GPU, 1 on the CPU)"
    )
    parser.add_argument("--runs", type=int, help="runs in each set (default: 1 on a GPU, 40 on the CPU)")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="start no new run after so many seconds (default: no limit)"
    )
    parser.add_argument(
        "--load", type=int, default=0, metavar="N", help="start N processes that disturb the measurement (default: 0)"
    )
    parser.add_argument(
        "--out", type=Path, default=BENCHMARKS / "measured", metavar="DIR", help="the folder for the samples"
    )
    options = parser.parse_args()
    device = devices.named(options.device)
    problem = load_problem("increment", BENCHMARKS / "increment.py")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        Session(problem, device, Settings(), SilentObserver()) as session,
        session.trusted_arms.running(session.context) as beside,
    ):
        bench = Bench(session, beside, options.sets, options.runs, options.seconds)
        try:
            with load(options.load):
                for number in bench.repeat(bench.sets):
                    with bench.stand() as stand:
                        for name in options.part or list(parts):
                            parts[name](bench, stand)
                    print(f"set {number + 1} of {bench.sets}", flush=True)
        finally:
            print(bench.save(options.out), flush=True)
            print(table(bench.samples, bench.environment))


class Bench:
    """A device on which the baseline and the control are running, and all samples measured on it so far."""

    def __init__(
        self,
        session: Session,
        beside: Sequence[Arm],
        sets: int | None,
        runs: int | None,
        seconds: float,
    ) -> None:
        self.session, self.device = session, session.device
        self.beside = [arm for arm in beside if arm.name in (BASELINE, CONTROL)]
        self._until = time.monotonic() + seconds
        self.sets = sets or (1 if self.device.emulated else 10)
        self.runs = runs or (40 if self.device.emulated else 1)
        self.environment = {
            **self.device.environment(),
            **environment(),
            "resolution_ms": self.device.policy.resolution_ms,
        }
        self.samples: dict[str, Any] = {}

    @contextmanager
    def stand(self) -> Iterator[Stand]:
        """Yields a Stand with fresh processes. The processes end with the block."""
        with ThreadPoolExecutor() as pool:
            processes = list(pool.map(lambda _: self.session.context.new_client(), range(PROCESSES)))
        with closing(Stand(self, processes)) as stand:
            yield stand

    def repeat(self, times: int, least: int = 2) -> Iterator[int]:
        """Yields up to `times` numbers of runs: fewer if the time limit is reached, but at least `least`."""
        for number in range(times):
            if number >= least and time.monotonic() > self._until:
                return
            yield number

    def keep(self, what: str, cohort: Cohort) -> None:
        """Adds the samples of one run, a finished cohort, under the key `what`."""
        samples = [{arm: round(ms, 7) for arm, ms in r.samples_ms.items()} for r in cohort.rounds]
        rejected = {i: r.rejected for i, r in enumerate(cohort.measured().accepted) if r.rejected}
        processes = {arm.name: arm.processes for arm in cohort.arms}
        run = {"rounds_ms": samples, "rejected": rejected, "processes": processes}
        self.samples.setdefault(what, []).append(run)

    def save(self, folder: Path) -> Path:
        """Writes the samples and the environment to a file in `folder`. Returns its path. Keeps its other samples."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"timing_quality-{self.device.label}.json.gz"
        before = json.loads(gzip.decompress(path.read_bytes()))["samples"] if path.exists() else {}
        found = {"environment": self.environment, "samples": {**before, **self.samples}}
        path.write_bytes(gzip.compress(json.dumps(found, default=str).encode(), mtime=0))
        return path


class Kernel(ModelProcess):
    """A kernel, which at first is loaded in a process that has served before. `replaced` has its earlier processes."""

    def __init__(self, name: str, text: str, session: Session, client: WorkerClient) -> None:
        source, context = ModelSource(f"{name}.py", text, "ModelNew"), session.context
        super().__init__(source, context.new_client, session.reference)
        self.replaced: list[WorkerClient] = []
        self.client = client
        client.load(source.file, source.text, source.class_name)
        client.make(session.problem)

    def restart(self, first: Callable[[WorkerClient], object] = lambda client: None) -> None:
        """Replaces the process, and keeps the client of the present one."""
        self.replaced.append(self.running)
        super().restart(first)


class Stand:
    """Worker processes that time one set of kernels after another. A new set replaces the loaded kernels."""

    def __init__(self, bench: Bench, processes: Sequence[WorkerClient]) -> None:
        self._bench, self._idle = bench, list(processes)
        self._models: dict[str, Kernel] = {}

    @property
    def clients(self) -> dict[str, WorkerClient]:
        """The present processes, by kernel."""
        return {name: model.running for name, model in self._models.items()}

    @property
    def before(self) -> list[tuple[str, WorkerClient]]:
        """Kernel and process for each process that was replaced during a run."""
        return [(name, client) for name, model in self._models.items() for client in model.replaced]

    def close(self) -> None:
        """Ends all worker processes."""
        for client in (*self.clients.values(), *self._idle):
            client.close()

    def take(self, kernels: Mapping[str, str]) -> None:
        """Loads each kernel (name to source) in a process of its own. There must not be more kernels than PROCESSES."""
        self._idle = [*self.clients.values(), *self._idle]
        session, self._models = self._bench.session, {}
        with ThreadPoolExecutor() as pool:
            loading = {
                name: pool.submit(Kernel, name, text, session, self._idle.pop(0)) for name, text in kernels.items()
            }
        self._models = {name: each.result() for name, each in loading.items()}

    def race(self, what: str, rounds: int | None = None) -> Cohort:
        """Times the loaded kernels as the harness does, keeps the samples under the key `what` and returns the cohort.

        `rounds` is a fixed number of rounds; None lets the harness decide. Raises RuntimeError if an arm failed.
        """
        arms, device = [Arm(name, model) for name, model in self._models.items()], self._bench.device
        for arm in self._bench.beside:
            arm.processes = 1  # counts the processes of this run only
        cohort = Cohort([*arms, *self._bench.beside], device)
        stop = Stop(BUDGET_S, device.policy.half_width, rounds)
        if device.emulated:  # under emulation only the ratios to the first kernel matter
            stop = Stop(BUDGET_S, CPU_HALF_WIDTH, rounds, arms[0].name)
        time_rounds(cohort, self._bench.session.reference, stop, lambda text: None)
        for arm in cohort.arms:
            if arm.fault is not None:
                raise RuntimeError(f"{arm.name}: {arm.fault.reason}")
        self._bench.keep(what, cohort)
        return cohort

    def one_after_the_other(self, calls: int) -> dict[str, list[float]]:
        """Times `calls` calls of each kernel in a row on the same inputs. Returns the times in ms by kernel.

        The harness's interleaved rounds are compared with this method.
        """
        packed = pack(self._bench.session.problem.inputs(1), device=self._bench.session.reference.device)
        found: dict[str, list[float]] = {}
        for name, client in self.clients.items():
            answers = [client.call(packed, timed=Timed(0.128)) for _ in range(calls + 2)][2:]
            found[name] = [a.clocked.device_ms or a.timed.bracket_ms for a in answers]
            client.worker.pause()
        return found


def same(bench: Bench, stand: Stand) -> None:
    """Times copies of one kernel: eight per duration on a GPU; on the CPU two, and one kernel that is 10% slower."""
    emulated = bench.device.emulated
    copies = 2 if emulated else PROCESSES
    for microseconds in (4000.0,) if emulated else MICROSECONDS:
        kernels = {f"copy_{i + 1}": kernel(bench, microseconds) for i in range(copies)}
        if emulated:
            kernels[f"{CPU_DOSE:g}% slower"] = kernel(bench, microseconds * (1 + CPU_DOSE / 100))
        what = f"{SAME}, {microseconds:g} us"
        stand.take(kernels)
        for _ in bench.repeat(bench.runs):
            cohort = stand.race(what)
            in_a_row = stand.one_after_the_other(len(cohort.rounds) if emulated else 32)
            bench.samples.setdefault(what + IN_A_ROW, []).append(in_a_row)


def slower(bench: Bench, stand: Stand) -> None:
    """Times a kernel, and kernels that are slower than it by known amounts, in the same rounds."""
    doses = (CPU_DOSE,) if bench.device.emulated else DOSES
    unit_us = 4000.0 if bench.device.emulated else 200.0
    kernels = {"plain": kernel(bench, unit_us), **{f"{d:g}%": kernel(bench, unit_us * (1 + d / 100)) for d in doses}}
    stand.take(kernels)
    stand.race(DOSE, 64)


def clock(bench: Bench, stand: Stand) -> None:
    """Times kernels that read %globaltimer at start and end and report the difference. Does nothing without a GPU."""
    if bench.device.emulated:
        return
    durations = (0.0, 5.0, 20.0, 100.0, 1000.0, 10000.0)
    kernels = {f"{us:g} us": SPIN.format(unit="ns", told="took()", amount=int(1000 * us)) for us in durations}
    stand.take(kernels)
    stand.race(ITSELF, 32)
    told = bench.samples.setdefault(ITSELF + BY_ITSELF, {})
    for name, client in (*stand.before, *stand.clients.items()):
        told.setdefault(name, []).extend(int(n) / 1e3 for n in re.findall(r"self (\d+)", client.worker.output))


def kernel(bench: Bench, microseconds: float) -> str:
    """Returns the source of a candidate whose call takes about `microseconds`."""
    if bench.device.emulated:
        return LOOP.format(steps=int(microseconds * 750))
    return SPIN.format(unit="cycles", told="nullptr", amount=int(microseconds * CYCLES_PER_US))


@contextmanager
def load(count: int) -> Iterator[None]:
    """Runs `count` processes during the block. They are busy at random times, like other programs on the machine."""
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


# Each multiplication depends on the previous one, so the CPU cannot overlap them: twice the steps take twice the time.
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

# The first kernel spins for a number of clock cycles. The second spins for a number of nanoseconds, by the timer that
# the whole device shares. It stores its own duration in device memory, because a write to host memory would take a
# microsecond more. The next call copies that duration to the host on a separate stream and prints it.
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
    unsigned long long now;
    do now = nanoseconds(); while (now - start < (unsigned long long)amount);
    if (threadIdx.x == 0) *took = now - start + 1;
}}

unsigned long long* took() {{
    static unsigned long long *device = nullptr, *host = nullptr;
    static cudaStream_t aside;
    if (!device) {{
        C10_CUDA_CHECK(cudaMalloc(&device, sizeof(*device)));
        C10_CUDA_CHECK(cudaMemset(device, 0, sizeof(*device)));
        C10_CUDA_CHECK(cudaMallocHost(&host, sizeof(*host)));
        C10_CUDA_CHECK(cudaStreamCreateWithFlags(&aside, cudaStreamNonBlocking));
    }}
    C10_CUDA_CHECK(cudaMemcpyAsync(host, device, sizeof(*host), cudaMemcpyDeviceToHost, aside));
    C10_CUDA_CHECK(cudaStreamSynchronize(aside));
    if (*host) std::printf("self %llu\\n", *host - 1);
    std::fflush(stdout);
    return device;
}}

torch::Tensor spin(torch::Tensor x, int64_t amount) {{
    auto y = torch::empty_like(x);
    spin_{unit}<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), amount, {told});
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
