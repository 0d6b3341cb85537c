"""What a worker gets of a machine's GPUs: one, which is its device 0 whatever number it has in the judge.

A variable of the environment shows CUDA in the worker that GPU alone. A candidate could change the variable, so the
wall also leaves out the device files of the other GPUs, where it can be found out which file is whose.
"""

from __future__ import annotations

import re
from pathlib import Path

from kernel_harness.device import nvml

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that lists the GPUs which CUDA shows to a process, by number or UUID (CUDA C++ Programming Guide)."""
_FILE_OF_A_GPU = re.compile(r"nvidia(\d+)")
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def shown_alone(number: int, name: str, uuid: str, own: str | None) -> str:
    """Returns the value of CUDA_VISIBLE_DEVICES that shows a process only the GPU with this `number` in this process.

    `name` and `uuid` are the GPU's name and its UUID without a prefix. `own` is this process's value of the variable,
    or None. The UUID is used because numbers depend on further variables. An instance of a partitioned GPU (MIG) keeps
    the entry that it has in `own`, because its UUID has another form with older drivers.
    """
    entries = [entry.strip() for entry in (own or "").split(",")]
    if number < len(entries) and entries[number].startswith("MIG-"):
        return entries[number]
    return f"MIG-{uuid}" if re.search(r"\bMIG\b", name) else f"GPU-{uuid}"


def address(domain: int, bus: int, device: int) -> str:
    """Returns the address of a GPU on the PCI bus in the form of the driver's folders, such as `0000:3b:00.0`."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def minor_number(at: str, gpus: Path = Path("/proc/driver/nvidia/gpus")) -> int | None:
    """Returns the number in the name of a GPU's device file, such as 0 for /dev/nvidia0; None if it is unknown.

    `at` is the GPU's address. `gpus` is the folder in which the driver describes each GPU. NVML is asked if the driver
    does not tell. All instances of a partitioned GPU have the same file.
    """
    try:
        found = _MINOR.search((gpus / at / "information").read_text())
    except OSError:
        found = None
    return int(found[1]) if found else nvml.minor_number(at)


def files_of_others(minor: int | None, folder: Path = Path("/dev")) -> list[Path]:
    """Returns the device files in `folder` of all GPUs except the one with the number `minor`.

    Returns none if `minor` is None, or if the GPU has no such file: the files may then be named in another way.
    """
    if minor is None or not (folder / f"nvidia{minor}").exists():
        return []
    files = {path: _FILE_OF_A_GPU.fullmatch(path.name) for path in sorted(folder.glob("nvidia*"))}
    return [path for path, found in files.items() if found and int(found[1]) != minor]
