"""Measures the speed that a GPU reaches: the memory bandwidth of a copy, and the FLOP/s of matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from cuda_on_cpu.compile import cache

_COPY_BYTES = 1 << 30
_SIZE = 8192  # rows and columns of each matrix
_SAMPLES = 10
_FORMATS = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def measured(device: str, identity: Mapping[str, Any]) -> dict[str, float]:
    """Returns the speeds that the GPU `device` reaches, as a dict from names to numbers.

    `bytes_per_s` is the bandwidth of a copy: the sum of the bytes read and the bytes written, per second. For float32,
    tf32, float16 and bfloat16 there is `<format>_flops_per_s`, the FLOP/s of a product of random matrices. The first
    call for an `identity` (device, driver, torch) measures the speeds and stores them in the build cache, where later
    calls find them.
    """

    def measure() -> tuple[dict[str, float], tuple[str, ...]]:
        with torch.cuda.device(device):  # the events belong to the current device
            return _measure(device), ()

    found: dict[str, float] = cache.keep("ceilings", cache.key(what="ceilings", size=_SIZE, **identity), measure)
    return found


def _measure(device: str) -> dict[str, float]:
    ceilings = {"bytes_per_s": 2 * _COPY_BYTES / _copy_s(device)}
    for name, dtype in _FORMATS.items():
        ceilings[f"{name}_flops_per_s"] = 2 * _SIZE**3 / _product_s(device, dtype, tf32=name == "tf32")
    torch.cuda.empty_cache()
    return ceilings


def _copy_s(device: str) -> float:
    source = torch.empty(_COPY_BYTES // 4, dtype=torch.float32, device=device).normal_()
    target = torch.empty_like(source)
    return _seconds(lambda: target.copy_(source))


def _product_s(device: str, dtype: torch.dtype, *, tf32: bool) -> float:
    a, b = (torch.randn(_SIZE, _SIZE, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return _seconds(lambda: torch.mm(a, b, out=out))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _seconds(call: Callable[[], object]) -> float:
    """Returns the median time of a call in seconds, measured with CUDA events after two warm-up calls."""
    samples: list[float] = []
    for _ in range(_SAMPLES + 2):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        samples.append(start.elapsed_time(stop) / 1e3)
    return median(samples[2:])
