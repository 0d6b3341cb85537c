"""Lets a worker process say where it is when it does not answer: the judge sends it two signals before it ends it.

What the process says is text that it prints. A candidate can forge it, and harms only its own message.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os

from kernel_harness.ipc.process_messages import PLACE_SIGNALS

_PYTHON, _NATIVE = PLACE_SIGNALS
_MOST_FRAMES = 64
_kept: list[object] = []  # the handler must live as long as the process


class _Place(ctypes.Structure):
    """The C type Dl_info."""

    _fields_ = [
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p),
    ]  # fmt: skip


def install() -> None:
    """Makes this process print at once what it prints, and its place at the two signals."""
    library = ctypes.CDLL(None)
    line_buffered, size = 1, 0
    library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, line_buffered, size)
    faulthandler.register(_PYTHON, file=2, all_threads=False)
    frames = (ctypes.c_void_p * _MOST_FRAMES)()
    library.backtrace(frames, _MOST_FRAMES)  # loads the unwinder, which allocates memory

    def say(number: int) -> None:
        """Runs in the middle of any code. The judge ends the process afterwards, so a deadlock here does no harm."""
        place = _Place()
        for frame in frames[: library.backtrace(frames, _MOST_FRAMES)]:
            if frame and library.dladdr(ctypes.c_void_p(frame), ctypes.byref(place)) and place.file:
                os.write(2, b"at %b+0x%x\n" % (place.file, frame - (place.base or 0)))

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(say)
    library.signal(int(_NATIVE), handler)
    _kept.append(handler)
