"""What was compiled once, found again by what went into it. Builders decide what goes in."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

# An emulator's precompiled header takes half a gigabyte, a kernel's library one megabyte.
DEFAULT_LIMIT_BYTES = 4 << 30
# Whoever was just given an entry has this long to load it before it can be evicted.
_GRACE_S = 600
_ABANDONED_S = 3600
_MANIFEST = "manifest.json"
_WHOLE_BYTES = 16 << 20
_EDGE_BYTES = 1 << 20


def root() -> Path:
    """`$KERNEL_HARNESS_CACHE`, else `kernel-harness` in the user's cache folder."""
    chosen = os.environ.get("KERNEL_HARNESS_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel-harness"


def limit_bytes() -> int:
    """`$KERNEL_HARNESS_CACHE_BYTES`, else 4 GiB."""
    return int(os.environ.get("KERNEL_HARNESS_CACHE_BYTES") or DEFAULT_LIMIT_BYTES)


def key(**parts: Any) -> str:
    """sha256 over named parts, each of which must be JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digest_of(*paths: Path) -> str:
    """sha256 over the names and contents of files and of the files below folders."""
    total = hashlib.sha256()
    for path in paths:
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            total.update(f"{file.relative_to(path.parent)}\0".encode() + file.read_bytes() + b"\0")
    return total.hexdigest()


def get_or_build(kind: str, name: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
    """The folder of an entry, and whether it was there. `build` fills an empty folder and raises if it cannot.

    Two processes that want the same entry build it once: the second waits for the first. An entry that is not
    as it was written is built again.
    """
    folder = root() / kind / name[:32]
    if _intact(folder):
        return folder, True
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if _intact(folder):
            return folder, True
        shutil.rmtree(folder, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
        try:
            build(fresh)
            (fresh / _MANIFEST).write_text(json.dumps(_seals(fresh)))
            fresh.rename(folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    evict(limit_bytes())
    return folder, False


@dataclass(frozen=True)
class Entry:
    """One product in the cache. `used_at` is in seconds since the epoch."""

    kind: str
    folder: Path
    bytes: int
    used_at: float


def entries() -> list[Entry]:
    """Everything in the cache, what was used longest ago first."""
    found = []
    for manifest in root().glob(f"*/*/{_MANIFEST}"):
        with contextlib.suppress(OSError):
            size = sum(p.stat().st_size for p in _files(manifest.parent))
            found.append(Entry(manifest.parent.parent.name, manifest.parent, size, manifest.stat().st_mtime))
    return sorted(found, key=lambda entry: entry.used_at)


def evict(limit: int, grace_s: float = _GRACE_S) -> int:
    """Drops what was used longest ago until the rest takes at most `limit` bytes. The bytes freed."""
    _sweep()
    found = entries()
    excess, freed = sum(entry.bytes for entry in found) - limit, 0
    for entry in found:
        if freed >= excess:
            break
        with FileLock(entry.folder.with_suffix(".lock")), contextlib.suppress(OSError):
            # Somebody may have been given it since it was listed.
            if time.time() - (entry.folder / _MANIFEST).stat().st_mtime >= grace_s:
                shutil.rmtree(entry.folder)
                freed += entry.bytes
    return freed


def _sweep() -> None:
    """Drops what builds left that were killed before they were done."""
    for folder in root().glob("*/building-*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)


def _intact(folder: Path) -> bool:
    """Whether every file of an entry is as it was written. Looking at it counts as use."""
    manifest = folder / _MANIFEST
    try:
        if json.loads(manifest.read_text()) != _seals(folder):
            return False
    except (OSError, ValueError):
        return False
    with contextlib.suppress(OSError):  # a worker may read the cache and no more
        os.utime(manifest)
    return True


def _seals(folder: Path) -> dict[str, list[Any]]:
    return {str(path.relative_to(folder)): _seal(path) for path in _files(folder)}


def _seal(path: Path) -> list[Any]:
    """Size and sha256; of a very large file the two ends only, since hashing it would cost what it saves."""
    size = path.stat().st_size
    total = hashlib.sha256()
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            total.update(file.read())
        else:
            total.update(file.read(_EDGE_BYTES))
            file.seek(-_EDGE_BYTES, os.SEEK_END)
            total.update(file.read())
    return [size, total.hexdigest()]


def _files(folder: Path) -> Iterator[Path]:
    return (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != _MANIFEST)
