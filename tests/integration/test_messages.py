"""The exact message for each kind of kernel that does not compile, from real compilers.

`golden/compile` has one file for each mistake. `<name>.emulated.txt` and `<name>.nvcc.txt` hold the harness's message,
and `<name>.nvcc.log` holds nvcc's log for machines without nvcc. To write them again, run this file as a program:
`PYTHONPATH=.:tests python tests/integration/test_messages.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from support.command import ROOT, Harness
from support.product import PROBLEM_FILE
from torch.utils import cpp_extension

from cuda_on_cpu.compile import load_inline
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.error_message import compile_message, name_message, readable_errors, symbol_message
from cuda_on_cpu.compile.errors import BuildFailed, CompilerFailed
from cuda_on_cpu.compile.hints import hint, missing_symbol

GOLDEN = ROOT / "tests" / "integration" / "golden" / "compile"
# The compilers that wrote the golden texts. With other compilers, the compiler's own words are not compared.
GPP, NVCC = "12", "13.0"
# What finds these mistakes comes after the compiler: the loader (the library lacks a symbol), the limit of shared
# memory, and the linker. Their sources compile with any headers.
AFTER_THE_COMPILER = ("declared_otherwise.py", "old_abi.py", "shared_memory.cu", "missing_library.py")
# nvcc takes seconds for each. These are an error of its front end, of its device compiler and of its assembler. The
# other mistakes are tested with nvcc's logs.
COMPILED = ("missing_semicolon.cu", "host_function.cu", "shared_memory.cu")


def mistakes(ending: str) -> list[str]:
    """The files that have a golden text with this ending."""
    files = [path for path in sorted(GOLDEN.iterdir()) if path.suffix in (".cu", ".py")]
    return [path.name for path in files if (GOLDEN / f"{path.stem}{ending}").exists()]


def golden(name: str, tool: str) -> str:
    return (GOLDEN / f"{Path(name).stem}.{tool}.txt").read_text().rstrip("\n")


def without_words(message: str) -> list[str]:
    """The parts of a message that do not depend on a compiler's version: place, source line, caret and hint."""
    lines = [line for line in message.split("\n") if not line.startswith("  (")]
    return [re.sub(r"^(\S+:\d+: )?error: .*", r"\1error:", line) for line in lines]


def same(message: str, wanted: str, same_compiler: bool) -> None:
    if same_compiler:
        assert message == wanted
    else:
        assert without_words(message) == without_words(wanted)


# ------------------------------------------------------------------------------------- the emulated device


def emulated_messages(folder: Path, names: list[str]) -> dict[str, str]:
    """The reason for each file that does not compile, in two runs of the command."""
    said = {}
    for headers in ("full", "light"):
        # Torch's own headers give a compiler's message in the end (test_order, test_build), so light headers are not
        # tried first. Other messages are the same with both, and a whole build takes ten times as long with full.
        chosen = [name for name in names if (name in AFTER_THE_COMPILER) == (headers == "light")]
        kernels = [word for name in chosen for word in ("--kernel", (GOLDEN / name).relative_to(ROOT))]
        (folder / headers).mkdir()
        words = ("--problem", PROBLEM_FILE, "--device", "cpu", *kernels, "--json")
        finished = Harness(folder / headers).run(*words, environment={"KERNEL_HARNESS_HEADERS": headers})
        said |= {Path(name).stem: finished.results[Path(name).stem]["reason"] for name in chosen}
    return said


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return emulated_messages(tmp_path_factory.mktemp("emulated"), mistakes(".emulated.txt"))


@pytest.mark.parametrize("name", mistakes(".emulated.txt"))
@pytest.mark.slow
def test_the_emulated_build_explains_a_mistake(name: str, emulated: dict[str, str]) -> None:
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
torch.version.cuda = torch.version.cuda or "13.0"  # a CPU build of torch has no CUDA version
from cuda_on_cpu.compile import load_inline as build
from kernel_harness.compile import cu_file, nvcc
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.errors import BuildFailed
nvcc.use_toolkit()
if sys.argv[1] == "kernels":
    whole = nvcc._call
    nvcc._IMPLICIT = ("#include <cuda_runtime.h>",)
    def kernels(sources, folder, cpp, cuda, **more):
        whole(sources, folder, "", cuda[: cuda.index("torch::Tensor forward")], **more)
    nvcc._call = kernels
def builder(sources):
    with tempfile.TemporaryDirectory() as folder:
        nvcc.build_light(sources, Path(folder))
for path in map(Path, sys.argv[2:]):
    build.install(builder, CandidateFile(path.name, path.read_text()))
    try:
        exec(compile(cu_file.as_module(path.name, path.read_text()), path.name, "exec"), {"__name__": "candidate"})
    except BuildFailed as failure:
        print(path.name, failure, failure.log, sep="\\0", end="\\0")
"""


def nvcc_says(names: Sequence[str], folder: Path, parts: str = "all") -> dict[str, tuple[str, str]]:
    """The message and the log of builds for sm_90 with light headers, by file.

    Errors in the candidate's own lines are the same with torch's own headers, which take a minute. If `parts` is
    "kernels", nvcc gets only what comes before `forward`, without torch's headers, and there is no C++ source. A CPU
    build of torch lacks one header, so this writes it.
    """
    stand_in = folder / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    stand_in.parent.mkdir(parents=True, exist_ok=True)
    stand_in.write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "TORCH_CUDA_ARCH_LIST": "9.0", "CPATH": str(folder), "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    command = [sys.executable, "-c", NVCC_CHILD, parts, *(GOLDEN / name for name in names)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    texts = done.stdout.split("\0")[:-1]
    said = {name: (message, log) for name, message, log in zip(texts[::3], texts[1::3], texts[2::3], strict=True)}
    assert list(said) == list(names), done.stdout + done.stderr
    return said


@pytest.fixture(scope="module")
def nvcc(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    # The mistakes are in the kernels. With the rest of the source, nvcc takes 8 to 16 s for each.
    said = nvcc_says(COMPILED, tmp_path_factory.mktemp("nvcc"), "kernels")
    return {name: message for name, (message, _) in said.items()}


def nvcc_is_torchs() -> bool:
    """Whether nvcc is on the PATH, and of the CUDA version that torch was built for if torch has one."""
    return bool(nvcc_release()) and nvcc_release().split(".")[0] == (torch.version.cuda or nvcc_release()).split(".")[0]


@pytest.mark.skipif(not nvcc_is_torchs(), reason="nvcc is not on the PATH, or of another CUDA than torch")
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.slow
def test_the_build_for_a_gpu_explains_a_mistake(name: str, nvcc: dict[str, str]) -> None:
    same(nvcc[name], golden(name, "nvcc"), nvcc_release() == NVCC)


@pytest.mark.parametrize("name", mistakes(".nvcc.log"))
def test_a_stored_log_of_nvcc_gives_the_stored_message(name: str) -> None:
    log, text = (GOLDEN / f"{Path(name).stem}.nvcc.log").read_text(), (GOLDEN / name).read_text()
    assert compile_message(log, CandidateFile(name, text)) == golden(name, "nvcc")


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
def test_the_hint_for_a_name_names_its_header(words: str, name: str, header: str) -> None:
    found = hint(words.format(name))
    assert found is not None and found.text == f"add #include {header}"


def test_the_header_of_a_missing_namespace_is_found_by_the_name_in_the_line() -> None:
    found = hint('name followed by "::" must be a class or namespace name', "x = at::cuda::getCurrentCUDAStream();")
    assert found is not None and found.text == "add #include <ATen/cuda/CUDAContext.h>"


@pytest.mark.parametrize(
    "words",
    [
        "cannot convert 'const at::DeprecatedTypeProperties' to 'c10::ScalarType'",
        'no suitable conversion function from "const at::DeprecatedTypeProperties" to "c10::ScalarType" exists',
    ],
)
def test_the_type_of_a_tensor_where_that_of_its_elements_is_needed(words: str) -> None:
    found = hint(words, 'AT_DISPATCH_FLOATING_TYPES(x.type(), "k", [&] {')
    assert found is not None and "scalar_type()" in found.text


def test_a_launch_from_device_code_that_nvcc_refuses() -> None:
    found = hint("kernel launch from __device__ or __global__ functions requires separate compilation mode")
    assert found is not None and "launch the kernel from the host" in found.text


@pytest.mark.parametrize("name", ["my-kernel", "my.kernel", "my kernel", ""])
@pytest.mark.parametrize(
    ("call", "line"), [("load_inline(name='{}')", 4), ('load_inline("{}")', 4), ("NAME + '{}'", None)]
)
def test_a_name_that_is_no_part_of_a_c_plus_plus_name_is_shown_where_it_stands(
    name: str, call: str, line: int | None
) -> None:
    text = f'"""name={name!r}"""\n\nimport torch\nops = {call.format(name)}\n'
    said = name_message(name, CandidateFile("k.py", text))
    assert said.startswith(f"k.py:{line}: error: " if line else "the extension's name") and repr(name) in said
    assert f"hint: name it {'my_kernel' if name else 'kernel'}" in said


def loaded(name: str, source: str, folder: Path, **options: object) -> object:
    """What load_inline returns, as a worker replaces it, for a build without a compiler."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(cpp_extension, "load_inline", cpp_extension.load_inline)
    monkeypatch.setattr(cpp_extension, "load", cpp_extension.load)
    monkeypatch.setattr(load_inline, "load", lambda library, candidate: library)
    monkeypatch.setattr(load_inline, "load_operators", lambda library, candidate: library)
    try:
        load_inline.install(lambda sources: (folder / sources.name, False), CandidateFile("k.py", ""))
        return cpp_extension.load_inline(name, source, **options)
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize(("source", "functions"), [("", ["f"]), ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", None)])
def test_a_module_needs_such_a_name(source: str, functions: list[str] | None, tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="the extension's name 'a-b' becomes a part"):
        loaded("a-b", source, tmp_path, functions=functions)
    assert loaded("2d_kernel", source, tmp_path, functions=functions) == tmp_path / "2d_kernel"


def test_a_library_of_operators_may_have_any_name(tmp_path: Path) -> None:
    assert loaded("a-b", "TORCH_LIBRARY(ops, m) {}", tmp_path, is_python_module=False) == tmp_path / "a-b"


def test_an_unknown_error_has_no_hint() -> None:
    assert hint("the answer is 42") is None


@pytest.mark.parametrize(
    ("symbol", "fragment"),
    [
        ("cublasSgemm_v2", 'extra_ldflags=["-lcublas"]'),
        ("cublasLtMatmul", 'extra_ldflags=["-lcublasLt"]'),
        ("c10::Error::Error(std::string)", "_GLIBCXX_USE_CXX11_ABI"),
        ("forward(at::Tensor)", "give both the same parameters"),
        ("__cudaRegisterLinkedBinary_f2e1878f_5_dp_cu__Z3rowPf", "remove -rdc=true, and launch kernels from the host"),
    ],
)
def test_the_hint_for_a_missing_symbol_depends_on_its_name(symbol: str, fragment: str) -> None:
    assert fragment in missing_symbol(symbol).text


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ("torch::Tensor forward(const float* A, int K) {", True),
        ("void forward(int K,\n    half *A)\n{", True),
        ("torch::Tensor forward(torch::Tensor A, const char* mode) {", False),
        ("torch::Tensor forward(torch::Tensor A) {\n    float* p;", False),
        ("__global__ void forward(float* A) {", False),
        ("void helper(float* A) {", False),
    ],
)
def test_only_a_bound_function_with_a_pointer_for_a_tensor_is_named_before_the_error(
    definition: str, told: bool
) -> None:
    with pytest.raises(BuildFailed) as raised, readable_errors(CandidateFile("k.cu", definition), ["forward"]):
        raise CompilerFailed("k.cu:1:1: error: no\n")
    assert str(raised.value).startswith("k.cu:1: error: forward takes pointers, but Python passes tensors") is told


def test_an_undefined_symbol_is_shown_at_its_declaration() -> None:
    text = 'x = load_inline(\n    cpp_sources="int f(int a);",\n    cuda_sources="int f() { return f(1); }",\n)\n'
    shown = symbol_message("f(int)", CandidateFile("k.py", text)).split("\n")
    assert shown[:3] == [
        "k.py:2: error: undefined symbol: f(int)",
        '  2 |     cpp_sources="int f(int a);",',
        f"    | {'^':>22}",
    ]


def test_the_caret_is_under_the_same_word_of_a_line_that_was_rewritten() -> None:
    log = "k.cu:1:25: error: no bad\n    1 | launch(twice, (1), (x), bad);\n      |                         ^~~\n"
    shown = compile_message(log, CandidateFile("k.cu", "twice<<<1, x>>>(bad);"))
    assert shown == "k.cu:1: error: no bad\n  1 | twice<<<1, x>>>(bad);\n    |                 ^~~"


def test_there_is_no_caret_where_the_word_is_not_in_the_line() -> None:
    log = "k.cu:1:1: error: no\n    1 | launch(twice);\n      | ~~~~~~^~~~~~~\n"
    shown = compile_message(log, CandidateFile("k.cu", "twice<<<1, 1>>>();"))
    assert shown == "k.cu:1: error: no\n  1 | twice<<<1, 1>>>();"


def test_a_name_that_a_flag_replaces_is_shown_where_the_source_has_it() -> None:
    """As g++ reports it with a precompiled header."""
    log = (
        "/cache/prelude.h:35:2: error: expected unqualified-id before numeric constant\n"
        "/cache/prelude.h:35:2: note: in definition of macro 'TILE'\n"
    )
    shown = compile_message(log, CandidateFile("k.cu", "// TILE: a side\nconstexpr int TILE = 16;"))
    assert shown.startswith(
        "k.cu:2: error: expected unqualified-id before numeric constant (the flags define the macro TILE)"
    )


def test_tabs_before_the_caret_stay_tabs() -> None:
    # g++ shows a tab as spaces, and counts columns in the line that it shows.
    log = "k.cu:1:17: error: no\n    1 |         int x = y;\n      |                 ^\n"
    shown = compile_message(log, CandidateFile("k.cu", "\tint x = y;"))
    assert shown.split("\n")[2] == "    | \t        ^"


def test_an_error_in_a_header_is_shown_at_the_line_that_led_to_it() -> None:
    log = "k.cu:2:5:   required from here\n/usr/include/tuple:9:1: error: cannot do that\n"
    shown = compile_message(log, CandidateFile("k.cu", "int a;\nint b;\n"))
    assert shown.split("\n")[:2] == ["k.cu:2: error: cannot do that (in /usr/include/tuple:9)", "  2 | int b;"]


def test_the_message_for_a_log_without_errors_is_its_end() -> None:
    assert compile_message("nothing to see\n", CandidateFile("k.cu", "")) == "nothing to see"


def test_a_message_of_the_harness_itself_is_not_changed() -> None:
    def refuses(sources: object) -> tuple[Path, bool]:
        raise BuildFailed("no such thing here")

    load_inline.install(refuses, CandidateFile("k.py", ""))
    from torch.utils import cpp_extension

    with pytest.raises(BuildFailed, match="no such thing here"):
        cpp_extension.load_inline("x", "")


# ------------------------------------------------------------------------------ writing the golden texts


def _portable(log: str) -> str:
    """The log without the paths of this machine."""
    log = re.sub(r" -(?:isystem |I|L)\S+", "", log)
    log = re.sub(r"/\S*/(?:main\.cpp|cuda\.cu)\b", lambda m: Path(m[0]).name, log)
    log = re.sub(r"/\S*/headers/", "headers/", log.replace(f"{ROOT}/", ""))
    return re.sub(rf"{sys.prefix}/\S*/site-packages/", "site-packages/", log)


def _write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, message in emulated_messages(Path(folder), mistakes(".emulated.txt")).items():
            (GOLDEN / f"{name}.emulated.txt").write_text(f"{message}\n")
        said = nvcc_says(mistakes(".nvcc.txt"), Path(folder)) if nvcc_release() else {}
        for name, (message, log) in said.items():
            (GOLDEN / f"{Path(name).stem}.nvcc.txt").write_text(f"{message}\n")
            (GOLDEN / f"{Path(name).stem}.nvcc.log").write_text(f"{_portable(log).strip()}\n")


if __name__ == "__main__":
    _write()
