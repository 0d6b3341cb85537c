"""Remarks: what explainers say about a candidate after its verdict. A remark changes no verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class RemarkKind(StrEnum):
    """What a remark is about."""

    MISTAKE = "mistake"  # a known mistake that gives the wrong values
    ADVICE = "advice"  # what to look at in the source
    SANITIZER = "sanitizer"  # a finding of the sanitizer
    PROBLEM = "problem"  # what the checks of the problem cannot tell, for any candidate
    CHECKS = "checks"  # what was not checked of this candidate
    LIBRARY = "library"  # work that a library does
    DEVICE = "device"  # how the emulated device differs from a GPU for this source
    TIME = "time"  # how a time is to be read


_PREFIXES = {RemarkKind.MISTAKE: "", RemarkKind.ADVICE: "", RemarkKind.SANITIZER: "Sanitizer: "}


@dataclass(frozen=True)
class Remark:
    """One remark: a `text` of one or several sentences, and the `line` of the candidate's file that it is about.

    `line` is None if the remark is about no line. `advice` is what the author can try; empty if there is none.
    """

    kind: RemarkKind
    text: str
    line: int | None = None
    advice: str = ""

    @property
    def sentence(self) -> str:
        """Returns the text as a reader sees it beside other texts: most kinds begin with "Remark: "."""
        return f"{_PREFIXES.get(self.kind, 'Remark: ')}{self.text}"


def sentences(remarks: Iterable[Remark]) -> str:
    """Returns the sentences of the remarks as one text."""
    return " ".join(remark.sentence for remark in remarks)
