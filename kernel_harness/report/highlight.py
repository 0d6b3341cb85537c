"""Converts a kernel's source to HTML with colours and line numbers. CUDA in a Python string is coloured as CUDA."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any

from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import Name, Operator, Punctuation, String, Text, Whitespace

_LIGHT, _DARK = "xcode", "github-dark"
# Tokens without a colour of their own. As they are most of a source, the listing has no element for them.
_PLAIN = (Name, Operator, Punctuation, Whitespace)
_QUOTES = ('"""', "'''")


def html(source: str, suffix: str) -> str:
    """Returns the source of a kernel as HTML, coloured, numbered by line, and with special characters escaped.

    `suffix` is that of the kernel's file, `.py` or `.cu`.
    """
    tokens = CudaLexer().get_tokens(source) if suffix == ".cu" else _python(source)
    text = io.StringIO()
    plain = ((Text if kind in _PLAIN else kind, value) for kind, value in tokens)
    HtmlFormatter(nowrap=True).format(plain, text)
    code = text.getvalue()
    numbers = "\n".join(map(str, range(1, code.count("\n") + 1)))
    return f'<div class="source"><pre class="linenos">{numbers}</pre><pre>{code}</pre></div>'


def css() -> str:
    """Returns CSS rules with the colours of the HTML that the function `html` returns.

    On a screen, the dark colours apply if the reader's browser prefers dark pages, otherwise the light colours.
    """
    light, dark = (_rules(style) for style in (_LIGHT, _DARK))
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _rules(style: str) -> str:
    definitions = HtmlFormatter(style=style, cssclass="source").get_style_defs(".source")
    return "\n".join(line for line in definitions.split("\n") if line.startswith(".source ."))


def _python(source: str) -> Iterator[tuple[Any, str]]:
    tokens = PythonLexer().get_tokens(source)
    for is_string, group in itertools.groupby(tokens, lambda token: token[0] in String and token[0] is not String.Doc):
        parts = list(group)
        text = "".join(value for _, value in parts)
        if not is_string or "\n" not in text or ("#include" not in text and "__global__" not in text):
            yield from parts
            continue
        for inside, some in itertools.groupby(parts, lambda token: token[1] not in (*_QUOTES, "r", "R")):
            if inside:
                text = "".join(value for _, value in some)
                yield from ((kind, value) for _, kind, value in CudaLexer().get_tokens_unprocessed(text))
            else:
                yield from some
