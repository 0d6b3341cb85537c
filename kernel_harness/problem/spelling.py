"""Finds misspelt names in a problem file."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

from kernel_harness.problem.errors import ProblemError

# The names of a problem file that mean something to the harness. All but the first two are optional.
_KNOWN = (
    "Model", "get_inputs", "get_init_inputs", "CHECK_SHAPES", "TIME_SHAPES", "CPU_SHAPE", "TOLERANCE", "STRESS",
    "flops", "bytes_moved", "min_flops", "min_bytes", "error_scale",
)  # fmt: skip


def check_spelling(path: Path, tree: ast.Module) -> None:
    """Raises ProblemError if a name in the file is similar to one of _KNOWN that the file does not define.

    Such a name is probably a misspelling. Without the error, it would silently have no effect.
    """
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    lines = {target.id: target.lineno for target in targets if isinstance(target, ast.Name)}
    lines |= {node.name: node.lineno for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for name in lines.keys() - set(_KNOWN):
        close = difflib.get_close_matches(name, set(_KNOWN) - lines.keys(), n=1, cutoff=0.85)
        if close:
            raise ProblemError(
                f"{path}:{lines[name]}: {name} means nothing to the harness; did you mean {close[0]}? If not, give it "
                "another name"
            )
