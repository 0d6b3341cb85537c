"""Every known way to fool a harness, and every honest kernel that looks like one, judged by the command.

The candidates are in `cheats` and `honest`. The docstring of each says the trick, the verdict it must get, the layer
that catches it and, after `Says:`, what the reason must contain. `Takes:` is how long a call takes in truth: a cheat
that passes must be ranked at no less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT

from benchmarks import cheats
from kernel_harness import wall

# Without any wall some would end the judge.
CHEATS = cheats.candidates("cheats") if wall.best() is not wall.Kind.NONE else []
HONEST = cheats.candidates("honest")

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
def results(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """One run with all of them. What only the judge's own environment holds is not for them to see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_HARNESS_TEST_SECRET", "a user's")
        return cheats.judged([*CHEATS, *HONEST], request.param)


def cases(paths: list[Path]) -> list[Any]:
    """Those that need a stronger wall than this machine has are skipped."""
    weak = [path for path in paths if (needs := cheats.wanted(path).needs) and needs != wall.best()]
    reason = "this machine's wall is not the one it needs"
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.skip(reason)] if path in weak else []) for path in paths
    ]


@pytest.mark.parametrize("path", cases(CHEATS))
def test_a_cheat_gains_nothing(path: Path, results: dict[str, dict[str, Any]]) -> None:
    assert not cheats.wanted(path).wrong(results[path.stem])


@pytest.mark.parametrize("path", cases(HONEST))
def test_an_honest_kernel_is_not_convicted(path: Path, results: dict[str, dict[str, Any]]) -> None:
    result = results[path.stem]

    assert not cheats.wanted(path).wrong(result)
    assert result["timing"]["time_ms"] > 0


def test_the_table_in_the_readme_names_every_candidate() -> None:
    text = (ROOT / "README.md").read_text()
    shown = text[text.index(cheats.START) :].split(cheats.END)[0]

    assert all(f"`{path.stem}`" in shown for path in [*CHEATS, *HONEST])
