"""The command judges every known cheat and every honest kernel that resembles one.

The candidates are in `cheats` and `honest`. The docstring of each gives the trick, the verdict it must get and the
layer that catches it. `Says:` gives a text that the reason must contain. `Takes:` gives the true duration of a call:
a cheat that passes must not be ranked below it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import cheats
from support.cheats import CHEATS, HONEST, as_parameters

pytestmark = pytest.mark.slow

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
def results(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """One run with all candidates. The environment variable is a secret that only the judge's process may see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_HARNESS_TEST_SECRET", "a user's")
        return cheats.judged([*CHEATS, *HONEST], request.param)


@pytest.mark.parametrize("path", as_parameters(CHEATS))
def test_a_cheat_gains_nothing(path: Path, results: dict[str, dict[str, Any]]) -> None:
    assert not cheats.wanted(path).mistake(results[path.stem])


@pytest.mark.parametrize("path", as_parameters(HONEST))
def test_an_honest_kernel_is_not_flagged(path: Path, results: dict[str, dict[str, Any]]) -> None:
    result = results[path.stem]

    assert not cheats.wanted(path).mistake(result)
    assert result["timing"]["time"]["estimate"] > 0


def test_the_table_in_the_threat_model_names_every_candidate() -> None:
    assert cheats.names_in_table() == {path.stem for path in [*cheats.files("cheats"), *cheats.files("honest")]}
