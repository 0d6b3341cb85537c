"""A suite on a Ray cluster of this machine with two actors, one of which is killed: the same verdicts as without."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from support.command import Finished, Harness, finished, until, whole_lines
from support.suites import CANDIDATE, PROBLEM, write

from kernel_harness.core.errors import UserError
from kernel_harness.suite import ray_cluster

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.slow
COUNT = 8
# Ray's sockets are in its temporary folder, and the path of a socket may have at most 107 bytes.
SHORT = {"RAY_TMPDIR": "/tmp"}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The arguments of a suite of two problems with eight candidates each, of which every third is wrong."""
    for name, factor in (("p", 2), ("q", 3)):
        texts = [CANDIDATE.format(number=n, factor=factor if n % 3 else 7) for n in range(COUNT)]
        write(tmp_path, {f"problems/{name}.py": PROBLEM.format(factor=factor)})
        write(tmp_path, {f"kernels/{name}/c{n}.py": text for n, text in enumerate(texts)})
    folders = (str(tmp_path / "problems"), "--kernels", str(tmp_path / "kernels"))
    return ["suite", *folders, "--device", "cpu", "--quick"]


def verdicts(harness: Harness, name: str) -> dict[tuple[str, str], str]:
    lines = whole_lines(harness.results / "suites" / name / "suite.jsonl")
    assert len({(line["problem"], line["candidate"]) for line in lines}) == len(lines)
    return {(line["problem"], line["candidate"]): line["status"] for line in lines}


def actors() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [""])[0].startswith("ray::Actor")]


def left(harness: Harness) -> list[str]:
    """Temporary folders of this harness; Ray keeps a folder of its own."""
    return [path.name for path in harness.temporary.iterdir() if path.name.startswith("kernel-harness")]


def test_a_killed_actor_changes_no_verdict(harness: Harness, words: list[str]) -> None:
    before = {process.pid for process in actors()}
    suite = harness.start(*words, "--name", "ray", "--ray", "local", "--jobs", "2", environment=SHORT)
    until(lambda: len(verdicts(harness, "ray")) >= 3 or suite.poll() is not None, "three verdicts", 150)
    mine = [process for process in actors() if process.pid not in before]
    assert len(mine) == 2, finished(suite).stderr
    mine[0].kill()
    ended = finished(suite)
    alone: Finished = harness.run(*words, "--name", "alone", "--jobs", "1")

    assert (ended.code, alone.code) == (1, 1), ended.stderr
    assert len(verdicts(harness, "ray")) == 2 * COUNT
    assert verdicts(harness, "ray") == verdicts(harness, "alone")
    until(lambda: not left(harness), "the killed actor's device worker has removed its files")


def test_an_interrupted_suite_ends_its_actors(harness: Harness, words: list[str]) -> None:
    before = {process.pid for process in actors()}
    suite = harness.start(*words, "--ray", "local", "--jobs", "1", environment=SHORT)
    until(lambda: len(verdicts(harness, "kernels")) >= 1 or suite.poll() is not None, "a verdict", 150)
    suite.send_signal(signal.SIGTERM)
    ended = finished(suite)

    assert ended.code == 130 and "--resume goes on" in ended.stderr
    until(lambda: not left(harness), "the device workers have removed their files")
    until(lambda: {process.pid for process in actors()} <= before, "the actors have ended")


def test_a_problem_file_that_is_not_text_is_unusable_as_on_this_machine(harness: Harness, tmp_path: Path) -> None:
    write(tmp_path, {"kernels/p/a.py": CANDIDATE.format(number=0, factor=1), "problems/p.py": ""})
    (tmp_path / "problems" / "p.py").write_bytes(b"\xff")
    suite = ["suite", str(tmp_path / "problems"), "--kernels", str(tmp_path / "kernels"), "--device", "cpu"]
    for words in (["--ray", "local", "--name", "ray"], ["--name", "alone"]):
        ended = harness.run(*suite, "--jobs", "1", *words, environment=SHORT)

        assert ended.code == 1 and "p.py is not UTF-8 text" in ended.stderr, words


def test_a_problem_file_that_is_removed_in_between_is_unusable(
    harness: Harness, words: list[str], tmp_path: Path
) -> None:
    suite = harness.start(*words, "--ray", "local", "--jobs", "1", environment=SHORT)
    until(lambda: verdicts(harness, "kernels") or suite.poll() is not None, "a verdict", 150)
    (tmp_path / "problems" / "q.py").unlink()
    ended = finished(suite)

    assert ended.code == 1 and "q.py: No such file or directory" in ended.stderr
    assert {problem for problem, _ in verdicts(harness, "kernels")} == {"p"}
    assert len(verdicts(harness, "kernels")) == COUNT


def test_without_ray_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)

    with pytest.raises(UserError, match="pip install ray"):
        ray_cluster.require()
