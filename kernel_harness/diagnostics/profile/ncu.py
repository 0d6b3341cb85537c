"""Runs Nsight Compute on one call of a kernel: builds the command, reads the report, and advises if ncu cannot run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.core.paths import python_path
from kernel_harness.diagnostics.profile.resources import Assembled
from kernel_harness.results.journal import writing

_ONE_CALL = "kernel_harness.diagnostics.profile.one_call"
MISSING = (
    "Nsight Compute (ncu) is not on the PATH. Install it with the CUDA toolkit, with 'apt-get install nsight-compute' "
    "(Debian, Ubuntu), or from developer.nvidia.com/nsight-compute."
)
FORBIDDEN = (
    "The driver lets only an administrator read the GPU's counters (ERR_NVGPUCTRPERM). Run this command again as root; "
    "or, if it runs in a container, start the container with --cap-add=SYS_ADMIN; or let all users read the counters: "
    "write 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' to /etc/modprobe.d/nvidia.conf and reboot."
)


@dataclass(frozen=True)
class Call:
    """The call of a kernel to profile: the problem, the kernel, the device and the sizes.

    A JSON text with these values is an argument of the process that ncu (Nsight Compute) watches.

    `problem` and `kernel` are absolute paths of files. `device` is the device's name in that process. `shape` has the
    problem's size constants (`M`, `N`, ...) and their values.
    """

    problem: Path
    kernel: Path
    device: str
    shape: dict[str, int]

    def to_json(self) -> str:
        """Returns this Call as a JSON text, from which `parse` makes an equal Call."""
        return json.dumps({**vars(self), "problem": str(self.problem), "kernel": str(self.kernel)})

    @staticmethod
    def parse(text: str) -> Call:
        """Returns the Call that `text` describes. `text` must be an unchanged result of `to_json`."""
        fields = json.loads(text)
        return Call(Path(fields["problem"]), Path(fields["kernel"]), fields["device"], fields["shape"])


def profiled(call: Call, folder: Path, name: str, variables: Mapping[str, str]) -> tuple[str, list[Assembled]]:
    """Runs ncu on one call. Returns the text of ncu's report, and nvcc's report about each library that was built.

    `variables` are the environment variables of the device (`JudgeDevice.worker_variables`). If ncu is missing, fails
    or may not read the GPU's counters, the returned text is advice or an error message instead. ncu's report is kept as
    `folder/<name>.ncu-rep`, and its text as `folder/<name>.txt`. Raises `results.journal.Unwritable` if the folder
    cannot be created.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    assembled_file, report = folder / f"{name}.json", folder / f"{name}.ncu-rep"
    command = [sys.executable, "-m", _ONE_CALL, call.to_json(), str(assembled_file)]
    tool = shutil.which("ncu")
    if tool:
        # The process calls cudaProfilerStart and cudaProfilerStop around the warmed-up call.
        only_that_call = ["--profile-from-start", "off"]
        # By default ncu sets the clocks to their base rate, so its times would not be those of the leaderboard.
        clocks = ["--clock-control", "none"]
        command = [tool, *only_that_call, *clocks, "--set", "full", "--force-overwrite", "-o", str(report), *command]
    environment = {**os.environ, **variables, "PYTHONPATH": python_path()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assembled = []
    if assembled_file.exists():
        assembled = [Assembled.parse(each) for each in json.loads(assembled_file.read_text())]
        assembled_file.unlink()
    return _text(tool, report, done.stdout + done.stderr, done.returncode), assembled


def _text(tool: str | None, report: Path, output: str, code: int) -> str:
    if "ERR_NVGPUCTRPERM" in output:
        return FORBIDDEN
    if tool is None:
        return MISSING if code == 0 else f"{MISSING}\nThe call of the kernel failed, too:\n{output.strip()[-3000:]}"
    if code or not report.exists():
        return f"ncu exited with code {code} and wrote no report:\n{output.strip()[-3000:]}"
    details = subprocess.run([tool, "--import", str(report), "--page", "details"], capture_output=True, text=True)
    report.with_suffix(".txt").write_text(details.stdout)
    return f"{details.stdout.rstrip()}\n\nreport files: {report} (open with ncu-ui), {report.with_suffix('.txt')}"
