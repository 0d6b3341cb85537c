"""The command as a shell sees it: help, versions, completion, logs, and silence where nobody looks on."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Harness

from kernel_harness import cli, find, listing
from kernel_harness.cli import VERBS
from kernel_harness.terminal import Terminal

PROBLEM = ROOT / "tests" / "candidates" / "problem" / "product.py"
GOOD = ROOT / "tests" / "candidates" / "bad" / "good.py"


def command(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "harness.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**as_a_user_has_it(), **environment},
    )


def as_a_user_has_it() -> dict[str, str]:
    """The environment without what conftest.py sets for the other tests: as many threads as there are cores."""
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


# ------------------------------------------------------------------------------------------------ help


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples_of_its_own(verb: str) -> None:
    said = command(verb, "--help").stdout

    examples = said.split("examples:")[1].split("exit codes:")[0].strip().split("\n")
    assert len(examples) >= 2
    assert all(line.strip().startswith("python harness.py") for line in examples)


def test_the_help_names_every_verb() -> None:
    said = command("--help").stdout
    assert all(re.search(rf"^    {verb} ", said, re.MULTILINE) for verb in VERBS)


def test_every_example_is_one_that_the_command_understands() -> None:
    """Up to what it would do."""
    for line in command("--help").stdout.split("examples:")[1].split("exit codes:")[0].strip().split("\n"):
        words = re.split(r"  +", line.strip())[0].replace("'", "").split()[2:]
        cli.parser().parse_args(cli.with_verb(words))


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_and_version_need_no_torch(words: list[str]) -> None:
    loaded = "import sys; from kernel_harness import cli\ntry: cli.main(sys.argv[1:])\nexcept SystemExit: pass\n"
    loaded += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split("\n")[-2] == "False"


def test_the_version_says_what_a_report_of_a_fault_needs() -> None:
    assert re.fullmatch(r"kernel harness [\d.]+, Python 3[\d.]+, torch \d\S+\n", command("--version").stdout)


# ------------------------------------------------------------------------------------------ completion


def completed(line: str, skipped: int = 1) -> list[str]:
    """What a shell offers at the end of a line, by argcomplete's protocol: the answer comes on descriptor 8."""
    script = 'exec 8>&1 1>/dev/null 9>/dev/null; exec "$0" harness.py'
    environment = {
        **os.environ, "_ARGCOMPLETE": str(skipped), "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", script, sys.executable], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    return [word.strip() for word in done.stdout.split("\n") if word.strip()]


def test_verbs_are_completed() -> None:
    assert set(completed("harness.py pro")) == {"profile"}


def test_problems_are_completed_by_name() -> None:
    assert completed("harness.py new matmul_tt_") == ["matmul_tt_relu"]


def test_kernels_are_completed_with_those_of_the_problem() -> None:
    offered = completed("harness.py run --problem matmul_tt_relu --kernel til")
    assert set(offered) == {"tiled_relu", "tiled_then_relu"}


def test_options_are_completed_without_a_verb_too() -> None:
    assert "--problem" in completed("harness.py --pro")
    assert set(completed("python harness.py --problem matmul_tt --kernel na", skipped=2)) == {"naive"}


def test_bash_itself_completes_a_line() -> None:
    """With the script that the help names, in a real shell."""
    script = (
        'eval "$(activate-global-python-argcomplete --dest=-)"; '
        'COMP_LINE="python harness.py new matmul_tt_"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_KEY=9; '
        "COMP_WORDS=(python harness.py new matmul_tt_); COMP_CWORD=3; COMPREPLY=(); "
        '_python_argcomplete_global python matmul_tt_ new 2>/dev/null; echo "${COMPREPLY[@]}"'
    )
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=tools, capture_output=True, text=True)
    assert done.stdout.split() == ["matmul_tt_relu"], done.stderr


# ---------------------------------------------------------------------------------- terminals and logs


def run_words(results: Path) -> list[str | Path]:
    return ["--problem", PROBLEM, "--kernel", GOOD, "--device", "cpu", "--rounds", "1", "--results", results]


def test_a_pipe_hears_no_progress(tmp_path: Path) -> None:
    finished = command(*run_words(tmp_path))
    assert finished.returncode == 0
    assert finished.stderr == ""
    assert "\033" not in finished.stdout


def test_v_tells_what_happens_on_stderr(tmp_path: Path) -> None:
    finished = command(*run_words(tmp_path), "-v")
    assert re.search(r"INFO kernel_harness\.\w+: good: building", finished.stderr)
    assert re.search(r"INFO kernel_harness\.\w+: good: PASSED", finished.stderr)
    assert "INFO" not in finished.stdout


def on_a_terminal(*words: str | Path, **environment: str) -> str:
    """What is written on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "harness.py", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env={**as_a_user_has_it(), "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment},
    )  # fmt: skip
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # its last holder is gone
            break
        if not part:
            break
        written += part
    process.wait()
    os.close(ours)
    return written.decode()


def test_a_terminal_sees_progress(tmp_path: Path) -> None:
    # Which stages show hangs on how long each takes.
    assert re.search(r"good +(building|checking case|timing|warming up|waiting)", on_a_terminal(*run_words(tmp_path)))


def test_no_color_takes_the_colours_and_leaves_the_words(tmp_path: Path) -> None:
    broken = [*run_words(tmp_path), "--kernel", ROOT / "tests" / "candidates" / "bad" / "wrong_dtype.py"]
    colours = re.compile(r"\033\[[0-9;]*3[1-6]m")
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    assert colours.search(on_a_terminal(*broken, **environment))
    plain = on_a_terminal(*broken, NO_COLOR="1")
    assert not colours.search(plain) and "WRONG_DTYPE" in plain


# ------------------------------------------------------------------------------------------------ list


def test_list_shows_each_kernel_s_idea_and_last_result(harness: Harness) -> None:
    harness.run("--problem", "matmul_tt", "--kernel", "naive", "--device", "cpu", "--rounds", "1")
    finished = harness.run("list", "--problem", "matmul_tt")

    assert finished.code == 0
    (row,) = [line for line in finished.stdout.split("\n") if line.startswith("  naive ")]
    assert re.search(r"PASSED +[\d.]+ ms +cpu-emulated +20\d\d-\d\d-\d\d \d\d:\d\d +One thread per output element", row)
    assert re.search(r"^  tiled  +not judged yet +Tiles of both inputs", finished.stdout, re.MULTILINE)


def test_list_says_when_the_result_is_of_another_source(tmp_path: Path) -> None:
    record = {
        "schema_version": 1, "kernel": "naive", "status": "PASSED", "timing": None, "source_sha256": "0" * 64,
        "measured_at": "2026-01-02T03:04:05+00:00",
    }  # fmt: skip
    path = tmp_path / "matmul_tt" / "nvidia-h200" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record) + "\n")
    text = listing.text(find.problem("matmul_tt", ROOT), ROOT, tmp_path, Terminal())

    assert re.search(r"naive +PASSED \(of an older version\) +nvidia-h200 +2026-01-02 03:04", text)


def test_list_fits_a_terminal(tmp_path: Path) -> None:
    text = listing.text(find.problem("matmul_tt", ROOT), ROOT, tmp_path, Terminal(width=60))
    assert max(map(len, text.split("\n"))) <= 60


def test_list_of_a_problem_without_kernels_says_how_to_start_one(tmp_path: Path) -> None:
    text = listing.text(find.problem(str(PROBLEM), ROOT), ROOT, tmp_path, Terminal())
    assert "python harness.py new product NAME starts one" in text


def test_a_reader_that_has_read_enough_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([sys.executable, "harness.py", "list"], cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")
