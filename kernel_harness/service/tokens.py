"""The tokens of clients. Each has an owner: the name by which the service separates jobs and counts turns."""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from kernel_harness.core.errors import UserError
from kernel_harness.service.errors import Refused

VARIABLE = "KERNEL_HARNESS_TOKENS"
"""The environment variable that may have the tokens, in the form of the file with commas in place of line breaks."""
LOCAL = "local"
"""The owner of all jobs of a server without tokens."""
_SHORTEST = 16


def tokens(file: Path | None) -> dict[str, str]:
    """Returns the owner of each token, from a file with lines `owner token`, and from the environment.

    Removes the variable from the environment, because processes of candidates inherit it. Raises UserError for a file
    that others can read, for a line of another form, and for a token that is short or given twice.
    """
    lines = os.environ.pop(VARIABLE, "").split(",")
    if file is not None:
        try:
            mode = file.stat().st_mode
            lines += file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"the tokens in {file} cannot be read: {error}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UserError(f"others can read the tokens in {file}; run: chmod 600 {file}")
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not words[1].isascii():
            raise UserError(f"line {number} of the tokens is not of the form: owner token")
        owner, token = words
        if len(token) < _SHORTEST or token in found:
            raise UserError(f"the token of {owner} must be new and have at least {_SHORTEST} characters")
        found[token] = owner
    if file is not None and not found:
        raise UserError(f"{file} has no tokens; write lines of the form: owner token")
    return found


def owner_of(authorization: str | None, known: Mapping[str, str]) -> str:
    """Returns the owner of the token in a header `Authorization: Bearer TOKEN`; LOCAL if the server has no tokens.

    The time does not depend on how much of a token is right. Raises Refused for a missing or wrong token.
    """
    if not known:
        return LOCAL
    scheme, _, shown = (authorization or "").partition(" ")
    given = shown.strip().encode() if scheme.lower() == "bearer" else b""
    owners = [owner for token, owner in known.items() if hmac.compare_digest(token.encode(), given)]
    if not owners:
        raise Refused(401, "this server needs a token: send the header Authorization: Bearer TOKEN")
    return owners[0]
