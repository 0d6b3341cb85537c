"""Kernels of many families, written as others write them: emulated, each must give torch's answer; nvcc takes them too."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from emulated.inside import emulated, inside, load_inline  # noqa: F401 - a fixture

KERNELS = Path(__file__).resolve().parent / "emulated" / "kernels"
NAMES = sorted(path.stem for path in KERNELS.glob("*.py"))


def kernel(name: str) -> ModuleType:
    """A file of the folder: CPP and CUDA sources, `cases()` and the `answer(*case)`."""
    spec = importlib.util.spec_from_file_location(name, KERNELS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(value: object) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)  # type: ignore[call-overload]


@emulated
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_torch_s_answer(name):
    tested = kernel(name)
    functions = [name] if tested.CPP else None
    ops = load_inline(
        KERNELS / f"{name}.py", name=name, cpp_sources=tested.CPP, cuda_sources=tested.CUDA, functions=functions,
        extra_cuda_cflags=getattr(tested, "FLAGS", []),
    )  # fmt: skip
    torch.manual_seed(0)
    for case in tested.cases():
        placed = [x.cuda() if isinstance(x, torch.Tensor) else x for x in case]
        got = tensors(getattr(ops, name)(*placed))
        torch.cuda.synchronize()
        expected = tensors(tested.answer(*case))
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.is_cuda
            tolerance = getattr(tested, "TOLERANCE", {"rtol": 1e-4, "atol": 1e-4})
            torch.testing.assert_close(ours.cpu(), theirs, **tolerance)
