"""Candidates with equal sources share a library of the build cache: none of them may change it for the others."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from support.command import Harness
from support.product import PROBLEM_FILE

SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

CPP = """
torch::Tensor product(torch::Tensor a, torch::Tensor b) {{ /* {mark} */ return at::matmul(a.t(), b.t()); }}
"""
ops = load_inline(name="product", cpp_sources=CPP, functions=["product"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return ops.product(a, b)
'''
# In a #line directive that doubles backslashes and puts one before each quote, the backslash and the newline join two
# lines, the quote ends the name, and the next line is code.
POISONED = 'x\\\n"\n#define matmul minimum\n#define rest .py'
WORDS = ("--problem", PROBLEM_FILE, "--device", "cpu", "--quick", "--rounds", "8", "--json")


@pytest.mark.slow
def test_the_name_of_a_file_does_not_change_the_library_of_an_innocent_one(harness: Harness, tmp_path: Path) -> None:
    text = SOURCE.format(mark=uuid.uuid4().hex)
    for name in (POISONED, "innocent.py"):
        (tmp_path / name).write_text(text)
    harness.run(*WORDS, "--kernel", tmp_path / POISONED)
    innocent = harness.run(*WORDS, "--kernel", tmp_path / "innocent.py").results["innocent"]

    assert innocent["status"] == "PASSED", innocent["reason"]
    assert [build["cached"] for build in innocent["builds"]] == [True]


FAILS = '''
CPP = """
torch::Tensor product(torch::Tensor a, torch::Tensor b) {{ /* {mark} */
    TORCH_INTERNAL_ASSERT(a.numel() < 0);
    return a;
}}
"""
'''


@pytest.mark.slow
def test_a_message_of_a_shared_library_names_the_file_that_is_judged(harness: Harness, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    head, _, tail = SOURCE.format(mark=mark).partition('CPP = """')
    tail = tail[tail.index('"""') + 3 :]
    for name, before in (("first", ""), ("second", "# a comment\n" * 7)):
        (tmp_path / f"{name}.py").write_text(head + before + FAILS.format(mark=mark) + tail)
    for name in ("first", "second"):
        result = harness.run(*WORDS, "--kernel", tmp_path / f"{name}.py").results[name]
        lines = (tmp_path / f"{name}.py").read_text().split("\n")
        line = next(i for i, line in enumerate(lines, 1) if "TORCH_INTERNAL_ASSERT" in line)

        assert result["status"] == "RUNTIME_ERROR"
        assert f"{name}.py" in result["reason"] and f'":{line}, please' in result["reason"], result["reason"]
    assert [build["cached"] for build in result["builds"]] == [True]
