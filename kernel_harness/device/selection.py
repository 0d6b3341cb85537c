"""Selects the device for the value of the option `--device`."""

from __future__ import annotations

import torch

from kernel_harness.core.errors import UserError
from kernel_harness.device import Device, named


def selected(name: str, *, strict: bool = False) -> Device:
    """Returns the device for `--device name`, and with `strict` for `--device name --strict`.

    The names are `auto`, `cpu`, `cuda` and `cuda:N`; `auto` is CUDA if torch finds a CUDA device, else the CPU. Raises
    UserError for any other name, for a CUDA device that does not exist, and for `strict` with a CUDA device, also one
    that `auto` finds.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()) or name.startswith("cpu:"):
        raise UserError(f"no device {name!r}; there are auto, cpu, cuda and cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices; --device cpu emulates one"
        )
    if strict and kind == "cuda":
        raise UserError("--strict is for the emulated device: on a GPU nvcc compiles every kernel anyway")
    return named("cpu-strict" if strict else name)
