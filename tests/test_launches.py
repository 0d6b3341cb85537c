"""Which kernels are a candidate's own, by the names that a profiler gives. What it sees on a GPU, test_cheats asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_harness.launches import base_name, own


@pytest.mark.parametrize(
    "kernel, name",
    [
        ("void tiled<16>(float const*, float*, int)", "tiled"),
        ("spin(float*)", "spin"),
        ("(anonymous namespace)::scan<int, 4>(int*)", "scan"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)",
         "vectorized_elementwise_kernel"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("Memcpy HtoD (Pinned -> Device)", ""),
        ("Memset (Device)", ""),
    ],
)  # fmt: skip
def test_a_kernels_bare_name(kernel: str, name: str) -> None:
    assert base_name(kernel) == name


def test_own_kernels_are_those_the_text_or_a_library_of_it_names(tmp_path: Path) -> None:
    library = tmp_path / "made_by_a_macro.so"
    library.write_bytes(b"\0_Z14scale_by_macroPf\0")
    source = "__global__ void tiled(float* x) {}  // no_tiled_gemm"
    seen = ["void tiled<8>(float*)", "scale_by_macro(float*)", "cutlass_80_simt_sgemm_128x64", "gemm(float*)"]

    assert own(seen, source, [library]) == ["tiled", "scale_by_macro"]
