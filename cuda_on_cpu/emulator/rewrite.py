"""Rewrites CUDA syntax that g++ cannot parse: launches, `extern __shared__`, kernels as arguments, some qualifiers.

The emulator's headers define all other CUDA syntax as macros, types and functions. What the emulator cannot run is
marked, so that the compiler reports it. Each rewrite is one pass over the tokens of the source. It keeps the number of
lines, so that a compiler's message names the author's own line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Kind,
    Token,
    arguments_in,
    begins_line,
    brackets_after,
    directive_end,
    edited,
    end_of_name,
    functions,
    in_directive,
    joined,
    kernels_of,
    line_breaks,
    next_code,
    on_one_line,
    outermost_braces,
    places_of,
    previous_code,
    template_end,
    text_at,
    tokenize,
)
from cuda_on_cpu.emulator.launch_bounds import checks
from cuda_on_cpu.emulator.launches import joined_launches, launches
from cuda_on_cpu.emulator.nvcc_rules import refusals
from cuda_on_cpu.emulator.shared_memory_macros import expansions
from cuda_on_cpu.emulator.unsupported import marks
from cuda_on_cpu.emulator.warp_steps import steps

_ALIGNMENT = ("__align__", "__builtin_align__", "alignas", "__attribute__")
# The functions of CUDA that take a kernel, and the index of this argument.
_TAKES_KERNEL = {
    "cudaFuncSetAttribute": 0, "cudaLaunchKernel": 0, "cudaLaunchCooperativeKernel": 0, "cudaLaunchKernelEx": 1,
    "cudaLaunchKernelExC": 1,
}  # fmt: skip
# Other characters may stand between two comparisons: `a.x < b && c > (d)`.
_IN_TEMPLATE_ARGUMENTS = ("<", ">", "::", ",", "*", "(", ")", "{", "}", ".")
_VOID_POINTERS = (["void", "*"], ["const", "void", "*"], ["void", "const", "*"])


def rewrite(source: str, flags: Sequence[str] = ()) -> str:
    """Returns the CUDA source as C++ that g++ compiles with the emulator's headers.

    `flags` are the candidate's flags for nvcc. What nvcc refuses becomes an error of g++. Raises MalformedLaunch for a
    kernel launch with an unmatched bracket, or without `(...)` for its arguments.
    """
    tokens: Sequence[Token] = tokenize(source)
    passes = (expansions, joined_launches, partial(refusals, flags=flags), marks, checks, steps, _dynamic_shared)
    for edits in (*passes, *_FORMS):
        tokens = edited(tokens, edits(tokens))
    kernels = kernels_of(tokens)
    for edits_of_calls in (_passed_kernels, _cast_kernels, launches):
        tokens = edited(tokens, edits_of_calls(tokens, kernels))
    return joined(tokens)


def _dynamic_shared(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits that replace the declaration of each array `extern __shared__ T name[];` by a pointer.

    The pointer points to the dynamic shared memory that the emulator provides for the running block. If the array is
    declared outside of all functions, each function that uses the name gets a pointer of its own.
    """
    for start in places_of(tokens, "extern", "__shared__"):
        end = _dynamic_shared_end(tokens, start)
        declared = _pointer_to(tokens[start:end]) if end else None
        if end and declared:
            name, pointer, cast, array = declared
            breaks = line_breaks(tokens[start:end])
            value = "*::emulator::dynamic_shared" if cast.endswith("&") else "::emulator::dynamic_shared"
            text = f"{pointer} = reinterpret_cast<{cast}>({value});"
            again = f"{{extern {array};}}"  # g++, too, refuses another type for an array of this name
            in_braces = any(at < start < closing for _, at, closing, _ in outermost_braces(tokens))
            outside = not in_braces and not in_directive(tokens, start)  # a macro with braces may be a whole function
            if outside:
                yield from _declared_in_functions(tokens, end, name, text)
            yield start, end + 1, again[1:-1] + breaks if outside else again + text + breaks


def _declared_in_functions(tokens: Sequence[Token], after: int, name: str, declaration: str) -> Iterator[Edit]:
    """Yields the edits that put `declaration` into each function behind index `after` that uses the name.

    The body becomes a block of its own, in which the function may declare the name again.
    """
    for function in functions(tokens):
        at, end = function.opening, function.closing
        if at > after and name not in function.head and places_of(tokens, name, start=at, end=end):
            yield at + 1, at + 1, f"{declaration} {{"
            yield end, end, "}"


def _dynamic_shared_end(tokens: Sequence[Token], start: int) -> int | None:
    """Returns the index of the `;` that ends the declaration `extern __shared__ ...;` at index `start`.

    Returns None if no such declaration starts at `start`.
    """
    shared = tokens[start].text == "__shared__"
    if shared and text_at(tokens, next_code(tokens, start + 1)) != "extern":
        return None
    if text_at(tokens, previous_code(tokens, start)) == "__shared__":  # the declaration starts one word earlier
        return None
    for i in range(start + 1, directive_end(tokens, start) if in_directive(tokens, start) else len(tokens)):
        text = tokens[i].text
        if text in ("{", "}"):
            return None
        if text == ";":
            return i if shared else None
        shared = shared or text == "__shared__"
    return None


def _pointer_to(declaration: Sequence[Token]) -> tuple[str, str, str, str] | None:
    """Returns four texts: an array's name, the declaration and the type of a pointer to its elements, and its own.

    A variable that is no array gets a reference instead.

    `declaration` has the tokens of the array's declaration without the `;`. Example: for `extern __shared__ float s[]`,
    they are `("s", "float *s", "float *", "float s[]")`. Returns None if the array has a size.
    """
    kept: list[Token] = []
    i = 0
    while i < len(declaration):
        token = declaration[i]
        if token.text in _ALIGNMENT:
            brackets = brackets_after(declaration, i)
            i = i if brackets is None else brackets[1]
        elif token.text not in ("extern", "__shared__"):
            kept.append(token)
        i += 1
    code = [i for i, token in enumerate(kept) if token.is_code]
    texts = [kept[i].text for i in code]
    if "[" not in texts:
        simple = len(texts) > 1 and kept[code[-1]].kind is Kind.WORD and not {"(", "=", "{"} & set(texts)
        type_ = on_one_line(kept[: code[-1]])
        return (texts[-1], f"{type_} &{texts[-1]}", f"{type_} &", f"{type_} {texts[-1]}") if simple else None
    bracket = texts.index("[")
    named = bracket > 0 and kept[code[bracket - 1]].kind is Kind.WORD
    first = bracket - 1
    while texts[max(first - 2, 0) : first] == ["#", "#"]:  # a name that a macro pastes: `a##b`
        first -= 3
    further = texts[bracket + 2 :]  # further dimensions, such as `[33]`
    if not named or texts[bracket + 1 : bracket + 2] != ["]"] or further[:1] not in ([], ["["]):
        return None
    name = "".join(texts[first:bracket])
    element = on_one_line(kept[: code[first]])
    rest = on_one_line(kept[code[bracket + 1] + 1 :])
    array = f"{element} {name}[]{rest}"
    if rest:
        return name, f"{element} (*{name}){rest}", f"{element} (*){rest}", array
    return name, f"{element} *{name}", f"{element} *", array


def _pragmas_of_macros(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits that remove `#pragma unroll` from macros, where nvcc takes it and g++ does not."""
    for at in places_of(tokens, "pragma"):
        mark, end = previous_code(tokens, at), at
        if text_at(tokens, mark) != "#" or begins_line(tokens, mark):
            continue
        while end < len(tokens) and "\n" not in tokens[end].text:  # the macro may continue on the next line
            end += 1
        yield mark, end, ""


def _qualifiers(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits of qualifiers of declarations that a macro cannot replace.

    `static` beside `__shared__` is removed, because the macro `__shared__` contains `static`. `alignas` moves before
    `__shared__`, where C++ requires it. `__noinline__` becomes g++'s attribute; it cannot be a macro, because libstdc++
    has this word in its own attributes.
    """
    for at in places_of(tokens, "__shared__"):
        before = previous_code(tokens, at)
        start = before if text_at(tokens, before) == "static" else at
        align = next_code(tokens, at + 1)
        brackets = brackets_after(tokens, align) if text_at(tokens, align) == "alignas" else None
        if brackets is not None:
            behind = brackets[1] + 1
            yield start, behind, f"{joined(tokens[align:behind])} __shared__{line_breaks(tokens[start:align])}"
        elif start != at:
            yield start, at + 1, "__shared__" + line_breaks(tokens[start:at])
    for i in places_of(tokens, "__noinline__"):
        if text_at(tokens, i - 1) != "(":
            yield i, i + 1, "__attribute__((noinline))"


def _member_templates(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits that make `a.template f<T>()` of calls such as `a.f<T>()`, and of those of a parameter A.

    g++ needs the word in `A::f<T>()`, and where the type of `a` is deduced in a template; nvcc does not. Elsewhere the
    word is allowed.
    """
    named = [next_code(tokens, i + 1) for i in places_of(tokens, "typename", "class")]
    parameters = {text_at(tokens, i) for i in named if text_at(tokens, next_code(tokens, i + 1)) in (",", ">", "=")}
    for at in places_of(tokens, ".", "->", "::"):
        if tokens[at].text == "::" and text_at(tokens, previous_code(tokens, at)) not in parameters:
            continue
        name = next_code(tokens, at + 1)
        opening = next_code(tokens, name + 1)
        if text_at(tokens, opening) != "<" or tokens[name].kind is not Kind.WORD or text_at(tokens, name) == "template":
            continue
        end = template_end(tokens, opening)
        if end is None or text_at(tokens, next_code(tokens, end + 1)) != "(":
            continue
        inside = (token for token in tokens[opening : end + 1] if token.is_code)
        if all(token.kind in (Kind.WORD, Kind.NUMBER) or token.text in _IN_TEMPLATE_ARGUMENTS for token in inside):
            yield name, name, "template "


def _types_in_sizes(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits that make `sizeof(typename A::T)` of `sizeof(A::T)` if the source declares a type T.

    g++ needs the word if A depends on a template's parameters; nvcc does not. Elsewhere the word is allowed.
    """
    declared = {text_at(tokens, next_code(tokens, i + 1)) for i in places_of(tokens, "using", "struct", "class")}
    for at in places_of(tokens, "sizeof"):
        opening, closing = brackets_after(tokens, at) or (at, at)
        words = [token.text for token in tokens[opening + 1 : closing] if token.is_code]
        if len(words) > 2 and words[-2] == "::" and words[-1] in declared and set(words[1::2]) == {"::"}:
            yield opening + 1, opening + 1, "typename "


_FORMS = (_qualifiers, _member_templates, _types_in_sizes, _pragmas_of_macros)


def _passed_kernels(tokens: Sequence[Token], kernels: set[str]) -> Iterator[Edit]:
    """Yields the edits with which kernels that are passed to CUDA's functions become known by name.

    `::emulator::known("name", kernel)` is the kernel. It keeps the kernel's name, empty if it is not in `kernels`, and
    its type, which a cast to `void*` would hide. So no cast is left around an argument.
    """
    for i in places_of(tokens, *_TAKES_KERNEL):
        opening, closing = brackets_after(tokens, i) or (i, i)
        for start, end in list(arguments_in(tokens, opening + 1, closing))[_TAKES_KERNEL[tokens[i].text] :][:1]:
            argument = tokens[start:end]
            low, high = _without_void_cast(argument)
            kernel, cast = argument[low:high], [*argument[:low], *argument[high:]]
            if any(token.is_code for token in kernel):
                yield start, end, _known(kernel, cast, kernels)


def _cast_kernels(tokens: Sequence[Token], kernels: set[str]) -> Iterator[Edit]:
    """Yields the edits with which kernels that are cast to `void*` become known by name, as those that are passed."""
    for i, token in enumerate(tokens):
        if token.kind is not Kind.WORD:
            continue
        end = end_of_name(tokens, i)
        # With template arguments, it is a function, perhaps a kernel of a header.
        if token.text in kernels or end > i + 1:
            first = _start_of_cast(tokens, i)
            if first is not None and text_at(tokens, next_code(tokens, end)) not in ("(", "<<<", "::"):
                yield first, end, _known(tokens[first:end], [], kernels)


def _known(kernel: Sequence[Token], cast: Sequence[Token], kernels: set[str]) -> str:
    """Returns the call that makes a kernel known, with the line breaks of `cast`, which is left out."""
    name = _named_kernel(kernel)
    return f'::emulator::known("{name if name in kernels else ""}", {joined(kernel)}){line_breaks(cast)}'


def _start_of_cast(tokens: Sequence[Token], at: int) -> int | None:
    """Returns where the operand begins of a cast to `void*` whose operand is the function named at index `at`.

    Returns None if there is no such cast.
    """
    start, before = at, previous_code(tokens, at)
    while text_at(tokens, before) in ("::", "&") or text_at(tokens, next_code(tokens, before + 1)) == "::":
        start, before = before, previous_code(tokens, before)
    words = [text_at(tokens, before)]
    while before >= 0 and len(words) < len(_VOID_POINTERS[1]) + 3:
        before = previous_code(tokens, before)
        words.insert(0, text_at(tokens, before))
    forms = [["(", *pointer, ")"] for pointer in _VOID_POINTERS] + [
        ["<", *pointer, ">", "("] for pointer in _VOID_POINTERS
    ]
    return start if any(words[-len(form) :] == form for form in forms) else None


def _without_void_cast(argument: Sequence[Token]) -> tuple[int, int]:
    """Returns where the kernel is in an argument: the index of its first token, and the index behind its last one.

    A cast to `void*` or `const void*` around the kernel is left out: `(void*)kernel`, `reinterpret_cast<void*>(kernel)`
    or `static_cast<void*>(kernel)`. Without such a cast, the whole argument is the kernel.
    """
    code = [i for i, token in enumerate(argument) if token.is_code]
    texts = [argument[i].text for i in code]
    for pointer in _VOID_POINTERS:
        length = len(pointer)
        if texts[: length + 2] == ["(", *pointer, ")"]:
            return code[length + 1] + 1, len(argument)
        opening = length + 3
        if (
            texts[:1] in (["reinterpret_cast"], ["static_cast"])
            and texts[1 : opening + 1] == ["<", *pointer, ">", "("]
            and texts[-1] == ")"
        ):
            return code[opening] + 1, code[-1]
    return 0, len(argument)


def _named_kernel(expression: Sequence[Token]) -> str:
    """Returns the unqualified name of the kernel that an expression names: `kernel` for `&space::kernel<float>`.

    Returns an empty text if the expression does not name one function.
    """
    texts = [token.text for token in expression if token.is_code]
    while texts and texts[0] in ("&", "(", "*"):
        texts.pop(0)
    if "<" in texts:
        texts = texts[: texts.index("<")]
    while texts and texts[-1] == ")":
        texts.pop()
    while "::" in texts:
        texts = texts[texts.index("::") + 1 :]
    return texts[0] if len(texts) == 1 else ""
