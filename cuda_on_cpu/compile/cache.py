"""The build cache: a folder of build products, such as the libraries of candidates.

A product is found by a key: a hash of what the product is built from. The caller chooses the parts of the key. Files
that are known only after a build, such as the headers that a source includes, are no part of the key. The product's
entry records their hashes instead.

The cache keeps a size limit. An entry that a process of the program uses is not evicted: the process holds a shared
lock of a file in the folder `locks`, which the wall hides from candidates. A lock ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from cuda_on_cpu.core import names
from cuda_on_cpu.core.errors import UserError

# The emulator's precompiled headers take 0.2 GB (light) and 0.8 GB (torch's own), the library of a kernel 1 MB.
DEFAULT_LIMIT_BYTES = 4 << 30
# An unfinished folder that has not changed for this time belongs to a build that was killed.
_ABANDONED_S = 3600
_MANIFEST = "manifest.json"
_UNFINISHED = "building-"  # the beginning of the names of folders that builds fill
_READ = "read.json"  # the files outside the cache that the build has read
_WHOLE_BYTES = 16 << 20
_EDGE_BYTES = 1 << 20
# The files that one build has read are hashed at each use of its product, so a build may not make that take long.
_MOST_READ_BYTES = 256 << 20
_SMALL_BYTES = 1 << 12  # no library is that small
# The time of a file's last change may be this much too early, because a file system's clock advances in steps.
_CLOCK_STEP_S = 0.05
# The entries in use by this process: the descriptor of the lock, and how often the entry was asked for in use.
_in_use: dict[Path, tuple[int, int]] = {}
_in_use_lock = threading.Lock()


def root() -> Path:
    """Returns the cache's folder: the variable `CACHE` of `names`, else a folder in `$XDG_CACHE_HOME` or `~/.cache`."""
    chosen = os.environ.get(names.variable("CACHE"))
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / names.folder()


def locks() -> Path:
    """Returns the folder of the cache's locks, which is created if it is missing. Raises OSError if it cannot be.

    Candidates must not reach it: a lock that a candidate holds would stop the judge.
    """
    folder = root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def limit_bytes() -> int:
    """Returns the size limit of the cache in bytes: the variable `CACHE_BYTES` of `names`, else 4 GiB.

    Raises UserError if the variable's value is not an integer.
    """
    variable = names.variable("CACHE_BYTES")
    chosen = os.environ.get(variable) or DEFAULT_LIMIT_BYTES
    try:
        return int(chosen)
    except ValueError:
        raise UserError(
            f"${variable} is {chosen!r}, which is no whole number of bytes. Set it to one, such as "
            f"{DEFAULT_LIMIT_BYTES}, or unset it."
        ) from None


def key(**parts: Any) -> str:
    """Returns a cache key: the SHA-256, in hex, of `parts`, which are names and values. Their order has no effect.

    Raises TypeError if JSON cannot hold a value.
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digest_of(*paths: Path) -> str:
    """Returns the SHA-256, in hex, of the names and contents of the files `paths`, in this order.

    A folder among `paths` stands for all files below it, each with its path from the folder's parent as its name.
    Raises OSError if a file cannot be read.
    """
    total = hashlib.sha256()
    for path in paths:
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            total.update(f"{file.relative_to(path.parent)}\0".encode() + file.read_bytes() + b"\0")
    return total.hexdigest()


def get_or_build(
    kind: str, name: str, build: Callable[[Path], Sequence[str] | None], *, in_use: bool = True
) -> tuple[Path, bool]:
    """Returns the folder of a cache entry, and whether the cache already held the entry.

    `kind` is the folder for entries of this sort, such as `cuda`. `name` is the entry's key. If the entry is missing,
    or its files have changed, calls `build` with an empty folder to fill, and then evicts the least recently used
    entries until the cache keeps its size limit. Exceptions of `build` are passed on. If two processes ask for one
    entry, one process builds it and the other waits. If `in_use`, no process evicts the entry until this process ends
    or calls `release` as often as it has asked for the entry in use. Otherwise the next build may evict it. A new entry
    of at most _SMALL_BYTES evicts no other: looking at all of them would take longer than the build.

    `build` may return the paths of files that the build has read and that the key does not cover. If one of them has
    changed since the build began, or has vanished, or could not be recorded, the next call builds the entry again.
    """
    folder = root() / kind / name[:32]
    _begin_use(folder)
    try:
        cached = _intact(folder)
        if not cached:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(_lock(folder, "build")):
                cached = _intact(folder)
                if not cached:
                    _fill(folder, build)
        if not cached and _size(folder) > _SMALL_BYTES:
            evict(limit_bytes())
    except BaseException:
        release(folder)
        raise
    if not in_use:
        release(folder)
    return folder, cached


def _fill(folder: Path, build: Callable[[Path], Sequence[str] | None]) -> None:
    """Replaces the entry in `folder` by one that `build` fills. An exception of `build` leaves no entry."""
    shutil.rmtree(folder, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    try:
        start = time.time()
        read = _record(build(fresh) or (), before=start - _CLOCK_STEP_S)
        if read:
            (fresh / _READ).write_text(json.dumps(read))
        (fresh / _MANIFEST).write_text(json.dumps(_seals(fresh)))
        fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def release(folder: Path) -> None:
    """Ends one use of the entry in `folder` by this process. If it was the last one, the entry may be evicted.

    Evicts at once if the cache exceeds its limit. Does nothing if this process does not use the entry.
    """
    with _in_use_lock:
        descriptor, count = _in_use.pop(folder, (-1, 0))
        if count > 1:
            _in_use[folder] = descriptor, count - 1
        elif count:
            os.close(descriptor)
    if count == 1 and _State.exceeded:
        evict(limit_bytes())


def _begin_use(folder: Path) -> None:
    """Begins a use of the entry in `folder` by this process, which keeps other processes from evicting it.

    Waits while a process evicts it. Does nothing in a worker, which may not lock; the judge uses the entry meanwhile.
    """
    with _in_use_lock:
        descriptor, count = _in_use.get(folder, (-1, 0))
        if not count:
            try:
                descriptor = os.open(_lock(folder, "use"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            except OSError:
                return
        _in_use[folder] = descriptor, count + 1


def _lock(folder: Path, what: str) -> Path:
    return locks() / f"{folder.parent.name}-{folder.name}.{what}"


def mark_used(kind: str, name: str) -> None:
    """Sets the time of an entry's last use to now, if the cache holds the entry and its files are unchanged.

    `kind` is the entry's folder in the cache, and `name` is the entry's key. The judge calls this function for entries
    that workers use, because a worker has no write access to the cache.
    """
    _intact(root() / kind / name[:32])


@dataclass(frozen=True)
class Entry:
    """One product in the build cache.

    `kind` is the sort of product, such as `cuda`. `folder` holds the product's files, and `bytes` is their total size.
    `used_at` is the time of the last use, in seconds since the epoch.
    """

    kind: str
    folder: Path
    bytes: int
    used_at: float


def entries() -> list[Entry]:
    """Returns all entries of the build cache. The least recently used entry comes first."""
    found = []
    for manifest in root().glob(f"*/*/{_MANIFEST}"):
        with contextlib.suppress(OSError):
            size, used_at = _size(manifest.parent), manifest.stat().st_mtime
            found.append(Entry(manifest.parent.parent.name, manifest.parent, size, used_at))
    return sorted(found, key=lambda entry: entry.used_at)


def _size(folder: Path) -> int:
    """Returns the bytes of the files in `folder`. Files that another process deletes meanwhile may not count."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as found:  # a tenth of the time of Path.rglob
        for each in found:
            if each.is_dir(follow_symlinks=False):
                total += _size(Path(each.path))
            elif each.name != _MANIFEST:
                total += each.stat().st_size
    return total


def evict(limit: int) -> int:
    """Deletes the least recently used entries until the build cache takes at most `limit` bytes.

    The files of unfinished builds count, too. Entries in use are kept, even if they take more. Also deletes the
    unfinished folders of killed builds. Returns the number of bytes freed, without those of unfinished folders.
    """
    _sweep()
    found = entries()
    unfinished = sum(_size(folder) for folder in root().glob(f"*/{_UNFINISHED}*"))
    excess, freed = sum(entry.bytes for entry in found) + unfinished - limit, 0
    for entry in found:
        if freed >= excess:
            break
        with _unused(entry.folder) as unused:
            if unused:
                shutil.rmtree(entry.folder, ignore_errors=True)
                freed += entry.bytes
    _State.exceeded = freed < excess
    return freed


@contextlib.contextmanager
def _unused(folder: Path) -> Iterator[bool]:
    """Returns a context whose value says whether no process uses or builds the entry in `folder`.

    If none does, none begins to within the context. Never waits.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(FileLock(_lock(folder, "build"), timeout=0))
            descriptor = os.open(_lock(folder, "use"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, Timeout):
            yield False
        else:
            yield True


class _State:
    """What this process knows about the cache: whether it exceeded its limit after the last eviction."""

    exceeded = False


def make_room(size: int) -> None:
    """Evicts entries so that a build can add `size` bytes to the cache within its limit."""
    evict(limit_bytes() - size)


def _sweep() -> None:
    """Deletes unfinished folders in the build cache that have not changed for an hour: their builds were killed."""
    for folder in root().glob(f"*/{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)


def _intact(folder: Path) -> bool:
    """Returns whether every file of the cache entry in `folder`, and each file that its build has read, is unchanged.

    A file that could not be recorded counts as changed. Returns false if there is no entry in `folder`. Otherwise, if
    no file has changed, sets the time of the entry's last use to now, unless this process may not write to the cache.
    """
    manifest = folder / _MANIFEST
    try:
        if json.loads(manifest.read_text()) != _seals(folder):
            return False
        read = json.loads((folder / _READ).read_text()) if (folder / _READ).exists() else {}
    except (OSError, ValueError):
        return False
    if not all(seal is not None and seal == _seal_of_foreign(Path(path)) for path, seal in read.items()):
        return False
    with contextlib.suppress(OSError):  # a worker has no write access to the cache
        os.utime(manifest)
    return True


def _record(paths: Sequence[str], before: float) -> dict[str, list[Any] | None]:
    """Returns a dict from each path in `paths` to the seal (size and hash) of its file, or to None without a seal.

    A file has no seal if it is missing, is not a regular file, or was changed at the time `before` or later, in seconds
    since the epoch. A file also has no seal if this file and all existing files before it in `paths`, sealed or not,
    have more than 256 MiB together. Each file counts with its size, but with at most 16 MiB. The limit is needed
    because a candidate may have chosen the paths. If a build has read a file without a seal, its entry is built again
    at the next use.
    """
    seals: dict[str, list[Any] | None] = {}
    left = _MOST_READ_BYTES
    for path in paths:
        seal = None
        with contextlib.suppress(OSError, ValueError):  # ValueError: a path with a zero byte
            found = Path(path).stat()
            left -= min(found.st_size, _WHOLE_BYTES)
            if left >= 0 and max(found.st_mtime, found.st_ctime) < before:
                seal = _seal_of_foreign(Path(path))
        seals[path] = seal
    return seals


def _seal_of_foreign(path: Path) -> list[Any] | None:
    """Returns the seal (size and hash) of a file outside of the cache; None if it is not regular or cannot be read.

    Reading a device or a pipe could block or have side effects, so only a regular file is read. Some devices, such as a
    watchdog, act when they are opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        # Another process may replace the file at any time, so the open file is examined, too.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return _seal_of_open(file) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError):
        return None


def _seals(folder: Path) -> dict[str, list[Any]]:
    return {str(path.relative_to(folder)): _seal(path) for path in _files(folder)}


def _seal(path: Path) -> list[Any]:
    """Returns the file's size in bytes and its SHA-256 in hex. Above 16 MiB, only the first and last MiB are hashed."""
    with path.open("rb") as file:
        return _seal_of_open(file)


def _seal_of_open(file: BinaryIO) -> list[Any]:
    size = os.fstat(file.fileno()).st_size
    total = hashlib.sha256()
    if size <= _WHOLE_BYTES:
        total.update(file.read(size))
    else:
        total.update(file.read(_EDGE_BYTES))
        file.seek(-_EDGE_BYTES, os.SEEK_END)
        total.update(file.read(_EDGE_BYTES))
    return [size, total.hexdigest()]


def _files(folder: Path) -> Iterator[Path]:
    return (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != _MANIFEST)
