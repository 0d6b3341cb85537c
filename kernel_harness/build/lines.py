"""Makes compilers speak of the author's own file and lines. Nothing here compiles."""

from __future__ import annotations

from difflib import SequenceMatcher


def mark(source: str, file_text: str, file_name: str) -> str:
    """`source` with `#line` directives that point each of its lines at the line of `file_text` it came from.

    A source that was concatenated, formatted or indented still has runs of lines that stand in the file as they
    are; every such run is marked, and a line that stands nowhere counts on from the run before it.
    """
    lines = source.split("\n")
    bare, theirs = ([line.strip() for line in text.split("\n")] for text in (source, file_text))
    # An empty line is found anywhere: it may extend a run, and never starts one.
    blocks = SequenceMatcher(lambda line: not line, theirs, bare, autojunk=False).get_matching_blocks()
    starts = {b.b: b.a + 1 for b in blocks if b.size and any(line.strip() for line in lines[b.b : b.b + b.size])}
    out: list[str] = []
    expected: int | None = None
    for i, line in enumerate(lines):
        target = starts.get(i)
        if target is None and i == 0:
            # The text before the first newline often shares its line with the Python that opens the string.
            target = max(1, starts[1] - 1) if 1 in starts else 1
        # A directive inside a macro that goes on over lines would end it.
        if target is not None and target != expected and not (i and lines[i - 1].endswith("\\")):
            out.append(f'#line {target} "{_quoted(file_name)}"')
            expected = target
        out.append(line)
        expected = None if expected is None else expected + 1
    return "\n".join(out)


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
