"""CRASHED or PASSED: a timer resumes a stopped helper process, so that it runs while the others are timed.

Class: timing
Layer: CPU time of stopped workers
"""

import ctypes
import os
import signal

import torch

AFTER_MS = (5, 10, 20, 50, 100)
started = False


def run():
    """Keeps a core busy. POSIX timers send SIGCONT to this process 5 ms and later after it last ran.

    There are several: one that ends just before the process is stopped has no effect, and is not set again.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "timer_create"):
        libc = ctypes.CDLL("librt.so.1")
    signal.signal(signal.SIGCONT, lambda *_: None)
    event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT)  # struct sigevent, which notifies by that signal
    timers = [(ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, 0, ms * 1_000_000)) for ms in AFTER_MS]
    for timer, _ in timers:
        libc.timer_create(1, event, ctypes.byref(timer))  # 1 is CLOCK_MONOTONIC
    while True:
        for timer, after in timers:
            libc.timer_settime(timer, 0, after, None)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global started
        if not started:
            started = True
            if os.fork() == 0:
                run()
        return torch.matmul(A.T, B.T)
