"""The build cache: a folder of build products, such as the libraries of candidates.

A product is found by a key: a hash of what the product is built from. The caller chooses the parts of the key. Files
that are known only after a build, such as the headers that a source includes, are no part of the key. The product's
entry records their hashes instead.

The cache keeps a size limit. An entry that a process of the program uses is not evicted: the process holds a shared
lock of a file in the folder `locks`, which the wall hides from candidates. A lock ends with its process, and its file
is deleted with the entry.

Small values that can be computed again, such as what is known of a problem, are files without locks (`keep`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile import seals
from cuda_on_cpu.core import names
from cuda_on_cpu.core.errors import UserError

# The emulator's precompiled headers take 0.2 GB (light) and 0.8 GB (torch's own), the library of a kernel 1 MB.
DEFAULT_LIMIT_BYTES = 4 << 30
# An unfinished folder that has not changed for this time belongs to a build that was killed.
_ABANDONED_S = 3600
_UNUSED_VALUE_S = 30 * 24 * 3600  # a value that no process has read for this time is deleted
_MANIFEST = "manifest.json"
_UNFINISHED = "building-"  # the beginning of the names of folders and files that are being written
_READ = "read.json"  # the files outside the cache that the build has read
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


def modules(*folders: Path) -> list[Path]:
    """Returns the Python files in the `folders`, without those of folders below them."""
    return [file for folder in folders for file in sorted(folder.glob("*.py"))]


def get_or_build(
    kind: str, name: str, build: Callable[[Path], Sequence[str] | None], *, in_use: bool = True
) -> tuple[Path, bool]:
    """Returns the folder of a cache entry, and whether the cache already held the entry.

    `kind` is the folder for entries of this sort, such as `cuda`. `name` is the entry's key. If the entry is missing,
    or its files have changed, calls `build` with an empty folder to fill, and then evicts the least recently used
    entries until the cache keeps its size limit. Exceptions of `build` are passed on. If two processes ask for one
    entry, one process builds it and the other waits. If `in_use`, no process evicts the entry until this process ends
    or calls `release` as often as it has asked for the entry in use. Otherwise the next build may evict it.

    `build` may return the paths of files that the build has read and that the key does not cover. If one of them has
    changed since the build began, or has vanished, or could not be recorded, the next call builds the entry again.
    """
    folder = root() / kind / name[:32]
    _begin_use(folder)
    try:
        cached = _intact(folder)
        if not cached:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(_lock(folder, "build"), fcntl.LOCK_EX):
                cached = _intact(folder)
                if not cached:
                    _fill(folder, build)
        if not cached:
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
        read = seals.of_read(build(fresh) or (), start)
        if read:
            (fresh / _READ).write_text(json.dumps(read))
        (fresh / _MANIFEST).write_text(json.dumps(seals.of_folder(fresh)))
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
                descriptor = _open_locked(_lock(folder, "use"), fcntl.LOCK_SH)
            except OSError:
                return
        _in_use[folder] = descriptor, count + 1


def _lock(folder: Path, what: str) -> Path:
    return locks() / f"{folder.parent.name}-{folder.name}.{what}"


def _open_locked(path: Path, how: int) -> int:
    """Returns a descriptor of the lock file at `path`, locked as `fcntl.flock` does for `how`; closing it unlocks.

    Raises OSError if the file cannot be created, or if `how` has LOCK_NB and another process holds the lock.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, how)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # of a file that an eviction has deleted meanwhile: another process would lock a new one


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    descriptor = _open_locked(path, how)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor, too
        os.close(descriptor)


def mark_used(kind: str, name: str) -> None:
    """Sets the time of an entry's last use to now, if the cache holds the entry and its files are unchanged.

    `kind` is the entry's folder in the cache, and `name` is the entry's key. The judge calls this function for entries
    that workers use, because a worker has no write access to the cache.
    """
    _intact(root() / kind / name[:32])


def keep(kind: str, name: str, compute: Callable[[], tuple[Any, Sequence[str]]]) -> Any:
    """Returns a small value that JSON can hold: the one that the cache keeps under a key, else the one of `compute`.

    `kind` is the folder of such values, and `name` the key. `compute` returns the value and the paths of files on which
    it depends and which the key does not cover: if one of them has changed, the value is computed again. Two processes
    may compute a value at the same time. If the cache cannot be written, nothing is kept. Exceptions of `compute` are
    passed on.
    """
    path = root() / kind / f"{name[:32]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        kept = json.loads(path.read_text())
        if seals.unchanged(kept["read"]):
            os.utime(path)
            return kept["value"]
    start = time.time()
    value, read = compute()
    text = json.dumps({"value": value, "read": seals.of_read(read, start)})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{_UNFINISHED}{os.getpid()}-{threading.get_ident()}")
        fresh.write_text(text)
        fresh.replace(path)
    return json.loads(text)["value"]


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
        if manifest.parent.name.startswith(_UNFINISHED):
            continue
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
    unfinished folders of killed builds, and values that no process has read for 30 days, or all values if `limit` is 0.
    The size of values is not counted. Returns the number of bytes freed, without those of unfinished folders.
    """
    _sweep(_UNUSED_VALUE_S if limit > 0 else 0)
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

    If none does, none begins to within the context, and the files of the entry's locks are deleted. Never waits.
    """
    paths = [_lock(folder, what) for what in ("build", "use")]
    with contextlib.ExitStack() as held:
        try:
            for path in paths:
                held.enter_context(_locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except OSError:
            yield False
        else:
            yield True
            for path in paths:
                path.unlink(missing_ok=True)


class _State:
    """What this process knows about the cache: whether it exceeded its limit after the last eviction."""

    exceeded = False


def make_room(size: int) -> None:
    """Evicts entries so that a build can add `size` bytes to the cache within its limit."""
    evict(limit_bytes() - size)


def _sweep(unused_s: float) -> None:
    """Deletes unfinished folders and files, unread values, and lock files of entries that do not exist.

    A folder or a file is unfinished if it has not changed for an hour: its build was killed. A value is unread if no
    process has read it for `unused_s` seconds. A build that failed leaves lock files and no entry.
    """
    now = time.time()
    for path in [*root().glob(f"*/{_UNFINISHED}*"), *root().glob("*/*.json")]:
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime >= (unused_s if path.suffix else _ABANDONED_S):
                path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    for lock in locks().glob("*.use"):
        kind, _, name = lock.stem.rpartition("-")
        if not (root() / kind / name).exists():
            with _unused(root() / kind / name):
                pass


def _intact(folder: Path) -> bool:
    """Returns whether every file of the cache entry in `folder`, and each file that its build has read, is unchanged.

    A file that could not be recorded counts as changed. Returns false if there is no entry in `folder`. Otherwise, if
    no file has changed, sets the time of the entry's last use to now, unless this process may not write to the cache.
    """
    manifest = folder / _MANIFEST
    try:
        found = seals.of_folder(folder)
        found.pop(_MANIFEST, None)
        if json.loads(manifest.read_text()) != found:
            return False
        read = json.loads((folder / _READ).read_text()) if (folder / _READ).exists() else {}
    except (OSError, ValueError):
        return False
    if not seals.unchanged(read):
        return False
    with contextlib.suppress(OSError):  # a worker has no write access to the cache
        os.utime(manifest)
    return True
