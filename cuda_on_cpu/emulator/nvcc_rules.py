"""Refuses code that nvcc refuses and g++ accepts: calls of host functions on the device, lambdas without a flag, ...

Each rule was tried with nvcc 13.0. A rule that would need types, such as one for calls of members, is left out, so no
code that nvcc accepts is refused. Variables of device code in a function of the host are refused, too: nvcc compiles
them, and the library cannot be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Function,
    Kind,
    Token,
    brackets_after,
    declared_function,
    first_on_line,
    functions,
    in_directive,
    next_code,
    places_of,
    previous_code,
    text_at,
)

EXTENDED_LAMBDA = ("--extended-lambda", "-extended-lambda", "--expt-extended-lambda", "-expt-extended-lambda")
_BEFORE_TYPE = (";", "{", "}", "(", "const", "constexpr")
_SPACES = ("__device__", "__host__")
_ON_DEVICE = ("__device__", "__global__")
_SPECIFIERS = frozenset({"static", "extern", "const", "volatile"})
_MEMORIES = frozenset({"__shared__", "__constant__", "__device__"})
_DEVICE_VARIABLES = ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize")
_TYPES = frozenset({"auto", "bool", "char", "dim3", "float", "int", "int3", "long", "short", "uint3", "unsigned"})
_BEFORE_VALUE = ("return", "case", "else", "do", "goto", "sizeof")
_WORDS = re.compile(r"\w+")
# Names of std and of the C library that CUDA has no device code for. In C++20, which torch's headers need, many others
# are constexpr, and torch's flags let kernels call constexpr functions.
_OF_STD = frozenset(
    _WORDS.findall(
        "map multimap unordered_map unordered_multimap set multiset unordered_set unordered_multiset list forward_list "
        "deque queue priority_queue stack function thread mutex lock_guard unique_lock shared_ptr make_shared "
        "stringstream ostringstream istringstream cout cerr clog cin endl mt19937 mt19937_64 random_device "
        "default_random_engine minstd_rand normal_distribution uniform_real_distribution uniform_int_distribution "
        "bernoulli_distribution to_string stoi stof stod async future promise condition_variable any"
    )
)
_OF_C = frozenset(
    _WORDS.findall(
        "rand srand exit abort puts fprintf sprintf snprintf fopen fclose fflush scanf getenv system atoi atof strcmp "
        "strncmp strcpy memmove qsort bsearch cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize "
        "cudaMemcpy cudaMemset cudaMemcpy2D cudaMemset2D cudaMallocHost cudaMallocManaged cudaHostAlloc "
        "cudaMallocPitch cudaMallocAsync cudaFreeAsync cudaFreeHost cudaHostRegister cudaHostUnregister "
        "cudaMemcpyToSymbol cudaMemcpyFromSymbol cudaGetSymbolAddress cudaStreamCreate cudaStreamQuery "
        "cudaEventCreate cudaEventQuery cudaEventElapsedTime cudaSetDevice cudaGetDeviceProperties cudaDeviceReset "
        "cudaFuncSetAttribute cudaLaunchCooperativeKernel cudaLaunchHostFunc cudaGraphCreate "
        "cudaGraphInstantiate cudaStreamBeginCapture cudaStreamEndCapture cudaMemPrefetchAsync cudaMemAdvise "
        "cudaMemGetInfo"
    )
)


@dataclass(frozen=True)
class _Names:
    """The functions of a source, and its words that declare functions of the device and of the host, such as macros."""

    host_only: frozenset[str]
    defined: frozenset[str]
    device_words: frozenset[str]
    host_words: frozenset[str]

    def may_hide_qualifiers(self, words: Iterable[str]) -> bool:
        """Returns whether a word before a body may be a macro with qualifiers that the source does not show."""
        known = self.device_words | self.host_words
        return any(len(word) > 2 and word.isupper() and word not in known for word in words)


def refusals(tokens: Sequence[Token], flags: Sequence[str]) -> list[Edit]:
    """Returns the edits of a CUDA source that make an error of the preprocessor of what nvcc refuses, at its place.

    `flags` are the candidate's flags for nvcc. Code that the preprocessor removes gives no error.
    """
    defined = functions(tokens)
    names = _names(tokens, defined)
    variables = _device_variables(tokens)
    errors = _constant_warp_sizes(tokens, variables)
    for function in defined:
        if _is_checked(tokens, function, names):
            errors |= _errors_in(tokens, function, names)
        errors |= _on_host(tokens, function, variables, names)
    if not set(EXTENDED_LAMBDA) & set(flags):
        errors |= dict.fromkeys(
            _annotated_lambdas(tokens),
            "__host__ or __device__ annotation on lambda requires --extended-lambda nvcc flag",
        )
    errors |= dict.fromkeys(_late_alignments(tokens), "attribute does not apply to any entity")
    return [(at, at, f'_Pragma("GCC error \\"{error}\\"") ') for at, error in errors.items()]


def _names(tokens: Sequence[Token], defined: Sequence[Function]) -> _Names:
    device_words = frozenset({*_ON_DEVICE, *_macros_with(tokens, _ON_DEVICE)})
    host_words = frozenset({"__host__", *_macros_with(tokens, ["__host__"])})
    names = _Names(frozenset(), frozenset(), device_words, host_words)
    host, other = set[str](), set[str]()
    for function in defined:
        words = set(function.head)
        on_device = bool(words & device_words) or "constexpr" in words or "consteval" in words
        uncertain = on_device or function.in_class or names.may_hide_qualifiers(words)
        (other if uncertain else host).add(function.name)
    for i in places_of(tokens, *device_words):  # a declaration, which may be before a definition without a qualifier
        if not in_directive(tokens, i):
            other.add(text_at(tokens, declared_function(tokens, i + 1)))
    return replace(names, host_only=frozenset(host - other), defined=frozenset(host | other))


def _macros_with(tokens: Sequence[Token], words: Sequence[str]) -> set[str]:
    """Returns the names of the macros that the source defines with one of `words`."""
    marks = {first_on_line(tokens, i) for i in places_of(tokens, *words) if in_directive(tokens, i)}
    defines = (next_code(tokens, mark + 1) for mark in marks)
    return {text_at(tokens, next_code(tokens, at + 1)) for at in defines if text_at(tokens, at) == "define"}


def _is_checked(tokens: Sequence[Token], function: Function, names: _Names) -> bool:
    """Returns whether nvcc compiles the function for the device alone, and certainly compiles it.

    In a function for both sides, a call of a host function is only a warning. A template is compiled where it is used.
    """
    words = set(function.head)
    if not words & names.device_words or words & names.host_words or names.may_hide_qualifiers(words):
        return False
    if function.in_class or "template" not in words:
        return not function.in_class
    return any(not function.opening <= i <= function.closing for i in places_of(tokens, function.name)[1:])


def _errors_in(tokens: Sequence[Token], function: Function, names: _Names) -> dict[int, str]:
    """Returns the errors in the body of a function of the device, by the index of the token with the error."""
    caller = f"{'__global__' if '__global__' in function.head else '__device__'} function('{function.name}')"
    found = {}
    for i in range(function.opening + 1, function.closing):
        token = tokens[i]
        if token.kind is not Kind.WORD or in_directive(tokens, i):
            continue
        before = text_at(tokens, previous_code(tokens, i))
        if token.text in ("throw", "try"):
            found[i] = "device code does not support exception handling"
        elif _is_host_name(tokens, i, before, names) and token.text not in _declared(tokens, function):
            callee = f"std::{token.text}" if before == "::" else token.text
            found[i] = f"calling a __host__ function('{callee}') from a {caller} is not allowed"
    return found


def _device_variables(tokens: Sequence[Token]) -> list[int]:
    """Returns where a source names a variable of device code, such as threadIdx, that it does not seem to declare."""
    named = [i for i in places_of(tokens, *_DEVICE_VARIABLES) if not _is_member(tokens, i)]
    declared = {text_at(tokens, i) for i in named if in_directive(tokens, i) or _may_declare(tokens, i)}
    return [i for i in named if text_at(tokens, i) not in declared]


def _is_member(tokens: Sequence[Token], at: int) -> bool:
    return text_at(tokens, previous_code(tokens, at)) in (".", "->", "::")


def _may_declare(tokens: Sequence[Token], at: int) -> bool:
    """Returns whether the word at index `at` may be the name of a declaration: `dim3 a(1), at{2}`, `auto [at, b]`."""
    i = previous_code(tokens, at)
    before, behind = text_at(tokens, i), text_at(tokens, next_code(tokens, at + 1))
    if before in ("*", "&"):
        word = text_at(tokens, previous_code(tokens, i))
        return word in _TYPES or word.endswith("_t")
    if before == "[":
        return text_at(tokens, previous_code(tokens, i)) in ("auto", "&")
    if before in (",", ">"):
        return behind in ("(", "{", "[", "]", ";", ",", "=")
    return tokens[i].kind is Kind.WORD and before not in _BEFORE_VALUE


def _on_host(tokens: Sequence[Token], function: Function, variables: Sequence[int], names: _Names) -> dict[int, str]:
    """Returns the errors in a function of the host that names `variables` of device code.

    nvcc compiles such a function, but a library with it cannot be loaded. A function that may be left out of the
    library is not examined, nor is one that may contain code of the device.
    """
    inside = [i for i in variables if function.opening < i < function.closing]
    if not inside or function.name not in names.host_only or _is_member(tokens, function.at):
        return {}
    body, head = range(function.opening, function.closing), set(function.head)
    unnamed = any(text_at(tokens, next_code(tokens, i + 1)) == "{" for i in places_of(tokens, "namespace"))
    if (unnamed or head & {"static", "inline", "template"}) and len(places_of(tokens, function.name)) < 2:
        return {}
    macros = {text_at(tokens, next_code(tokens, i + 1)) for i in places_of(tokens, "define")}
    hidden = {"__CUDA_ARCH__", *names.device_words} & {text_at(tokens, i) for i in body}
    if macros & head or hidden or any(_begins_lambda(tokens, i) for i in body):
        return {}
    return {
        i: f"host code cannot use {text_at(tokens, i)}: undefined symbol __device_builtin_variable_{text_at(tokens, i)}"
        for i in inside
        if text_at(tokens, previous_code(tokens, previous_code(tokens, i))) not in ("sizeof", "decltype")
    }


def _begins_lambda(tokens: Sequence[Token], at: int) -> bool:
    return text_at(tokens, at) == "[" and text_at(tokens, previous_code(tokens, at)) in ("(", ",", "=", "return", "{")


def _constant_warp_sizes(tokens: Sequence[Token], variables: Sequence[int]) -> dict[int, str]:
    """Returns errors where `warpSize` must be a constant, which it is not in CUDA.

    These are a static_assert, the value of a constexpr variable, and the size of a __shared__ array.
    """
    found = {}
    for i in (i for i in variables if text_at(tokens, i) == "warpSize"):
        at, words = i, list[str]()
        while at >= 0 and text_at(tokens, at) not in (";", "{", "}"):
            words.append(text_at(tokens, at))
            at = previous_code(tokens, at)
        shared = "__shared__" in words and "[" in words and "=" not in words
        constant = "constexpr" in words and "=" in words[: words.index("constexpr")]
        if "static_assert" in words or shared or constant:
            found[i] = "expression must have a constant value"
    return found


def _is_host_name(tokens: Sequence[Token], at: int, before: str, names: _Names) -> bool:
    """Returns whether the word at index `at` names a function or a class without device code, and uses it."""
    word = tokens[at].text
    if before == "::":
        return word in _OF_STD and text_at(tokens, previous_code(tokens, previous_code(tokens, at))) == "std"
    called = brackets_after(tokens, at) is not None
    if not called or before in (".", "->"):
        return False
    return word in names.host_only or (word in _OF_C and word not in names.defined)


def _declared(tokens: Sequence[Token], function: Function) -> set[str]:
    """Returns words that may be names of the function's variables: its parameters, and words behind another word."""
    names = set(function.head)
    for i in range(function.opening, function.closing):
        if tokens[i].kind is not Kind.WORD:
            continue
        before = previous_code(tokens, i)
        if text_at(tokens, before) in ("*", "&"):  # `auto& name`, `float* name`
            before = previous_code(tokens, before)
            if text_at(tokens, previous_code(tokens, before)) not in _BEFORE_TYPE:
                continue
        if tokens[before].kind is Kind.WORD and text_at(tokens, before) not in ("return", "else", "do"):
            names.add(tokens[i].text)
    return names


def _annotated_lambdas(tokens: Sequence[Token]) -> list[int]:
    """Returns the index of the first qualifier of each lambda that has one: `[=] __device__ (int i) {`."""
    return [
        i
        for i in places_of(tokens, *_SPACES)
        if text_at(tokens, previous_code(tokens, i)) == "]"
        and text_at(tokens, next_code(tokens, i + 1)) in ("(", "{", *_SPACES)
    ]


def _late_alignments(tokens: Sequence[Token]) -> list[int]:
    """Returns where declarations begin with `alignas` behind a specifier: `extern __shared__ alignas(16) float s[]`."""
    found = []
    for i in places_of(tokens, "alignas"):
        at, words = previous_code(tokens, i), set[str]()
        while text_at(tokens, at) in _SPECIFIERS | _MEMORIES:
            words.add(text_at(tokens, at))
            at = previous_code(tokens, at)
        if words & _SPECIFIERS and not in_directive(tokens, i) and (at < 0 or text_at(tokens, at) in (";", "{", "}")):
            found.append(next_code(tokens, at + 1))
    return found
