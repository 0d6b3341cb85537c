"""The program `nvcc` and `c++` of the toolkit: compiles one file of an extension for the host's processor.

It takes the command line that torch.utils.cpp_extension writes for nvcc and for g++, such as `-c k.cu -o k.o -I...`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuda_on_cpu.compile import read_files
from cuda_on_cpu.compile.candidate_file import CandidateFile, source_text
from cuda_on_cpu.compile.compiler_log import errors
from cuda_on_cpu.compile.error_message import readable_errors
from cuda_on_cpu.compile.errors import BuildFailed
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.errors import EnvironmentLacking
from cuda_on_cpu.emulator import extension
from cuda_on_cpu.emulator.flags import Instrumentation
from cuda_on_cpu.emulator.local_headers import PTX, LocalHeaders
from cuda_on_cpu.emulator.nvcc_rules import EXTENDED_LAMBDA
from cuda_on_cpu.toolkit import INSTRUMENTATION, MARK

_CUDA, _CPP = (".cu",), (".cpp", ".cc", ".cxx", ".c++", ".C")
_VALUED = re.compile(
    r"-(?:o|MF|MT|MQ|I|isystem|iquote|include|D|U|x|Xcompiler|Xptxas|Xlinker|Xcudafe|gencode|arch|code|ccbin|t)"
    r"|--(?:compiler-options|threads|compiler-bindir|generate-code|gpu-architecture|gpu-code|ptxas-options|std|diag-\w+)"
)
_FOLDER = re.compile(r"-(?:I|isystem|iquote)")
# What has another value in a precompiled header would keep g++ from using it.
_LEFT_OUT = re.compile(r"-(?:O|g|W|pipe|fPIC|fstack|fdebug|fcf|fno-strict-overflow|fwrapv|fexceptions|c$|MM?D$)")
_KEPT_OF_NVCC = re.compile(r"-(?:D|U|std=|include)")
_IN_TEXT = re.compile(r"-D(NDEBUG|TORCH_EXTENSION_NAME)(?:=(.*))?")


@dataclass
class Command:
    """The parts of a compiler's command line.

    `source` and `output` are the paths of the file to compile and of the object file. `listed` is the path of the list
    of files that the compiler reads, or None. `folders` are those in which the compiler looks for headers. `options`
    are the other words in groups: an option, and its value if that is a word of its own.
    """

    source: Path | None = None
    output: Path | None = None
    listed: Path | None = None
    folders: list[Path] = field(default_factory=list)
    options: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def rules(self) -> list[str]:
        """Those of nvcc's flags on which it depends what nvcc refuses."""
        return [group[0] for group in self.options if group[0] in EXTENDED_LAMBDA]


def main(words: Sequence[str]) -> int:
    """Compiles the file that the command line `words` names. Returns the exit status: 1 if an error was printed."""
    command = parsed(words)
    if command.source is None or command.output is None:
        print(f"error: CUDA on the CPU compiles one file, -c FILE -o FILE, not: {' '.join(words)}", file=sys.stderr)
        return 1
    try:
        _compile(command, command.source, command.output)
    except (BuildFailed, EnvironmentLacking) as error:
        print(f"{MARK}{error}\n", file=sys.stderr)
        return 1
    return 0


def parsed(words: Sequence[str]) -> Command:
    """Returns the parts of the command line `words`."""
    command, rest = Command(), iter(words)
    for word in rest:
        value = next(rest, "") if _VALUED.fullmatch(word) else ""
        folder = _FOLDER.match(word)
        if word == "-o":
            command.output = Path(value)
        elif word == "-MF":
            command.listed = Path(value)
        elif folder:
            command.folders.append(Path(value or word[folder.end() :]))
        elif Path(word).suffix in (*_CUDA, *_CPP) and not word.startswith("-"):
            command.source = Path(word)
        else:
            command.options.append((word, value) if value else (word,))
    return command


def _compile(command: Command, source: Path, output: Path) -> None:
    path = source.absolute()
    file = CandidateFile(str(source), source_text(path))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        headers = LocalHeaders(folder / "headers", command.folders, command.rules)
        text = f'#line 1 "{source}"\n{headers.with_copies(file.text, path)}'
        if headers.has_ptx:
            text = f'#include "{PTX}"\n{text}'
        sources = _sources(command, text, source.suffix in _CUDA)
        file.add(sources)
        instrumentation = Instrumentation[os.environ.get(INSTRUMENTATION, "NONE")]
        try:
            extension.build_rewritten(sources, folder, instrumentation, headers, linked=False)
        except BuildFailed as failure:
            with readable_errors(_at_fault(failure, file, headers)):
                raise
        shutil.copyfile(folder / "main.o", output)
        if command.listed:
            _write_list(folder / "main.d", command.listed, output, path, headers)


def _at_fault(failure: BuildFailed, source: CandidateFile, headers: LocalHeaders) -> CandidateFile:
    """Returns the header of the program that has the first error in the log of `failure`, else `source`."""
    first = next(iter(errors(failure.log)), None)
    header = next((each for each in headers.copies if first and first.file == str(each)), None)
    if header is None:
        return source
    return CandidateFile(str(header), source_text(header))


def _sources(command: Command, text: str, is_cuda: bool) -> Sources:
    """Returns the sources of an extension with one file, whose content is `text`."""
    defined = {m[1]: m[2] or "" for group in command.options if (m := _IN_TEXT.fullmatch("".join(group)))}
    name = defined.pop("TORCH_EXTENSION_NAME", "extension")
    kept = [group for group in command.options if not _IN_TEXT.fullmatch("".join(group))]
    kept = [g for g in kept if (_KEPT_OF_NVCC.match(g[0]) if is_cuda else not _LEFT_OUT.match(g[0]))]
    words = tuple(word for group in kept for word in group)
    text = "".join(f"#define {macro} {value}\n" for macro, value in defined.items()) + text
    return Sources(
        name=name, cpp="" if is_cuda else text, cuda=text if is_cuda else "", functions=None, cflags=words,
        cuda_cflags=(*words, *command.rules) if is_cuda else (), ldflags=(), error_handling=False, with_cuda=None,
        implicit_headers=True,
        include_paths=tuple(str(folder) for folder in (Path(command.source or "").absolute().parent, *command.folders)),
    )  # fmt: skip


def _write_list(rule: Path, listed: Path, output: Path, source: Path, headers: LocalHeaders) -> None:
    """Writes the list of the files that the build has read, for ninja. The program's headers stand for their copies."""
    found = read_files.prerequisites(rule.read_text(errors="surrogateescape"))
    others = [path for path in found if Path(path).is_absolute() and not path.startswith(str(rule.parent))]
    listed.write_text(read_files.rule(output, [source, *headers.copies, *others]), errors="surrogateescape")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
