"""Benchmarks and tests are independent: either folder works without the other."""

from __future__ import annotations

import re

import pytest
from support.command import ROOT

IMPORT = r"^\s*(?:from|import)\s+{}\b"


@pytest.mark.parametrize(("folder", "other"), [("benchmarks", "tests|support"), ("tests", "benchmarks")])
def test_a_folder_does_not_import_the_other(folder: str, other: str) -> None:
    pattern = re.compile(IMPORT.format(f"(?:{other})"), re.MULTILINE)

    assert not [path for path in (ROOT / folder).rglob("*.py") if pattern.search(path.read_text())]


def test_benchmarks_name_no_file_of_the_tests() -> None:
    assert not [path for path in (ROOT / "benchmarks").rglob("*.py") if '"tests"' in path.read_text()]
