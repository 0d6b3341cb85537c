"""Everything around a compiler: places in sources, logs, the build cache, load_inline's arguments, headers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import ROOT
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture
from torch.utils import cpp_extension

from cuda_on_cpu.compile import bindings, cache, host_compiler, light_headers, load_inline
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.compiler_log import first_error, undefined_symbol
from cuda_on_cpu.compile.errors import BuildFailed, CompilerFailed
from cuda_on_cpu.compile.sources import from_arguments, options
from cuda_on_cpu.emulator import units
from cuda_on_cpu.emulator.units import Headers
from kernel_harness.compile import cu_file, nvcc

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
# torch's own function, before a test replaces it in this process.
TORCHS_LOAD_INLINE = cpp_extension.load_inline


# -------------------------------------------------------------------------------- places in a candidate's file


def file_with(file_text: str, source: str, name: str = "kernel.py") -> CandidateFile:
    """A candidate's file that passes `source` to load_inline under the name k."""
    file = CandidateFile(name, file_text)
    file.add(from_arguments("k", "", source))
    return file


def lines_of(file_text: str, source: str) -> dict[str, int]:
    """For each line of the source, the line number that a message would give."""
    file = file_with(file_text, source)
    places = {line.strip(): file.place("k.cuda_sources", i) for i, line in enumerate(source.split("\n"), 1)}
    assert {name for name, _ in places.values()} == {"kernel.py"}
    return {line: number for line, (_, number) in places.items()}


def number_in(file_text: str, text: str) -> int:
    return next(i for i, line in enumerate(file_text.split("\n"), 1) if text in line)


def strings_of(file_text: str) -> dict[str, Any]:
    """The variables of a Python file."""
    namespace: dict[str, Any] = {}
    exec(file_text, namespace)
    return namespace


TRIPLE_QUOTED = '''"""A kernel."""

SOURCE = """
#include <torch/extension.h>

int f() {
    return 1;
}
"""
'''

CONCATENATED = '''
HEADER = """
#include <a>
int first;
"""
import os

BODY = """
int second;
int third;
"""
SOURCE = HEADER + BODY
'''

FORMATTED = '''
SIZE = 16
SOURCE = f"""
int before;
constexpr int size = {SIZE};
int after = {{ 1 }};
int last;
"""
'''

SAME_LINE = '''
import os
SOURCE = r"""int first;
int second;
"""
'''

INDENTED = '''
def make():
    import textwrap
    return textwrap.dedent("""
        int first;
        int second;
    """)
SOURCE = make()
'''


@pytest.mark.parametrize(
    ("file_text", "lines"),
    [
        (TRIPLE_QUOTED, ["#include <torch/extension.h>", "int f() {", "return 1;"]),
        (CONCATENATED, ["#include <a>", "int first;", "int second;", "int third;"]),
        (FORMATTED, ["int before;", "int last;"]),
        (SAME_LINE, ["int second;"]),
    ],
    ids=["triple-quoted", "concatenated", "formatted", "opened on the same line"],
)
def test_lines_that_occur_in_the_file_get_their_numbers(file_text, lines):
    named = lines_of(file_text, strings_of(file_text)["SOURCE"])
    assert {line: named[line] for line in lines} == {line: number_in(file_text, line) for line in lines}


def test_a_line_that_does_not_occur_in_the_file_is_numbered_after_the_one_before():
    named = lines_of(FORMATTED, strings_of(FORMATTED)["SOURCE"])
    assert named["constexpr int size = 16;"] == number_in(FORMATTED, "constexpr int size")
    assert named["int after = { 1 };"] == number_in(FORMATTED, "int after")


def test_a_line_that_shares_its_line_with_python_gets_that_line():
    named = lines_of(SAME_LINE, strings_of(SAME_LINE)["SOURCE"])
    assert named["int first;"] == number_in(SAME_LINE, "int first")


def test_lines_that_were_dedented_get_their_numbers():
    named = lines_of(INDENTED, strings_of(INDENTED)["SOURCE"])
    assert named["int first;"] == number_in(INDENTED, "int first")
    assert named["int second;"] == number_in(INDENTED, "int second")


def test_a_line_behind_the_last_one_of_a_source_is_numbered_after_it():
    file = file_with(TRIPLE_QUOTED, strings_of(TRIPLE_QUOTED)["SOURCE"])
    last = strings_of(TRIPLE_QUOTED)["SOURCE"].count("\n") + 1
    assert file.place("k.cuda_sources", last + 2)[1] == file.place("k.cuda_sources", last)[1] + 2


def test_a_place_in_another_file_stays():
    assert file_with("int a;", "int a;").place("/usr/include/tuple", 7) == ("/usr/include/tuple", 7)


@given(
    st.lists(st.sampled_from(["int a;", "int b;", "", "}", "  f();", "#define M \\", "x"]), max_size=12),
    st.lists(st.sampled_from(["int a;", "int b;", "", "}", "  f();", 'S = """', "x"]), max_size=12),
)
def test_each_line_of_a_source_has_a_number(source, file_lines):
    file = file_with("\n".join(file_lines), "\n".join(source))
    assert all(file.place("k.cuda_sources", i)[1] >= 1 for i in range(1, len(source) + 1))


@given(st.lists(st.text(alphabet="ab;{} ", max_size=6), min_size=1, max_size=12))
def test_a_source_that_is_the_file_keeps_its_numbers(lines):
    file = file_with("\n".join(lines), "\n".join(lines), "k.cu")
    for i, line in enumerate(lines, 1):
        assert lines[file.place("k.cuda_sources", i)[1] - 1] == line


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k.cuda_sources:2:5: error: no", "kernel.py:4:5: error: no"),
        ("k.cuda_sources(3): error: no", "kernel.py(5): error: no"),
        ('at line 2 of "k.cuda_sources"', 'at line 4 of "kernel.py"'),
        ("line 2\n            of k.cuda_sources", "line 4\n            of kernel.py"),
        ("k.cuda_sources: In function 'f'", "kernel.py: In function 'f'"),
        ('INTERNAL ASSERT FAILED at "k.cuda_sources":3, please', 'INTERNAL ASSERT FAILED at "kernel.py":5, please'),
        ("k.cuda_sources:999999999999999", "kernel.py:999999999999999"),
        ("/usr/include/tuple:2: error", "/usr/include/tuple:2: error"),
        ("other_k.cuda_sources:2: error", "other_k.cuda_sources:2: error"),
    ],
)
def test_a_message_gets_the_lines_of_the_author(text, wanted):
    assert file_with('S = """\n#\n\nint a;\nint b;\n"""', "\nint a;\nint b;\n").translated(text) == wanted


def test_the_name_of_the_file_may_hold_anything():
    name = 'a\\\n"\n#define x \\1 \\g<at>.py'
    assert file_with("int a;", "int a;", name).translated("k.cuda_sources:1:2: error") == f"{name}:1:2: error"


def test_two_files_with_one_source_each_get_their_own_lines():
    one, two = file_with("int a;", "int a;", "one.py"), file_with("\n\nint a;", "int a;", "two.py")
    assert one.translated("k.cuda_sources:1") == "one.py:1"
    assert two.translated("k.cuda_sources:1") == "two.py:3"


# -------------------------------------------------------------------------------------- compiler logs


def compiled(tmp_path: Path, source: str, *command: str) -> str:
    """The compiler's output for a source in a file `x.cpp` or `x.cu`."""
    suffix = "cu" if command[0] == "nvcc" else "cpp"
    (tmp_path / f"x.{suffix}").write_text(source)
    done = subprocess.run([*command, f"x.{suffix}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode
    return done.stdout + done.stderr


@needs_compiler
@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("int f() {\n  return nowhere;\n}\n", 2, "was not declared in this scope"),
        ("#include <no/such/header.h>\n", 1, "no/such/header.h: No such file or directory"),
        ('#line 40 "kernel.py"\nint f( {}\n', 40, "expected"),
        ("template <class T> struct A { typename T::type x; };\nA<int> a;\n", 1, "is not a class"),
        ("static_assert(1 == 2, \"too small\");\n", 1, "too small"),
    ],
    ids=["undeclared", "missing header", "marked line", "inside a template", "static assertion"],
)  # fmt: skip
def test_the_first_error_of_gpp_is_found_with_its_file_and_line(tmp_path, source, line, text):
    first = first_error(compiled(tmp_path, source, "g++", "-c", "-Wall")).split("\n")[0]
    assert re.match(rf"(x\.cpp|kernel\.py):{line}: error: ", first), first
    assert text in first


@needs_compiler
def test_a_warning_before_the_error_is_skipped(tmp_path):
    log = compiled(tmp_path, "int f() { int unused; }\nint g() { return nowhere; }\n", "g++", "-c", "-Wall")
    assert "warning" in log and first_error(log).startswith("x.cpp:2: error: ")


@needs_compiler
def test_the_source_line_is_shown_if_the_file_can_be_read(tmp_path, monkeypatch):
    log = compiled(tmp_path, "int f() {\n  return nowhere;\n}\n", "g++", "-c")
    monkeypatch.chdir(tmp_path)
    assert first_error(log).split("\n")[1] == "  2 |   return nowhere;"


@needs_compiler
@pytest.mark.parametrize(
    ("source", "flags", "text"),
    [
        ("void g();\nint main() { g(); }\n", [], "undefined reference to `g()'"),
        ("int main() {}\n", ["-lno_such_library"], "cannot find -lno_such_library"),
    ],
    ids=["undefined reference", "missing library"],
)
def test_an_error_of_the_linker_is_found(tmp_path, source, flags, text):
    assert text in first_error(compiled(tmp_path, source, "g++", *flags))


@needs_nvcc
@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("__global__ void k() {\n  nowhere = 1;\n}\n", 2, "nowhere"),
        ("#include <no/such/header.h>\n", 1, "no/such/header.h"),
        ('#line 40 "kernel.py"\n__global__ int k() {}\n', 40, "void return type"),
    ],
    ids=["undeclared", "missing header", "marked line"],
)
def test_the_first_error_of_nvcc_is_found_with_its_file_and_line(tmp_path, source, line, text):
    first = first_error(compiled(tmp_path, source, "nvcc", "-c", "-arch=sm_90")).split("\n")[0]
    assert re.match(rf"(x\.cu|kernel\.py):{line}: error: ", first), first
    assert text in first


NVCC_LOG = """kernel.py(12): warning #177-D: variable "i" was declared but never referenced
      int i;
          ^

kernel.py(17): error: identifier "blockIdy" is undefined
      int j = blockIdy.x;
              ^

1 error detected in the compilation of "x.cu".
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (NVCC_LOG, 'kernel.py:17: error: identifier "blockIdy" is undefined'),
        ("k.cu(3): catastrophic error: cannot open source file", "k.cu:3: error: cannot open source file"),
        ("k.cu(3): error #20: no", "k.cu:3: error: no"),
        ("ptxas error   : Entry function 'k' uses too much shared data", "Entry function 'k' uses too much"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_10'", "Unsupported gpu architecture"),
        ("x.cpp:1:1: warning: an error: in a warning\ny.cpp:2:3: error: here", "y.cpp:2: error: here"),
        ("In file included from a.h:1:\nb.h:7:2: fatal error: #error stop", "b.h:7: error: #error stop"),
    ],
)
def test_logs_of_every_tool_are_read(log, expected):
    assert expected in first_error(log).split("\n")[0]


def test_a_log_without_an_error_is_shown_and_cut():
    assert first_error("nothing\n") == "nothing"
    assert len(first_error("x" * 100_000)) <= 2000


@given(st.text(max_size=300))
def test_any_log_has_a_first_error(log):
    assert isinstance(first_error(log), str)


def test_a_missing_symbol_has_its_c_plus_plus_name():
    assert undefined_symbol("/tmp/x.so: undefined symbol: _Z1fi") in ("f(int)", "_Z1fi")


def test_another_error_of_the_loader_is_no_missing_symbol():
    assert undefined_symbol("cannot open shared object file") == ""


# --------------------------------------------------------------------------------------------- cache


def fill(folder: Path) -> None:
    (folder / "product").write_text("built")


def test_an_entry_is_built_once_and_then_found(own_cache):
    folder, cached = cache.get_or_build("kind", "a" * 64, fill)
    assert (cached, (folder / "product").read_text()) == (False, "built")
    assert cache.get_or_build("kind", "a" * 64, lambda folder: pytest.fail("built again")) == (folder, True)


def test_entries_of_other_names_and_kinds_are_separate(own_cache):
    folders = {cache.get_or_build(kind, name * 64, fill)[0] for kind in ("one", "two") for name in "ab"}
    assert len(folders) == 4


def test_a_build_that_fails_leaves_nothing_behind_and_is_tried_again(own_cache):
    def broken(folder: Path) -> None:
        fill(folder)
        raise BuildFailed("no")

    with pytest.raises(BuildFailed):
        cache.get_or_build("kind", "a" * 64, broken)
    assert [p for p in own_cache.rglob("*") if p.parent != cache.locks()] == [own_cache / "kind", cache.locks()]
    assert cache.get_or_build("kind", "a" * 64, fill)[1] is False


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_entry_is_built_again(own_cache, damage):
    folder, _ = cache.get_or_build("kind", "a" * 64, fill)
    product = folder / "product"
    if damage == "gone":
        product.unlink()
    else:
        product.write_text({"cut": "bui", "changed": "BUILT"}[damage])
    assert cache.get_or_build("kind", "a" * 64, fill)[1] is False
    assert product.read_text() == "built"


def test_a_key_depends_on_every_part_and_its_name():
    assert cache.key(a="1", b="2") == cache.key(b="2", a="1")
    assert len({cache.key(a="1", b="2"), cache.key(a="2", b="1"), cache.key(a="12", b=""), cache.key(a="1")}) == 4


def test_a_digest_depends_on_names_and_contents_of_files(tmp_path):
    def digest(files: dict[str, str]) -> str:
        shutil.rmtree(tmp_path / "x", ignore_errors=True)
        for name, text in files.items():
            (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "x" / name).write_text(text)
        return cache.digest_of(tmp_path / "x")

    variants = [{"a": "1"}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": ""}, {"a/b": "1"}]
    assert len({digest(files) for files in variants}) == len(variants)
    assert digest({"a": "1", "b": "2"}) == digest({"b": "2", "a": "1"})


BUILDS = """
import sys
from pathlib import Path
import kernel_harness
from cuda_on_cpu.compile import cache

def build(folder):
    print("building", flush=True)
    sys.stdin.readline()
    (folder / "product").write_text("built")

print("asking", flush=True)
folder, cached = cache.get_or_build("kind", "a" * 64, build)
print(cached, (folder / "product").read_text(), flush=True)
sys.stdin.read()
"""


def asking(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "KERNEL_HARNESS_CACHE": str(folder), "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", BUILDS], text=True, env=environment, **pipes)
    assert process.stdout and process.stdout.readline() == "asking\n"
    return process


def answer(process: subprocess.Popen[str]) -> str:
    """The rest of a process's output, after its build may go on."""
    assert process.stdin and process.stdout
    with process:
        process.stdin.write("go on\n")
        process.stdin.close()
        return process.stdout.read()


def test_a_second_process_waits_for_the_first_one_s_build_and_a_third_finds_it(tmp_path):
    first = asking(tmp_path)
    assert first.stdout and first.stdout.readline() == "building\n"
    second = asking(tmp_path)
    assert [answer(first), answer(second)] == ["False built\n", "True built\n"]
    assert answer(asking(tmp_path)) == "True built\n"


# --------------------------------------------------------------------------- load_inline's arguments


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "x"}, TypeError),
        ({"cpp_sources": ""}, TypeError),
        ({"name": "x", "cpp_sources": "", "extra_cuda_flags": ["-O3"]}, TypeError),
        ({"name": "x", "cpp_sources": "", "functions": 3}, ValueError),
        ({"name": "x", "cpp_sources": "", "functions": ("f",)}, ValueError),
    ],
    ids=["no sources", "no name", "unknown keyword", "functions a number", "functions a tuple"],
)
def test_arguments_that_load_inline_refuses_raise_the_same_exception(arguments, error, tmp_path):
    with pytest.raises(error) as theirs:
        TORCHS_LOAD_INLINE(**arguments, build_directory=str(tmp_path))
    with pytest.raises(error) as ours:
        from_arguments(**arguments)
    word = re.search(r"'(\w+)'", str(theirs.value))
    assert word and word[1] in str(ours.value)


def test_a_keyword_that_does_not_exist_gets_a_suggestion():
    with pytest.raises(TypeError, match="did you mean 'extra_cuda_cflags'"):
        from_arguments(name="x", cpp_sources="", extra_cuda_flags=["-O3"])


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ("f", {"f": "f"}),
        (["f", "g"], {"f": "f", "g": "g"}),
        ({"f": "What f does."}, {"f": "What f does."}),
        (None, None),
    ],
)
def test_functions_may_be_a_string_a_list_a_dict_or_none(functions, expected):
    assert from_arguments("x", "", functions=functions).functions == expected


def test_sources_may_be_one_string_or_a_list_and_by_position():
    sources = from_arguments("x", ["int a;", "int b;"], "int c;", functions=["f"])
    assert (sources.cpp, sources.cuda, sources.functions) == ("int a;\nint b;", "int c;", {"f": "f"})


def test_arguments_that_are_not_given_are_empty():
    sources = from_arguments("x", "")
    assert (sources.cuda, sources.functions, sources.cflags, sources.cuda_cflags, sources.ldflags) == (
        "",
        None,
        (),
        (),
        (),
    )
    assert sources.include_paths == () and sources.implicit_headers


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([""], ()),
        (["-O3 -DX=2"], ("-O3", "-DX=2")),
        (["-O3 ", "", " -DX=2"], ("-O3", "-DX=2")),
        (["-I", "/a folder".replace(" ", "\\ ")], ("-I", "/a folder")),
        (["-DTEXT='\"a b\"'"], ('-DTEXT="a b"',)),
        (["-DLONG='a", "b'"], ("-DLONG=a b",)),
    ],
    ids=["an empty word", "two in one", "spaces around", "an escaped space", "quotes", "quotes over two"],
)
@pytest.mark.parametrize("argument", ["extra_cflags", "extra_cuda_cflags", "extra_ldflags"])
def test_flags_are_joined_and_split_as_by_a_shell(argument, given, words):
    sources = from_arguments("x", "", **{argument: given})
    assert getattr(sources, argument.removeprefix("extra_")) == words


def test_an_include_folder_loses_the_spaces_around_it_and_is_not_split():
    assert from_arguments("x", "", extra_include_paths=["", " /a folder "]).include_paths == ("/a folder",)


def test_flags_whose_quotes_do_not_end_are_a_build_error_that_names_the_argument():
    with pytest.raises(
        BuildFailed, match=r"extra_cflags cannot be split into words: No closing quotation in '-DX=\"a'"
    ):
        from_arguments("x", "", extra_cflags=['-DX="a'])


def test_functions_in_the_place_of_sycl_sources_are_recognised():
    with pytest.raises(TypeError, match=r"fourth argument since torch 2.7.*name the argument \(functions="):
        from_arguments("x", "void f();", "void f() {}", ["f"])


def test_flags_that_are_no_strings_are_refused():
    with pytest.raises(TypeError, match=r"takes a string or a list of strings in extra_cflags, but got \[3\]"):
        from_arguments("x", "", extra_cflags=[3])


def test_flags_that_mean_the_same_have_one_key_in_the_cache():
    one, two = (from_arguments("x", "", extra_cflags=flags) for flags in (["-O3 -DX=2", ""], ["-O3", "-DX=2"]))
    assert one == two


@given(st.lists(st.text(alphabet="ab -$'\"\\\\=;&", min_size=1, max_size=8), max_size=4))
def test_a_word_passes_through_ninja_and_a_shell_unchanged(words):
    line = " ".join(nvcc._quoted(word) for word in words)
    assert "$" not in line.replace("$$", "")  # ninja reads $$ as $, and would expand any other
    assert shlex.split(line.replace("$$", "$")) == words


def test_an_option_is_kept_with_its_value():
    words = ["-O3", "-I", "/folder", "-gencode", "arch=compute_90,code=sm_90", "-Xptxas", "-v", "-lfoo"]
    assert options(words) == [
        ("-O3",), ("-I", "/folder"), ("-gencode", "arch=compute_90,code=sm_90"), ("-Xptxas",), ("-v",), ("-lfoo",),
    ]  # fmt: skip


# ---------------------------------------------------------------------- light headers and torch's own


def test_every_failure_with_light_headers_leads_to_a_build_with_torch_s_own():
    def light() -> str:
        raise BuildFailed("k.cu:3: error: a message that no list holds")

    assert light_headers.with_fallback(light, lambda: "built") == "built"


def test_a_successful_build_with_light_headers_is_not_repeated():
    assert light_headers.with_fallback(lambda: "light", lambda: pytest.fail("built again")) == "light"


def test_the_error_with_torch_s_own_headers_is_the_one_reported():
    def fails(message: str) -> None:
        raise BuildFailed(message)

    with pytest.raises(BuildFailed, match="torch's own"):
        light_headers.with_fallback(lambda: fails("light"), lambda: fails("torch's own"))


def test_a_final_failure_is_reported_without_a_second_build():
    def light() -> None:
        raise BuildFailed("error", final=True)

    with pytest.raises(BuildFailed):
        light_headers.with_fallback(light, lambda: pytest.fail("built again"))


def test_light_headers_are_not_tried_if_the_environment_asks_for_full_ones(monkeypatch):
    monkeypatch.setenv("KERNEL_HARNESS_HEADERS", "full")
    assert light_headers.with_fallback(lambda: pytest.fail("light"), lambda: "full") == "full"


def test_a_failed_build_for_a_gpu_is_repeated_whatever_the_message(tmp_path, monkeypatch):
    calls = []

    def load_inline(**arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("k.cu(3): error: a message that no list holds")

    monkeypatch.setattr(nvcc, "_load_inline", load_inline)
    monkeypatch.setattr(nvcc.bindings, "link_flags", lambda: [])
    sources = from_arguments(
        "x", "int f(int a);", "int f(int a) { return a; }", functions=["f"], extra_cflags=["-DA='b c'"]
    )
    nvcc.build(sources, tmp_path / "folder")
    assert [bool(call["extra_include_paths"]) for call in calls] == [True, False]  # light headers, then none
    assert calls[1]["functions"] == {"f": "f"} and calls[1]["extra_cflags"][0] == "'-DA=b c'"


@pytest.mark.slow
@needs_compiler
def test_the_light_headers_of_a_gpu_build_have_tensor_arithmetic(tmp_path):
    source = """
        #include <torch/extension.h>
        at::Tensor f(at::Tensor x, at::Tensor y) { return (x + 1e-5) / (2 * y) - (1 - x) * -y + (x < y); }
    """
    (tmp_path / "x.cpp").write_text(source)
    headers = light_headers.write_headers(tmp_path / "headers", source, binds_itself=False)
    host_compiler.run(["-I", headers, *host_compiler.torch_flags(), "-fsyntax-only", "x.cpp"], tmp_path)


ADDED = """
#include <torch/extension.h>

at::Tensor forward(at::Tensor x, double eps) {
    at::Tensor var = x * x;
    return 1 / (var + eps);
}
"""


@emulated
def test_tensor_arithmetic_in_cpp_builds_on_the_emulated_device():
    import torch

    built = load_inline_of(cpp_sources=ADDED, functions=["forward"])
    assert built.forward(torch.full((3,), 2.0, device="cuda"), 1.0).tolist() == pytest.approx([0.2] * 3)


OPERATORS = """
#include <torch/extension.h>
using namespace at;
#define CALL(name, x) torch::name(x)

at::Tensor apply(at::Tensor (*operation)(const at::Tensor&), at::Tensor x) { return operation(x); }
at::Tensor forward(at::Tensor x) { return cumsum(CALL(relu, x), 0) + apply(at::neg, x) + zeros_like(x).sigmoid(); }
"""


@pytest.mark.slow
@emulated
def test_operators_that_a_source_names_in_any_way_are_built_with_light_headers():
    import torch

    from cuda_on_cpu.emulator import extension

    extension._build_with_full_headers = lambda *arguments: pytest.fail("built with torch's own headers")
    built = load_inline_of(cpp_sources=OPERATORS, functions=["forward"])
    assert built.forward(torch.tensor([1.0, 2.0], device="cuda")).tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("include", "operators"),
    [
        ('#include "mine.h"', ["ATen/Functions.h"]),
        ("#include <torch/extension.h>", ["ATen/ops/relu.h"]),
        ('#include "torch/extension.h"', ["ATen/ops/relu.h"]),
        ('#include "cuda_runtime.h"', ["ATen/ops/relu.h"]),
    ],
)
def test_a_source_with_headers_of_its_own_gets_all_operators(include, operators):
    code = f"{include}\nat::Tensor forward(at::Tensor x) {{ return at::relu(x.neg()); }}"
    assert units._extra_includes(Headers.LIGHT, code)[1::2] == operators


# TORCH_MODULE is a macro of torch/nn, which the light headers lack. The source fails with both kinds of headers: a
# build with torch's own takes ten times as long if it succeeds, as that of `front_end` below.
FAILS_TWICE = """
#include <torch/extension.h>
#ifndef TORCH_MODULE
#error a message that no list holds
#else
#error the message with the headers of torch
#endif
"""


@pytest.mark.slow
@emulated
def test_a_failed_emulated_build_is_repeated_whatever_the_message():
    with pytest.raises(BuildFailed) as caught:
        load_inline_of(cpp_sources=FAILS_TWICE, functions=["forward"])

    assert "the message with the headers of torch" in str(caught.value)
    assert "a message that no list holds" not in caught.value.log


@pytest.mark.slow
@emulated
def test_names_that_light_headers_leave_out_mean_what_they_mean_in_torch():
    import torch

    built = extension("front_end")  # test_emulator uses the same build
    x = torch.arange(3.0)
    assert built.literals().dtype is torch.float32
    assert built.with_grad().requires_grad
    assert built.first_two(x).tolist() == [0.0, 1.0]
    assert built.joined(x).shape == (6,)
    assert built.on_a_device(x)


GLOBAL_SETTINGS = """
#include <torch/extension.h>
bool deterministic() { return at::globalContext().deterministicAlgorithms(); }
"""


@pytest.mark.slow
@emulated
def test_a_source_that_reads_torch_s_global_settings_is_built_with_light_headers():
    import torch

    from cuda_on_cpu.emulator import extension

    extension._build_with_full_headers = lambda *arguments: pytest.fail("built with torch's own headers")
    built = load_inline_of(cpp_sources=GLOBAL_SETTINGS, functions=["deterministic"])
    torch.use_deterministic_algorithms(True)
    assert built.deterministic()


@pytest.mark.parametrize(
    ("line", "served"),
    [
        ("auto y = torch::empty_like(x);", True),
        ("torch::NoGradGuard guard;", True),
        ("auto y = torch::cat({x, x});", True),
        ("#if TORCH_VERSION_MAJOR >= 2", True),
        ("options.requires_grad(false)", True),
        ("x.requires_grad()", True),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", True),
        ("torch::nn::Linear layer(1, 1);", False),
        ("options.requires_grad(true)", False),
        ("torch::requires_grad()", False),
        ("auto y = torch::tensor({1.0});", False),
    ],
)
def test_light_headers_are_tried_if_no_name_lacks_or_changes_its_meaning(line, served):
    assert light_headers.serve(line) is served


FAILS = """
#include <torch/extension.h>
torch::Tensor first(torch::Tensor x) { return x.no_such_member(); }
torch::Tensor second(torch::Tensor x) { return undeclared; }
"""


@emulated
@pytest.mark.slow
def test_all_errors_of_a_source_are_in_the_log_and_nothing_else():
    with pytest.raises(BuildFailed) as caught:
        load_inline_of(cpp_sources=FAILS, functions=["first"])
    found = re.findall(r"error: (.*)", caught.value.log.replace("\u2018", "'").replace("\u2019", "'"))
    assert [text[:40] for text in found] == [
        "'class at::Tensor' has no member named 'no_such_member'"[:40],
        "'undeclared' was not declared in this scope"[:40],
    ]


# g++ compiles the body of `twice` after the last line of the source.
FAILS_IN_A_TEMPLATE = """
#include <torch/extension.h>
template <typename T> void twice(T x) { x.no_such_member(); }
torch::Tensor forward(torch::Tensor x) { twice(1.0f); return x; }
"""


@pytest.mark.slow
@emulated
def test_an_error_in_a_template_is_found_with_torch_s_own_headers():
    with pytest.raises(BuildFailed, match="no_such_member"):
        load_inline_of(cpp_sources=FAILS_IN_A_TEMPLATE, functions=["forward"])


# What a source ends with, and the errors that g++ finds in the source itself before it reaches the stop.
ENDINGS = {
    "int f() { return 1; }": [],
    "this is no C++": ["expected unqualified-id before 'this'"],
    "struct X { int a; }": ["expected ';' after struct definition"],
    "int x = 5": [],
    "int g(int a": [],
    "int f() {": [],
    "namespace n { int f() {": [],
    "int f() { if (1) {": [],
}


@needs_compiler
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_compiler_stops_at_the_end_of_a_source_however_it_ends(ending: str, tmp_path: Path) -> None:
    """Otherwise it would go on with torch's headers, for seconds."""
    (tmp_path / "k.cpp").write_text(ending + units._STOP)
    with pytest.raises(CompilerFailed) as caught:
        host_compiler.run(["-std=c++20", "-fsyntax-only", "k.cpp"], tmp_path)
    found, _, behind = caught.value.log.partition(units._END)

    assert "fatal error: template instantiation depth" in behind
    assert [line.split("error: ")[1] for line in found.splitlines() if "error: " in line] == ENDINGS[ending]


@emulated
@pytest.mark.slow
def test_an_error_in_device_code_without_torch_headers_is_reported_after_one_compile():
    compiled: list[str] = []
    run = host_compiler.run

    def recorded(arguments: list[Any], folder: Path) -> None:
        compiled.append(str(next(word for word in arguments if str(word).endswith(".cpp"))))
        run(arguments, folder)

    host_compiler.run = recorded
    with pytest.raises(BuildFailed, match="expected ';'"):
        load_inline_of(
            cpp_sources="#include <ATen/core/Tensor.h>\nvoid launch(float*);\n"
            "at::Tensor forward(at::Tensor x) { launch(x.data_ptr<float>()); return x; }",
            cuda_sources="__global__ void k(float* x) { x[0] = 1 }\nvoid launch(float* x) { k<<<1, 1>>>(x); }",
            functions=["forward"],
            no_implicit_headers=True,
        )
    assert sorted(compiled) == ["cuda.cpp", "main.cpp"]


@emulated
@pytest.mark.slow
def test_a_library_that_does_not_exist_is_reported_without_a_build_with_torch_s_own_headers():
    from cuda_on_cpu.emulator import extension

    extension._build_with_full_headers = lambda *arguments: pytest.fail("built with torch's own headers")
    with pytest.raises(BuildFailed, match="cannot find -lno_such_library"):
        load_inline_of(cpp_sources=ADDED, functions=["forward"], extra_ldflags=["-lno_such_library"])


WITH_FLAGS = """
#include <torch/extension.h>

__global__ void fill(float* x) { x[threadIdx.x] = FILLED_WITH; }

torch::Tensor forward(torch::Tensor x) {
    fill<<<1, x.numel()>>>(x.data_ptr<float>());
    return x;
}
"""


@emulated
def test_an_emulated_build_takes_flags_as_torch_does():
    import torch

    built = load_inline_of(
        cpp_sources="torch::Tensor forward(torch::Tensor x);",
        cuda_sources=WITH_FLAGS,
        functions=["forward"],
        extra_cflags=["", "-std=c++17"],
        extra_cuda_cflags=[
            "-O3 -DFILLED_WITH=2",
            "--use_fast_math",
            "-std=c++17",
            "-gencode",
            "arch=compute_90,code=sm_90",
        ],
        extra_ldflags=["", "-lc10"],
        extra_include_paths=[""],
    )
    assert built.forward(torch.ones(3, device="cuda")).tolist() == [2.0] * 3


@emulated
def test_an_emulated_build_takes_files_as_torch_does():
    import torch

    from cuda_on_cpu.emulator import extension

    Path("fill.cu").write_text(WITH_FLAGS)
    declared = "#include <torch/extension.h>\ntorch::Tensor forward(torch::Tensor x);\n"
    module = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }'
    Path("bind.cpp").write_text(f"{declared}{module}\n")
    load_inline.install(extension.get_or_build, CandidateFile("k.py", ""))
    built = cpp_extension.load("k", ["bind.cpp", "fill.cu"], None, ["-DFILLED_WITH=2"], verbose=True)
    assert built.forward(torch.ones(3, device="cuda")).tolist() == [2.0] * 3


def load_inline_of(**arguments: Any) -> Any:
    """The module that load_inline builds for these arguments."""
    from cuda_on_cpu.emulator import extension

    load_inline.install(extension.get_or_build, CandidateFile("k.py", ""))
    return cpp_extension.load_inline("k", **{"cpp_sources": "", **arguments})


# ---------------------------------------------------------------------------------- kernels in a .cu


def test_a_python_file_is_used_unchanged():
    assert cu_file.as_module("k.py", "x = 1") == "x = 1"


CU = """// Adds one.
#include <c10/cuda/CUDAException.h>
#include <torch/extension.h>

static __global__ void add_one(float* x, int64_t n) {
    const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}

torch::Tensor forward(torch::Tensor x,
                      const torch::Tensor& unused) {
    auto out = x.clone();
    add_one<<<1, 256>>>(out.data_ptr<float>(), out.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""
BOUND = (ROOT / "tests" / "emulator" / "binds_itself.cu").read_text()


@emulated
@pytest.mark.parametrize(
    ("file", "source"), [("add one.cu", CU), ("binds_itself.cu", BOUND)], ids=["bound for it", "binds itself"]
)
def test_a_cu_file_becomes_a_model(file, source):
    import torch

    from cuda_on_cpu.emulator import extension

    load_inline.install(extension.get_or_build, CandidateFile(file, source))
    namespace: dict[str, Any] = {}
    exec(cu_file.as_module(file, source), namespace)
    x = torch.zeros(4, device="cuda")
    assert namespace["ModelNew"]()(x, x).tolist() == [1.0] * 4


def test_the_error_for_a_cu_file_without_forward_says_what_to_name_it():
    with pytest.raises(BuildFailed, match=r"k\.cu:1: error: .*forward"):
        cu_file.as_module("k.cu", "torch::Tensor run(torch::Tensor x) { return x; }")


def test_a_forward_that_is_only_declared_or_in_a_comment_does_not_count():
    with pytest.raises(BuildFailed):
        cu_file.as_module("k.cu", "torch::Tensor forward(torch::Tensor x);\n// torch::Tensor forward() {\n")


def test_the_module_for_a_cu_file_contains_its_source_unchanged():
    source = 'torch::Tensor forward(torch::Tensor x) { return x; } // "\\n" \'\'\' """ \u00e4\n'
    text = cu_file.as_module("k.cu", source)
    kept: dict[str, Any] = {}
    head = text.split("class ModelNew")[0].replace("from torch.utils import cpp_extension", "cpp_extension = Kept()")
    exec("class Kept:\n    def load_inline(self, **given): return given\n" + head, kept)
    assert kept["_extension"]["cuda_sources"] == source
    assert json.dumps(kept["_extension"]["functions"]) == '["forward"]'


@needs_compiler
def test_a_part_that_all_candidates_share_is_announced_only_if_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Announced(Exception):
        pass

    def stop(text: str) -> None:
        raise Announced(text)

    bindings.library()
    bindings.library(stop)
    monkeypatch.setenv("KERNEL_HARNESS_CACHE", str(tmp_path))
    with pytest.raises(Announced, match=r"^building the library that binds C\+\+ functions"):
        bindings.library(stop)
