"""The queue of the service: owners take turns, and the works of one owner come in their order."""

from __future__ import annotations

from collections import OrderedDict, defaultdict


class FairQueue:
    """Keys of works that wait, for each owner of a token. A work that several owners wait for is in each one's turn."""

    def __init__(self) -> None:
        # The owner whose turn is next comes first. Each key has a ticket: its number among those of its owner.
        self._of: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()
        self._tickets: defaultdict[str, int] = defaultdict(int)

    def __len__(self) -> int:
        """Returns the number of waiting keys, where one that several owners wait for counts several times."""
        return sum(map(len, self._of.values()))

    def count(self, owner: str) -> int:
        """Returns the number of keys that wait for an owner."""
        return len(self._of.get(owner, ()))

    def add(self, owner: str, key: str) -> None:
        """Adds a key as the last of an owner. Does nothing if it waits there already."""
        own = self._of.setdefault(owner, OrderedDict())
        if key not in own:
            self._tickets[owner] += 1
            own[key] = self._tickets[owner]

    def take(self) -> str:
        """Removes the first key of the owner whose turn it is, for all owners, and returns it.

        Raises KeyError if none waits.
        """
        owner, own = self._of.popitem(last=False)
        key = next(iter(own))
        self._of[owner] = own  # its next turn comes after those of the others
        for each in [*self._of]:
            self.remove(each, key)
        return key

    def remove(self, owner: str, key: str) -> None:
        """Removes a key of an owner. Does nothing if it does not wait."""
        own = self._of.get(owner, OrderedDict())
        own.pop(key, None)
        if not own:
            self._of.pop(owner, None)

    def ahead(self, owner: str, key: str) -> int | None:
        """Returns how many keys are taken before this one, at most; None if it does not wait."""
        own = self._of.get(owner, OrderedDict())
        if key not in own:
            return None
        before = own[key] - next(iter(own.values()))
        return before + sum(min(len(other), before + 1) for other in self._of.values() if other is not own)
