"""Which GPU a worker sees, and which device files the wall leaves out. No GPU is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_harness.device import named, nvml, one_gpu

UUID = "7a3c0000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("number", "name", "own", "value"),
    [
        (0, "NVIDIA H200", None, f"GPU-{UUID}"),
        (1, "NVIDIA H200", "", f"GPU-{UUID}"),
        (1, "NVIDIA H200", "3,5", f"GPU-{UUID}"),  # CUDA_DEVICE_ORDER decides what 5 means
        (1, "NVIDIA H200", "GPU-0,GPU-1", f"GPU-{UUID}"),
        (0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, f"MIG-{UUID}"),
        (0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "MIG-a, MIG-b", "MIG-a"),
        (1, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-a, MIG-GPU-b/1/0", "MIG-GPU-b/1/0"),
    ],
)
def test_a_worker_is_shown_the_gpu_of_its_judge_alone(number: int, name: str, own: str | None, value: str) -> None:
    assert one_gpu.shown_alone(number, name, UUID, own) == value


@pytest.mark.parametrize(
    ("name", "inside"),
    [("cuda", "cuda"), ("cuda:0", "cuda"), ("cuda:3", "cuda"), ("cuda:3-sanitized", "cuda-sanitized"), ("cpu", "cpu"),
     ("cpu-strict", "cpu-strict"), ("cpu-sanitized", "cpu-sanitized")],
)  # fmt: skip
def test_a_gpu_is_the_first_one_in_workers(name: str, inside: str) -> None:
    assert named(name).name_in_workers == inside


def test_the_judge_keeps_the_number_of_its_gpu() -> None:
    assert named("cuda:3").torch_device == "cuda:3" and named(named("cuda:3").name_in_workers).torch_device == "cuda:0"


def test_the_emulated_device_shows_and_hides_nothing() -> None:
    assert named("cpu").worker_variables() == {} and named("cpu").hidden_from_workers() == []


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    for name in ("nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    return tmp_path


def test_the_device_files_of_other_gpus_are_hidden_and_those_that_all_gpus_need_are_not(devices: Path) -> None:
    assert [path.name for path in one_gpu.files_of_others(1, devices)] == ["nvidia0", "nvidia12"]


@pytest.mark.parametrize("minor", [None, 2], ids=["the number is unknown", "there is no such file"])
def test_nothing_is_hidden_where_the_own_device_file_is_unknown(devices: Path, minor: int | None) -> None:
    assert one_gpu.files_of_others(minor, devices) == []


INFORMATION = (
    "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\nGPU UUID: \t GPU-1\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 7\n"
)


def test_the_number_of_the_device_file_comes_from_the_driver(tmp_path: Path) -> None:
    at = one_gpu.address(0, 0x3B, 0)
    (tmp_path / at).mkdir()
    (tmp_path / at / "information").write_text(INFORMATION)

    assert at == "0000:3b:00.0" and one_gpu.minor_number(at, tmp_path) == 7


@pytest.mark.parametrize("text", [None, "Model: NVIDIA H200\n"], ids=["no folder", "no number"])
def test_the_number_of_the_device_file_comes_from_nvml_if_the_driver_tells_none(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "0000:3b:00.0").mkdir()
        (tmp_path / "0000:3b:00.0" / "information").write_text(text)
    monkeypatch.setattr(nvml, "minor_number", {"0000:3b:00.0": 4}.get)

    assert one_gpu.minor_number("0000:3b:00.0", tmp_path) == 4
    assert one_gpu.minor_number("0000:5e:00.0", tmp_path) is None
