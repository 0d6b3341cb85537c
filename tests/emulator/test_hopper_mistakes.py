"""Mistakes with Hopper's asynchronous units: what `sanitize` and `run` say of each, and nothing of what is right."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import torch
from support import hopper
from support.command import ROOT
from support.emulated_process import SOURCES, emulated, exported, extension, inside  # noqa: F401 - a fixture

from cuda_on_cpu.api import reached_lack
from cuda_on_cpu.compile.candidate_file import CandidateFile

FENCE, STILL_READ, REGISTERS = "missing proxy fence", "write before a wait", "registers before a wait"
FAILED = "failed instruction"
# The findings of each function of hopper_mistakes.cu with this number of the mistake.
MISTAKES = {
    ("copied", 1): FENCE, ("copied", 2): FENCE, ("copied", 3): FENCE, ("copied", 4): STILL_READ,
    ("boxes", 1): FENCE, ("boxes", 2): "race", ("boxes", 3): FAILED,
    ("products", 1): FENCE, ("products", 2): REGISTERS, ("products", 3): REGISTERS, ("products", 4): STILL_READ,
    ("products", 5): FAILED, ("ring", 2): STILL_READ, ("ring", 3): STILL_READ,
    ("passed", 1): "out-of-bounds write", ("passed", 2): "uninitialised read",
    **{("wrong", how): FAILED for how in range(1, 8)},
}  # fmt: skip
RIGHT = [("copied", 0), ("copied", 5), ("copied", 6), ("copied", 7), ("boxes", 0), ("products", 0), ("ring", 0),
         ("ring", 1), ("passed", 0)]  # fmt: skip
# Prints the findings of each call. Each call has a process, because an error stays in its process.
PROGRAM = r"""
import json, os, sys
import torch
import cuda_on_cpu
from support import hopper
from support.emulated_process import SOURCES, exported

cuda_on_cpu.enable(sanitize=True)

def build(stem):
    declared = exported(stem)
    text = (SOURCES / f"{stem}.cu").read_text()
    cpp = "".join(f"{each};\n" for each in declared.values())
    return cuda_on_cpu.load_inline(stem, cpp, text, functions=list(declared))

def look(name, call):
    sys.stdout.flush()
    if os.fork():
        return os.wait()
    try:
        found = [(each.kind, each.here.line, each.sentence) for each in cuda_on_cpu.sanitize(call)]
    except BaseException as error:
        found = [("error", 0, str(error))]
    print(json.dumps([name, found]), flush=True)
    os._exit(0)

x = torch.randn(1024).cuda()
A, B = (torch.randint(-4, 5, (n, 64)).half().cuda() for n in (64, 16))
tiles_A, tiles_B = (torch.randint(-4, 5, (6, n)).half().cuda() for n in (1024, 256))
arguments = {
    "copied": [x], "boxes": [x[:1024].view(32, 32)], "products": [A, B], "ring": [tiles_A, tiles_B], "passed": [],
    "wrong": [x, x],
}
ops = build("hopper_mistakes")
for name, how in json.loads(sys.argv[1]):
    look(f"{name} {how}", lambda: getattr(ops, name)(*arguments[name], how))
ops = build("hopper")
for name, check in hopper.CHECKS.items():
    look(name, lambda: check(ops))
"""
WRONG = {
    1: "an mbarrier whose address is no multiple of 8",
    2: "an mbarrier that was not initialised",
    3: "a bulk copy to an address that is no multiple of 16",
    4: "a bulk copy from an address that is no multiple of 16",
    5: "a bulk copy of a size that is no multiple of 16 bytes",
    6: "more arrivals at an mbarrier than its phase expects",
    7: "a bulk copy to an address that is no multiple of 16",
}
REFUSED = {
    1: "cp.async.bulk.tensor.3d.shared::cluster.global.im2col",
    2: "wgmma.mma_async.sp",
    3: "s32.b1.b1",
    4: "tensormap.replace",
    5: "tcgen05.alloc",
}
OF_DRIVER = {7: "cuTensorMapEncodeIm2col", 8: "CU_TENSOR_MAP_INTERLEAVE_16B"}


@functools.cache
def findings() -> dict[str, Any]:
    """The kind, the line and the sentence of each finding, by the call."""
    calls = json.dumps([*MISTAKES, *RIGHT])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-", calls]
    done = subprocess.run(command, input=PROGRAM, capture_output=True, text=True, env=environment)
    return dict(json.loads(line) for line in done.stdout.splitlines()) or {"error": done.stderr}


def line_of(name: str, how: int, stem: str = "hopper_mistakes") -> int:
    lines = (SOURCES / f"{stem}.cu").read_text().split("\n")
    (found,) = [i for i, line in enumerate(lines, 1) if re.search(rf"// BUG.* {name} (?:\d+ )*{how}\b", line)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "how"), MISTAKES)
def test_sanitize_finds_a_mistake_at_its_line(name, how):
    found = findings()[f"{name} {how}"]
    assert (MISTAKES[name, how], line_of(name, how)) in [(kind, line) for kind, line, _ in found], found


@pytest.mark.slow
@pytest.mark.parametrize("call", [*(f"{name} {how}" for name, how in RIGHT), *hopper.CHECKS])
def test_sanitize_finds_nothing_in_a_right_kernel(call):
    assert findings()[call] == []


@emulated
@pytest.mark.parametrize("how", WRONG)
def test_an_error_names_the_line_of_the_instruction(how):
    x = torch.zeros(1024).cuda()
    extension("hopper_mistakes").wrong(x, x, how)
    says = f"hopper_mistakes.cuda_sources:{line_of('wrong', how)}: {WRONG[how]}"
    with pytest.raises(RuntimeError, match=re.escape(says)):
        torch.cuda.synchronize()


@emulated
@pytest.mark.parametrize("how", REFUSED)
def test_an_instruction_that_is_lacking_is_named_with_its_line(how):
    extension("hopper_refused").refused(torch.zeros(32, dtype=torch.int32).cuda(), how)
    lines = (SOURCES / "hopper_refused.cu").read_text().split("\n")
    (line,) = [i for i, text in enumerate(lines, 1) if f"if (how == {how}) asm" in text]
    assert re.match(rf".*:{line}: the emulation cannot run the inline PTX .*{re.escape(REFUSED[how])}", reached_lack())


@emulated
@pytest.mark.parametrize("how", OF_DRIVER)
def test_a_tensor_map_that_is_lacking_is_named_with_its_line(how):
    extension("hopper_refused").refused(torch.zeros(32**3).cuda(), how)
    text = (SOURCES / "hopper_refused.cu").read_text()
    line = next(i for i, each in enumerate(text.split("\n"), 1) if OF_DRIVER[how] in each)
    says = CandidateFile("mine.py", text).translated(reached_lack())
    assert says == f"mine.py:{line}: the emulation cannot run {OF_DRIVER[how]}."


@emulated
@pytest.mark.parametrize("how", [0, 6])
def test_a_prefetch_of_what_is_lacking_has_no_effect(how):
    y = torch.zeros(32, dtype=torch.int32).cuda()
    extension("hopper_refused").refused(y, how)
    assert y.sum() == 32
