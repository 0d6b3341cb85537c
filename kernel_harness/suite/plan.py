"""What is left to do of a suite: the tasks without a verdict, and the verdicts that follow from stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_harness.core.errors import UserError
from kernel_harness.session.settings import Settings
from kernel_harness.suite import entry
from kernel_harness.suite.collection import Task
from kernel_harness.suite.entry import Entry
from kernel_harness.suite.journal import Facts, SuiteJournal

TaskId = tuple[str, str]


@dataclass(frozen=True)
class Plan:
    """`done` has the stored entries of the suite's tasks, `left` the tasks to judge, `keys` every task's key by id."""

    done: tuple[Entry, ...]
    left: tuple[Task, ...]
    keys: Mapping[TaskId, str]


def recorded_settings(settings: Settings) -> dict[str, Any]:
    """Returns those settings, by name, that may change a verdict or a time. The seed is not one of them."""
    return {
        "baseline": settings.baseline, "budget_s": settings.budget_s, "quick": settings.quick,
        "precision": settings.precision and str(settings.precision), "call_s": settings.limits.call_s,
        "build_s": settings.limits.build_s,
    }  # fmt: skip


def check_settings(facts: Facts, settings: Settings, journal: SuiteJournal) -> None:
    """Raises UserError if `settings` differ from those in `facts`, with which the stored verdicts were made."""
    now = recorded_settings(settings)
    told = [f"{name} was {was} and is {now.get(name)}" for name, was in facts.settings.items() if now.get(name) != was]
    if told:
        raise UserError(f"the suite in {journal.folder} has other settings: {', '.join(told)}; choose another --name")


def plan(tasks: Sequence[Task], facts: Facts, journal: SuiteJournal) -> Plan:
    """Returns what is done and what is left of `tasks`. Stores the verdicts that follow from stored ones.

    A task has the verdict of a stored entry with its key. A full result without an entry does not count, because it
    does not say of which problem file it is.
    """
    keys = {task.id: entry.key(task, facts.label, facts.settings) for task in tasks}
    stored = {one.id: one for one in journal.read()}
    done = {task.id: stored[task.id] for task in tasks if task.id in stored and stored[task.id].key == keys[task.id]}
    judged = {one.key: one for one in done.values() if one.same_as is None}
    new = {
        task.id: shared(task, judged[keys[task.id]])
        for task in tasks
        if task.id not in done and keys[task.id] in judged
    }
    journal.append(list(new.values()))
    done |= new
    return Plan(tuple(done.values()), tuple(task for task in tasks if task.id not in done), keys)


def shared(task: Task, judged: Entry) -> Entry:
    """Returns the entry of `task`, which was not judged: the verdict of `judged`, the entry of a task of equal key."""
    return replace(
        judged,
        problem=task.problem.name,
        candidate=task.candidate.name,
        same_as=judged.candidate,
        seconds=0.0,
        phases_s={},
    )
