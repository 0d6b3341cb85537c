"""The report of a wrong answer: text, table, picture and advice, in every kind of terminal.

`PYTHONPATH=.:tests python tests/integration/test_explain.py` rewrites the golden texts.
"""

from __future__ import annotations

import io
import os
import pty
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.command import ROOT, Harness

from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.verify import verify
from kernel_harness.checking.wrong_elements import Mismatch
from kernel_harness.core.precision import Tolerance
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import Terminal, terminal
from kernel_harness.results.failure_text import failure, mismatches, picture
from kernel_harness.results.record import Result

torch.set_num_threads(1)
GOLDEN = ROOT / "tests" / "integration" / "golden" / "wrong"


def result(edit: Callable[[torch.Tensor], object], rows: int = 48, columns: int = 64) -> Result:
    """The result of a kernel whose right answer was edited in place."""
    expected = torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) % 97 + 1
    got = expected.clone()
    edit(got)
    check = verify(
        [got], Expectation(f"M={rows},N={columns}:own", "own", (expected,), None, None, Tolerance(1e-4, 1e-4))
    )
    return Result(
        kernel="mine", status=check.status, verdict=f"{check.case}: {check.detail}", shape={}, source_sha256="",
        checks=(check,), reproduce="python harness.py --problem p --kernel mine",
    )  # fmt: skip


def sanitized(failed: Result, text: str, advice: str = "") -> Result:
    """The failed result with a finding of the sanitizer."""
    return replace(failed, remarks=(Remark(RemarkKind.SANITIZER, text, advice=advice),))


MISTAKES: dict[str, Callable[[torch.Tensor], object]] = {
    "nothing_written": torch.Tensor.zero_,
    "transposed": lambda t: t.copy_(t.T.reshape(t.shape)),
    "off_by_one": lambda t: t.copy_(t.roll(1, 1)),
    "tail_tile_missing": lambda t: (t[:, 56:].zero_(), t[40:].zero_()),
    "every_16th_column": lambda t: t[:, ::16].add_(1000),
    "one_block": lambda t: t[16:32, 32:48].mul_(-3).add_(7),
    "nan_from_here_on": lambda t: t.view(-1)[1500:].fill_(torch.nan),
    "doubled": lambda t: t.mul_(2),
    "constant": lambda t: t.fill_(0.5),
    "one_element": lambda t: t[3, 5].add_(1),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    said = failure(result(MISTAKES[name]), Terminal(width=100))
    assert said == (GOLDEN / f"{name}.txt").read_text().rstrip("\n")


def test_the_picture_is_where_the_errors_are() -> None:
    check = result(lambda t: t[24:, :32].zero_()).checks[0]
    assert check.error_map is not None
    rows = [line[1:-1] for line in picture(check.error_map, Terminal(width=100)).split("\n")[2:-1]]
    assert {row[:32].strip() for row in rows[:6]} == {""} and set(rows[-1][:32]) == {"█"}
    assert {row[32:].strip() for row in rows} == {""}


def test_a_single_wrong_element_is_visible_in_a_coarse_picture() -> None:
    check = result(lambda t: t[700, 900].zero_(), 1024, 1024).checks[0]
    assert check.error_map is not None and picture(check.error_map, Terminal(width=40)).count("░") == 1


@pytest.mark.parametrize("width", [20, 40, 200, None])
def test_no_line_of_it_is_wider_than_the_terminal(width: int | None) -> None:
    found = result(MISTAKES["tail_tile_missing"])
    check = found.checks[0]
    assert check.error_map is not None
    drawn = picture(check.error_map, Terminal(width=width)).split("\n")[1:]
    assert max(map(len, drawn)) <= (width or 80)
    if width and width >= 40:
        said = failure(found, Terminal(width=width)).split("\n")
        prose = [line for line in said if not re.search(r"reproduce:|wrong elements \(|^  \[|^  index", line)]
        assert max(map(len, prose)) <= width


def test_only_ascii_if_the_terminal_has_no_unicode() -> None:
    said = failure(result(MISTAKES["one_block"]), Terminal(width=100, unicode=False))
    assert said.isascii() and "+----" in said and "####" in said


def test_colours_only_if_the_terminal_has_them() -> None:
    found = result(MISTAKES["one_block"])
    assert "\033[31mWRONG_VALUES\033[0m" in failure(found, Terminal(width=100, colours=True))
    assert "\033" not in failure(found, Terminal(width=100))


def test_an_excerpt_of_a_source_is_never_folded() -> None:
    reason = "k.cu:3: error: no\n  3 | " + "x + " * 50 + "y;\n    | ^"
    broken = Result(kernel="k", status=Status.BUILD_ERROR, verdict=reason, shape={}, source_sha256="")
    said = failure(broken, Terminal(width=60), "logs/k.log")
    assert "\n".join(f"  {line}" for line in reason.split("\n")) in said
    assert said.endswith("  full log: logs/k.log")


def test_further_lines_of_the_reason_are_shown() -> None:
    """For example a finding of the sanitizer."""
    found = result(MISTAKES["one_block"])
    more = sanitized(found, "mine.cu:7: race on tile[3]")
    assert "\n  Sanitizer: mine.cu:7: race on tile[3]\n" in failure(more, Terminal(width=100))


def test_what_the_sanitizer_found_is_the_advice() -> None:
    found = result(MISTAKES["tail_tile_missing"])
    said = failure(sanitized(found, "race: mine.cu:7: thread 3 does so.", "fix the race"), Terminal())
    assert "  try: fix the race" in said and "round the grid up" not in said
    never = sanitized(found, "never written: mine.cu:7: `y`: 16 elements are never written.")
    assert "round the grid up" in failure(never, Terminal())


def test_prose_beside_an_excerpt_is_folded() -> None:
    found = result(MISTAKES["one_block"])
    more = sanitized(found, "a race " * 20 + "\n  7 | " + "x " * 60)
    lines = failure(more, Terminal(width=60)).split("\n")
    assert max(len(line) for line in lines if "race" in line) <= 60
    assert "    7 | " + ("x " * 60) in lines


@pytest.mark.parametrize(
    ("reason", "fragment"),
    [
        ("k.py:3: RuntimeError: CUDA error: invalid configuration argument", "no dimension may be 0"),
        ("The process was ended by SIGSEGV.", "beyond an array"),
        ("The process was ended by SIGABRT. Last line of its output: malloc(): invalid size", "beyond an array"),
        ("The process was ended by SIGABRT. Last line of its output: double free or corruption", "beyond an array"),
        ("CUDA error: an illegal memory access was encountered", "beyond an array"),
        ("an illegal memory access was encountered (argument 1 of k is host memory)", "not a pointer"),
        ("TypeError: forward(): incompatible function arguments.", "compare the call with the parameters"),
        ("thread (0, 0, 0) waits at a barrier that 3 threads of its block never reach", "each __syncthreads()"),
        ("No answer within 60 s.", "never ends"),
    ],
)
def test_a_failure_at_run_time_comes_with_advice(reason: str, fragment: str) -> None:
    failed = Result(kernel="k", status=Status.CRASHED, verdict=reason, shape={}, source_sha256="")
    assert re.search(rf"  try: .*{re.escape(fragment)}", failure(failed, Terminal()))


def test_a_failed_launch_is_not_blamed_on_the_line_of_the_check_that_found_it() -> None:
    reason = "mine.cu:18: RuntimeError: CUDA error: invalid configuration argument"
    failed = Result(kernel="mine", status=Status.RUNTIME_ERROR, verdict=reason, shape={}, source_sha256="")
    said = " ".join(failure(failed, Terminal(width=100)).split())

    assert "a launch failed; start from the line shown, where it was noticed. mine.cu:18: RuntimeError" in said
    assert "fix the call" not in said


def test_other_failures_come_without_advice() -> None:
    failed = Result(kernel="k", status=Status.LOAD_ERROR, verdict="k.py:3: NameError: x", shape={}, source_sha256="")
    assert "try:" not in failure(failed, Terminal())


def test_mismatches_are_a_table() -> None:
    assert mismatches([Mismatch((0, 12), 1.5, -2.0), Mismatch((3, 4), float("nan"), 1.0)]).split("\n") == [
        "index      got    expected    difference",
        "[0, 12]    1.5          -2           3.5",
        "[3, 4]     nan           1           nan",
    ]


# ------------------------------------------------------------------------------------- terminals


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A real pseudo-terminal, 72 columns wide."""
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "72")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield stream
    os.close(ours)


def test_a_terminal_has_a_width_and_colours(screen: io.TextIOWrapper) -> None:
    assert terminal(screen) == Terminal(width=72, unicode=True, colours=True)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(
    name: str, value: str, screen: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert not terminal(screen).colours


def test_an_empty_no_color_refuses_nothing(screen: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert terminal(screen).colours


def test_a_pipe_has_neither_width_nor_colours() -> None:
    assert terminal(io.TextIOWrapper(io.BytesIO(), "utf-8")) == Terminal(width=None, unicode=True, colours=False)


def test_an_ascii_stream_cannot_show_blocks() -> None:
    assert not terminal(io.TextIOWrapper(io.BytesIO(), "ascii")).unicode


@pytest.mark.slow
def test_the_command_draws_the_errors_of_a_real_kernel(harness: Harness, tmp_path: Path) -> None:
    kernel = tmp_path / "tail.py"
    kernel.write_text(
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, A, B):\n"
        "        C = A.T @ B.T\n        C[:, 32:] = 1e6\n        return C\n"
    )
    words = ("--problem", "matmul_tt", "--device", "cpu", "--kernel", kernel)
    finished = harness.run(*words, environment={"PYTHONIOENCODING": "utf-8"})

    assert finished.code == 1
    row = " " * 32 + "█" * 32
    assert finished.stdout.count(f"│{row}│") == 12
    assert "  try: round the grid up" in finished.stdout
    assert "\033" not in finished.stdout + finished.stderr


@pytest.mark.slow
def test_the_whole_log_is_where_the_message_says(harness: Harness) -> None:
    broken = ROOT / "tests" / "integration" / "golden" / "compile" / "undeclared_name.cu"
    finished = harness.run("--problem", "matmul_tt", "--device", "cpu", "--kernel", broken)
    found = re.search(r"full log: (\S+)", finished.stdout)

    assert found and "was not declared" in Path(found[1]).read_text()


def _write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, edit in MISTAKES.items():
        (GOLDEN / f"{name}.txt").write_text(failure(result(edit), Terminal(width=100)) + "\n")


if __name__ == "__main__":
    _write()
