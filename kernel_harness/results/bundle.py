"""A bundle: a zip file with kernels, their problem and their results, which another machine can judge again.

`manifest.json` has the hash of every other file. A signature of the manifest, if there is one, thus covers them all. It
is one of OpenSSH (`ssh-keygen -Y sign`), so no other program and no new kind of key is needed.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernel_harness.core import codec
from kernel_harness.core.atomic_file import replace_bytes
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.journal import writing
from kernel_harness.results.record import NotARecord, Result, from_line, to_line

_SCHEMA_VERSION = 1
_NAMESPACE = "kernel-harness"
_MANIFEST, _SIGNATURE, _PROBLEM, _RESULTS = "manifest.json", "manifest.json.sig", "problem.py", "results.jsonl"
# The most bytes of one file of a bundle, and the most kernels: a zip file of a stranger must not fill the memory.
_MOST_BYTES = 64 << 20
_MOST_KERNELS = 1000


@dataclass(frozen=True)
class Manifest:
    """What a bundle has."""

    harness: str
    """The version of the harness that judged the kernels."""
    problem: str
    """The name of the problem."""
    kernels: Mapping[str, str]
    """The file of each kernel in the bundle, by the kernel's name."""
    sha256: Mapping[str, str] = field(default_factory=dict)
    """The hash of each other file of the bundle, in hex."""
    schema_version: int = _SCHEMA_VERSION


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle. `signer` is the fingerprint of the key that signed it; None without a signature."""

    manifest: Manifest
    problem_text: str
    candidates: tuple[Candidate, ...]
    results: tuple[Result, ...]
    signer: str | None = None


def write(
    path: Path, problem: tuple[str, str], candidates: Sequence[Candidate], results: Sequence[Result], version: str,
    key: Path | None = None,
) -> None:  # fmt: skip
    """Writes a bundle of a run's kernels and results. `problem` is the name and the text of the problem.

    With `key`, the file of a private key of OpenSSH, the bundle is signed. Raises Unwritable if the file cannot be
    written, and UserError if the key cannot sign.
    """
    kernels = {each.name: f"kernels/{number}{each.path.suffix}" for number, each in enumerate(candidates)}
    files = {kernels[each.name]: each.source for each in candidates}
    files |= {_PROBLEM: problem[1], _RESULTS: "".join(f"{to_line(result)}\n" for result in results)}
    hashes = {name: _sha256(text.encode()) for name, text in files.items()}
    manifest = json.dumps(asdict(Manifest(version, problem[0], kernels, hashes)), indent=2)
    signature = _signed(manifest, key) if key else None
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in ({_MANIFEST: manifest} | files | ({_SIGNATURE: signature} if signature else {})).items():
            out.writestr(name, text)
    with writing(path, "file with --bundle"):
        replace_bytes(path, packed.getvalue())


def read(path: Path, signed_by: Path | None = None) -> Bundle:
    """Returns the bundle in a file. `signed_by` is the file of the public key that must have signed it.

    Raises UserError if the file is no bundle, has been changed, or is not signed as `signed_by` asks.
    """
    if not path.is_file():
        raise UserError(f"{path} is no bundle: there is no such file")
    try:
        key = signed_by.read_text() if signed_by else None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the key {signed_by} cannot be read: {error}") from None
    try:
        with zipfile.ZipFile(path) as packed:
            text = _member(packed, _MANIFEST)
            manifest: Manifest = codec.reader(Manifest)(json.loads(text))
            signer = None
            if _SIGNATURE in packed.namelist():
                signer = _checked(text, _member(packed, _SIGNATURE), key)
            elif signed_by is not None:
                raise UserError(f"{path} is not signed")
            return _content(packed, manifest, signer)
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path} is no bundle of this version, or it is damaged: {error}") from None


def _content(packed: zipfile.ZipFile, manifest: Manifest, signer: str | None) -> Bundle:
    if manifest.schema_version != _SCHEMA_VERSION or len(manifest.kernels) > _MOST_KERNELS:
        raise ValueError("its manifest is of another version")
    files = {}
    for name in (_PROBLEM, _RESULTS, *manifest.kernels.values()):
        content = _member(packed, name)
        if _sha256(content) != manifest.sha256[name]:
            raise UserError(f"{name} in the bundle is not the file that its manifest names: it was changed")
        files[name] = content.decode()
    candidates = tuple(Candidate(name, Path(file), files[file]) for name, file in manifest.kernels.items())
    results = tuple(map(_result, files[_RESULTS].splitlines()))
    hashes = {each.name: each.sha256 for each in candidates}
    for result in results:
        if not result.is_baseline and result.source_sha256 != hashes.get(result.kernel):
            raise UserError(f"the result of {result.kernel} in the bundle is of another source")
    return Bundle(manifest, files[_PROBLEM], candidates, results, signer)


def _result(line: str) -> Result:
    try:
        return from_line(line)
    except NotARecord as error:
        raise UserError(f"a result in the bundle cannot be read: {error}") from None


def _member(packed: zipfile.ZipFile, name: str) -> bytes:
    with packed.open(name) as member:
        content = member.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{name} is too long")
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _signed(manifest: str, key: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _MANIFEST
        file.write_text(manifest)
        _ssh_keygen(["sign", "-q", "-f", str(key.absolute()), "-n", _NAMESPACE, str(file)], b"", f"{key} cannot sign")
        return (Path(folder) / _SIGNATURE).read_text()


def _checked(manifest: bytes, signature: bytes, public_key: str | None) -> str:
    """Returns the fingerprint of the key that signed the manifest. Raises UserError if it is not `public_key`."""
    with tempfile.TemporaryDirectory() as folder:
        file, signers = Path(folder) / _SIGNATURE, Path(folder) / "signers"
        file.write_bytes(signature)
        words = ["check-novalidate"]
        if public_key is not None:
            signers.write_text(f"signer {public_key}")
            words = ["verify", "-f", str(signers), "-I", "signer"]
        words += ["-n", _NAMESPACE, "-s", str(file)]
        said = _ssh_keygen(words, manifest, "the signature of the bundle does not hold")
    return said.strip().rpartition(" key ")[2]


def _ssh_keygen(words: Sequence[str], given: bytes, failure: str) -> str:
    try:
        done = subprocess.run(["ssh-keygen", "-Y", *words], input=given, capture_output=True)
    except FileNotFoundError:
        raise EnvironmentLacking("signatures need the program ssh-keygen of OpenSSH") from None
    if done.returncode:
        raise UserError(f"{failure}: {(done.stderr or done.stdout).decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")
