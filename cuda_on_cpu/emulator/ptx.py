"""Translates inline PTX to C++: an `asm` statement becomes a lambda that calls the functions of emulator/ptx.h."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cuda_on_cpu.compile.cuda_source import Kind, Token, closing_of, next_code, on_one_line, text_at
from cuda_on_cpu.emulator import ptx_hopper, ptx_instructions, ptx_scalar
from cuda_on_cpu.emulator.ptx_instructions import NAMESPACE, Instruction, ctype

_DECIMAL = r"-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"  # a number with a point or an exponent
_PIECE = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<piece>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}"
    rf"|{_DECIMAL}|-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?(?![\w.])|%\[\w+\](?:\.[bh]\d)?|%\d+(?:\.[bh]\d)?"
    r"|%=|%[a-z_][\w.]*|[.A-Za-z_$][\w$]*(?:(?:\.|::)\w+)*|[@!{}\[\],;+|:-])",
    re.DOTALL,
)
_SPECIAL = re.compile(
    r"(?:tid|ntid|ctaid|nctaid|cluster_n?ctaid|n?clusterid)\.[xyz]|cluster_n?ctarank|laneid|n?warpid|n?smid|gridid"
    r"|clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|lanemask_(?:eq|lt|le|ge|gt)|(?:dynamic|total)_smem_size"
)
_PART = re.compile(r"(?P<register>[\w$%\[\]]+)\.(?P<part>b[0-3]|h[01])")  # of a register, as in %1.b0
_SIZED = frozenset("hrlfd")  # constraints of registers, each of one type or size
_MEANINGS = {**ptx_instructions.MEANINGS, **ptx_hopper.MEANINGS, **ptx_scalar.MEANINGS}


class UnknownPtx(ValueError):
    """The error raised for PTX without a translation. Its message is the text of the instruction or the statement."""


def translation(tokens: Sequence[Token]) -> str:
    """Returns a C++ expression with the effect of an `asm` statement. `tokens` are those between its parentheses.

    Raises UnknownPtx for an instruction that the emulator does not know, for malformed PTX, and for a statement whose
    PTX is not written as string literals.
    """
    sections = _sections(tokens)
    literals = [token for token in sections[0] if token.is_code]
    if any(token.kind is not Kind.LITERAL for token in literals):
        raise UnknownPtx(on_one_line(tokens))
    # `%=` is a number of the statement. Here each statement is a function, which has its own labels.
    ptx = "".join(_content(token.text) for token in literals).replace("%=", "_").replace("%%", "%")
    names = {"_": f"{NAMESPACE}::sink"}  # a result that is not wanted
    parameters: list[str] = []
    operands: list[str] = []
    checks: list[str] = []
    for section, output in zip(sections[1:3], (True, False), strict=False):
        for name, constraint, expression in _bindings(section):
            own = f"emulator_{len(parameters)}"
            if constraint in _SIZED and ptx.strip():  # without instructions it may be a barrier of the host's compiler
                # Without a comma outside of brackets: the statement may be the argument of a macro.
                checks.append(f"{NAMESPACE}::check_operand<'{constraint}'>({own});")
            known = f"{NAMESPACE}::constant<({expression})>" if constraint == "n" else ""
            names[f"%{len(parameters)}"] = known or own
            if name:
                names[f"%[{name}]"] = known or own
            parameters.append(f"{'auto&' if output else 'auto'} {own}")
            operands.append(known or f"({expression})")
    body = " ".join([*checks, *_Statements(ptx, names).translated()])
    # Operands are arguments, because a lambda cannot capture a member of an anonymous union.
    return f"[&]({', '.join(parameters)}) __attribute__((always_inline)) {{ {body} }}({', '.join(operands)})"


def without_translation(tokens: Sequence[Token], instead: str) -> str:
    """Returns a C++ expression that runs `instead` in place of an `asm` statement. `tokens` are those of `translation`.

    The expression names the operands, so the compiler reports a mistake in them.
    """
    operands = [f"({expression})" for section in _sections(tokens)[1:3] for *_, expression in _bindings(section)]
    return f"[&]({'auto&&...' if operands else ''}) {{ {instead}; }}({', '.join(operands)})"


def _sections(tokens: Sequence[Token]) -> list[list[Token]]:
    out: list[list[Token]] = [[]]
    i = 0
    while i < len(tokens):
        end = closing_of(tokens, i) if tokens[i].text == "(" else None
        if end is not None:
            out[-1] += tokens[i : end + 1]
            i = end
        elif tokens[i].text in (":", "::"):
            out += [[] for _ in tokens[i].text]
        else:
            out[-1].append(tokens[i])
        i += 1
    return out


def _bindings(section: Sequence[Token]) -> list[tuple[str, str, str]]:
    """Returns the name (empty if it has none), the letter of the constraint and the C++ expression of each operand.

    `section` has the tokens of the outputs of an asm statement, or those of the inputs.
    """
    out, i, name, constraint = [], 0, "", ""
    while i < len(section):
        token = section[i]
        if token.text == "[":
            name = text_at(section, next_code(section, i + 1))
        elif token.kind is Kind.LITERAL:
            constraint = _content(token.text).strip("=+&%")
        elif token.text == "(":
            end = closing_of(section, i)
            if end is None:
                break
            out.append((name, constraint, on_one_line(section[i + 1 : end])))
            i, name = end, ""
        i += 1
    return out


def _content(literal: str) -> str:
    """Returns the text of a string literal of C++."""
    raw = re.fullmatch(r'R"([^(]*)\((.*)\)\1"', literal, re.DOTALL)
    return raw[2] if raw else literal.strip('"').encode().decode("unicode_escape")


class _Statements:
    """The statements of the text `ptx`. `names` maps operands such as `%0` and `%[name]` to C++ names.

    The constructor raises UnknownPtx if it cannot split the text into words.
    """

    def __init__(self, ptx: str, names: Mapping[str, str]) -> None:
        self._pieces = [m["piece"] for m in _PIECE.finditer(ptx) if m["piece"]]
        if "".join(self._pieces) != re.sub(r"\s+|//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL):
            raise UnknownPtx(" ".join(ptx.split()))
        self._names = dict(names)

    def translated(self) -> list[str]:
        out, statement = [], list[str]()
        for piece in self._pieces:
            if piece in "{}" and not statement:
                out.append(piece)
            elif piece == ":" and len(statement) == 1:
                out.append(f"{_label(statement.pop())}:;")
            elif piece == ";":
                if statement:
                    out.append(self._statement(statement))
                statement = []
            else:
                statement.append(piece)
        if statement:
            raise UnknownPtx(" ".join(statement))
        return out

    def _statement(self, pieces: list[str]) -> str:
        said = " ".join(pieces)
        try:
            if pieces[0].startswith(".reg."):
                return self._declaration(pieces)
            if pieces[0] == ".reg":
                return self._declaration([f".reg{pieces[1]}", *pieces[2:]])
            if pieces[0] == "@":
                negated = pieces[1] == "!"
                condition = self._name(pieces[1 + negated])
                return f"if ({'!' * negated}{condition}) {{ {self._instruction(pieces[2 + negated :])} }}"
            return self._instruction(pieces)
        except (KeyError, ValueError, IndexError):
            raise UnknownPtx(said) from None

    def _declaration(self, pieces: list[str]) -> str:
        type_ = ctype(pieces[0].removeprefix(".reg."))
        names = [piece for piece in pieces[1:] if piece != ","]
        for name in names:
            self._names[name] = _label(name)
        return f"{type_} {', '.join(f'{self._names[name]}{{}}' for name in names)};"

    def _name(self, piece: str) -> str:
        return self._names[piece]

    def _value(self, piece: str) -> str:
        if piece in self._names:
            return self._names[piece]
        if part := _PART.fullmatch(piece):
            bits = 8 if part["part"].startswith("b") else 16
            return f"{NAMESPACE}::part({self._value(part['register'])}, {bits}u, {bits * int(part['part'][1])}u)"
        if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?", piece):
            return f"{piece.rstrip('uU')}{'' if piece.startswith('-') else 'u'}"
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", piece):
            return f"std::bit_cast<float>(0x{piece[2:]}u)"
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", piece):
            return f"{NAMESPACE}::Literal{{std::bit_cast<double>(0x{piece[2:]}ull)}}"
        if re.fullmatch(_DECIMAL, piece):
            return f"{NAMESPACE}::Literal{{{piece}}}"
        if piece.startswith("%") and _SPECIAL.fullmatch(piece.strip("%")):
            return f"{NAMESPACE}::{piece.strip('%').replace('.', '_')}()"
        raise KeyError(piece)

    def _instruction(self, pieces: list[str]) -> str:
        parts = re.split(r"\.", pieces[0])
        if parts[0] == "bra":
            (label,) = pieces[1:]
            return f"goto {_label(label)};"
        operands: list[str | list[str]] = []
        second = ""
        i = 1
        while i < len(pieces):
            if pieces[i] == "[":
                end = pieces.index("]", i)
                inside = pieces[i + 1 : end]
                i = end + 1
                if "{" in inside:  # a box of a tensor
                    values = [self._value(piece) for piece in inside if piece not in ("{", "}", ",")]
                    operands.append(f"{NAMESPACE}::tile({', '.join(values)})")
                    continue
                offset = "".join(inside[1:]).removeprefix("+").rstrip("uU") or "0"
                if not re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)", offset):
                    raise KeyError(offset)
                operands.append(f"{NAMESPACE}::at({self._value(inside[0])}, {offset})")
            elif pieces[i] == "{":
                end = pieces.index("}", i)
                operands.append([self._value(piece) for piece in pieces[i + 1 : end] if piece != ","])
                i = end + 1
            elif pieces[i] == ",":
                i += 1
            elif pieces[i] == "|" and len(operands) == 1:
                second = self._value(pieces[i + 1])
                i += 2
            elif pieces[i] == "!":
                operands.append(f"!{self._value(pieces[i + 1])}")
                i += 2
            else:
                operands.append(self._value(pieces[i]))
                i += 1
        return _MEANINGS[parts[0]](Instruction(parts, operands, second))


def _label(name: str) -> str:
    """Returns the C++ label for a label of PTX. Raises KeyError for another text."""
    if not re.fullmatch(r"[A-Za-z_$%][\w$]*", name):
        raise KeyError(name)
    return "ptx_" + re.sub(r"\W", "_", name)
