"""Fixtures and settings for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from support import warm_fork_server
from support.command import Finished, Harness

# Tests run beside each other, and each process of a run waits busily for a second thread of torch's.
# test_command.py runs the command without it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# How long an example takes says how busy the machine is.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

# With -n 2, each worker takes the next file of this order. Those that take minutes come first, the longest before all,
# so that no worker is left alone with one of them. A file that is not named here comes after them.
LONGEST_FIRST = (
    "test_messages.py", "test_rehearsal.py", "test_kernel_families.py", "test_cheats.py", "test_sanitize.py",
    "test_bad_input.py", "test_emulator.py", "test_build.py", "test_suite.py", "test_cache_verb.py", "test_dry_run.py",
    "test_profile_lines.py", "test_profile.py", "test_order.py", "test_broken_variants.py", "test_layers.py",
    "test_kernels_nvcc.py", "test_cu_files.py", "test_language.py", "test_new.py", "test_command.py",
    "test_mistakes.py", "test_profile_causes.py", "test_device_library.py", "test_read_files.py",
    "test_shared_libraries.py", "test_race.py", "test_compare.py", "test_wall.py", "test_watch.py", "test_protocol.py",
    "test_library.py", "test_culprit.py", "test_seen_from_a_candidate.py", "test_runtime_calls.py",
)  # fmt: skip

# Files of tests/adversarial whose fork servers are forks, too. Each test there starts a fork server and looks at one
# check of the judge.
WARM = ("test_layers.py",)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Orders files for parallel workers. Without them, the order of the folders is kept."""
    if hasattr(config, "workerinput"):
        places = {name: place for place, name in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Chooses how fork servers start in this process, before the fixtures of a module start one."""
    if {"adversarial", "gpu"} & set(item.path.parts) and item.path.name not in WARM:
        warm_fork_server.take_back()
    else:
        warm_fork_server.install(warm_fork_server.address())


@contextmanager
def _environment_restored() -> Iterator[None]:
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


@pytest.fixture(autouse=True)
def environment_restored() -> Iterator[None]:
    """Takes back what code under test wrote into os.environ: use_toolkit() sets $CUDA_HOME.

    A variable that is as it was is left alone: other threads start compilers meanwhile, and need $PATH at any moment.
    """
    with _environment_restored():
        yield


@pytest.fixture(autouse=True, scope="module")
def environment_restored_after_the_file() -> Iterator[None]:
    """Takes back what the fixtures of a file wrote into os.environ."""
    with _environment_restored():
        yield


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """The command, with no results yet."""
    return Harness(tmp_path)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty build cache."""
    monkeypatch.setenv("KERNEL_HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def stocked_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build cache that holds what all emulated builds share, which takes a minute to build, and nothing else."""
    from cuda_on_cpu.compile import cache
    from kernel_harness.device.cpu import Emulated

    Emulated().prepare()
    passing = shutil.ignore_patterns("building-*", "*.lock")  # of whoever builds beside
    for kind in ("emulator", "shared"):
        shutil.copytree(cache.root() / kind, tmp_path / "cache" / kind, copy_function=_link, ignore=passing)
    monkeypatch.setenv("KERNEL_HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # of another file system, or another user's
        shutil.copy2(source, target)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """The command within this process, which has torch already."""
    from kernel_harness import cli

    def run(*words: str | Path) -> Finished:
        try:
            code = cli.main([*map(str, words)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return Finished(code, said.out, said.err)

    return run
