"""Lets a worker process use the sanitizer, which is a part of the emulator's runtime library (C++).

This module tells the sanitizer the names of buffers, and adds files and lines to its findings. The file
runtime/sanitize_check.cpp decides which memory accesses are findings.
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

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.cuda_source import start_of_line, tokenize
from cuda_on_cpu.compile.program_files import ProgramFiles

_SYMBOL = re.compile(r"^\s*\d+:\s+([0-9a-f]+)\s+(\w+)\s+TLS\s+\w+\s+\w+\s+\d+\s+(\S+)", re.MULTILINE)
_FUNCTION_QUALIFIERS = ("__global__", "__device__")


class Sanitizer:
    """The sanitizer of the emulator's runtime library in this process.

    The constructor switches the sanitizer on, and it stays on until the process ends. `library` is the path of the
    runtime library. `file` is the candidate's file, or the files of a program: the findings name their lines.
    """

    def __init__(self, library: Path, file: CandidateFile | ProgramFiles) -> None:
        self._runtime = ctypes.CDLL(str(library))
        self._runtime.emulator_sanitize_findings.restype = ctypes.c_char_p
        self._file = file
        self._runtime.emulator_sanitize_start()

    def name_arrays(self, library: Path) -> None:
        """Tells the sanitizer the offset, size and name of each `__shared__` variable in a candidate's library.

        `library` is the path of the library. A `__shared__` variable is thread-local there, and its offset is that in
        the library's thread-local memory.
        """
        listed = subprocess.run(["readelf", "-sW", library], capture_output=True, text=True, check=True).stdout
        found = {(int(at, 16), int(size, 0), name) for at, size, name in _SYMBOL.findall(listed) if int(size, 0)}
        for at, size, name in sorted(found):
            self._runtime.emulator_sanitize_array(
                str(library).encode(), ctypes.c_uint64(at), ctypes.c_uint64(size), _demangled(name).encode()
            )

    def begin(self, order: int, *, checks: bool) -> None:
        """Prepares for one call of the candidate: removes old findings, and sets the order of blocks and threads.

        `order` is 0 for forward order, 1 for reverse order, and any other number is the seed of a random order. If
        `checks` is false, the sanitizer does not check memory accesses in this call.
        """
        self._runtime.emulator_sanitize_begin(ctypes.c_uint64(order), int(checks))

    def name(self, tensor: torch.Tensor, name: str, *, read_only: bool = False) -> None:
        """Gives a name to the memory of `tensor`. Findings about this memory use the name, with dtype and shape.

        If `read_only`, a write to the memory is a finding.
        """
        label = f"{name} ({str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)})"
        self._runtime.emulator_sanitize_buffer(_start(tensor), label.encode(), int(read_only))

    def end(self, outputs: Sequence[torch.Tensor]) -> None:
        """Ends the check of one call of the candidate. `outputs` are the tensors that the call returned.

        Adds a finding if the emulator refused a launch and the candidate did not read the error. Adds a finding for
        each output on the device that is contiguous and has elements that no kernel wrote.
        """
        self._runtime.emulator_sanitize_end()
        for i, output in enumerate(outputs, 1):
            if output.is_cuda and output.numel():
                self.name(output, f"output {i}" if len(outputs) > 1 else "the output")
                if output.is_contiguous():
                    self._runtime.emulator_sanitize_unwritten(
                        _start(output), ctypes.c_uint64(output.numel()), ctypes.c_uint64(output.element_size())
                    )

    def report_order_dependence(self, output: torch.Tensor, element: int) -> None:
        """Adds a finding that names the thread which wrote one element of `output` last.

        The caller has found that the value of this element depends on the order in which threads run. `element` is the
        row-major index of the element. Adds nothing if no thread wrote the element in this call.
        """
        index = torch.unravel_index(torch.tensor(element), output.shape)
        offset = sum(int(i) * stride for i, stride in zip(index, output.stride(), strict=True))
        address = output.data_ptr() + offset * output.element_size()
        self._runtime.emulator_sanitize_blame(ctypes.c_void_p(address))

    def findings(self) -> list[dict[str, Any]]:
        """Returns the findings since the last call of `begin`, each with the file and line of its accesses.

        If the line of an access is unknown, the finding has the line of the kernel launch. False alarms about barriers
        are left out (`_is_real`). An uninitialised read is also left out if it has the line of a race. The line of a
        race is that of its access "here" (`_Lines.of`); the line of its access "there" does not count.
        """
        raw = [
            json.loads(line)
            for line in self._runtime.emulator_sanitize_findings().decode(errors="replace").splitlines()
        ]
        lines = _Lines(raw, self._file)
        found = []
        for each in raw:
            each["launch_file"], each["launch_line"] = self._file.place(each["launch_file"], each["launch_line"])
            for side in ("here", "there"):
                if side in each:
                    each[side]["file"], each[side]["line"] = lines.of(each, side)
            if self._is_real(each):
                found.append(each)
        raced = {each["here"]["line"] for each in found if each["kind"] == "race"}
        return [f for f in found if f["kind"] != "uninitialised read" or f["here"]["line"] not in raced]

    def _is_real(self, finding: dict[str, Any]) -> bool:
        """Returns whether a finding is a mistake of the kernel. Only a finding about a barrier may be a false alarm.

        If the compiler made two copies of one barrier, threads may wait at different copies. Both have the same line,
        so this is correct code. A thread that skips a barrier may have returned early, which is correct, too. So a
        skipped barrier is a mistake only if it is in the candidate's file and its function has no `return` before it.
        """
        if finding["kind"] == "divergent barrier" and "there" in finding:
            return bool(finding["here"]["line"] != finding["there"]["line"])
        if finding["kind"] == "skipped barrier":
            here = finding["here"]
            return self._file.owns(here["file"]) and not self._may_return_before(here["file"], here["line"])
        return True

    def _may_return_before(self, file: str, line: int) -> bool:
        """Returns whether the function that contains line `line` of `file` has a `return` before this line."""
        depth = 0
        tokens = tokenize(self._file.text_of(file))
        for token in reversed(tokens[: start_of_line(tokens, line)]):
            if token.text == "return":
                return True
            if depth < 0 and token.text in _FUNCTION_QUALIFIERS:
                return False
            depth += (token.text == "}") - (token.text == "{")
        return False


class _Lines:
    """The source lines of the machine instructions that findings are about.

    `raw` are the findings, which have only addresses in a library. The constructor runs addr2line once per library to
    look up all lines. `file` is the candidate's file.
    """

    def __init__(self, raw: Iterable[dict[str, Any]], file: CandidateFile | ProgramFiles) -> None:
        self._file = file
        self._known: dict[tuple[str, int], tuple[str, int]] = {}
        by_library: dict[str, set[int]] = {}
        for each in raw:
            for side in ("here", "there"):
                if each.get(side, {}).get("site") and "line" not in each[side]:
                    call = each[side]["site"] - 1  # `site` is a return address, which may belong to the next line
                    by_library.setdefault(each["library"], set()).add(call)
        for library, sites in by_library.items():
            self._look_up(library, sorted(sites))

    def of(self, finding: dict[str, Any], side: str) -> tuple[str, int]:
        """Returns the file and the line of one of the two accesses of a finding, as a pair.

        `side` is "here" for the access that the finding reports as the mistake, and "there" for the access that
        conflicts with it. If the line of the access is unknown, returns the file and the line of the kernel launch.
        """
        if "line" in finding[side]:  # of an instruction that the emulator translates
            return self._file.place(finding[side]["file"], finding[side]["line"])
        call = finding[side]["site"] - 1
        return self._known.get((finding["library"], call), (finding["launch_file"], finding["launch_line"]))

    def _look_up(self, library: str, sites: Sequence[int]) -> None:
        command = ["addr2line", "-a", "-i", "-e", library, *map(hex, sites)]
        site = 0
        for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
            if line.startswith("0x"):
                site = int(line, 16)
                continue
            # addr2line lists the functions inlined at the address, innermost first. The first one in the candidate's
            # file gives the line. addr2line may add the compiler's working directory to the neutral name of a source.
            path, _, number = line.partition(" ")[0].rpartition(":")
            for name in (path.rpartition("/")[2], path) if number.isdecimal() else ():
                file, own_line = self._file.place(name, int(number))
                if self._file.owns(file):
                    self._known.setdefault((library, site), (file, own_line))


def _start(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _demangled(symbol: str) -> str:
    """Returns the name of a variable in the source: `sum` for the linker's symbol `_ZZ4tilePfE3sum`.

    Returns an empty text for a variable that the compiler or the emulator made.
    """
    if re.match(r"_ZGV|_ZZ?N8emulator", symbol):
        return ""
    local = re.search(r"E(\d+)(\w+)$", symbol)
    return local[2][: int(local[1])] if symbol.startswith("_ZZ") and local else symbol
