"""The verb `compare`: two words -> what they name -> a comparison. Two versions of a kernel are measured together."""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernel_harness import underway
from kernel_harness.candidate import Candidate
from kernel_harness.compare import sides
from kernel_harness.compare.sides import Incomparable, Outcome, Side
from kernel_harness.results import Journal, to_json

NEWEST, BEFORE_NEWEST = "latest", "previous"
WORKING_TREE = "now"
_SUFFIXES = (".py", ".cu")
REGRESSED, SOME_FAILED = 3, 1


def run(options: argparse.Namespace, root: Path) -> int:
    """Prints the comparison; the exit code. Raises UserError for words that name nothing comparable."""
    outcome = _outcome(options, root)
    print(sides.render(outcome))
    worse = outcome.regressions(options.fail_over)
    if worse:
        limit = f" by more than {options.fail_over:g}%" if options.fail_over else ""
        print(f"slower{limit} or broken: {', '.join(row.kernel for row in worse)}", file=sys.stderr)
        return REGRESSED
    return SOME_FAILED if any(row.change is sides.Change.FAILED for row in outcome.rows) else 0


def _outcome(options: argparse.Namespace, root: Path) -> Outcome:
    a = stored(options.a, options.results, options.problem, options.kernel)
    word = options.b or (WORKING_TREE if a is None else NEWEST)
    b = stored(word, options.results, options.problem, options.kernel)
    if a is not None and b is not None:
        return sides.compare(a, b, force=options.force)
    if a is None and b is None:
        return _measured((options.a, word), options, root)
    known, unknown = (word, options.a) if a is None else (options.a, word)
    raise Incomparable(f"{known!r} names stored results and {unknown!r} none; compare two of one sort")


# ------------------------------------------------------------------------------------- stored results


def stored(word: str, results: Path, problem: str | None = None, kernels: Sequence[str] = ()) -> Side | None:
    """The side that a word names: a runs.jsonl, its folder, or a run by its id's beginning, `latest`, `previous`.

    None where it names none of these. Raises Incomparable where it names several runs, or no readable results.
    """
    path = Path(word)
    if path.is_dir() or path.suffix in (".jsonl", ".csv", ".md", ".html"):
        return _in_file(path, results, kernels)
    found = _runs(word, results, problem)
    if len(found) > 1:
        places = ", ".join(f"{name} in {folder}" for folder, name in found)
        raise Incomparable(f"{word!r} may be {places}; name a run in full, or the problem with --problem")
    for folder, name in found:
        records = [r for r in underway.read(Journal(folder)) if r["run"] == name]
        return _side(f"run {name}", records, kernels, folder.parent.name)
    return None


def _in_file(path: Path, results: Path, kernels: Sequence[str]) -> Side:
    file = path / "runs.jsonl" if path.is_dir() else path
    if file.suffix != ".jsonl":
        raise Incomparable(f"{path} holds no samples; name the runs.jsonl beside it")
    if not file.is_file():
        raise Incomparable(f"there is no {file}")
    problem = file.resolve().parent.parent
    known = problem.name if problem.parent == results.resolve() else None
    return _side(str(path), underway.read(Journal(file.parent, file.name)), kernels, known)


def _side(label: str, records: Sequence[sides.Record], kernels: Sequence[str], problem: str | None) -> Side:
    chosen = [r for r in records if not kernels or any(fnmatch.fnmatch(r["kernel"], k) for k in kernels)]
    if not chosen:
        wanted = f" of {', '.join(kernels)}" if kernels else ""
        raise Incomparable(f"{label} has no results{wanted}")
    return sides.side(label, chosen, problem)


def _runs(word: str, results: Path, problem: str | None) -> list[tuple[Path, str]]:
    """(folder, run) of every stored run that the word may mean. By age: on the device that a problem last ran on."""
    named = {}
    for path in results.glob(f"{Path(problem).stem if problem else '*'}/*/runs.jsonl"):
        if names := list(dict.fromkeys(r["run"] for r in underway.read(Journal(path.parent)))):
            named[path.parent] = names
    place = {NEWEST: -1, BEFORE_NEWEST: -2}.get(word)
    if place is None:
        runs = [(folder, name) for folder, names in named.items() for name in names if name.startswith(word)]
        return sorted(runs) if len(word) >= 4 else []
    # A run's name begins with when it was begun.
    last = {folder.parent: folder for folder in sorted(named, key=lambda folder: named[folder][-1])}
    return [(folder, named[folder][place]) for folder in sorted(last.values()) if len(named[folder]) >= -place]


# ------------------------------------------------------------------- versions, measured side by side


def _measured(words: Sequence[str], options: argparse.Namespace, root: Path) -> Outcome:
    """Builds, checks and times both versions in the same rounds. Nothing is kept: it is no run of the problem."""
    if options.problem is None:
        raise Incomparable(
            f"neither {words[0]!r} nor {words[1]!r} names stored results; to compare two revisions or files of a "
            "kernel, add --problem (and --kernel)"
        )
    versions = [_version(word, options.kernel, options.problem, root) for word in words]
    if versions[0].source == versions[1].source:
        raise Incomparable(f"{versions[0].name} and {versions[1].name} have the same source")
    records = {r["kernel"]: r for r in _raced(versions, options, root)}
    # One name on both sides, so that they meet.
    name = " -> ".join(dict.fromkeys(v.path.stem for v in versions))
    a, b = ({**records[v.name], "kernel": name} for v in versions)
    both = [sides.side(v.name, [record]) for v, record in zip(versions, (a, b), strict=True)]
    return sides.compare(*both, interleaved=True)


def _raced(versions: Sequence[Candidate], options: argparse.Namespace, root: Path) -> list[sides.Record]:
    # Imported here: stored results are compared without torch.
    from kernel_harness.spawn import Template

    with Template() as template:
        from kernel_harness.run import measured

        results = measured(versions, options, root, template)
    for result in results:
        if not result.passed:
            print(f"{result.kernel}: {result.status}. {result.status.sentence}\n{result.reason}\n", file=sys.stderr)
    return [to_json(result, "") for result in results]


def _version(word: str, kernels: Sequence[str], problem: str, root: Path) -> Candidate:
    """A kernel file, or the one kernel named with --kernel as it was at a revision (`now`: as it is)."""
    path = Path(word)
    if path.suffix in _SUFFIXES and path.is_file():
        return Candidate(word, path, path.read_text(encoding="utf-8", errors="replace"))
    if len(kernels) != 1:
        raise Incomparable(f"{word!r} is no file and no run; to compare revisions name one kernel with --kernel")
    named = Path(kernels[0])
    folder = named.parent if named.suffix in _SUFFIXES else root / "kernels" / Path(problem).stem
    names = [named.name] if named.suffix in _SUFFIXES else [named.name + suffix for suffix in _SUFFIXES]
    for name in names:
        source = _at_revision(folder, name, word)
        if source is not None:
            return Candidate(f"{named.stem}@{word}", folder / name, source)
    raise Incomparable(f"there is no {' or '.join(names)} at {word!r} in {folder}: {_why_not(folder, word)}")


def _at_revision(folder: Path, name: str, revision: str) -> str | None:
    if revision == WORKING_TREE:
        path = folder / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    shown = _git(folder, "show", f"{revision}:./{name}")
    return shown.stdout.decode("utf-8", errors="replace") if shown.returncode == 0 else None


def _why_not(folder: Path, revision: str) -> str:
    if revision == WORKING_TREE:
        return "no such file"
    found = _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    return "the revision does not hold it" if found.returncode == 0 else "no such run, file or git revision"


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True)
    except OSError as error:
        raise Incomparable(f"git cannot be asked in {folder}: {error.strerror or error}") from None
