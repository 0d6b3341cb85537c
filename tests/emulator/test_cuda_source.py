"""The tokens of a C++ source: nothing is lost, and comments and literals are no code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_on_cpu.compile.cuda_source import (
    Kind,
    code_only,
    edited,
    functions,
    includes,
    joined,
    line_of,
    start_of_line,
    tokenize,
)

SOURCES = st.text(alphabet="abuR1'.e+\n\\/*\"()<>:-; \t", max_size=80)


def code(source: str) -> list[str]:
    return [token.text for token in tokenize(source) if token.is_code]


@given(SOURCES)
def test_the_tokens_joined_are_the_source(source):
    assert joined(tokenize(source)) == source


@given(SOURCES)
def test_code_only_keeps_length_and_lines(source):
    out = code_only(source)
    assert len(out) == len(source)
    assert [i for i, c in enumerate(out) if c == "\n"] == [i for i, c in enumerate(source) if c == "\n"]


@pytest.mark.parametrize(
    "text",
    [
        "// a comment", "// one \\\n that continues", "/* two\nlines */", '"a \\" quote"', "'\"'", "'\\''", 'L"wide"',
        'u8"text"', 'R"(raw " ) text)"', 'R"tag(a )" b)tag"', 'LR"(wide raw)"',
    ],
)  # fmt: skip
def test_a_comment_or_literal_is_one_token_and_no_code(text):
    assert tokenize(f"{text}\n;")[0].text == text
    assert code_only(f"{text}\n;").split() == [";"]


@pytest.mark.parametrize("number", ["1'000'000", "1e+5", "0x1p-3f", ".5f", "0b1010", "1.0"])
def test_a_number_is_one_token(number):
    (token,) = tokenize(number)
    assert token.kind is Kind.NUMBER


def test_punctuation_is_one_character_except_for_three_operators():
    assert code("a::b->c<<<1>>>(x >> 2)") == [
        "a", "::", "b", "->", "c", "<<<", "1", ">", ">", ">", "(", "x", ">", ">", "2", ")",
    ]  # fmt: skip


@pytest.mark.parametrize("source", ['"never ends', "/* never ends", "it's"])
def test_a_quote_or_comment_that_never_ends_is_punctuation(source):
    assert code(source)[0] in ('"', "/", "it")


def test_a_line_is_counted_through_comments_and_literals():
    tokens = tokenize('/* 1\n2 */ a\nR"(3\n4)" b')
    assert line_of(tokens, tokens.index(tokenize("a")[0])) == 2
    assert line_of(tokens, tokens.index(tokenize("b")[0])) == 4
    assert joined(tokens[start_of_line(tokens, 3) :]).startswith('R"(3')


def test_an_include_in_a_comment_or_behind_code_is_none():
    source = '# include <a/b.h> // c\n// #include "d.h"\nint e; #include "f.h"\n#include "g.h"'
    assert [each.header for each in includes(tokenize(source))] == ["<a/b.h>", '"g.h"']


def test_edits_of_one_place_keep_their_order_and_one_within_another_is_left_out():
    edits = [(4, 5, "d"), (2, 2, "1 "), (2, 2, "2 "), (0, 3, "f(c)"), (1, 2, "lost")]
    assert joined(edited(tokenize("a+b;e"), edits)) == "f(c);d"
    assert joined(edited(tokenize("a+b;e"), edits[:3])) == "a+1 2 b;d"


@pytest.mark.parametrize("head", [
    "__global__ void __launch_bounds__(N) k(int n)", "template <> __global__ void k<float>(float* x)",
    "BOUNDS(128) __launch_bounds__(4) k(Tile<int, 2> t)", "void space::k(int n) noexcept(true)",
])  # fmt: skip
def test_a_function_has_the_name_before_its_parameters(head):
    (function,) = functions(tokenize(f"int before;\n{head} {{ g(1); }}"))
    assert function.name == "k"
