"""A build for a GPU whose linker succeeds and writes nothing."""

from __future__ import annotations

from pathlib import Path

from cuda_on_cpu.compile.sources import Sources
from kernel_harness.compile import nvcc


def test_a_linker_that_only_prints_its_version_leaves_the_folder_without_a_library(tmp_path: Path) -> None:
    """The worker then says that the build wrote no library, as on a machine without a GPU."""
    sources = Sources(
        name="links_nothing", cpp="int one() { return 1; }", cuda="", functions={"one": "one"}, cflags=(),
        cuda_cflags=(), ldflags=("--version",), include_paths=(), error_handling=False, with_cuda=False,
        implicit_headers=True,
    )  # fmt: skip
    nvcc.build(sources, tmp_path)
    assert not list(tmp_path.glob("*.so"))
