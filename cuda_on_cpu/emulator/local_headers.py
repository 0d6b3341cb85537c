"""Rewrites the headers of a program, which may launch kernels, as the emulator rewrites a CUDA source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from torch.utils import cpp_extension

from cuda_on_cpu.compile.candidate_file import source_text
from cuda_on_cpu.compile.cuda_source import edited, includes, joined, tokenize
from cuda_on_cpu.compile.errors import BuildFailed
from cuda_on_cpu.compile.sources import Sources, options
from cuda_on_cpu.emulator import flags
from cuda_on_cpu.emulator.launches import MalformedLaunch
from cuda_on_cpu.emulator.rewrite import rewrite

PTX = flags.EMULATOR_HEADERS / "ptx.h"
"""The emulator's header for the translation of inline PTX."""


class LocalHeaders:
    """Rewritten copies of the headers that one source includes, in a folder of their own.

    `folders` are those in which the compiler looks for headers, in order. Those of torch, CUDA and the system are left
    out: their headers are not rewritten. `flags` are the program's flags for nvcc.
    """

    def __init__(self, folder: Path, folders: Iterable[Path], flags: Sequence[str] = ()) -> None:
        self._folder, self._folders, self._flags = folder, _of_program(folders), flags
        self.copies: dict[Path, Path] = {}
        """The copy of each header."""
        self.texts: list[str] = []
        """The text of each header before it was rewritten."""
        self.has_ptx = False
        """Whether a header has inline PTX, whose translation needs the header PTX."""

    def with_copies(self, text: str, path: Path) -> str:
        """Returns the text of the file `path` with each `#include` of a header of the program replaced.

        The new `#include` names the rewritten copy, with a line directive for the header's own path. Raises BuildFailed
        if a header has a malformed launch.
        """

        tokens = tokenize(text)
        found = ((each, self._find(each.header, path)) for each in includes(tokens))
        return joined(edited(tokens, [(i.at, i.end, f'"{self._copy_of(header)}"') for i, header in found if header]))

    def _find(self, named: str, path: Path) -> Path | None:
        folders = [path.parent, *self._folders] if named.startswith('"') else self._folders
        found = (folder / named[1:-1] for folder in folders)
        return next((each.resolve() for each in found if each.is_file()), None)

    def _copy_of(self, header: Path) -> Path:
        if header not in self.copies:
            copy = self._folder / hashlib.sha256(str(header).encode()).hexdigest()[:16] / header.name
            self.copies[header] = copy  # before its own headers, which may include it again
            text = source_text(header)
            self.texts.append(text)
            copy.parent.mkdir(parents=True)
            rewritten = self._rewritten(text, header)
            self.has_ptx |= "::emulator::ptx::" in rewritten
            copy.write_text(f'#line 1 "{header}"\n{rewritten}', encoding="utf-8")
        return self.copies[header]

    def _rewritten(self, text: str, header: Path) -> str:
        try:
            return rewrite(self.with_copies(text, header), self._flags)
        except MalformedLaunch as error:
            raise BuildFailed(f"{header}:{error.line}: error: {error.problem}", final=True) from None


def _of_program(folders: Iterable[Path]) -> list[Path]:
    """Returns those of `folders` that are not torch's, the emulator's or the system's."""
    known = {Path(folder).resolve() for folder in (*cpp_extension.include_paths(), flags.CUDA_HEADERS, "/usr/include")}
    return [folder.absolute() for folder in folders if folder.resolve() not in known]


def with_headers(sources: Sources, folder: Path) -> tuple[Sources, LocalHeaders]:
    """Returns the sources with rewritten copies of the headers that the CUDA source includes, and these headers.

    The copies are in `folder`. Raises BuildFailed if a header has a malformed launch.
    """
    named = ("".join(option) for option in options(sources.cuda_cflags) if option[0].startswith("-I"))
    folders = [*sources.include_paths, *(each.removeprefix("-I") for each in named)]
    headers = LocalHeaders(folder, map(Path, folders), sources.cuda_cflags)
    cuda = headers.with_copies(sources.cuda, folder / "main.cu")
    ptx = ("-include", str(PTX)) if headers.has_ptx else ()
    return replace(sources, cuda=cuda, cuda_cflags=(*sources.cuda_cflags, *ptx)), headers
