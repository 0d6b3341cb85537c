"""Nsight Compute around one call: the command, its text, its report file, and what to do where it cannot count."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernel_harness.paths import ROOT
from kernel_harness.profile.resources import Assembled
from kernel_harness.results import writing

_ONE_CALL = "kernel_harness.profile.one_call"
MISSING = (
    "Nsight Compute (ncu) is not on the PATH: it comes with the CUDA toolkit (Debian, Ubuntu: 'apt-get install "
    "nsight-compute'), or from developer.nvidia.com/nsight-compute."
)
FORBIDDEN = (
    "The driver lets only an administrator read the GPU's counters (ERR_NVGPUCTRPERM). Run the same command as root; "
    "in a container, start it with --cap-add=SYS_ADMIN; or let everybody: write 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' to /etc/modprobe.d/nvidia.conf and reboot."
)


def profiled(words: Sequence[str], folder: Path, name: str) -> tuple[str, list[Assembled]]:
    """The report's text, or advice in its place, and what nvcc says. The report is kept as `folder/name.ncu-rep`.

    `words` say to one_call what to call. Raises results.Unwritable.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    said = folder / f"{name}.json"
    report = folder / f"{name}.ncu-rep"
    call = [sys.executable, "-m", _ONE_CALL, *words, "--assembled", str(said)]
    tool = shutil.which("ncu")
    # Only what lies between cudaProfilerStart and cudaProfilerStop, which is the warmed-up call.
    wrapped = (
        [tool, "--profile-from-start", "off", "--set", "full", "--force-overwrite", "-o", str(report)] if tool else []
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([*wrapped, *call], capture_output=True, text=True, env=environment)
    output = done.stdout + done.stderr
    assembled = [Assembled.read(each) for each in json.loads(said.read_text())] if said.exists() else []
    said.unlink(missing_ok=True)
    return _text(tool, report, output, done.returncode), assembled


def _text(tool: str | None, report: Path, output: str, code: int) -> str:
    if "ERR_NVGPUCTRPERM" in output:
        return FORBIDDEN
    if tool is None:
        return MISSING if code == 0 else f"{MISSING}\nThe call itself failed:\n{output.strip()[-3000:]}"
    if code or not report.exists():
        return f"ncu ended with {code} and left no report:\n{output.strip()[-3000:]}"
    details = subprocess.run([tool, "--import", str(report), "--page", "details"], capture_output=True, text=True)
    report.with_suffix(".txt").write_text(details.stdout)
    return f"{details.stdout.rstrip()}\n\nkept: {report} (ncu-ui opens it), {report.with_suffix('.txt')}"
