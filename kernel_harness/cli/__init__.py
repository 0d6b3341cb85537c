"""The command line: parses the arguments and runs the verb that they name. Each verb has its own module."""

# PYTHON_ARGCOMPLETE_OK: this marker tells argcomplete that a shell may complete the arguments of this command.
from __future__ import annotations

import argparse
import atexit
import difflib
import gc
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, Protocol

from kernel_harness.cli import cache, compare, listing, mcp, new, profile, report, run, sanitize, serve, suite, verify
from kernel_harness.cli.arguments import EXIT_CODES, INTERRUPTED, PIPE_CLOSED, problem_names
from kernel_harness.core import phases
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import command


class Verb(Protocol):
    """The interface of a verb's module: its help, its arguments and its main function."""

    HELP: str

    @property
    def EXAMPLES(self) -> Sequence[tuple[str, str]]:  # noqa: N802 - a constant of the module
        """Examples for the text of `--help`: pairs of (the arguments to type, what the command then does)."""

    def arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Declares the verb's arguments on `parser`."""

    def main(self, parsed: argparse.Namespace, /) -> int:
        """Runs the verb with the parsed arguments and returns the exit code.

        Raises UserError for a mistake of the user. Raises KeyboardInterrupt for Ctrl-C and SIGTERM; its message may say
        what was done before.
        """


VERBS: dict[str, Verb] = {
    "run": run, "suite": suite, "list": listing, "new": new, "compare": compare, "report": report, "sanitize": sanitize,
    "profile": profile, "verify": verify, "serve": serve, "mcp": mcp, "cache": cache,
}  # fmt: skip

_COMPLETION = """to complete arguments with the Tab key, in bash and zsh:
  eval "$(activate-global-python-argcomplete --dest=-)\""""


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command with the arguments `words` and returns the exit code.

    If `words` is None, the command-line arguments of this process are used.
    """
    _complete_words()
    atexit.register(gc.freeze)  # else Python's end would search all objects of torch for garbage, for half a second
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name may have a letter that the terminal cannot show
    phases.record("start", phases.process_began_s() if words is None else time.monotonic())
    typed = list(sys.argv[1:] if words is None else words)
    if misspelt := _misspelt_verb(typed):
        return _complain(misspelt, UserError.exit_code)
    parsed, unknown = parser().parse_known_args(with_verb(typed))
    _log_to_stderr(parsed.verbose)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if unknown:
            raise UserError(_unknown(unknown[0], with_verb(typed)[0]))
        return int(parsed.main(parsed))
    except UserError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which would fail and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt as how:
        return _complain(f"Interrupted: {how}" if str(how) else "Interrupted.", INTERRUPTED)


def with_verb(words: list[str]) -> list[str]:
    """Returns the arguments `words` with the default verb `run` put first.

    If the first argument is a verb, `-h`, `--help` or `--version`, the arguments are returned unchanged.
    """
    complete = words and (words[0] in VERBS or words[0] in ("-h", "--help", "--version"))
    return words if complete else ["run", *words]


def _unknown(word: str, verb: str) -> str:
    """Returns the message for the argument `word`, which the verb `verb` does not take."""
    one = argparse.ArgumentParser()
    _declare(one, VERBS[verb])
    close = difflib.get_close_matches(word.split("=")[0], one._option_string_actions, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"`{' '.join(command())} {verb} --help` shows the arguments"
    return f"{verb} does not take {word!r}; {hint}"


def _misspelt_verb(typed: Sequence[str]) -> str:
    """Returns a message if the first word resembles a verb, and is neither a verb nor a problem; else an empty text."""
    word = typed[0] if typed else ""
    close = difflib.get_close_matches(word, VERBS, n=1)
    if word.startswith("-") or not close or word in VERBS or word in problem_names():
        return ""
    return f"no verb {word!r}, did you mean {close[0]!r}? There is no problem {word!r} either"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(text: str, code: int) -> int:
    print(f"harness: {text}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """Builds the parser of the whole command, with a subparser for each verb."""
    examples = [example for verb in VERBS.values() for example in verb.EXAMPLES]
    top = argparse.ArgumentParser(
        prog=" ".join(command()), description="Judges GPU kernels: is each correct, and how fast is it?",
        **_epilog(examples),
    )  # fmt: skip
    top.add_argument("--version", action=_Version)
    verbs = top.add_subparsers(required=True, metavar="{" + ",".join(VERBS) + "}")
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, help=verb.HELP, description=_sentence(verb.HELP), **_epilog(verb.EXAMPLES))
        _declare(one, verb)
    return top


def _declare(one: argparse.ArgumentParser, verb: Verb) -> None:
    verb.arguments(one)
    one.add_argument("-v", "--verbose", action="count", default=0, help="log each step to stderr; -vv logs more detail")
    one.set_defaults(main=verb.main)


def _epilog(examples: Sequence[tuple[str, str]]) -> dict[str, Any]:
    lines = [(f"{' '.join(command())} {words}".rstrip(), what) for words, what in examples]
    width = max(len(line) for line, _ in lines)
    aligned = "".join(f"  {line:{width}}  {what}\n" for line, what in lines)
    codes = "".join(f"  {code:<3}  {meaning}\n" for code, meaning in EXIT_CODES.items())
    epilog = f"examples:\n{aligned}\nexit codes:\n{codes}\n{_COMPLETION}"
    return {"epilog": epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class _Version(argparse.Action):
    """The action of `--version`: prints the versions that a bug report needs, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(
            option_strings, dest, nargs=0, help="show the versions of the harness, Python and torch, and exit"
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        from kernel_harness import __version__

        print(f"kernel harness {__version__}, Python {sys.version.split()[0]}, torch {version('torch')}")
        parser.exit()


def _log_to_stderr(verbosity: int) -> None:
    if verbosity:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("kernel_harness").setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)


def _complete_words() -> None:
    """Does nothing, unless a shell started this process to complete arguments for the Tab key.

    In that case it prints the completions and ends the process.
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete

    line = os.environ.get("COMP_LINE", "").split()
    after = line[int(os.environ["_ARGCOMPLETE"]) :]
    whole = parser()
    if after and after[0].startswith("-"):  # the user left out the verb, so it is `run`
        whole = argparse.ArgumentParser()
        _declare(whole, VERBS["run"])
    argcomplete.autocomplete(whole)
