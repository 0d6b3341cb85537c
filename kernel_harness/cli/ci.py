"""What continuous integration reads of a run or a comparison: JUnit XML and Markdown, each in a file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree

from kernel_harness.core.paths import shown
from kernel_harness.core.terminal import Terminal, printable
from kernel_harness.results import failure_text, journal
from kernel_harness.results.record import Result
from kernel_harness.session.reproduce import kernel_file


@dataclass(frozen=True)
class TestCase:
    """A kernel as a test case of JUnit XML.

    `suite` names what was run, such as `matmul_tt, M=48,K=256,N=64`. `result` is the kernel's result, or None if it was
    not judged. `kind` and `message` say in a word and in a line why the test failed or was skipped; both are empty if
    it passed.
    """

    suite: str
    kernel: str
    result: Result | None
    kind: str = ""
    message: str = ""
    skipped: bool = False


def write(parsed: argparse.Namespace, cases: Iterable[TestCase], markdown: str) -> None:
    """Writes the files that `--junit` and `--markdown` name. Raises Unwritable if one cannot be written."""
    for option, path, text in (("junit", parsed.junit, _junit(cases)), ("markdown", parsed.markdown, markdown)):
        if path:
            journal.write(path, text, f"file with --{option}")


def of_result(problem: str, result: Result, *, failed: bool) -> TestCase:
    """Returns a kernel of a run as a test case, which has failed, or was skipped if its result has not passed either.

    `problem` is the name of the problem, with the shape.
    """
    why = "" if result.passed else str(result.status)
    message = result.reason.partition("\n")[0] if why else ""
    return TestCase(problem, result.kernel, result, why, message, skipped=not failed)


def _junit(cases: Iterable[TestCase]) -> str:
    root = ElementTree.Element("testsuites")
    for name, group in groupby(cases, key=lambda case: case.suite):
        suite = ElementTree.SubElement(root, "testsuite", name=name)
        suite.extend(map(_element, group))
        for attribute, path in (("tests", "testcase"), ("failures", "*/failure"), ("skipped", "*/skipped")):
            suite.set(attribute, str(len(suite.findall(path))))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _element(case: TestCase) -> ElementTree.Element:
    result = case.result
    seconds = sum(result.phases_s.get(phase, 0.0) for phase in ("build", "check")) if result else 0.0
    one = ElementTree.Element("testcase", classname=case.suite, name=case.kernel, time=f"{seconds:.3f}")
    if result:
        one.attrib.update(_place(result))
    if case.kind:
        why = ElementTree.SubElement(
            one, "skipped" if case.skipped else "failure", type=case.kind, message=printable(case.message)
        )
        why.text = printable(failure_text.failure(result, Terminal()) if result and not result.passed else case.message)
    elif result and result.reason:  # remarks: what passed may have a race
        ElementTree.SubElement(one, "system-out").text = printable(result.reason)
    return one


def _place(result: Result) -> dict[str, str]:
    """Returns the kernel's `file`, if it is known, and of a failure the `line` that the reason names first, if any."""
    path = kernel_file(result.reproduce)
    if path is None:
        return {}
    line = None if result.passed else re.search(rf"(?<![\w.-]){re.escape(path.name)}:(\d+)", result.reason)
    return {"file": shown(path), **({"line": line[1]} if line else {})}
