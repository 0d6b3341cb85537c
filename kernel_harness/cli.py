"""Arguments in, exit code out. What each verb's arguments are, and what they ask for, is in `verbs`."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from kernel_harness.errors import UserError
from kernel_harness.verbs import cache, compare, listing, new, profile, report, run, sanitize

VERBS = {
    "run": run, "list": listing, "new": new, "compare": compare, "report": report, "sanitize": sanitize,
    "profile": profile, "cache": cache,
}  # fmt: skip
INTERRUPTED, READ_ENOUGH = 130, 141

_EXIT_CODES = """exit codes: 0 all passed, 1 some did not, 2 usage, 3 slower than before (compare),
4 nothing can be built or run here, 130 interrupted"""
_COMPLETION = """completion of words, in bash and zsh: eval "$(activate-global-python-argcomplete --dest=-)\""""


def main(words: Sequence[str] | None = None) -> int:
    """The command. `run` is meant where no verb is given."""
    _complete_words()
    options = parser().parse_args(with_verb(list(sys.argv[1:] if words is None else words)))
    _log_from(options.verbose)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(options.main(options))
    except UserError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:  # whoever read what is printed has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READ_ENOUGH
    except KeyboardInterrupt:
        return _complain("Interrupted. What had been measured is kept.", INTERRUPTED)


def with_verb(words: list[str]) -> list[str]:
    """The words, with the verb that is meant."""
    known = words and (words[0] in VERBS or words[0] in ("-h", "--help", "--version"))
    return words if known else ["run", *words]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(text: str, code: int) -> int:
    print(f"harness: {text}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """All verbs and their arguments."""
    examples = "".join(verb.EXAMPLES.rstrip() for verb in VERBS.values())
    top = argparse.ArgumentParser(
        prog="harness.py", description="Judges GPU kernels: is each right, and how fast is it?", **_text(examples)
    )
    top.add_argument("--version", action=_Version)
    verbs = top.add_subparsers(required=True, metavar="{" + ",".join(VERBS) + "}")
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, help=verb.HELP, description=_sentence(verb.HELP), **_text(verb.EXAMPLES))
        _declare(one, verb)
    return top


def _declare(one: argparse.ArgumentParser, verb: Any) -> None:
    verb.arguments(one)
    one.add_argument("-v", "--verbose", action="count", default=0, help="tell what happens, on stderr; -vv: more")
    one.set_defaults(main=verb.main)


def _text(examples: str) -> dict[str, Any]:
    pairs = [re.split(r"  +", line, maxsplit=1) for line in examples.strip().split("\n")]
    wide = max(len(command) for command, _ in pairs)
    aligned = "".join(f"  {command:{wide}}  {what}\n" for command, what in pairs)
    epilog = f"examples:\n{aligned}\n{_EXIT_CODES}\n{_COMPLETION}"
    return {"epilog": epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class _Version(argparse.Action):
    """Says what a report of a fault should say."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="versions of the harness, Python and torch")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        from kernel_harness import __version__

        print(f"kernel harness {__version__}, Python {sys.version.split()[0]}, torch {version('torch')}")
        parser.exit()


def _log_from(verbosity: int) -> None:
    """Where -v is given, what the harness does is said on stderr."""
    if verbosity:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("kernel_harness").setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)


def _complete_words() -> None:
    """Answers a shell that asks how a word may go on, and then does not return."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete

    line = os.environ.get("COMP_LINE", "").split()
    after = line[int(os.environ["_ARGCOMPLETE"]) :]
    whole = parser()
    if after and after[0].startswith("-"):  # the verb that is meant where none is given
        whole = argparse.ArgumentParser()
        _declare(whole, VERBS["run"])
    argcomplete.autocomplete(whole)
