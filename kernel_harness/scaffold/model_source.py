"""Takes the source of Model, with what it needs, from a problem file."""

from __future__ import annotations

import ast


def imports(source: str) -> str:
    """Returns the imports of the new kernel file: those in `source` that Model needs, and the file's own."""
    tree = ast.parse(source)
    wanted = _wanted(tree)
    lines = ["import torch", "from torch.utils.cpp_extension import load_inline"]
    future = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            future.append(ast.unparse(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [n for n in node.names if n.name == "*" or (n.asname or n.name).split(".")[0] in wanted]
            lines += [ast.unparse(node)] if node.names else []
    ordered = sorted(dict.fromkeys(lines), key=lambda line: (line.startswith("from"), line))
    return "\n".join([*future, *ordered])


def model(source: str) -> str:
    """Returns the parts of the problem's `source` that define Model and the functions and constants it uses."""
    tree = ast.parse(source)
    wanted = _wanted(tree)
    return "\n\n\n".join(_text_of(node, source) for node in tree.body if wanted & _defines(node))


def _wanted(tree: ast.Module) -> set[str]:
    """Returns the names that Model in the problem's syntax tree uses, directly or through other definitions."""
    definitions = {name: node for node in tree.body for name in _defines(node)}
    wanted, new = set[str](), {"Model"}
    while new:
        wanted |= new
        nodes = [definitions[name] for name in new if name in definitions]
        used = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
        new = used - wanted
    return wanted


def _defines(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return {node.name}
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def _text_of(node: ast.stmt, source: str) -> str:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(source.split("\n")[first - 1 : node.end_lineno])
