"""Cache keys: two candidates whose builds differ have different keys, on the emulated device and on a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import cpp_extension

from cuda_on_cpu.compile import load_inline
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.sources import Sources, from_arguments
from cuda_on_cpu.emulator import units
from cuda_on_cpu.emulator.flags import Instrumentation
from cuda_on_cpu.emulator.keys import extension_key
from cuda_on_cpu.emulator.units import Headers
from kernel_harness.compile import nvcc, strict
from kernel_harness.device.profiled import Profiled

BASE = {"name": "k", "cpp_sources": "void run();", "cuda_sources": "void run() {}", "functions": ["run"]}


def sources(**changed: object) -> Sources:
    return from_arguments(**{**BASE, **changed})


def test_equal_sources_have_equal_keys():
    assert extension_key(sources()) == extension_key(sources())


@pytest.mark.parametrize(
    "changed",
    [
        {"no_implicit_headers": True},
        {"name": "other"},
        {"cpp_sources": "void run(); "},
        {"cuda_sources": "void run() { }"},
        {"functions": {"run": "Runs."}},
        {"functions": None},
        {"extra_cflags": ["-DX"]},
        {"extra_cuda_cflags": ["-DX"]},
        {"extra_ldflags": ["-lm"]},
        {"extra_include_paths": ["/usr/include"]},
        {"with_pytorch_error_handling": False},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_each_argument_of_load_inline_changes_the_key(changed):
    assert extension_key(sources(**changed)) != extension_key(sources())


def test_each_instrumentation_has_its_own_key():
    assert len({extension_key(sources(), instrumentation) for instrumentation in Instrumentation}) == 3


@pytest.mark.parametrize(
    "key", [lambda: strict.key("base"), lambda: Profiled().build_key(sources())], ids=["strict", "profiled"]
)
def test_an_upgrade_of_the_toolkit_in_the_same_folder_changes_the_keys_of_what_nvcc_checks(key, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime.h").touch()
    program = tmp_path / "bin" / "nvcc"
    program.touch(mode=0o755)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))
    keys = set()
    for release in ("13.0", "13.1"):
        program.write_text(f"#!/bin/sh\necho 'release {release}'\n")
        keys.add(key())
    assert len(keys) == 2


def test_full_headers_on_request_change_the_key(monkeypatch):
    light = extension_key(sources())
    monkeypatch.setenv("KERNEL_HARNESS_HEADERS", "full")
    assert extension_key(sources()) != light


# ------------------------------------------------------------------------- equal keys, equal text for the compiler

# A file's name and text, and the arguments that the file passes to load_inline. The choices are few, so that many
# examples have equal keys. Documentation texts imitate the lines that bind a function.
FILES = st.tuples(
    st.text(max_size=8)
    | st.text(alphabet='a.\\"\n/ ', max_size=8)
    | st.just('x\\\n"\n#define run poisoned\n#define y .py'),
    st.lists(st.sampled_from(["void run() {}", "int a;", "", "\\", "#define X"]), max_size=4).map("\n".join),
)  # fmt: skip
DOCS = st.sampled_from(["Runs.", 'Runs.");\n  m.def("walk", walk, "Walks.'])
FUNCTIONS = st.one_of(
    st.none(), st.permutations(["run", "walk"]), st.dictionaries(st.just("run"), DOCS),
    st.just({"run": "Runs.", "walk": "Walks."}),
)  # fmt: skip
ARGUMENTS = st.fixed_dictionaries(
    {
        "name": st.just("k"),
        "cpp_sources": st.sampled_from(["void run();", ["void run();", "void walk();"]]),
        "cuda_sources": st.sampled_from(["", "void run() {}\nint a;"]),
        "functions": FUNCTIONS,
        "no_implicit_headers": st.booleans(),
        "with_pytorch_error_handling": st.booleans(),
    }
)
# Two calls of load_inline: unrelated ones, or with the same sources and flags.
PAIRS = st.tuples(ARGUMENTS, ARGUMENTS) | st.builds(
    lambda arguments, functions: (arguments, {**arguments, "functions": functions}), ARGUMENTS, FUNCTIONS
)


class Seen(Exception):
    """Ends a call of load_inline when its sources are known."""


def sources_of(file: tuple[str, str], arguments: Mapping[str, Any]) -> Sources:
    """What a candidate's file asks to be built."""
    seen: list[Sources] = []

    def builder(sources: Sources) -> tuple[Path, bool]:
        seen.append(sources)
        raise Seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpp_extension, "load_inline", cpp_extension.load_inline)
        load_inline.install(builder, CandidateFile(*file))
        with pytest.raises(Seen):
            cpp_extension.load_inline(**arguments)
    return seen[0]


def emulated_text(sources: Sources) -> list[Any]:
    """All that g++ gets, with each kind of headers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "_first_includes", lambda headers, sanitized: [])  # does not build the shared headers
        return [units.translation_units(sources, headers, Instrumentation.NONE) for headers in Headers]


def torchs_arguments(sources: Sources) -> list[Any]:
    """All that torch's load_inline gets, with light headers and without."""
    calls: list[str] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvcc, "_load_inline", lambda **arguments: calls.append(repr(arguments).replace(folder, "")))
        patch.setattr(nvcc.bindings, "link_flags", lambda: [])
        for name, build in (("light", nvcc.build_light), ("plain", nvcc.build_plain)):
            (Path(folder) / name).mkdir()
            build(sources, Path(folder) / name)
    return calls


@given(FILES, FILES, PAIRS)
@settings(max_examples=200)
def test_equal_keys_mean_equal_text_for_the_compiler_of_the_emulator(file, other_file, pair):
    one, two = sources_of(file, pair[0]), sources_of(other_file, pair[1])
    if extension_key(one) == extension_key(two):
        assert emulated_text(one) == emulated_text(two)


@given(FILES, FILES, PAIRS)
@settings(max_examples=100)
def test_equal_keys_mean_equal_text_for_nvcc(file, other_file, pair):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvcc, "version", lambda: "")
        one, two = sources_of(file, pair[0]), sources_of(other_file, pair[1])
        if nvcc.key(one, [9, 0]) == nvcc.key(two, [9, 0]):
            assert torchs_arguments(one) == torchs_arguments(two)


# This documentation text contains the line that would bind a second function.
IMITATION = {"run": 'Runs.");\n  m.def("walk", walk, "Walks.'}


@pytest.mark.parametrize(
    ("one", "two"), [(IMITATION, {"run": "Runs.", "walk": "Walks."}), (["run", "walk"], ["walk", "run"])]
)
def test_other_functions_have_another_key(one, two, monkeypatch):
    monkeypatch.setattr(nvcc, "version", lambda: "")
    both = [sources(functions=functions, with_pytorch_error_handling=False) for functions in (one, two)]
    assert len({extension_key(each) for each in both}) == 2
    assert len({nvcc.key(each, [9, 0]) for each in both}) == 2


@given(FILES, FILES, ARGUMENTS)
@settings(max_examples=50)
def test_the_name_and_the_text_of_the_file_are_no_part_of_a_build(file, other_file, arguments):
    one, two = sources_of(file, arguments), sources_of(other_file, arguments)
    assert extension_key(one) == extension_key(two)
    assert emulated_text(one) == emulated_text(two)
