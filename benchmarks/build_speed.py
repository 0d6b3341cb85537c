"""Measures how long builds take, and compares them with torch's plain load_inline on the same machine.

    python benchmarks/build_speed.py [--part nvcc|emulated|watch ...] [--write]

nvcc      builds with nvcc, with light headers and with plain load_inline
emulated  builds for the emulated device, and the whole command
watch     the time from saving a kernel to its new result, with --watch

Every build starts from an empty cache, except where the table says "warm". If torch is installed without its CUDA
libraries, builds with nvcc cannot be linked. Both builds are then timed up to their object files; linking would add
about a second. With --write, the table in docs/problems-and-kernels.md is replaced.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import pages

KERNELS = ("naive", "tiled", "reduction_per_element")
SIX = (*KERNELS, "tiled_pretransposed", "cublas_direct", "cublas_transpose")
UNMODIFIED = """
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>

__global__ void scale_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

torch::Tensor scale(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto y = torch::empty_like(x);
    scale_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""


@dataclass(frozen=True)
class Figure:
    """A measured duration. `what` names it, `goal` states its goal (empty: none), and `met` says if it meets the goal.

    `plain_s` is the time of plain load_inline for the same source, in seconds; None if that was not measured.
    """

    what: str
    seconds: float
    goal: str = ""
    met: bool = True
    plain_s: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of this figure's row in the table."""
        plain = ("", "") if self.plain_s is None else (f"{self.plain_s:.1f} s", f"{self.plain_s / self.seconds:.1f}x")
        verdict = ("met" if self.met else "MISSED") if self.goal else ""
        return (self.what, f"{self.seconds:.1f} s", *plain, self.goal, verdict)


def main() -> None:
    """Measures the chosen parts, prints each figure at once, and with --write replaces the table in the docs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "nvcc": nvcc_part, "emulated": emulated_part, "watch": watch_part,
    }  # fmt: skip
    parser.add_argument(
        "--part", action="append", choices=list(parts), help="measure this part only; may be given several times"
    )
    parser.add_argument("--write", action="store_true", help="replace the table in docs/problems-and-kernels.md")
    options = parser.parse_args()
    figures = []
    for name in options.part or list(parts):
        for figure in parts[name]():
            print("  ".join(filter(None, figure.cells)), flush=True)
            figures.append(figure)
    if options.write:
        headers = ("build", "this harness", "plain load_inline", "ratio", "goal", "")
        rows = [figure.cells for figure in figures]
        table = tabulate(rows, headers, tablefmt="github", disable_numparse=True)
        pages.write("problems-and-kernels.md", "build speed", table)


@contextmanager
def empty_cache() -> Iterator[Path]:
    """Makes builds in the block use a new, empty build cache. Yields its folder, and deletes it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="build-speed-"))
    before = os.environ.get("KERNEL_HARNESS_CACHE")
    os.environ["KERNEL_HARNESS_CACHE"] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop("KERNEL_HARNESS_CACHE")
        if before:
            os.environ["KERNEL_HARNESS_CACHE"] = before
        shutil.rmtree(folder)


def nvcc_part() -> Iterator[Figure]:
    """Measures builds with nvcc. Yields a figure for each.

    Goals: an unmodified candidate builds 2.5 times faster than with plain load_inline, a shipped kernel 8 times faster.
    """
    if not shutil.which("nvcc"):
        print("nvcc: not installed on this machine, nothing measured")
        return
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    import torch

    torch.version.cuda = torch.version.cuda or "13.0"  # a torch without CUDA has no CUDA version here
    from cuda_on_cpu.compile import bindings
    from cuda_on_cpu.compile.sources import Sources, from_arguments
    from kernel_harness.compile import nvcc

    nvcc.use_toolkit()
    with empty_cache():
        seconds(bindings.library)  # built once per machine and shared by all candidates
        unmodified = from_arguments(
            "unmodified", "torch::Tensor scale(torch::Tensor x);", UNMODIFIED, functions=["scale"]
        )
        yield compare_builds("unmodified candidate", unmodified, unmodified, 2.5, nvcc)
        for name in KERNELS:
            shipped = recorded(ROOT / "kernels" / "matmul_tt" / f"{name}.py")
            yield compare_builds(name, shipped, usual(shipped, Sources), 8.0, nvcc)


def compare_builds(name: str, light: object, plain: object, goal: float, nvcc: object) -> Figure:
    """Builds `light` with light headers and `plain` with plain load_inline, and returns the figure of both times."""
    ours_s = build_seconds(nvcc.build_light, light)
    theirs_s = build_seconds(nvcc.build_plain, plain)
    return Figure(f"nvcc, {name}", ours_s, f"at least {goal}x", theirs_s >= goal * ours_s, theirs_s)


def build_seconds(build: Callable[..., None], sources: object) -> float:
    """Returns the seconds that a build in an empty folder takes.

    If torch lacks its CUDA libraries, the build is timed up to its two object files, and the failure to link is
    ignored. Raises SystemExit if a source does not compile.
    """
    from cuda_on_cpu.compile.errors import BuildFailed

    folder = Path(tempfile.mkdtemp(prefix="build-speed-"))
    stand_in(folder)
    start = time.perf_counter()
    try:
        build(sources, folder)
    except BuildFailed as failure:
        if not (folder / "main.o").exists() or not (folder / "cuda.cuda.o").exists():
            raise SystemExit(f"{sources}: does not compile\n{failure.log[-3000:]}") from None
    finally:
        taken = time.perf_counter() - start
        shutil.rmtree(folder)
    return taken


def stand_in(folder: Path) -> None:
    """Writes the one CUDA header that a torch without CUDA lacks into `folder`. It needs only one macro."""
    import torch

    header = Path("c10/cuda/impl/cuda_cmake_macros.h")
    if not (Path(torch.__file__).parent / "include" / header).exists():
        path = folder / "stand-in" / header
        path.parent.mkdir(parents=True)
        path.write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")
        os.environ["CPATH"] = str(folder / "stand-in")


def usual(sources: object, kind: type) -> object:
    """Returns a kernel's sources in the form that is common elsewhere: one CUDA source with torch/extension.h."""
    from dataclasses import replace

    host = "\n".join(line for line in sources.cpp.split("\n") if "csrc" not in line)
    header = "#include <torch/extension.h>\n#include <ATen/ATen.h>\n"
    (function,) = sources.functions
    declaration = f"at::Tensor {function}(at::Tensor A, at::Tensor B);"
    return replace(sources, cpp=declaration, cuda=header + sources.cuda + host, implicit_headers=True)


def recorded(path: Path) -> object:
    """Runs the kernel file `path` and returns the sources that it passes to load_inline. Nothing is built."""
    from torch.utils import cpp_extension

    from cuda_on_cpu.compile.sources import from_arguments, signature

    signature()  # cached on first use, so it must be read before load_inline is replaced
    sys.path.insert(0, str(ROOT / "kernels"))
    real, calls = cpp_extension.load_inline, []
    cpp_extension.load_inline = lambda *args, **kwargs: calls.append(from_arguments(*args, **kwargs))
    try:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": path.stem})
    finally:
        cpp_extension.load_inline = real
    return calls[0]


def emulated_part() -> Iterator[Figure]:
    """Measures builds for the emulated device, and the whole command. Yields a figure for each.

    Goals: a kernel builds in 6 s; the whole command takes 60 s with an empty cache and 8 s when it is repeated.
    """
    from cuda_on_cpu.emulator import extension, shared_parts

    with empty_cache():
        yield Figure("emulated, parts that all kernels share", seconds(shared_parts.prepare))
        for name in KERNELS:
            sources = recorded(ROOT / "kernels" / "matmul_tt" / f"{name}.py")
            taken_s = seconds(lambda sources=sources: extension.get_or_build(sources))
            yield within(f"emulated, {name}", taken_s, 6)
    with empty_cache():
        for what, goal_s in (("six kernels, whole command, cold", 60), ("six kernels, whole command, warm", 8)):
            yield within(f"emulated, {what}", seconds(command), goal_s)


def command() -> None:
    """Runs `python harness.py --problem matmul_tt --device cpu` with SIX kernels, and stores no results."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["harness.py", "--problem", "matmul_tt", "--device", "cpu", "--results", folder]
        words += [word for name in SIX for word in ("--kernel", name)]
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def watch_part() -> Iterator[Figure]:
    """Measures, three times, the time from saving a changed kernel to its new result with --watch. Goal: 8 s."""
    with tempfile.TemporaryDirectory() as folder:
        mine = Path(folder) / "mine.py"
        source = (ROOT / "kernels" / "matmul_tt" / "tiled.py").read_text()
        mine.write_text(source)
        words = ["harness.py", "--problem", "matmul_tt", "--device", "cpu", "--kernel", str(mine), "--watch"]
        process = subprocess.Popen(
            [sys.executable, *words, "--results", folder], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        until_watching(process.stdout)
        for _ in range(3):
            number = time.time_ns()  # makes the source new to the cache
            start = time.perf_counter()
            mine.write_text(source.replace("float sum", f"float /* {number} */ sum") + f"\n# edit {number}\n")
            until_watching(process.stdout)
            yield within("--watch, edit to verdict", time.perf_counter() - start, 8)
        process.terminate()
        process.wait()


def until_watching(output: Iterator[str]) -> None:
    """Reads the command's output until it waits for the next edit. Raises SystemExit if the command ends before."""
    for line in output:
        if "watching" in line:
            return
    raise SystemExit("the command ended instead of watching")


def within(what: str, taken_s: float, goal_s: float) -> Figure:
    """Returns a figure whose goal is at most `goal_s` seconds."""
    return Figure(what, taken_s, f"at most {goal_s:g} s", taken_s <= goal_s)


def seconds(action: Callable[[], object]) -> float:
    """Calls `action` and returns the seconds that it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
