"""The unit for systemd starts the command with options that it takes."""

from __future__ import annotations

import shlex
from configparser import ConfigParser

from support.command import ROOT

from kernel_harness import cli


def test_the_unit_starts_the_command() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "docs" / "kernel-harness.service")
    service = unit["Service"]
    python, script, *words = shlex.split(service["ExecStart"])
    parsed = cli.parser().parse_args(words)

    assert python.endswith("/python") and script == "harness.py" and words[0] == "serve"
    assert float(service["TimeoutStopSec"]) > parsed.drain
    assert service["KillMode"] == "mixed"  # else systemd would end the evaluators, too, at the first signal
