"""What the author of a kernel that does not compile reads, word for word, from real compilers.

`golden/compile` has a file per mistake; `<name>.emulated.txt` and `<name>.nvcc.txt` are what the harness says of it,
`<name>.nvcc.log` what nvcc said, for machines without it. `python tests/test_messages.py` writes them anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Harness

from kernel_harness import build
from kernel_harness.build.errors import BuildFailed
from kernel_harness.build.hints import hint, missing_symbol
from kernel_harness.build.message import AuthorsFile, compile_message, symbol_message
from kernel_harness.build.nvcc import WANTS_MORE

GOLDEN = ROOT / "tests" / "golden" / "compile"
PROBLEM = ROOT / "tests" / "candidates" / "problem" / "product.py"
# The compilers that the golden texts were written with; what others say is compared without their own words.
GPP, NVCC = "12", "13.0"
# nvcc takes ten seconds for one. These are a front end's error, a device's, and the assembler's; of the others
# its logs must do.
COMPILED = ("missing_semicolon.cu", "host_function.cu", "shared_memory.cu")


def mistakes(ending: str) -> list[str]:
    """The files that have a golden text with this ending."""
    files = [path for path in sorted(GOLDEN.iterdir()) if path.suffix in (".cu", ".py")]
    return [path.name for path in files if (GOLDEN / f"{path.stem}{ending}").exists()]


def golden(name: str, tool: str) -> str:
    return (GOLDEN / f"{Path(name).stem}.{tool}.txt").read_text().rstrip("\n")


def without_words(message: str) -> list[str]:
    """A message without what depends on a compiler's version: its place, line, caret and hint are left."""
    lines = [line for line in message.split("\n") if not line.startswith("  (")]
    return [re.sub(r"error: .*", "error:", lines[0]), *lines[1:]]


def same(message: str, wanted: str, same_compiler: bool) -> None:
    if same_compiler:
        assert message == wanted
    else:
        assert without_words(message) == without_words(wanted)


# ------------------------------------------------------------------------------------- the emulated device


def emulated_messages(harness: Harness, names: list[str]) -> dict[str, str]:
    kernels = [word for name in names for word in ("--kernel", (GOLDEN / name).relative_to(ROOT))]
    finished = harness.run("--problem", PROBLEM, "--device", "cpu", *kernels, "--json")
    return {Path(name).stem: finished.results[Path(name).stem]["reason"] for name in names}


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return emulated_messages(Harness(tmp_path_factory.mktemp("emulated")), mistakes(".emulated.txt"))


@pytest.mark.parametrize("name", mistakes(".emulated.txt"))
def test_a_mistake_is_told_by_the_emulated_build(name: str, emulated: dict[str, str]) -> None:
    version = subprocess.run(["c++", "-dumpversion"], capture_output=True, text=True).stdout
    same(emulated[Path(name).stem], golden(name, "emulated"), version.split(".")[0].strip() == GPP)


def test_there_are_ten_mistakes_at_least() -> None:
    assert min(len(mistakes(".emulated.txt")), len(mistakes(".nvcc.txt"))) >= 10


# -------------------------------------------------------------------------------------------------- nvcc


def nvcc_release() -> str:
    if shutil.which("nvcc") is None:
        return ""
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"release ([\d.]+)", said)
    return found[1] if found else ""


NVCC_CHILD = """
import sys, tempfile
from pathlib import Path
import torch
torch.version.cuda = torch.version.cuda or "13.0"  # a CPU build does not say which it would want
from kernel_harness import build
from kernel_harness.build import nvcc
from kernel_harness.build.errors import BuildFailed
nvcc.use_toolkit()
path = Path(sys.argv[1])
def builder(sources, mark):
    with tempfile.TemporaryDirectory() as folder:
        nvcc._build_light(sources, mark, Path(folder))
build.install(builder, Path(path.name), path.read_text())
try:
    exec(compile(build.as_module(path.name, path.read_text()), path.name, "exec"), {"__name__": "candidate"})
except BuildFailed as failure:
    print(failure, "\\0", failure.log, sep="")
"""


def nvcc_says(name: str, folder: Path) -> tuple[str, str]:
    """The message and the log of a build for sm_90. A CPU build of torch lacks one header: an empty one serves."""
    stand_in = folder / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    stand_in.parent.mkdir(parents=True, exist_ok=True)
    stand_in.write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "TORCH_CUDA_ARCH_LIST": "9.0", "CPATH": str(folder), "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    command = [sys.executable, "-c", NVCC_CHILD, GOLDEN / name]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert "\0" in done.stdout, done.stdout + done.stderr
    message, log = done.stdout.split("\0")
    return message, log


@pytest.fixture(scope="module")
def nvcc(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with ThreadPoolExecutor(2) as pool:
        said = pool.map(lambda name: nvcc_says(name, tmp_path_factory.mktemp("nvcc")), COMPILED)
        return {name: message for name, (message, _) in zip(COMPILED, said, strict=True)}


def nvcc_is_torchs() -> bool:
    """Whether it is there, of the CUDA that torch was built for, if torch says of which."""
    return bool(nvcc_release()) and nvcc_release().split(".")[0] == (torch.version.cuda or nvcc_release()).split(".")[0]


@pytest.mark.skipif(not nvcc_is_torchs(), reason="nvcc is not on the PATH, or of another CUDA than torch")
@pytest.mark.parametrize("name", COMPILED)
def test_a_mistake_is_told_by_nvcc(name: str, nvcc: dict[str, str]) -> None:
    same(nvcc[name], golden(name, "nvcc"), nvcc_release() == NVCC)


@pytest.mark.parametrize("name", mistakes(".nvcc.log"))
def test_a_log_that_nvcc_once_wrote_reads_the_same(name: str) -> None:
    log, text = (GOLDEN / f"{Path(name).stem}.nvcc.log").read_text(), (GOLDEN / name).read_text()
    assert compile_message(log, f'#line 1 "{name}"\n{text}', AuthorsFile(name, text)) == golden(name, "nvcc")


@pytest.mark.parametrize(("name", "could"), [("host_function", False), ("missing_stream_header", True)])
def test_a_second_build_with_torchs_own_headers_is_tried_only_where_they_could_help(name: str, could: bool) -> None:
    """It takes most of a minute."""
    log = (GOLDEN / f"{name}.nvcc.log").read_text()
    assert bool(WANTS_MORE.search(log)) == could


# ------------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("C10_CUDA_CHECK", "<c10/cuda/CUDAException.h>"),
        ("CUDAGuard", "<c10/cuda/CUDAGuard.h>"),
        ("AT_CUDA_CHECK", "<ATen/cuda/Exceptions.h>"),
        ("__half2float", "<cuda_fp16.h>"),
        ("__nv_bfloat162", "<cuda_bf16.h>"),
        ("cublasSgemm", "<cublas_v2.h>"),
        ("AT_DISPATCH_FLOATING_TYPES", "<ATen/Dispatch.h>"),
        ("TORCH_CHECK", "<torch/extension.h>"),
        ("FLT_MAX", "<cfloat>"),
        ("int64_t", "<cstdint>"),
    ],
)
@pytest.mark.parametrize("words", ["'{}' was not declared in this scope", 'identifier "{}" is undefined'])
def test_a_name_without_its_header_is_told_which(words: str, name: str, header: str) -> None:
    found = hint(words.format(name))
    assert found is not None and found.text == f"add #include {header}"


def test_a_namespace_without_its_header_is_told_by_what_the_line_wants_of_it() -> None:
    found = hint('name followed by "::" must be a class or namespace name', "x = at::cuda::getCurrentCUDAStream();")
    assert found is not None and found.text == "add #include <ATen/cuda/CUDAContext.h>"


def test_an_error_that_nobody_wrote_down_has_no_hint() -> None:
    assert hint("the answer is 42") is None


@pytest.mark.parametrize(
    ("symbol", "fragment"),
    [
        ("cublasSgemm_v2", 'extra_ldflags=["-lcublas"]'),
        ("cublasLtMatmul", 'extra_ldflags=["-lcublasLt"]'),
        ("c10::Error::Error(std::string)", "_GLIBCXX_USE_CXX11_ABI"),
        ("forward(at::Tensor)", "make the two alike"),
    ],
)
def test_a_missing_symbol_is_told_where_it_might_be(symbol: str, fragment: str) -> None:
    assert fragment in missing_symbol(symbol).text


def test_an_undefined_symbol_is_shown_at_its_declaration() -> None:
    text = 'x = load_inline(\n    cpp_sources="int f(int a);",\n    cuda_sources="int f() { return f(1); }",\n)\n'
    shown = symbol_message("f(int)", AuthorsFile("k.py", text)).split("\n")
    assert shown[:3] == [
        "k.py:2: error: undefined symbol: f(int)",
        '  2 |     cpp_sources="int f(int a);",',
        f"    | {'^':>22}",
    ]


def test_the_caret_is_under_the_same_word_of_a_line_that_was_rewritten() -> None:
    compiled = '#line 1 "k.cu"\nlaunch(twice, (1), (x), bad);'
    shown = compile_message("k.cu:1:25: error: no bad", compiled, AuthorsFile("k.cu", "twice<<<1, x>>>(bad);"))
    assert shown == "k.cu:1: error: no bad\n  1 | twice<<<1, x>>>(bad);\n    |                 ^~~"


def test_there_is_no_caret_where_the_word_is_not_in_the_line() -> None:
    compiled = '#line 1 "k.cu"\nlaunch(twice);'
    shown = compile_message("k.cu:1:1: error: no", compiled, AuthorsFile("k.cu", "twice<<<1, 1>>>();"))
    assert shown == "k.cu:1: error: no\n  1 | twice<<<1, 1>>>();"


def test_tabs_before_the_caret_stay_tabs() -> None:
    compiled = '#line 1 "k.cu"\n\tint x = y;'
    shown = compile_message("k.cu:1:10: error: no", compiled, AuthorsFile("k.cu", "\tint x = y;"))
    assert shown.split("\n")[2] == "    | \t        ^"


def test_an_error_in_a_header_is_shown_at_the_line_that_led_there() -> None:
    log = "k.cu:2:5:   required from here\n/usr/include/tuple:9:1: error: cannot do that\n"
    shown = compile_message(log, "", AuthorsFile("k.cu", "int a;\nint b;\n"))
    assert shown.split("\n")[:2] == ["k.cu:2: error: cannot do that (in /usr/include/tuple:9)", "  2 | int b;"]


def test_without_an_error_the_log_s_end_is_the_message() -> None:
    assert compile_message("nothing to see\n", "", AuthorsFile("k.cu", "")) == "nothing to see"


def test_a_builder_s_own_words_stay_as_they_are() -> None:
    def refuses(sources: object, mark: object) -> tuple[Path, bool]:
        raise BuildFailed("no such thing here")

    build.install(refuses, Path("k.py"), "")
    from torch.utils import cpp_extension

    with pytest.raises(BuildFailed, match="no such thing here"):
        cpp_extension.load_inline("x", "")


# ------------------------------------------------------------------------------------- writing them anew


def _portable(log: str) -> str:
    """Without the folders of this machine."""
    log = re.sub(r" -(?:isystem |I|L)\S+", "", log)
    log = re.sub(r"/\S*/(?:main\.cpp|cuda\.cu)\b", lambda m: Path(m[0]).name, log)
    log = re.sub(r"/\S*/headers/", "headers/", log.replace(f"{ROOT}/", ""))
    return re.sub(rf"{sys.prefix}/\S*/site-packages/", "site-packages/", log)


def _write() -> None:
    everything = [path.name for path in sorted(GOLDEN.iterdir()) if path.suffix in (".cu", ".py")]
    emulated = [name for name in everything if (GOLDEN / f"{Path(name).stem}.emulated.txt").exists()]
    for_nvcc = [name for name in everything if (GOLDEN / f"{Path(name).stem}.nvcc.txt").exists()]
    with tempfile.TemporaryDirectory() as folder:
        for name, message in emulated_messages(Harness(Path(folder)), emulated).items():
            (GOLDEN / f"{name}.emulated.txt").write_text(f"{message}\n")
        for name in for_nvcc if nvcc_release() else []:
            message, log = nvcc_says(name, Path(folder))
            (GOLDEN / f"{Path(name).stem}.nvcc.txt").write_text(f"{message}\n")
            (GOLDEN / f"{Path(name).stem}.nvcc.log").write_text(f"{_portable(log).strip()}\n")


if __name__ == "__main__":
    _write()
