"""Finds the files of the user that a build has read, such as a local header that a source includes.

The key of an entry in the build cache depends on the sources and the flags of a build, such as `-I<folder>`. It does
not depend on the content of these files. So the entry records the files. Each time the entry is used, the cache checks
whether one of them has changed, and then builds the entry again (`cache.get_or_build`). Four changes are not seen:
- a new file that would now be found first, in an earlier folder of the search path or by `__has_include`;
- a file that the C++ source of a build for a GPU includes from a folder of the flag `-isystem`, because torch makes the
  C++ compiler leave such folders out of its list;
- a static library that a flag `-l` names. (A shared one is loaded as it is at the time of the run.)
- an upgrade of a library with headers in the system's header folders, such as glibc. (Distributions upgrade libstdc++
  together with g++, whose full version the keys contain.)
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sysconfig
from pathlib import Path

from torch.utils import cpp_extension

from kernel_harness.compile import cache, host_compiler, nvcc
from kernel_harness.compile.sources import Sources

_HARNESS = Path(__file__).parents[1]


def of(sources: Sources, folder: Path) -> list[str]:
    """Returns the absolute paths of the files that the finished build of `sources` in `folder` has read.

    These are the files that compilers report, and existing files whose paths are in flags. Left out are files in
    `folder`, which the build has written, files in the system's header folders, and the files of the compiler, of
    torch, of the CUDA toolkit and of the harness, whose versions the keys of the build cache contain.
    """
    read = [path for rule in folder.glob("*.d") for path in _prerequisites(rule.read_text(errors="surrogateescape"))]
    if (folder / ".ninja_deps").exists():
        read += _of_ninja(folder)
    flags = (*sources.cflags, *sources.cuda_cflags, *sources.ldflags)
    named = [word[word.find("/") :] for word in flags if "/" in word]
    read += [path for path in named if Path(path).is_file()]  # a library, a linker script, a file of options
    known = (*_known_folders(), f"{os.path.realpath(folder)}/")
    found = sorted({str(folder / path) for path in read})
    own = [path for path in found if not os.path.realpath(path).startswith(known)]
    toolkit = nvcc.toolkit() if own else None  # looks for a program, so only where it matters
    return [path for path in own if not toolkit or not Path(os.path.realpath(path)).is_relative_to(toolkit.resolve())]


def _prerequisites(rule: str) -> list[str]:
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
    folders = (*system, *torchs, str(_HARNESS), str(cache.root()))
    return tuple(f"{os.path.realpath(folder)}/" for folder in folders)
