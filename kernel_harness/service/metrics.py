"""The figures of a service, as text that Prometheus reads."""

from __future__ import annotations

import psutil

from kernel_harness.service.service import Service

_HELP = {
    "submitted": "Submissions taken; stored: answered by a stored verdict",
    "judged": "Verdicts of the evaluators, by status",
    "refused": "Submissions refused, by the code of the answer",
}


def text(service: Service) -> str:
    """Returns all figures in Prometheus's text format, version 0.0.4."""
    lines: list[str] = []
    for what, meaning in _HELP.items():
        name = f"kernel_harness_{what}_total"
        lines += [f"# HELP {name} {meaning}.", f"# TYPE {name} counter"]
        lines += [f'{name}{{kind="{kind}"}} {n}' for (one, kind), n in sorted(service.counts.items()) if one == what]
    gauges = {
        "waiting_jobs": ("Jobs that wait for an evaluator", service.waiting),
        "running_jobs": ("Jobs that evaluators judge or build", service.running),
        "draining": ("1 while the server ends", int(service.draining)),
        "resident_bytes": ("Memory of the server without its evaluators", psutil.Process().memory_info().rss),
    }
    for name, (meaning, value) in gauges.items():
        lines += [f"# HELP kernel_harness_{name} {meaning}.", f"# TYPE kernel_harness_{name} gauge"]
        lines.append(f"kernel_harness_{name} {value}")
    return "\n".join([*lines, ""])
