"""Reads a C++ or CUDA source: splits it into tokens, finds its functions, declarations and includes, and edits it.

The texts of all tokens, one after the other, are the source. So edits of some tokens leave the rest as it was. A pass
over a source yields edits, and `edited` makes them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from operator import itemgetter
from typing import NamedTuple


class Kind(Enum):
    """The kind of a token."""

    SPACE = auto()  # blanks, line breaks, and backslashes that continue a line
    COMMENT = auto()
    LITERAL = auto()  # a string or a character, with its quotes and prefix
    NUMBER = auto()
    WORD = auto()  # an identifier or a keyword
    PUNCTUATION = auto()  # one character, or `::`, `->` or `<<<`


class Token(NamedTuple):
    """A piece of a C++ source: a word, a number, a comment, a run of spaces, and so on.

    `is_code` is true unless the kind is SPACE or COMMENT. If the kind is SPACE, COMMENT or LITERAL, `plain` is `text`
    with a space in place of each character that is no white space. In a SPACE, such a character is a backslash that
    continues a line. For other kinds, `plain` is `text`.
    """

    kind: Kind
    text: str
    is_code: bool
    plain: str


Edit = tuple[int, int, str]
"""A change of a source, (start, end, text): `text` replaces the tokens at the indices from `start` to before `end`."""

# https://eel.is/c++draft/lex: a raw string ends at its own tag. A number may contain `'`, and a sign behind its `e`.
_TOKEN = re.compile(
    r"""(?P<SPACE>(?:[^\S\n]|\n|\\\n)+)
    |(?P<COMMENT>//(?:[^\n\\]|\\.)*|/\*.*?\*/)
    |(?P<LITERAL>(?:u8|[uUL])?(?:R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<WORD>[^\W\d]\w*)
    |(?P<NUMBER>\.?\d(?:[eEpP][+-]|'?\w|\.)*)
    |(?P<PUNCTUATION>::|->|<<<|.)""",
    re.DOTALL | re.VERBOSE,
)
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")
ATTRIBUTES = frozenset({
    "__launch_bounds__", "__attribute__", "__align__", "__builtin_align__", "alignas", "__cluster_dims__",
    "__maxnreg__", "decltype", "noexcept", "requires",
})  # fmt: skip
_BEHIND_TEMPLATE = ("(", "{", "::", ",", ")", ";", "<<<", "")  # what follows template arguments, but not `a > b`


_LINE = re.compile(r"^[ \t]*#line (\d+)[^\n]*\n", re.MULTILINE)


@functools.lru_cache(maxsize=16)  # a build needs the tokens of a source several times
def tokenize(source: str) -> tuple[Token, ...]:
    """Returns all tokens of a source, in order.

    If a string or a comment starts but never ends, the characters at its start become punctuation.
    """
    return tuple([_token(match[0]) for match in _TOKEN.finditer(source)])


@functools.lru_cache(maxsize=4096)
def _token(text: str) -> Token:
    match = _TOKEN.match(text)
    assert match and match.lastgroup
    kind = Kind[match.lastgroup]
    is_code = kind not in (Kind.SPACE, Kind.COMMENT)
    plain = text if is_code and kind is not Kind.LITERAL else re.sub(r"\S", " ", text)
    return Token(kind, text, is_code, plain)


def joined(tokens: Iterable[Token]) -> str:
    """Returns the text of all tokens, one after the other."""
    return "".join(token.text for token in tokens)


def code_only(source: str) -> str:
    """Returns the source with spaces in place of all comments, string and character literals and line continuations.

    The length of the text and its line breaks do not change.
    """
    return plain(tokenize(source))


def plain(tokens: Iterable[Token]) -> str:
    """Returns the text of all tokens, one after the other, as `code_only` does for a source."""
    return "".join([token.plain for token in tokens])


def with_additions(source: str, added: Iterable[Edit]) -> str:
    """Returns the source with edits made that only add texts.

    All lines and columns of the source stay as they are, as far as a compiler reports them.
    """
    tokens, edits = tokenize(source), list[Edit]()
    for start, end, text in added:
        line = joined(tokens[:start]).rpartition("\n")[2]
        edits.append((start, end, f"{text}\n#line {line_of(tokens, start)}\n{' ' * len(line.encode())}"))
    return joined(edited(tokens, edits))


def edited(tokens: Sequence[Token], edits: Iterable[Edit]) -> list[Token]:
    """Returns the tokens with all edits made. Edits of one place keep their order; one within another is left out."""
    out, done = list[Token](), 0
    for start, end, text in sorted(edits, key=itemgetter(0, 1)):
        if start >= done:
            out += [*tokens[done:start], *tokenize(text)]
            done = end
    return [*out, *tokens[done:]]


def places_of(tokens: Sequence[Token], *texts: str, start: int = 0, end: int | None = None) -> list[int]:
    """Returns the indices, from `start` to before `end`, of all tokens whose text is one of `texts`."""
    return [i for i, token in enumerate(tokens[start:end], start) if token.text in texts]


def line_breaks(tokens: Iterable[Token]) -> str:
    """Returns only the line breaks in the texts of `tokens`, each with the backslash before it, if there is one."""
    return "".join(re.findall(r"\\?\n", joined(tokens)))


def told_line_of(tokens: Sequence[Token], at: int) -> int:
    """Returns the number by which a compiler names the line of the token at the index `at`.

    It follows the last `#line` before the token.
    """
    text = joined(tokens[:at])
    *_, last = (None, *_LINE.finditer(text))
    return int(last[1]) + text.count("\n", last.end()) if last else line_of(tokens, at)


def line_of(tokens: Sequence[Token], at: int) -> int:
    """Returns the line number, counted from 1, of the token at the index `at`, counted from 0."""
    return 1 + sum(token.text.count("\n") for token in tokens[:at])


def start_of_line(tokens: Sequence[Token], line: int) -> int:
    """Returns the index of the first token that starts on line `line` or later. Lines are counted from 1.

    Returns the number of tokens if there is none.
    """
    at, breaks = 0, 0
    while at < len(tokens) and breaks < line - 1:
        breaks += tokens[at].text.count("\n")
        at += 1
    return at


def next_code(tokens: Sequence[Token], at: int) -> int:
    """Returns the index of the first token at index `at` or later that is neither a space nor a comment.

    Returns the number of tokens if there is none.
    """
    while at < len(tokens) and not tokens[at].is_code:
        at += 1
    return at


def previous_code(tokens: Sequence[Token], at: int) -> int:
    """Returns the index of the last token before index `at` that is neither a space nor a comment.

    Returns -1 if there is none.
    """
    at -= 1
    while at >= 0 and not tokens[at].is_code:
        at -= 1
    return at


def text_at(tokens: Sequence[Token], at: int) -> str:
    """Returns the text of the token at index `at`; empty if there is no such token."""
    return tokens[at].text if 0 <= at < len(tokens) else ""


def closing_of(tokens: Sequence[Token], at: int) -> int | None:
    """Returns the index of the `)`, `]` or `}` that closes the opening bracket at index `at`; None if none does."""
    depth = 0
    for i in range(at, len(tokens)):
        text = tokens[i].text
        if text in OPENING:
            depth += 1
        elif text in CLOSING:
            depth -= 1
            if not depth:
                return i
    return None


def outermost_braces(tokens: Sequence[Token]) -> list[tuple[int, int, int, list[str]]]:
    """Returns (start, opening, closing, words) for each outermost pair of braces.

    The words are those of the statement before the pair, which begins at the index `start`.

    The braces of a namespace and of `extern "C"` do not count, so a pair inside them can be outermost. What is in a
    preprocessor directive counts neither as braces nor as words.
    """
    found, start, head, i = [], 0, list[str](), 0
    while i < len(tokens):
        text, closing = tokens[i].text, None
        if text == "#" and in_directive(tokens, i):
            i = directive_end(tokens, i)
            continue
        if text == "{" and "namespace" not in head and not (len(head) == 2 and head[0] == "extern"):
            closing = closing_of(tokens, i)
        if closing is not None:
            found.append((start, i, closing, head))
        if text in ("{", "}", ";"):
            head = []
        elif tokens[i].is_code:
            start = start if head else i
            head = [*head, text]
        i = (i if closing is None else closing) + 1
    return found


def directive_end(tokens: Sequence[Token], at: int) -> int:
    """Returns the index behind the directive that has the token at index `at`."""
    while at < len(tokens) and not _ends_line(tokens[at]):
        at += 1
    return at


def _ends_line(token: Token) -> bool:
    """Returns whether a token is a space with a line break that no backslash continues."""
    return token.kind is Kind.SPACE and "\n" in token.text.replace("\\\n", "")


class Include(NamedTuple):
    """An `#include`: the indices of its `#`, of its header's first token, and behind its last one; and the header.

    The header is as the source names it: `<name>`, `"name"`, or the name of a macro.
    """

    start: int
    at: int
    end: int
    header: str


def includes(tokens: Sequence[Token]) -> Iterator[Include]:
    """Yields each `#include` of a source."""
    for start in places_of(tokens, "#"):
        word = next_code(tokens, start + 1)
        at = next_code(tokens, word + 1)
        if text_at(tokens, word) != "include" or not begins_line(tokens, start):
            continue
        ends = (i for i in range(at, len(tokens)) if tokens[i].text == ">" or "\n" in tokens[i].text)
        end = 1 + (next(ends, at) if text_at(tokens, at) == "<" else at)
        yield Include(start, at, end, joined(tokens[at:end]))


def includes_any(headers: re.Pattern[str], *sources: str) -> bool:
    """Returns whether one of the sources includes a header that `headers` matches, such as `"mine.h"` or `<cuda.h>`."""
    return any(headers.match(each.header) for source in sources for each in includes(tokenize(source)))


def begins_line(tokens: Sequence[Token], at: int) -> bool:
    """Returns whether no code is before the token at index `at` on its line."""
    before = previous_code(tokens, at)
    return before < 0 or "\n" in joined(tokens[before + 1 : at])


class Function(NamedTuple):
    """The definition of a function.

    `head` has the words before its body, without those of directives. `start`, `opening` and `closing` are the indices
    of its first token and of the braces around its body. `name` is unqualified, and `at` its index; empty and -1 if
    there is none. `in_class` is true for a member function that a class defines.
    """

    head: list[str]
    name: str
    start: int
    at: int
    opening: int
    closing: int
    in_class: bool


def functions(
    tokens: Sequence[Token], start: int = 0, end: int | None = None, in_class: bool = False
) -> list[Function]:
    """Returns the functions that are defined between two indices, those of classes too. Macros do not count."""
    found: list[Function] = []
    for first, opening, closing, head in outermost_braces(tokens[start:end]):
        first, opening, closing = start + first, start + opening, start + closing
        if _declares_class(head):
            found += functions(tokens, opening + 1, closing, True)
        elif "(" in head and not in_directive(tokens, opening):
            at = declared_function(tokens, first)
            found.append(Function(head, text_at(tokens, at), first, at, opening, closing, in_class))
    return found


def declared_function(tokens: Sequence[Token], at: int) -> int:
    """Returns the index of the name of the function whose declaration continues at index `at`.

    The name is the first word with a parameter list behind it that is no attribute such as `__launch_bounds__(256)`,
    which may be a macro. Returns -1 if there is none before the end of the declaration.
    """
    name = -1
    while at < len(tokens) and tokens[at].text not in (";", "{", "}"):
        opening = next_code(tokens, end_of_name(tokens, at))
        if tokens[at].text == "#" and begins_line(tokens, at):
            at = directive_end(tokens, at)
        elif tokens[at].kind is Kind.WORD and text_at(tokens, opening) == "(":
            name = name if tokens[at].text in ATTRIBUTES else at
            at = closing_of(tokens, opening) or len(tokens)
        elif name >= 0 and tokens[at].is_code:
            return name
        at += 1
    return name


def kernels_of(tokens: Sequence[Token]) -> set[str]:
    """Returns the names of the kernels that the source defines or declares."""
    return {text_at(tokens, declared_function(tokens, i + 1)) for i in places_of(tokens, "__global__")} - {""}


def declared_variables(tokens: Sequence[Token], at: int) -> Iterator[int]:
    """Yields the indices of the names that the declaration around the word at index `at` may give variables."""
    while at < len(tokens) and tokens[at].text not in (";", "=", "{"):
        if tokens[at].kind is Kind.WORD and text_at(tokens, next_code(tokens, at + 1)) in ("[", ";", ",", "=", "{"):
            yield at
        at += 1


def _declares_class(head: Sequence[str]) -> bool:
    """Returns whether the words before a brace declare a class. Template parameters (`<class T>`) do not count."""
    depth = 0
    for word in head:
        depth += (word == "<") - (word == ">")
        if not depth and word in ("class", "struct", "union"):
            return True
    return False


def brackets_after(tokens: Sequence[Token], at: int) -> tuple[int, int] | None:
    """Returns the indices of the `(` behind the token at index `at` and of its `)`; None if another token follows."""
    opening = next_code(tokens, at + 1)
    closing = closing_of(tokens, opening) if text_at(tokens, opening) == "(" else None
    return None if closing is None else (opening, closing)


def brackets_around(tokens: Sequence[Token], at: int) -> Iterator[int]:
    """Yields the index of each `(`, `[` or `{` whose brackets are around the token at index `at`, the innermost first.

    The first of them is the partner of a closing bracket at index `at`.
    """
    depth = 0
    for i in range(at - 1, -1, -1):
        text = tokens[i].text
        if text in CLOSING:
            depth += 1
        elif text in OPENING:
            if not depth:
                yield i
            depth = max(depth - 1, 0)


def statement_start(tokens: Sequence[Token], at: int) -> int:
    """Returns the index behind the last `;`, `{` or `}` before the token at index `at`."""
    while at and tokens[at - 1].text not in (";", "{", "}"):
        at -= 1
    return at


def in_directive(tokens: Sequence[Token], at: int) -> bool:
    """Returns whether the token at index `at` is in a preprocessor directive, such as the definition of a macro."""
    return text_at(tokens, first_on_line(tokens, at)) == "#"


def first_on_line(tokens: Sequence[Token], at: int) -> int:
    """Returns the index of the first code on the line of the token at index `at`, which a backslash may continue."""
    while at and not _ends_line(tokens[at - 1]):
        at -= 1
    return next_code(tokens, at)


def start_of_body(tokens: Sequence[Token], at: int) -> int:
    """Returns where the text begins of the macro whose definition has the token at index `at`; 0 if none has."""
    mark = first_on_line(tokens, at)
    define = next_code(tokens, mark + 1)
    if text_at(tokens, mark) != "#" or text_at(tokens, define) != "define":
        return 0
    name = next_code(tokens, define + 1)
    parameters = closing_of(tokens, name + 1) if text_at(tokens, name + 1) == "(" else None
    return 1 + (name if parameters is None else parameters)


def argument_end(tokens: Sequence[Token], start: int) -> int:
    """Returns the index of the comma or closing bracket that ends the argument of a call that starts at index `start`.

    Returns the number of tokens if nothing ends it. A comma between template arguments, as in `tile<1, 2>`, does not
    end the argument. The token after the matching `>` decides whether a `<` begins template arguments.
    """
    i = start
    while i < len(tokens):
        text = tokens[i].text
        if text == "," or text in CLOSING:
            return i
        end = None
        if text in OPENING:
            end = closing_of(tokens, i)
        elif text == "<" and i > start and tokens[previous_code(tokens, i)].kind is Kind.WORD:
            end = template_end(tokens, i)
        i = (i if end is None else end) + 1
    return i


def arguments_in(tokens: Sequence[Token], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the indices where each argument begins and ends, of a call's arguments from `start` to before `end`."""
    while next_code(tokens, start) < end:
        last = argument_end(tokens, start)
        yield start, last
        start = last + 1


def end_of_name(tokens: Sequence[Token], at: int) -> int:
    """Returns the index behind the name at index `at` and its template arguments, if it has any."""
    opening = next_code(tokens, at + 1)
    end = template_end(tokens, opening) if text_at(tokens, opening) == "<" else None
    return at + 1 if end is None else end + 1


def template_end(tokens: Sequence[Token], at: int) -> int | None:
    """Returns the index of the `>` that ends the template arguments whose `<` is at index `at`.

    Returns None if this `<` is a comparison or a part of a shift: the token after the `>` tells them apart.
    """
    depth, i = 0, at
    while i < len(tokens) and tokens[i].text not in CLOSING:
        text = tokens[i].text
        depth += (text == "<") - (text == ">")
        if not depth:
            return i if text_at(tokens, next_code(tokens, i + 1)) in _BEHIND_TEMPLATE else None
        end = closing_of(tokens, i) if text in OPENING else None
        i = (i if end is None else end) + 1
    return None


def on_one_line(tokens: Iterable[Token]) -> str:
    """Returns the text of the tokens on one line. Spaces, line breaks and comments in between become one space."""
    return " ".join("".join(token.text if token.is_code else " " for token in tokens).split())
