"""The sanitizer as the worker uses it: names for what kernels touch, and findings with files and lines.

What counts as a finding is decided in runtime/sanitize_check.cpp; who reads it, elsewhere.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernel_harness.emulator.rewrite import blank

_SYMBOL = re.compile(r"^\s*\d+:\s+([0-9a-f]+)\s+(\w+)\s+TLS\s+\w+\s+\w+\s+\d+\s+(\S+)", re.MULTILINE)
_FORWARD, _REVERSE = 0, 1


class Sanitizer:
    """The runtime's sanitizer in this process, switched on when this is made. It cannot be switched off."""

    def __init__(self, library: Path, file: str = "", source: str = "") -> None:
        self._runtime = ctypes.CDLL(str(library))
        self._runtime.emulator_sanitize_findings.restype = ctypes.c_char_p
        self._file, self._code = file, blank(source).split("\n")
        self._runtime.emulator_sanitize_start()

    def name_arrays(self, library: Path) -> None:
        """Tells the runtime where a library's `__shared__` variables lie and what they are called."""
        listed = subprocess.run(["readelf", "-sW", library], capture_output=True, text=True, check=True).stdout
        found = {(int(at, 16), int(size, 0), name) for at, size, name in _SYMBOL.findall(listed) if int(size, 0)}
        for at, size, name in sorted(found):
            self._runtime.emulator_sanitize_array(
                str(library).encode(), ctypes.c_uint64(at), ctypes.c_uint64(size), _demangled(name).encode()
            )

    def begin(self, order: int, *, checks: bool) -> None:
        """Forgets all findings. Blocks and threads then run forward (0), in reverse (1), or shuffled by a seed."""
        self._runtime.emulator_sanitize_begin(ctypes.c_uint64(order), int(checks))

    def name(self, tensor: torch.Tensor, name: str, *, read_only: bool = False) -> None:
        """What a finding calls the tensor's memory."""
        words = f"{name} ({str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)})"
        self._runtime.emulator_sanitize_buffer(_start(tensor), words.encode(), int(read_only))

    def end(self, outputs: Sequence[torch.Tensor]) -> None:
        """Looks for launches whose failure nobody noticed, and for elements of the outputs that nobody wrote."""
        self._runtime.emulator_sanitize_end()
        for i, output in enumerate(outputs, 1):
            if output.is_cuda and output.numel():
                self.name(output, f"output {i}" if len(outputs) > 1 else "the output")
                if output.is_contiguous():
                    self._runtime.emulator_sanitize_unwritten(
                        _start(output), ctypes.c_uint64(output.numel()), ctypes.c_uint64(output.element_size())
                    )

    def blame(self, output: torch.Tensor, element: int) -> None:
        """Adds a finding for an element, counted in row-major order, whose value depends on the order of threads."""
        index = torch.unravel_index(torch.tensor(element), output.shape)
        offset = sum(int(i) * stride for i, stride in zip(index, output.stride(), strict=True))
        address = output.data_ptr() + offset * output.element_size()
        self._runtime.emulator_sanitize_blame(ctypes.c_void_p(address))

    def findings(self) -> list[dict[str, Any]]:
        """What was found since `begin`, each with the candidate's file and line where they are known."""
        raw = [
            json.loads(line)
            for line in self._runtime.emulator_sanitize_findings().decode(errors="replace").splitlines()
        ]
        lines = _Lines(raw, self._file)
        found = []
        for each in raw:
            for side in ("here", "there"):
                if side in each:
                    each[side]["file"], each[side]["line"] = lines.of(each, side)
            if self._counts(each):
                found.append(each)
        raced = {each["here"]["line"] for each in found if each["kind"] == "race"}
        return [f for f in found if f["kind"] != "uninitialised read" or f["here"]["line"] not in raced]

    def _counts(self, found: dict[str, Any]) -> bool:
        """A barrier copied by the compiler is one barrier; one that others left out may stand after an early return."""
        if found["kind"] == "divergent barrier" and "there" in found:
            return bool(found["here"]["line"] != found["there"]["line"])
        if found["kind"] == "skipped barrier":
            return found["here"]["file"] == self._file and not self._may_return_before(found["here"]["line"])
        return True

    def _may_return_before(self, line: int) -> bool:
        """Whether a `return` stands before a line in the function around it, read backwards to where that begins."""
        depth = 0
        for text in reversed(self._code[: line - 1]):
            depth += text.count("}") - text.count("{")
            if re.search(r"\breturn\b", text):
                return True
            if depth < 0 and re.search(r"__global__|__device__", text):
                return False
        return False


class _Lines:
    """Files and lines for addresses in the candidate's libraries, all looked up at once."""

    def __init__(self, raw: Iterable[dict[str, Any]], file: str) -> None:
        self._file = file
        self._known: dict[tuple[str, int], tuple[str, int]] = {}
        by_library: dict[str, set[int]] = {}
        for each in raw:
            for side in ("here", "there"):
                if each.get(side, {}).get("site"):
                    by_library.setdefault(each["library"], set()).add(
                        each[side]["site"] - 1
                    )  # the call, not its return
        for library, sites in by_library.items():
            self._look_up(library, sorted(sites))

    def of(self, found: dict[str, Any], side: str) -> tuple[str, int]:
        """File and line of one side of a finding; the launch's where the kernel's own is not known."""
        return self._known.get(
            (found["library"], found[side]["site"] - 1), (found["launch_file"], found["launch_line"])
        )

    def _look_up(self, library: str, sites: Sequence[int]) -> None:
        command = ["addr2line", "-a", "-i", "-e", library, *map(hex, sites)]
        site = 0
        for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
            if line.startswith("0x"):
                site = int(line, 16)
                continue
            # Of the functions inlined there, innermost first, the first that the candidate wrote.
            place = re.match(r"(.*):(\d+)", line)
            if place and (place[1] == self._file or place[1].endswith("/" + self._file)):
                self._known.setdefault((library, site), (self._file, int(place[2])))


def _start(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _demangled(symbol: str) -> str:
    """The variable's own name, `_ZZ4tilePfE3sum` -> `sum`; empty where it is the compiler's or the emulator's own."""
    if re.match(r"_ZGV|_ZZ?N8emulator", symbol):
        return ""
    local = re.search(r"E(\d+)(\w+)$", symbol)
    return local[2][: int(local[1])] if symbol.startswith("_ZZ") and local else symbol
