"""What surrounds a compiler: whose lines its messages name, what they boil down to, and what is built only once."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from emulated.inside import emulated, inside  # noqa: F401 - a fixture
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import cpp_extension

from kernel_harness import build
from kernel_harness.build import cache
from kernel_harness.build.digest import first_error, undefined_symbol
from kernel_harness.build.errors import BuildFailed
from kernel_harness.build.lines import mark
from kernel_harness.build.sources import from_arguments

ROOT = Path(__file__).resolve().parent.parent
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
# As it was before any worker's own took its place in this process.
TORCHS_LOAD_INLINE = cpp_extension.load_inline


# ------------------------------------------------------------------------------- whose lines they are


def lines_of(file_text: str, source: str) -> dict[str, int]:
    """Each line of the source -> the line that a compiler would name for it."""
    named: dict[str, int] = {}
    number = 1
    for line in mark(source, file_text, "kernel.py").split("\n"):
        directive = re.fullmatch(r'#line (\d+) "kernel\.py"', line)
        if directive:
            number = int(directive[1])
        else:
            named[line.strip()] = number
            number += 1
    return named


def number_in(file_text: str, text: str) -> int:
    return next(i for i, line in enumerate(file_text.split("\n"), 1) if text in line)


def strings_of(file_text: str) -> dict[str, Any]:
    """What the Python file leaves in its variables."""
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
def test_lines_that_stand_in_the_file_as_they_are_get_their_own_numbers(file_text, lines):
    named = lines_of(file_text, strings_of(file_text)["SOURCE"])
    assert {line: named[line] for line in lines} == {line: number_in(file_text, line) for line in lines}


def test_a_line_that_stands_nowhere_counts_on_from_the_one_before():
    named = lines_of(FORMATTED, strings_of(FORMATTED)["SOURCE"])
    assert named["constexpr int size = 16;"] == number_in(FORMATTED, "constexpr int size")
    assert named["int after = { 1 };"] == number_in(FORMATTED, "int after")


def test_a_line_that_shares_its_line_with_python_gets_that_line():
    named = lines_of(SAME_LINE, strings_of(SAME_LINE)["SOURCE"])
    assert named["int first;"] == number_in(SAME_LINE, "int first")


def test_lines_whose_indentation_was_taken_away_get_their_numbers():
    named = lines_of(INDENTED, strings_of(INDENTED)["SOURCE"])
    assert named["int first;"] == number_in(INDENTED, "int first")
    assert named["int second;"] == number_in(INDENTED, "int second")


def test_a_macro_over_several_lines_is_not_cut_by_a_directive():
    file_text = 'A = """\n#define M \\\\\n    one \\\\\n    two\n"""\n#\nB = """\n    three\n"""\n'
    source = "\n#define M \\\n    one \\\n    two\n    three\n"
    lines = mark(source, file_text, "kernel.py").split("\n")
    for line, following in itertools.pairwise(lines):
        assert not (line.endswith("\\") and following.startswith("#line"))


def test_a_file_s_name_may_hold_quotes_and_backslashes():
    assert '#line 1 "a\\"b\\\\c.py"' in mark("int x;", "int x;", 'a"b\\c.py')


@given(
    st.lists(st.sampled_from(["int a;", "int b;", "", "}", "  f();", "#define M \\", "x"]), max_size=12),
    st.lists(st.sampled_from(["int a;", "int b;", "", "}", "  f();", 'S = """', "x"]), max_size=12),
)
def test_marking_adds_directives_and_changes_nothing_else(source, file_lines):
    out = mark("\n".join(source), "\n".join(file_lines), "k.py").split("\n")
    assert [line for line in out if not line.startswith("#line ")] == "\n".join(source).split("\n")


@given(st.lists(st.text(alphabet="ab;{} ", max_size=6), min_size=1, max_size=12))
def test_a_source_that_is_the_file_keeps_its_numbers(lines):
    text = "\n".join(lines)
    number = 1
    for line in mark(text, text, "k.cu").split("\n"):
        directive = re.fullmatch(r'#line (\d+) "k\.cu"', line)
        if directive:
            number = int(directive[1])
        else:
            assert lines[number - 1] == line
            number += 1


# --------------------------------------------------------------------------- what a log boils down to


def compiled(tmp_path: Path, source: str, *command: str) -> str:
    """What the compiler says of a source, in a file `x.cpp` or `x.cu`."""
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
def test_a_warning_before_the_error_is_passed_over(tmp_path):
    log = compiled(tmp_path, "int f() { int unused; }\nint g() { return nowhere; }\n", "g++", "-c", "-Wall")
    assert "warning" in log and first_error(log).startswith("x.cpp:2: error: ")


@needs_compiler
def test_the_line_itself_is_shown_where_the_file_can_be_read(tmp_path, monkeypatch):
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
def test_the_linker_s_words_are_found(tmp_path, source, flags, text):
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


def test_a_log_without_an_error_is_given_as_it_is_and_cut():
    assert first_error("nothing\n") == "nothing"
    assert len(first_error("x" * 100_000)) <= 2000


@given(st.text(max_size=300))
def test_any_log_has_a_first_error(log):
    assert isinstance(first_error(log), str)


def test_a_missing_symbol_is_named_as_its_author_wrote_it():
    assert undefined_symbol("/tmp/x.so: undefined symbol: _Z1fi") in ("f(int)", "_Z1fi")


def test_another_complaint_of_the_loader_is_no_missing_symbol():
    assert undefined_symbol("cannot open shared object file") == ""


# --------------------------------------------------------------------------------------------- cache


def fill(folder: Path) -> None:
    (folder / "product").write_text("built")


def test_an_entry_is_built_once_and_then_found(own_cache):
    folder, cached = cache.get_or_build("kind", "a" * 64, fill)
    assert (cached, (folder / "product").read_text()) == (False, "built")
    assert cache.get_or_build("kind", "a" * 64, lambda folder: pytest.fail("built again")) == (folder, True)


def test_entries_of_other_names_and_kinds_are_apart(own_cache):
    folders = {cache.get_or_build(kind, name * 64, fill)[0] for kind in ("one", "two") for name in "ab"}
    assert len(folders) == 4


def test_a_build_that_fails_leaves_nothing_behind_and_is_tried_again(own_cache):
    def broken(folder: Path) -> None:
        fill(folder)
        raise BuildFailed("no")

    with pytest.raises(BuildFailed):
        cache.get_or_build("kind", "a" * 64, broken)
    assert [p for p in own_cache.rglob("*") if p.suffix != ".lock"] == [own_cache / "kind"]
    assert cache.get_or_build("kind", "a" * 64, fill)[1] is False


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_an_entry_that_is_not_as_it_was_written_is_built_again(own_cache, damage):
    folder, _ = cache.get_or_build("kind", "a" * 64, fill)
    product = folder / "product"
    if damage == "gone":
        product.unlink()
    else:
        product.write_text({"cut": "bui", "changed": "BUILT"}[damage])
    assert cache.get_or_build("kind", "a" * 64, fill)[1] is False
    assert product.read_text() == "built"


def test_keys_tell_every_part_and_its_name_apart():
    assert cache.key(a="1", b="2") == cache.key(b="2", a="1")
    assert len({cache.key(a="1", b="2"), cache.key(a="2", b="1"), cache.key(a="12", b=""), cache.key(a="1")}) == 4


def test_a_digest_tells_names_and_contents_of_files_apart(tmp_path):
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
from kernel_harness.build import cache

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
    """What it says once it is told to go on."""
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
def test_arguments_that_load_inline_refuses_are_refused_alike(arguments, error, tmp_path):
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
def test_functions_may_be_one_a_list_a_dict_or_none(functions, expected):
    assert from_arguments("x", "", functions=functions).functions == expected


def test_sources_may_be_one_string_or_a_list_and_by_position():
    sources = from_arguments("x", ["int a;", "int b;"], "int c;", functions=["f"])
    assert (sources.cpp, sources.cuda, sources.functions) == ("int a;\nint b;", "int c;", {"f": "f"})


def test_what_is_not_given_is_empty():
    sources = from_arguments("x", "")
    assert (sources.cuda, sources.functions, sources.cflags, sources.cuda_cflags, sources.ldflags) == (
        "",
        None,
        (),
        (),
        (),
    )
    assert sources.include_paths == () and sources.implicit_headers


# ---------------------------------------------------------------------------------- kernels in a .cu


def test_a_python_file_stands_for_itself():
    assert build.as_module("k.py", "x = 1") == "x = 1"


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
BOUND = (ROOT / "tests" / "emulated" / "binds_itself.cu").read_text()


@emulated
@pytest.mark.parametrize(
    ("file", "source"), [("add one.cu", CU), ("binds_itself.cu", BOUND)], ids=["bound for it", "binds itself"]
)
def test_a_cu_file_becomes_a_model(file, source):
    import torch

    from kernel_harness.emulator import compile as emulator

    log = build.install(emulator.extension, Path(file), source)
    namespace: dict[str, Any] = {}
    exec(build.as_module(file, source), namespace)
    x = torch.zeros(4, device="cuda")
    assert namespace["ModelNew"]()(x, x).tolist() == [1.0] * 4
    assert len(log.entries) == 1


def test_a_cu_file_without_forward_is_told_what_to_name_it():
    with pytest.raises(BuildFailed, match=r"k\.cu: error: .*forward"):
        build.as_module("k.cu", "torch::Tensor run(torch::Tensor x) { return x; }")


def test_a_forward_that_is_only_declared_or_in_a_comment_does_not_count():
    with pytest.raises(BuildFailed):
        build.as_module("k.cu", "torch::Tensor forward(torch::Tensor x);\n// torch::Tensor forward() {\n")


def test_the_module_around_a_cu_file_holds_its_source_unchanged():
    source = 'torch::Tensor forward(torch::Tensor x) { return x; } // "\\n" \'\'\' """ \u00e4\n'
    text = build.as_module("k.cu", source)
    kept: dict[str, Any] = {}
    head = text.split("class ModelNew")[0].replace("from torch.utils import cpp_extension", "cpp_extension = Kept()")
    exec("class Kept:\n    def load_inline(self, **given): return given\n" + head, kept)
    assert kept["_extension"]["cuda_sources"] == source
    assert json.dumps(kept["_extension"]["functions"]) == '["forward"]'
