"""The process of the fork server, before the judge talks to it.

This module does not import torch. A command starts the process first, so that judge and fork server then import torch
at the same time; each import takes two seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cuda_on_cpu.compile import cache
from kernel_harness import sandbox
from kernel_harness.core import folder_removal, process_tree
from kernel_harness.core.closing import Closing
from kernel_harness.core.paths import IMPORT_ROOT, hidden_from_workers
from kernel_harness.ipc import channel
from kernel_harness.sandbox import Kind, bubblewrap

# The only variables of the user's environment that a worker gets.
_ALLOWED = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CXX", "CC", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "TORCH_CUDA_ARCH_LIST", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "THP_MEM_ALLOC_ENABLE",
    "MAX_JOBS", "VIRTUAL_ENV", "KERNEL_HARNESS_HEADERS",
)  # fmt: skip


class ForkServerProcess(Closing):
    """A fork server that was started and may still import torch.

    `kind` is the wall around workers; None selects the strongest wall that this machine allows. `folder` holds the
    folders of the workers; it is a new folder in `parent`, or in the folder for temporary files if `parent` is None.
    `end` is the judge's end of the channel. A `with` block kills the fork server and all its descendants at its end,
    and deletes `folder`.
    """

    def __init__(self, kind: Kind | None = None, parent: Path | None = None) -> None:
        self.kind = kind or sandbox.best()
        self.end, theirs = channel.pair()
        self.folder = Path(tempfile.mkdtemp(prefix="kernel-harness-", dir=parent))
        command = [sys.executable, "-m", "kernel_harness.worker.fork_server", str(theirs.fileno())]
        variables = environment(self.folder)
        if self.kind is Kind.BUBBLEWRAP:
            command = bubblewrap.around(command, variables, self.folder, hidden_from_workers())
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=variables, stdin=subprocess.DEVNULL, cwd=IMPORT_ROOT,
            start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def close(self) -> None:
        """Kills the fork server and all its descendants, and deletes `folder`. Safe to call twice."""
        while below := process_tree.below(self.process.pid):
            for process in below:
                process_tree.kill(process)
        self.end.close()
        self.process.kill()  # a normal exit of the interpreter would take half a second, and there is nothing to save
        self.process.wait()
        folder_removal.remove(self.folder)


def allowed() -> dict[str, str]:
    """Returns the variables of the user's environment that a worker gets, as a dict from names to values."""
    return {name: os.environ[name] for name in _ALLOWED if name in os.environ}


def environment(home: Path) -> dict[str, str]:
    """Returns the environment variables of a new process: the fork server, or a worker under compute-sanitizer.

    HOME and TMPDIR are `home`. Each worker of the fork server inherits the variables, and then sets HOME and TMPDIR to
    its own folder.
    """
    return {
        **allowed(),
        "HOME": str(home),
        "TMPDIR": str(home),
        "KERNEL_HARNESS_CACHE": str(cache.root().absolute()),
        "PYTHONDONTWRITEBYTECODE": "1",
        # On import, torch.utils.cpp_extension looks for a GPU. A question to the driver would start CUDA in the fork
        # server, and then no process forked from it could use CUDA. NVML answers without the driver.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # Torch then allocates a GPU's memory in pieces that the judge can map, so it reads outputs where they lie.
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        # The judge stops and resumes all threads and processes of a worker around each timed call. Those of numpy's
        # BLAS and of Inductor's compilers would add 4 ms (measured) to the bracket of each call.
        "OPENBLAS_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Linux copies the page tables of the fork server for each worker. With huge pages they are smaller: the start
        # and the end of a worker take 26 instead of 35 ms of CPU time (measured).
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    }
