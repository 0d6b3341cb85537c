"""The command as a shell sees it: help, versions, completion, logs, and no progress in a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import ROOT, Finished, Harness
from support.product import PROBLEM_FILE

from kernel_harness import cli
from kernel_harness.cli import VERBS
from kernel_harness.cli.progress import Progress
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import Terminal
from kernel_harness.problem import lookup
from kernel_harness.results import overview
from kernel_harness.results.record import Result, to_line
from kernel_harness.session.run import WAITING

GOOD = ROOT / "tests" / "support" / "candidates" / "bad" / "good.py"


def command(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "harness.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**user_environment(), **environment},
    )


def user_environment() -> dict[str, str]:
    """The environment without OMP_NUM_THREADS, which conftest.py sets for the other tests."""
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
    """Each is parsed and not run."""
    for line in command("--help").stdout.split("examples:")[1].split("exit codes:")[0].strip().split("\n"):
        words = re.split(r"  +", line.strip())[0].replace("'", "").split()[2:]
        cli.parser().parse_args(cli.with_verb(words))


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_and_version_need_no_torch(words: list[str]) -> None:
    loaded = "import sys; from kernel_harness import cli\ntry: cli.main(sys.argv[1:])\nexcept SystemExit: pass\n"
    loaded += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split("\n")[-2] == "False"


@pytest.mark.parametrize(
    "words", [["--problem", "matmul_tt"], ["sanitize", "matmul_tt", "naive"], ["profile", "matmul_tt", "naive"]]
)
def test_a_verb_starts_the_fork_server_before_it_imports_torch(words: list[str]) -> None:
    """Both import torch at the same time. The fork server here is one that says what the verb has imported."""
    start = """
import sys
from kernel_harness.workers import fork_server_process as module
def start(*_):
    print("started", "torch" in sys.modules)
    raise KeyboardInterrupt
module.ForkServerProcess.__init__ = start
from kernel_harness import cli
sys.exit(cli.main())
"""
    done = subprocess.run([sys.executable, "-c", start, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "started False\n", done.stderr


def test_the_version_names_what_a_bug_report_needs() -> None:
    assert re.fullmatch(r"kernel harness [\d.]+, Python 3[\d.]+, torch \d\S+\n", command("--version").stdout)


# ----------------------------------------------------------------------------------------- the problem


@pytest.mark.parametrize("words", [["nonsense"], ["run", "nonsense"], ["--problem", "nonsense"]])
def test_run_takes_its_problem_with_or_without_the_option(typed: Callable[..., Finished], words: list[str]) -> None:
    finished = typed(*words)
    assert finished.code == 2 and "no problem 'nonsense'" in finished.stderr


@pytest.mark.parametrize("words", [[], ["run"]])
def test_run_without_a_problem_says_how_to_name_it(typed: Callable[..., Finished], words: list[str]) -> None:
    finished = typed(*words)
    assert finished.code == 2
    assert "give a problem, as PROBLEM or --problem, for example: python harness.py" in finished.stderr


def test_words_beside_a_problem_are_kernels(typed: Callable[..., Finished]) -> None:
    finished = typed("--problem", "matmul_tt", "--kernel", "naive", "tild")
    assert finished.code == 2 and "no kernel 'tild'; did you mean 'tiled'?" in finished.stderr


# ------------------------------------------------------------------------------------------ completion


def completed(line: str, skipped: int = 1) -> list[str]:
    """The words a shell offers at the end of a line. In argcomplete's protocol they come on descriptor 8."""
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


def test_bash_completes_a_line() -> None:
    """Runs the script that the help names in a real shell."""
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
    return ["--problem", PROBLEM_FILE, "--kernel", GOOD, "--device", "cpu", "--rounds", "1", "--results", results]


@pytest.mark.slow
def test_a_pipe_gets_a_plain_line_for_each_verdict_and_the_reason_why_a_budget_is_exceeded(harness: Harness) -> None:
    words = ["--problem", PROBLEM_FILE, "--kernel", GOOD, "--device", "cpu", "--budget", "0.001"]
    finished = harness.run(*words)
    assert finished.code == 0
    assert "Timing took longer than --budget 0.001: the budget does not limit the first 2 rounds" in finished.stdout
    steps = [line for line in finished.stderr.splitlines() if not re.search(r", \d+ s$", line)]
    assert steps == ["harness: preparing the device", "good: PASSED"]
    assert "\033" not in finished.stdout + finished.stderr


@pytest.mark.slow
def test_v_logs_the_steps_to_stderr(harness: Harness) -> None:
    finished = harness.run("--problem", PROBLEM_FILE, "--kernel", GOOD, "--device", "cpu", "--rounds", "1", "-v")
    assert re.search(r"INFO kernel_harness[.\w]+: good: building", finished.stderr)
    assert re.search(r"INFO kernel_harness[.\w]+: good: PASSED", finished.stderr)
    assert "INFO" not in finished.stdout


def on_a_terminal(*words: str | Path, **environment: str) -> str:
    """The output of a run on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "harness.py", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env={**user_environment(), "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment},
    )  # fmt: skip
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # every process has closed the other end
            break
        if not part:
            break
        written += part
    process.wait()
    os.close(ours)
    return written.decode()


COLOUR = re.compile(r"\033\[[0-9;]*3[1-6]m")


def words_for_a_terminal(results: Path) -> list[str | Path]:
    """A run of a good and a broken kernel."""
    return [*run_words(results), "--kernel", ROOT / "tests" / "support" / "candidates" / "bad" / "wrong_dtype.py"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a run on a terminal whose user does not refuse colours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NO_COLOR", raising=False)
        return on_a_terminal(*words_for_a_terminal(tmp_path_factory.mktemp("shown")))


@pytest.mark.slow
def test_a_terminal_gets_progress(shown: str) -> None:
    # A step is shown only if it takes long enough.
    assert re.search(r"good +(building|checking case|timing|warming up|waiting)", shown)


@pytest.mark.slow
def test_a_terminal_shows_the_preparation_too(shown: str) -> None:
    """In a first run it takes a minute or two."""
    steps = ["loading torch", "choosing sizes and inputs", "preparing the device"]
    assert [shown.find(step) >= 0 for step in steps] == [True] * 3
    assert sorted(steps, key=shown.index) == steps


def test_a_pipe_gets_a_long_step_again(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_harness.cli.progress._QUIET_S", 0.02)
    said = ""
    with Progress() as progress:
        progress.stage("waits", WAITING)
        progress.stage("works", "building")
        while "works: building, 0 s\n" not in said:
            said += capsys.readouterr().err
            time.sleep(0.01)
    assert said.startswith("works: building\n") and "waits" not in said


def test_a_pipe_gets_no_line_for_a_short_step(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.stage("works", "building")
        progress.stage("works", "checking case 1 of 3")
    assert capsys.readouterr().err == "works: building\n"


@pytest.mark.slow
def test_a_terminal_gets_colours(shown: str) -> None:
    assert COLOUR.search(shown)


@pytest.mark.slow
def test_no_color_removes_the_colours_and_keeps_the_text(tmp_path: Path) -> None:
    plain = on_a_terminal(*words_for_a_terminal(tmp_path), NO_COLOR="1")
    assert not COLOUR.search(plain) and "WRONG_DTYPE" in plain


# ------------------------------------------------------------------------------------------------ list


@pytest.mark.slow
def test_list_shows_each_kernels_title_and_last_result(harness: Harness) -> None:
    harness.run("--problem", "matmul_tt", "--kernel", "naive", "--device", "cpu", "--rounds", "1")
    finished = harness.run("list", "--problem", "matmul_tt")

    assert finished.code == 0
    (row,) = [line for line in finished.stdout.split("\n") if line.startswith("  naive ")]
    assert re.search(r"PASSED +[\d.]+ ms +cpu-emulated +20\d\d-\d\d-\d\d \d\d:\d\d +One thread per output element", row)
    assert re.search(r"^  tiled  +not judged yet +Tiles of both inputs", finished.stdout, re.MULTILINE)


def test_list_marks_a_result_of_another_source(tmp_path: Path) -> None:
    result = Result("naive", Status.PASSED, "", {}, "0" * 64, measured_at="2026-01-02T03:04:05+00:00")
    path = tmp_path / "matmul_tt" / "nvidia-h200" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(to_line(result) + "\n")
    text = overview.text(lookup.problem("matmul_tt", ROOT), ROOT, tmp_path, Terminal())

    assert re.search(r"naive +PASSED \(of an older version\) +nvidia-h200 +2026-01-02 03:04", text)


def test_list_names_the_sizes_of_results_that_differ_in_them(tmp_path: Path) -> None:
    shapes = {"naive": {"M": 64, "K": 65}, "tiled": {"M": 64, "K": 256}}
    results = [
        Result(name, Status.WRONG_VALUES, "", shape, "", measured_at="2026-01-02T03:04:05+00:00")
        for name, shape in shapes.items()
    ]
    path = tmp_path / "matmul_tt" / "nvidia-h200" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(to_line(result) + "\n" for result in results))
    text = overview.text(lookup.problem("matmul_tt", ROOT), ROOT, tmp_path, Terminal())

    assert re.search(r"naive +WRONG_VALUES \(of an older version\) +at K=65 +nvidia-h200", text)
    assert re.search(r"tiled +WRONG_VALUES \(of an older version\) +at K=256 +nvidia-h200", text)


def test_list_counts_the_variants_of_a_kernel_that_was_not_judged_itself(tmp_path: Path) -> None:
    names = ["tiled[TILE_K=8]", "tiled[TILE_K=16]", "naive", "naive[BLOCK=8]", "coalesced[TILE=8]"]
    results = [Result(name, Status.PASSED, "", {}, "0" * 64, measured_at="2026-01-02T03:04:05+00:00") for name in names]
    path = tmp_path / "matmul_tt" / "nvidia-h200" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(to_line(result) + "\n" for result in results))
    text = overview.text(lookup.problem("matmul_tt", ROOT), ROOT, tmp_path, Terminal())

    assert re.search(r"^  tiled +judged as 2 variants only ", text, re.MULTILINE)
    assert re.search(r"^  coalesced +judged as 1 variant only ", text, re.MULTILINE)
    assert re.search(r"^  naive +PASSED ", text, re.MULTILINE)
    assert re.search(r"^  warp_tiled +not judged yet ", text, re.MULTILINE)


def test_list_goes_on_after_a_problem_file_that_cannot_be_used(
    typed: Callable[..., Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "broken.py").write_text("def broken(:\n")
    monkeypatch.chdir(tmp_path)
    finished = typed("list")

    assert finished.code == 0 and re.search(r"^broken  cannot be used: .*broken\.py:1: ", finished.stdout, re.MULTILINE)
    assert re.search(r"^matmul_tt ", finished.stdout, re.MULTILINE)
    assert typed("list", "--problem", "broken").code == 2


def test_list_fits_a_terminal(tmp_path: Path) -> None:
    text = overview.text(lookup.problem("matmul_tt", ROOT), ROOT, tmp_path, Terminal(width=60))
    assert max(map(len, text.split("\n"))) <= 60


def test_list_of_a_problem_without_kernels_says_how_to_start_one(tmp_path: Path) -> None:
    text = overview.text(lookup.problem(str(PROBLEM_FILE), ROOT), ROOT, tmp_path, Terminal())
    assert "python harness.py new product NAME writes one to start from" in text


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([sys.executable, "harness.py", "list"], cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")
