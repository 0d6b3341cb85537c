"""Files that a build has read beside its sources: an entry of the build cache is used only while they are unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command import ROOT, Harness
from support.product import PROBLEM_FILE

from cuda_on_cpu.compile import cache, read_files, seals
from cuda_on_cpu.compile.sources import from_arguments
from cuda_on_cpu.emulator import units
from cuda_on_cpu.emulator.flags import Instrumentation
from kernel_harness.compile import nvcc, strict

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")


# ------------------------------------------------------------------------------------------------ the cache


@pytest.fixture
def built(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Asks the cache for an entry whose build reads these files. Returns whether the cache already held it."""
    monkeypatch.setattr(seals, "_CLOCK_STEP_S", 0.0)  # else a file that a test has just written counts as changed

    def ask(*read: Path | str, during: Callable[[], Any] = lambda: None) -> bool:
        def build(folder: Path) -> list[str]:
            (folder / "library").write_text("")
            during()
            return [str(path) for path in read]

        return cache.get_or_build("things", "a" * 32, build)[1]

    return ask


def header(tmp_path: Path, text: str = "int a;") -> Path:
    """A header that was written some time ago."""
    (tmp_path / "own.h").write_text(text)
    os.utime(tmp_path / "own.h", (1, 1))
    while (tmp_path / "own.h").stat().st_ctime >= time.time():
        pass  # the clock of the file system advances in steps
    return tmp_path / "own.h"


def test_an_entry_is_used_while_the_files_that_its_build_read_are_unchanged(built, tmp_path):
    assert [built(header(tmp_path)), built(), built()] == [False, True, True]


def test_a_changed_file_makes_the_entry_be_built_again_once(built, tmp_path):
    built(header(tmp_path))
    own = header(tmp_path, "int b;")  # of the same size, and with the same time of change
    assert [built(own), built(own)] == [False, True]


def test_a_vanished_file_makes_the_entry_be_built_again(built, tmp_path):
    own = header(tmp_path)
    built(own)
    own.unlink()
    assert not built()


def test_a_file_that_changes_during_the_build_makes_the_entry_be_built_again(built, tmp_path):
    own = header(tmp_path)
    built(own, during=lambda: own.write_text("int b;"))
    assert not built(own)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev", "/proc/kmsg", "/no/such/file", "", "a\0b", "pipe"])
def test_what_is_no_regular_file_is_not_opened_and_makes_the_entry_be_built_again(built, tmp_path, monkeypatch, path):
    """To open a device can have effects: a watchdog then restarts the machine."""
    opened: list[str] = []
    really = os.open

    def noting(path: Any, *how: Any, **more: Any) -> int:
        opened.append(str(path))
        return really(path, *how, **more)

    monkeypatch.setattr(os, "open", noting)
    if path == "pipe":
        os.mkfifo(tmp_path / "pipe")
        path = str(tmp_path / "pipe")
    built(path)
    assert path not in opened or path == "/proc/kmsg"
    if path != "/proc/kmsg":  # a regular file without a size: nothing of it is read
        assert not built(path)


def test_a_build_that_reads_more_than_can_be_checked_is_built_again(built, tmp_path, monkeypatch):
    monkeypatch.setattr(seals, "_MOST_READ_BYTES", 5)
    own = header(tmp_path)
    built(own)
    assert not built(own)


# --------------------------------------------------------------------------------------- what a compiler read


@needs_compiler
def test_gpp_lists_the_headers_of_the_user_and_no_others(tmp_path):
    folder, own = tmp_path / "build", tmp_path / "my $own headers#1"
    folder.mkdir()
    own.mkdir()
    (own / "one.h").write_text('#include "two.h"\n')
    (own / "two.h").write_text("")
    (own / "options").write_text("-DX")
    sources = from_arguments(
        "k", "", "#include <one.h>\n#include <vector>\n#include <Python.h>\n", functions=None,
        extra_include_paths=[str(own)], no_implicit_headers=True,
    )  # fmt: skip
    unit = units.Unit("main", sources.cuda, ["-Wall", f"@{own}/options"], includes_torch=False)
    units.compile_unit(unit, sources, folder, Instrumentation.NONE)
    assert read_files.of(sources, folder) == [f"{own}/one.h", f"{own}/two.h"]


def test_a_file_that_a_flag_names_counts_as_read(tmp_path):
    (tmp_path / "lib.a").write_text("")
    sources = from_arguments("k", "", extra_ldflags=[f"{tmp_path}/lib.a", "-lm", "-L/usr/lib"])
    assert read_files.of(sources, tmp_path / "build") == [f"{tmp_path}/lib.a"]


@pytest.mark.parametrize(
    "flag",
    ["@{file}", "-include {file}", "-include{file}", "-imacros {file}", "-Wl,--version-script,{file},--gc-sections",
     "-Wl,-T{file}", "-L{folder} -lown", "-L {folder} -l own", "-L{folder} -l:libown.a", "{folder}/libown.a",
     "@{nested}"],
)  # fmt: skip
def test_a_file_that_a_flag_leads_to_counts_as_read(flag, tmp_path):
    file, nested, library = tmp_path / "own.txt", tmp_path / "nested", tmp_path / "libown.a"
    for each in (file, library):
        each.write_text("")
    nested.write_text(f"-O1 @{file}")
    sources = from_arguments("k", "", extra_ldflags=[flag.format(file=file, folder=tmp_path, nested=nested)])
    expected = {library} if "own" in flag else {file, nested} if "nested" in flag else {file}
    assert read_files.of(sources, tmp_path / "build") == sorted(map(str, expected))


@pytest.mark.parametrize(
    "flag", ["-specs=/a", "--specs=/a", "-B/a", "-B /a", "-wrapper gdb,--args", "-fplugin=x", "@{file}", "-ccbin /a"]
)
def test_a_build_that_may_read_files_which_nothing_lists_is_built_again(flag, tmp_path):
    (tmp_path / "flags").write_text("-specs=own.specs")
    sources = from_arguments("k", "", extra_cflags=[flag.format(file=tmp_path / "flags")])
    assert read_files.of(sources, tmp_path / "build")[-1] == read_files.UNKNOWN


def test_files_of_flags_that_name_each_other_are_read_so_often_and_then_unknown(tmp_path):
    (tmp_path / "flags").write_text(f"@{tmp_path}/flags")
    sources = from_arguments("k", "", extra_cflags=[f"@{tmp_path}/flags"])
    assert read_files.of(sources, tmp_path / "build") == [f"{tmp_path}/flags", read_files.UNKNOWN]


ASSEMBLES = 'asm(".section .rodata\\n.incbin \\"{folder}/table.bin\\"\\n.include \\"{folder}/more.s\\"\\n.previous");\n'


@needs_compiler
@pytest.mark.parametrize("instrumentation", Instrumentation)
def test_what_the_assembler_reads_is_listed(instrumentation, tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    for name in ("table.bin", "more.s"):
        (tmp_path / name).write_text("")
    sources = from_arguments("k", "", ASSEMBLES.format(folder=tmp_path), functions=None, no_implicit_headers=True)
    unit = units.Unit("main", sources.cuda, [], includes_torch=False)
    units.compile_unit(unit, sources, folder, instrumentation)
    assert read_files.of(sources, folder) == [f"{tmp_path}/more.s", f"{tmp_path}/table.bin"]


NVCC_CHILD = """
import sys
from pathlib import Path
import torch
torch.version.cuda = torch.version.cuda or "13.0"  # a CPU build of torch has no CUDA version
from kernel_harness.compile import nvcc
from cuda_on_cpu.compile.errors import BuildFailed
from cuda_on_cpu.compile.sources import from_arguments
nvcc.use_toolkit()
own, folder = sys.argv[1:]
sources = from_arguments(
    "k", '#include "host.h"', '#include "device.h"\\n__global__ void f() {}', functions=None,
    extra_include_paths=[own], no_implicit_headers=True,
)
try:
    nvcc.build_plain(sources, Path(folder))
except BuildFailed as failure:  # a CPU build of torch cannot link CUDA
    print(failure.log, file=sys.stderr)
print(*nvcc.files_read(sources, Path(folder)), sep="\\n")
"""


@needs_nvcc
@pytest.mark.slow
def test_a_check_with_nvcc_lists_the_headers_of_the_user_and_no_others(tmp_path):
    own, folder = tmp_path / "own", tmp_path / "build"
    own.mkdir()
    folder.mkdir()
    (own / "own.h").write_text("")
    sources = from_arguments(
        "k", "", "#include <own.h>\n#include <cuda_runtime.h>\n__global__ void f() {}", functions=None,
        extra_include_paths=[str(own)], no_implicit_headers=True,
    )  # fmt: skip
    strict.check(sources, folder)
    assert nvcc.files_read(sources, folder) == [f"{own}/own.h"]


@needs_nvcc
@pytest.mark.slow
def test_a_build_with_nvcc_lists_the_headers_of_both_compilers(tmp_path):
    own, folder = tmp_path / "own", tmp_path / "build"
    own.mkdir()
    folder.mkdir()
    for name in ("host", "device"):
        (own / f"{name}.bin").write_text("")
        (own / f"{name}.h").write_text(f'asm(".section .rodata\\n.incbin \\"{own}/{name}.bin\\"\\n.previous");\n')
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_CUDA_ARCH_LIST": "9.0"}
    done = subprocess.run(
        [sys.executable, "-c", NVCC_CHILD, own, folder], env=environment, capture_output=True, text=True
    )
    expected = [f"{own}/{name}" for name in ("device.bin", "device.h", "host.bin", "host.h")]
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("name", ["plain.h", "with space.h", "price$.h", "back\\slash.h"])
def test_a_rule_names_the_files_that_it_was_written_for(name):
    assert read_files.prerequisites(read_files.rule("headers", [f"/own/{name}", "/own/other.h"])) == [
        f"/own/{name}", "/own/other.h",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ the command

SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

CPP = """
// {mark}
#include <scale.h>
torch::Tensor product(torch::Tensor a, torch::Tensor b) {{ return at::matmul(a.t(), b.t()) * SCALE; }}
"""
ops = load_inline(name="product", cpp_sources=CPP, functions=["product"], extra_include_paths=[{folder!r}])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return ops.product(a, b)
'''


def judged(harness: Harness, kernel: Path) -> tuple[str, list[bool]]:
    """The status of a kernel, and for each of its builds whether it was cached."""
    words = ("--problem", PROBLEM_FILE, "--device", "cpu", "--quick", "--rounds", "8", "--json")
    result = harness.run(*words, "--kernel", kernel).results["own"]
    return result["status"], [build["cached"] for build in result["builds"]]


@needs_compiler
@pytest.mark.slow
def test_the_verdict_follows_an_edited_header(harness: Harness, tmp_path: Path) -> None:
    kernel, scale = tmp_path / "own.py", tmp_path / "scale.h"
    kernel.write_text(SOURCE.format(mark=uuid.uuid4().hex, folder=str(tmp_path)))

    scale.write_text("#define SCALE 1\n")
    assert judged(harness, kernel) == ("PASSED", [False])
    assert judged(harness, kernel) == ("PASSED", [True])
    scale.write_text("#define SCALE 2\n")
    assert judged(harness, kernel) == ("WRONG_VALUES", [False])


HEADER = """
#pragma once
__global__ void scale_kernel(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value;
    asm volatile("{"
#if SCALED_BY_THREE
                 "mul.f32 %0, %1, 0f40400000;"
#else
                 "mul.f32 %0, %1, 0f3F800000;"
#endif
                 "}" : "=f"(value) : "f"(x[i]));
    x[i] = value;
}
inline void scale(torch::Tensor x) { scale_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), x.numel()); }
"""
CUDA_SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
// {mark}
#include <torch/extension.h>
#include "scale.h"
torch::Tensor product(torch::Tensor a, torch::Tensor b) {{ auto c = at::matmul(a.t(), b.t()); scale(c); return c; }}
"""
ops = load_inline("product", "torch::Tensor product(torch::Tensor a, torch::Tensor b);", CUDA, functions=["product"],
                  extra_include_paths=[{folder!r}])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return ops.product(a, b)
'''


@needs_compiler
@pytest.mark.slow
def test_a_kernel_in_a_header_is_launched_and_follows_its_edits(harness: Harness, tmp_path: Path) -> None:
    kernel, scale = tmp_path / "own.py", tmp_path / "scale.h"
    kernel.write_text(CUDA_SOURCE.format(mark=uuid.uuid4().hex, folder=str(tmp_path)))

    scale.write_text(HEADER)
    assert judged(harness, kernel) == ("PASSED", [False])
    assert judged(harness, kernel) == ("PASSED", [True])
    scale.write_text("#define SCALED_BY_THREE 1\n" + HEADER)
    assert judged(harness, kernel) == ("WRONG_VALUES", [False])
    scale.write_text(HEADER.replace(">>>(x", ">>(x"))
    assert judged(harness, kernel)[0] == "BUILD_ERROR"
