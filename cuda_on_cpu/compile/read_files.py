"""Finds the files of the user that a build has read, such as a local header that a source includes.

The key of an entry in the build cache depends on the sources and the flags of a build, such as `-I<folder>`. It does
not depend on the content of these files. So the entry records the files. Each time the entry is used, the cache checks
whether one of them has changed, and then builds the entry again (`cache.get_or_build`). If the flags let a build read
files that nothing lists (`-specs`, `-B`, `-wrapper`, `-fplugin`), the entry is built again at each use. Three changes
are not seen:
- a new file that would now be found first, in an earlier folder of the search path or by `__has_include`;
- a file that the C++ source of a build for a GPU includes from a folder of the flag `-isystem`, because torch makes the
  C++ compiler leave such folders out of its list;
- an upgrade of a library with headers in the system's header folders, such as glibc. (Distributions upgrade libstdc++
  together with g++, whose full version the keys contain.)
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from torch.utils import cpp_extension

from cuda_on_cpu.compile import cache, host_compiler
from cuda_on_cpu.compile.sources import Sources, options

_PACKAGE = Path(__file__).parents[1]
UNKNOWN = ""
"""A path that no file has. It stands for files of which it is unknown which they are: the next use builds again."""
# Flags that let compiler and linker read files, or run programs that read files, which appear in no list.
_OPAQUE = re.compile(r"--?specs|-B|-wrapper|-fplugin|--?compiler-bindir|-ccbin")
# Flags after which nvcc expects a file with more flags. Other compilers have `@file`.
_OPTIONS_FILE = ("--options-file", "-optf")
# What the compiler passes to the assembler. The compiler has deleted it.
_TEMPORARY = re.compile(r"/cc\w{6}\.s$")
_DEEPEST = 8  # files of flags may name further files of flags


def of(sources: Sources, folder: Path) -> list[str]:
    """Returns the absolute paths of the files that the finished build of `sources` in `folder` has read.

    These are the files that compilers and assemblers report, existing files whose paths are in flags, and libraries
    that a flag `-l` names in a folder that a flag `-L` names. UNKNOWN is among them if flags let the build read others.
    Left out are files in `folder`, which the build has written, files in the system's header folders, and the files of
    the compiler, of torch and of this package, whose versions the keys of the build cache contain.
    """
    read = [path for rule in folder.glob("*.d") for path in prerequisites(rule.read_text(errors="surrogateescape"))]
    if (folder / ".ninja_deps").exists():
        read += _of_ninja(folder)
    flags, files = _expanded([*sources.cflags, *sources.cuda_cflags, *sources.ldflags])
    read += [*files, *_named(flags), *_libraries(flags)]
    known = (*_known_folders(), f"{os.path.realpath(folder)}/")
    found = sorted({str(folder / path) for path in read if not _TEMPORARY.search(path)})
    own = [path for path in found if not os.path.realpath(path).startswith(known)]
    return [*own, UNKNOWN] if any(map(_OPAQUE.match, flags)) else own


def _expanded(words: Sequence[str], depth: int = 0) -> tuple[list[str], list[str]]:
    """Returns the flags with those of the files of flags that they name, and the paths of these files.

    A file that is nested too deep stands as the flag `-specs`, because what it contains is not known.
    """
    flags, files = [], []
    for before, word in zip(["", *words], words, strict=False):
        path = Path(word.removeprefix("@"))
        if not (word.startswith("@") or before in _OPTIONS_FILE) or not path.is_file():
            flags.append(word)
            continue
        files.append(str(path))
        if depth == _DEEPEST:
            return [*flags, "-specs"], files
        with suppress(OSError, ValueError):  # the compiler reports a file that cannot be read or split
            more, nested = _expanded(shlex.split(path.read_text(errors="replace")), depth + 1)
            flags += more
            files += nested
    return flags, files


def _named(flags: Sequence[str]) -> list[str]:
    """Returns the absolute paths of existing files in flags, such as libraries and linker scripts.

    A path may follow an option without a space (`-include/a.h`), or be one of several values (`-Wl,-T,/a.ld`).
    """
    words = [each for flag in flags for each in (flag, *re.split("[,=:]", flag)) if "/" in each]
    return [path for word in words if Path(path := word[word.find("/") :]).is_file()]


def _libraries(flags: Sequence[str]) -> list[str]:
    """Returns the files of the libraries that flags `-l` name, as far as they are in folders that flags `-L` name."""
    pairs = ["".join(option) for option in options(flags)]
    folders = [flag[2:] for flag in pairs if flag.startswith("-L")]
    names = [flag[2:] for flag in pairs if flag.startswith("-l")]
    files = [[name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"] for name in names]
    paths = (Path(folder, file) for folder in folders for each in files for file in each)
    return [str(path) for path in paths if path.is_file()]


def rule(target: object, paths: Iterable[object]) -> str:
    """Returns a makefile rule by which `target` depends on files, as `prerequisites` reads it."""
    escaped = (re.sub(r"([ \\])", r"\\\1", str(path)).replace("$", "$$") for path in paths)
    return f"{target}: {' '.join(escaped)}\n"


def prerequisites(rule: str) -> list[str]:
    """Returns the files that a makefile rule depends on. `rule` is the text that a compiler writes for `-MD`."""
    words = re.findall(r"(?:\\.|[^\\\s])+", rule.replace("\\\n", " ").partition(":")[2])
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]


def _of_ninja(folder: Path) -> list[str]:
    """Returns the files that a build with ninja in `folder` has read. ninja deletes the compilers' own lists."""
    listed = subprocess.run(["ninja", "-t", "deps"], cwd=folder, capture_output=True).stdout
    return [line.strip() for line in os.fsdecode(listed).split("\n") if line.startswith(" ")]


@functools.cache
def _known_folders() -> tuple[str, ...]:
    """Returns the folders whose files need no record: absolute paths without symbolic links, each with a slash last."""
    # The variables would add folders of the user to the list that the compiler prints.
    plain = {name: value for name, value in os.environ.items() if not name.endswith("PATH") or name == "PATH"}
    command = [host_compiler.path(), "-E", "-v", "-x", "c++", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True, env={**plain, "LC_ALL": "C"}).stderr
    # Users install libraries of their own in /usr/local/include.
    system = [line.strip() for line in said.split("\n") if line.startswith(" /") and line != " /usr/local/include"]
    torchs = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    folders = (*system, *torchs, str(_PACKAGE), str(cache.root()))
    return tuple(f"{os.path.realpath(folder)}/" for folder in folders)
