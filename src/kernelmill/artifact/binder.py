"""Arguments of a call as one value for each parameter, as Python would pass them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Binder:
    """`names` are those of the parameters; the first `positional` may be passed by position, all of
    them by name."""

    def __init__(
        self, names: Sequence[str], positional: int, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.names, self._positional = tuple(names), positional
        self._defaults = defaults or {}
        self.count = len(self.names) if positional == len(self.names) else -1

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """A value for each parameter, defaults filled in; None when the call is wrong. It is `args`
        itself when these are all."""
        given = len(args)
        if given == self.count and not kwargs:
            return args
        if given > self._positional:
            return None
        rest, defaults = self.names[given:], self._defaults
        try:
            found = [kwargs[name] if name in kwargs else defaults[name] for name in rest]
        except KeyError:
            return None
        if sum(name in kwargs for name in rest) != len(kwargs):
            return None
        return (*args, *found)

    def refusal(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """What is wrong with a call without defaults, in words."""
        allowed = f"the program takes {', '.join(map(repr, self.names))}"
        if len(args) > self._positional:
            return (
                f"it takes {self._positional} arguments by position, got {len(args)}; what had its "
                "default when the program was compiled cannot be passed"
            )
        for name in kwargs:
            if name not in self.names:
                return f"argument {name!r} is unknown: {allowed}"
            if name in self.names[: len(args)]:
                return f"argument {name!r} is given twice"
        missing = next(name for name in self.names[len(args) :] if name not in kwargs)
        return f"argument {missing!r} is missing: {allowed}"
