"""How long builds take, beside plain load_inline on the same machine in one run.

    python benchmarks/build_speed.py [--part nvcc|emulated|watch ...]

Every build starts from an empty cache of its own. Where torch is a CPU build, nothing can be linked against
its CUDA half: both sides are then timed up to their objects, which is all but a second of it.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

KERNELS = ("naive", "tiled", "reduction_per_element")
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


def main() -> None:
    """Prints one line per figure: what, seconds, ratio, goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[], None]] = {"nvcc": nvcc_part, "emulated": emulated_part, "watch": watch_part}
    parser.add_argument("--part", action="append", choices=list(parts))
    for name in parser.parse_args().part or list(parts):
        parts[name]()


@contextmanager
def empty_cache() -> Iterator[Path]:
    """A cache folder that nothing has used."""
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


def nvcc_part() -> None:
    """Goals: an unmodified candidate 2.5 times faster, a shipped kernel 8 times."""
    if not shutil.which("nvcc"):
        print("nvcc: not on this machine, nothing measured")
        return
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    import torch

    torch.version.cuda = torch.version.cuda or "13.0"  # a CPU build does not say which it would want
    from kernel_harness.build import bindings, nvcc
    from kernel_harness.build.sources import Sources, from_arguments

    nvcc.use_toolkit()
    with empty_cache():
        seconds(bindings.library)  # once per machine, for all candidates
        unmodified = from_arguments(
            "unmodified", "torch::Tensor scale(torch::Tensor x);", UNMODIFIED, functions=["scale"]
        )
        compare_builds("unmodified candidate", unmodified, unmodified, 2.5, nvcc)
        for name in KERNELS:
            shipped = recorded(ROOT / "kernels" / "matmul_tt" / f"{name}.py")
            compare_builds(name, shipped, usual(shipped, Sources), 8.0, nvcc)


def compare_builds(name: str, light: object, plain: object, goal: float, nvcc: object) -> None:
    """One source built both ways, each in an empty folder."""
    ours = build_seconds(nvcc._build_light, light)
    theirs = build_seconds(nvcc.build_plain, plain)
    verdict = "met" if theirs >= goal * ours else "MISSED"
    print(
        f"nvcc  {name:24} light {ours:6.1f} s  plain {theirs:6.1f} s  {theirs / ours:5.1f}x  goal {goal}x {verdict}",
        flush=True,
    )


def build_seconds(build: Callable[..., None], sources: object) -> float:
    """Seconds to the library, or to both objects where torch has no CUDA half to link with."""
    from kernel_harness.build.errors import BuildFailed

    folder = Path(tempfile.mkdtemp(prefix="build-speed-"))
    stand_in(folder)
    start = time.perf_counter()
    try:
        build(sources, lambda source: source, folder)
    except BuildFailed as failure:
        if not (folder / "main.o").exists() or not (folder / "cuda.cuda.o").exists():
            raise SystemExit(f"{sources}: does not compile\n{failure.log[-3000:]}") from None
    finally:
        taken = time.perf_counter() - start
        shutil.rmtree(folder)
    return taken


def stand_in(folder: Path) -> None:
    """A CPU build of torch lacks one generated header of its CUDA half; an empty one serves."""
    import torch

    header = Path("c10/cuda/impl/cuda_cmake_macros.h")
    if not (Path(torch.__file__).parent / "include" / header).exists():
        path = folder / "stand-in" / header
        path.parent.mkdir(parents=True)
        path.write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")
        os.environ["CPATH"] = str(folder / "stand-in")


def usual(sources: object, kind: type) -> object:
    """The same kernel as people write it: all of it in the CUDA source, with torch/extension.h."""
    from dataclasses import replace

    host = "\n".join(line for line in sources.cpp.split("\n") if "csrc" not in line)
    header = "#include <torch/extension.h>\n#include <ATen/ATen.h>\n"
    (function,) = sources.functions
    declaration = f"at::Tensor {function}(at::Tensor A, at::Tensor B);"
    return replace(sources, cpp=declaration, cuda=header + sources.cuda + host, implicit_headers=True)


def recorded(path: Path) -> object:
    """What a kernel file hands to load_inline."""
    from torch.utils import cpp_extension

    from kernel_harness.build.sources import from_arguments, signature

    signature()  # is kept: it must be the real one's
    sys.path.insert(0, str(ROOT / "kernels"))
    real, calls = cpp_extension.load_inline, []
    cpp_extension.load_inline = lambda *args, **kwargs: calls.append(from_arguments(*args, **kwargs))
    try:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": path.stem})
    finally:
        cpp_extension.load_inline = real
    return calls[0]


def emulated_part() -> None:
    """Goals: a kernel 6 s cold, all six cold with the one-off parts 60 s, the whole command warm 8 s."""
    from kernel_harness.emulator import compile as emulator

    with empty_cache():
        print(f"emulated  one-off parts            {seconds(emulator.prepare):6.1f} s", flush=True)
        for name in KERNELS:
            sources = recorded(ROOT / "kernels" / "matmul_tt" / f"{name}.py")
            taken = seconds(lambda sources=sources: emulator.extension(sources, lambda source: source))
            report(f"emulated  {name}", taken, 6)
    with empty_cache():
        for what, goal in (("whole command, cold", 60), ("whole command, warm", 8)):
            taken = seconds(command)
            print(
                f"emulated  {what:24} {taken:6.1f} s  goal {goal} s {'met' if taken <= goal else 'MISSED'}", flush=True
            )


def command() -> None:
    """`python harness.py --problem matmul_tt`, results elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["harness.py", "--problem", "matmul_tt", "--device", "cpu", "--results", folder]
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def watch_part() -> None:
    """Goal: from saving a changed kernel to its new row, 8 s."""
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
            number = time.time_ns()  # a text that no cache has seen
            start = time.perf_counter()
            mine.write_text(source.replace("float sum", f"float /* {number} */ sum") + f"\n# edit {number}\n")
            until_watching(process.stdout)
            taken = time.perf_counter() - start
            print(
                f"watch  edit to verdict            {taken:6.1f} s  goal 8 s {'met' if taken <= 8 else 'MISSED'}",
                flush=True,
            )
        process.terminate()
        process.wait()


def until_watching(output: Iterator[str]) -> None:
    """Reads until the command waits for the next edit."""
    for line in output:
        if "watching" in line:
            return
    raise SystemExit("the command ended instead of watching")


def report(what: str, taken_s: float, goal_s: float) -> None:
    """One figure beside its goal."""
    verdict = "met" if taken_s <= goal_s else "MISSED"
    print(f"{what:34} {taken_s:6.1f} s  goal {goal_s:g} s {verdict}", flush=True)


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
