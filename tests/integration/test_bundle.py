"""Bundles: `run --bundle` writes what `verify` judges again, and a changed or foreign bundle is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support import relu
from support.command import ROOT

from kernel_harness.cli import verify
from kernel_harness.core.status import Status
from kernel_harness.results import comparison
from kernel_harness.results.record import Result
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")


def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "harness.py"), *map(str, words), "--device", "cpu"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a problem, two kernels, and a signed bundle of their results."""
    folder = tmp_path_factory.mktemp("made")
    relu.write(folder)
    key(folder / "key")
    done = run(folder, "relu", "--quick", "--budget", "0.3", "--bundle", "out.zip", "--sign", "key")
    assert done.returncode == 1 and done.stdout.endswith("out.zip\n"), done.stdout + done.stderr
    return folder


def changed(bundle: Path, to: Path, change: Callable[[dict[str, bytes]], None], *, hashes: bool) -> Path:
    """A copy of a bundle with other files; with `hashes` the manifest has their hashes and there is no signature."""
    with zipfile.ZipFile(bundle) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    change(files)
    if hashes:
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"] = {name: hashlib.sha256(files[name]).hexdigest() for name in manifest["sha256"]}
        files["manifest.json"] = json.dumps(manifest).encode()
        files.pop("manifest.json.sig", None)
    with zipfile.ZipFile(to, "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return to


def forge(files: dict[str, bytes]) -> None:
    files["results.jsonl"] = files["results.jsonl"].replace(b"WRONG_VALUES", b"PASSED")


def test_a_bundle_is_judged_again_and_its_signature_is_checked(made: Path) -> None:
    done = run(made, "verify", "out.zip", "--signed-by", "key.pub")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "signed by SHA256:" in done.stderr
    assert "All verdicts agree. No times were compared" in done.stdout


def test_a_forged_verdict_is_found_by_judging_again(made: Path, tmp_path: Path) -> None:
    forged = changed(made / "out.zip", tmp_path / "forged.zip", forge, hashes=True)
    done = run(made, "verify", forged)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "not signed: anybody may have written it" in done.stderr
    assert "wrong: PASSED in the bundle, WRONG_VALUES here" in done.stdout


def test_what_is_not_signed_or_was_changed_is_refused(made: Path, tmp_path: Path) -> None:
    other = key(tmp_path / "other")
    unsigned = changed(made / "out.zip", tmp_path / "unsigned.zip", lambda files: None, hashes=True)
    altered = changed(made / "out.zip", tmp_path / "altered.zip", forge, hashes=False)
    (tmp_path / "text.zip").write_text("no zip file")
    for words, message in (
        (["out.zip", "--signed-by", f"{other}.pub"], "the signature of the bundle does not hold"),
        ([unsigned, "--signed-by", "key.pub"], "is not signed"),
        ([altered], "it was changed"),
        ([tmp_path / "text.zip"], "is no bundle"),
        (["nowhere.zip"], "is no bundle"),
    ):
        done = run(made, "verify", *words)
        assert done.returncode == 2 and message in done.stderr, (words, done.stderr)


def test_a_foreign_problem_is_executed_only_if_that_is_accepted(made: Path, tmp_path: Path) -> None:
    refused = run(tmp_path, "verify", made / "out.zip")
    assert refused.returncode == 2 and "add --accept-problem" in refused.stderr

    assert run(tmp_path, "verify", made / "out.zip", "--accept-problem").returncode == 0


def test_a_name_that_leads_elsewhere_is_refused(made: Path, tmp_path: Path) -> None:
    def rename(files: dict[str, bytes]) -> None:
        for name in ("manifest.json", "results.jsonl"):
            files[name] = files[name].replace(b'"right"', b'"../right"')

    done = run(made, "verify", changed(made / "out.zip", tmp_path / "renamed.zip", rename, hashes=True))
    assert done.returncode == 2 and "cannot be that of a file" in done.stderr
    assert not (tmp_path / "right.py").exists()


def test_a_bundle_of_several_shapes_is_judged_again_at_these(made: Path) -> None:
    words = ("relu", "right", "--quick", "--budget", "0.3", "--time-shapes", "N=16", "--bundle", "shapes.zip")
    assert run(made, *words).returncode == 0
    done = run(made, "verify", "shapes.zip")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "All verdicts agree. No times were compared" in done.stdout and "slower" not in done.stdout


def test_a_bundle_is_of_one_whole_run(made: Path) -> None:
    for words, message in (
        (["--bundle", "a.zip", "--case", "N=32:own"], "--bundle takes one whole run"),
        (["--sign", "key"], "--sign signs a bundle"),
    ):
        done = run(made, "relu", *words)
        assert done.returncode == 2 and message in done.stderr


def result(speedup: float, device: str = "NVIDIA H200", spread: float = 0.01) -> Result:
    ratio = Interval(speedup * (1 - spread), speedup, speedup * (1 + spread))
    timing = Timing((1.0,) * 20, (), Interval(0.99, 1.0, 1.01), ratio)
    return Result("a", Status.PASSED, "", {}, f"{speedup}", timing=timing, run=f"{speedup}{spread}",
                  environment={"device": device})  # fmt: skip


def without_an_interval(speedup: float) -> Result:
    found = result(speedup)
    assert found.timing is not None
    return replace(found, timing=replace(found.timing, speedup=Interval(None, speedup, None)))


@pytest.mark.parametrize(
    ("here", "differs"),
    [
        (result(2.02), False),
        (result(1.5), True),
        (result(3.0), True),
        (result(1.5, spread=0.5), False),  # too few rounds to be certain
        (result(1.5, "NVIDIA A100"), False),  # another device
        (without_an_interval(1.5), False),
    ],
)
def test_times_differ_if_they_certainly_do_on_the_same_kind_of_gpu(here: Result, differs: bool) -> None:
    sides = [comparison.side(name, [one], "p") for name, one in (("bundle", result(2.0)), ("here", here))]
    outcome = comparison.compare(*sides, force=True)

    assert bool(verify._difference(outcome.rows[0], outcome, 5.0)) is differs
