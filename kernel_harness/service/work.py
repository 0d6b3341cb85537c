"""Work: one kernel of one problem with options, which is judged once however often it is submitted."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernel_harness import __version__
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.service.errors import Refused
from kernel_harness.service.messages import Submission
from kernel_harness.suite.store import work_key

_NAME = re.compile(r"\w[\w-]*")
# One word that is a path or a URL. It would not be read anyway, but its sender expects that.
_PLACE = re.compile(r"\S*(?:/\S*|\.py|\.cu)")


@dataclass(frozen=True)
class ProblemText:
    """The file of a problem, as it was when the work was submitted."""

    name: str
    text: str

    @cached_property
    def sha256(self) -> str:
        """The hash of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Work:
    """What is judged."""

    problem: ProblemText
    candidate: Candidate
    options: dict[str, Any]
    """The options of the submission, each with its value or its default."""
    maker: str
    """The device and the versions (`maker`): a verdict of another one is not a verdict of this one."""

    @cached_property
    def key(self) -> str:
        """The digest of all that decides the verdict."""
        return work_key(self.problem.sha256, self.candidate, self.maker, self.options)

    @staticmethod
    def of(submission: Submission, maker: str, *, problem_texts: bool) -> Work:
        """Returns the work of a submission. Reads no file but those of problems in the server's folders.

        `problem_texts` says whether texts of problems are accepted. Raises Refused for anything else.
        """
        if _PLACE.fullmatch(submission.source.strip()):
            raise Refused(400, "source must be the text of a kernel file; paths and URLs are not taken")
        problem = _problem(submission, problem_texts=problem_texts)
        candidate = lookup.of_text(submission.source, submission.suffix)
        return Work(problem, candidate, submission.options.model_dump(), maker)


def maker(label: str) -> str:
    """Returns what verdicts of these versions of the harness and torch on the device `label` have in common."""
    return f"{label} {__version__}.{Result.schema_version} torch {version('torch')}"


def problem_names() -> list[str]:
    """Returns the names of the problems that the server knows."""
    return lookup.problem_names(Path.cwd())


def _problem(submission: Submission, *, problem_texts: bool) -> ProblemText:
    name, text = submission.problem, submission.problem_text
    if (name is None) == (text is None):
        raise Refused(400, "give either problem, the name of a problem, or problem_text, the text of its file")
    if text is not None:
        if not problem_texts:
            raise Refused(
                403, "this server takes problems by name only, because it executes their files; start it with "
                "--accept-problem-texts if all its clients are trusted"
            )  # fmt: skip
        if _PLACE.fullmatch(text.strip()):
            raise Refused(400, "problem_text must be the text of a problem file; paths and URLs are not taken")
        return ProblemText("problem", text)
    assert name is not None
    if not _NAME.fullmatch(name):
        raise Refused(400, f"{name!r:.80} is no name of a problem; paths and URLs are not taken")
    path = lookup.existing_problem_path(name, Path.cwd())
    found = ProblemText(path.stem, path.read_bytes().decode(errors="replace"))
    if submission.problem_sha256 not in (None, found.sha256):
        raise Refused(409, f"the problem {name!r} of the server is another file than the client's")
    return found
