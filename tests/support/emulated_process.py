"""Runs test functions in processes whose torch has the emulated CUDA device, which no process can remove again.

A server process imports torch once and forks a child per test, so that each test can break its own device.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.command import ROOT

SOURCES = ROOT / "tests" / "emulator"
# Longer than the slowest build. A test that takes longer has a deadlock.
LONGEST_S = 900


def emulated(test: Callable[..., None]) -> Callable[..., None]:
    """Runs the test's body in a child process that has the device. Its parameters must be JSON."""

    @functools.wraps(test)
    def outside(inside: Inside, **arguments: Any) -> None:
        inside.run(Path(inspect.getfile(test)), test.__name__, arguments)

    own = inspect.signature(test)
    fixture = inspect.Parameter("inside", inspect.Parameter.KEYWORD_ONLY)
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values()]
    outside.__signature__ = own.replace(parameters=[fixture, *keywords])  # type: ignore[attr-defined]
    return outside


class Inside:
    """The server process, in the process of the tests."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, file: Path, name: str, arguments: dict[str, Any]) -> None:
        """Runs a test function in a child. Fails the current test with the child's traceback or exit status."""
        assert self._server.stdin and self._server.stdout
        print(json.dumps([str(file), name, arguments]), file=self._server.stdin, flush=True)
        failure = json.loads(self._server.stdout.readline())
        if failure:
            pytest.fail(failure, pytrace=False)

    def close(self) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait()


@functools.cache
def _server() -> Inside:
    server = Inside()
    atexit.register(server.close)
    return server


@pytest.fixture(scope="session")
def inside() -> Inside:
    """One server for all test files. To pytest, the fixture that each file imports is another one."""
    return _server()


def exported(stem: str) -> dict[str, str]:
    """The declaration of each function of `tests/emulator/<stem>.cu` that is not static, by name."""
    text = (SOURCES / f"{stem}.cu").read_text()
    found = re.findall(r"^(?!static |template|struct |PYBIND|__)(\S.* (\w+)\(.*\)) \{", text, re.MULTILINE)
    return {name: declaration for declaration, name in found}


def extension(stem: str, **keywords: Any) -> ModuleType:
    """`tests/emulator/<stem>.cu`, built by load_inline as a candidate would build it."""
    file, functions = SOURCES / f"{stem}.cu", exported(stem)
    keywords = {
        "name": stem,
        "cpp_sources": "".join(f"{declaration};\n" for declaration in functions.values()),
        "functions": list(functions),
        **keywords,
    }
    # A build that fails takes as long as any other, so it runs once for all tests that need it.
    failed = Path.cwd().parent / f"{keywords['name']}.failed"
    if failed.exists():
        raise RuntimeError(failed.read_text())
    try:
        return load_inline(file, cuda_sources=file.read_text(), **keywords)
    except Exception as error:
        failed.write_text(f"failed in an earlier test: {error}")
        raise


def load_inline(file: Path, **keywords: Any) -> ModuleType:
    """torch's load_inline as the candidate in `file` sees it."""
    from torch.utils import cpp_extension

    from cuda_on_cpu.compile import load_inline
    from cuda_on_cpu.compile.candidate_file import CandidateFile
    from cuda_on_cpu.emulator import extension

    load_inline.install(extension.get_or_build, CandidateFile(str(file), file.read_text()))
    return cpp_extension.load_inline(**keywords)


def _serve() -> None:
    from cuda_on_cpu.emulator import shared_parts
    from kernel_harness.device.cpu import Emulated

    shared_parts.prepare()
    Emulated().prepare_worker()
    _import_what_children_need()
    gc.freeze()  # else the collections of each child would copy the pages of all objects
    modules: dict[str, ModuleType] = {}
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a test's own output must not mix with the replies
    with tempfile.TemporaryDirectory() as folder:
        for request in sys.stdin:
            file, name, arguments = json.loads(request)
            if file not in modules:
                modules[file] = _imported(file)
            failure = _in_a_child(getattr(modules[file], name).__wrapped__, arguments, folder)
            print(json.dumps(failure), file=replies, flush=True)


def _import_what_children_need() -> None:
    """Imports what torch imports at the first comparison and the first compilation, and what builds need.

    Each child saves 1 to 3 s. As in a candidate's process, torch imports these modules after the device was installed.
    """
    import torch
    from torch.utils import cpp_extension  # noqa: F401

    from cuda_on_cpu.compile import load_inline  # noqa: F401
    from cuda_on_cpu.emulator import extension  # noqa: F401

    ones = torch.ones(1)
    torch.testing.assert_close(torch.compile(torch.relu, backend="eager")(ones), ones)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a fork would lack the threads that torch started"


def _imported(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _in_a_child(body: Callable[..., None], arguments: dict[str, Any], folder: str) -> str:
    """Runs the body in a forked child. The reason of its failure; empty if it passed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(LONGEST_S)
        os.chdir(tempfile.mkdtemp(dir=folder))
        try:
            body(**arguments)
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-60_000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="replace") as pipe:
        failure = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return failure or (f"the process ended with {status}" if status else "")


if __name__ == "__main__":
    _serve()
