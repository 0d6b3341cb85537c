"""Signs that prove nothing: what a reader may want to look at in a kernel that passed. None of them is a verdict."""

from __future__ import annotations

import re

# Words that honest kernels rarely need; static text convicts the innocent as often as the guilty.
_SUSPICIOUS = {
    r"\bgc\.get_(?:objects|referrers)\b": "walks through all objects",
    r"\bsys\._getframe\b|\binspect\.(?:stack|currentframe)\b": "looks at its callers",
    r"/proc/|\bprocess_vm_readv\b|\bptrace\b": "looks at processes",
    r"\bos\.(?:kill|fork|_exit)\b": "handles processes",
    r"\belapsed_time\s*=|\bperf_counter\s*=|\bclock_gettime\s*\(": "touches clocks",
    r"\bkernel_harness\b": "names the harness",
    r"\bmprotect\s*\(|\bLD_PRELOAD\b|\bdlsym\s*\(": "changes code that runs",
    r"\bas_subclass\b|__torch_function__|__torch_dispatch__": "makes tensors of its own kind",
}


def on(source: str, launches: int | None) -> list[str]:
    """Sentences about a candidate: its text, and how many kernels of its own its last call launched (None: unknown)."""
    found = []
    if launches == 0:
        found.append("Remark: no kernel of its own was launched; a library does the work.")
    lines = source.split("\n")
    for pattern, what in _SUSPICIOUS.items():
        number = next((i for i, line in enumerate(lines, 1) if re.search(pattern, line)), None)
        if number is not None:
            found.append(f"Remark: line {number} {what}.")
    return found
