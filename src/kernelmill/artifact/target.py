"""The traced function, and the arguments of its calls as one value for each parameter, as Python
would pass them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from kernelmill.core.dataclass import dataclass

Values = tuple[Any, ...]
"""A value for each parameter of a call."""


@dataclass(frozen=True)
class Target:
    """The function that was traced, the module it is a method of, its signature (without self) and
    the cells of its closure variables, by name."""

    function: Callable[..., Any]
    owner: object
    signature: inspect.Signature
    binder: Binder
    cells: Mapping[str, CellType]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Target:
        """Return the target of a function or bound method. A decorated one has the signature of its
        wrapper: that is called, and traced."""
        plain: Any = getattr(function, "__func__", function)
        owner, code = getattr(function, "__self__", None), plain.__code__
        # Without `__wrapped__`, whose signature would be found.
        bare: Any = FunctionType(code, {}, code.co_name, plain.__defaults__, plain.__closure__)
        bare.__kwdefaults__ = plain.__kwdefaults__
        signature = inspect.signature(bare if owner is None else MethodType(bare, owner))
        cells = dict(zip(code.co_freevars, plain.__closure__ or (), strict=True))
        return cls(function, owner, signature, Binder.of(signature), cells)

    @property
    def code(self) -> CodeType:
        """Code object of the function."""
        return getattr(self.function, "__func__", self.function).__code__

    @property
    def rest(self) -> tuple[tuple[str, str]] | None:
        """Path of the `**kwargs` parameter, where the function has one."""
        parameters = self.signature.parameters.values()
        names = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        return (("argument", names[0]),) if names else None

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values:
        """Return a value for each parameter, defaults filled in. TypeError as Python raises it."""
        found = self.binder.values(args, kwargs)
        if found is not None:
            return found
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.signature.parameters)


class Binder:
    """A binder of arguments to parameters `names`; the first `positional` may be passed by
    position, all of them by name, except `*args` (`more`) and, last, `**kwargs` (`other`)."""

    def __init__(
        self,
        names: Sequence[str],
        positional: int,
        defaults: Mapping[str, Any] | None = None,
        more: bool = False,
        other: bool = False,
    ) -> None:
        self.names, self._positional = tuple(names), positional
        self._defaults, self._more, self._other = defaults or {}, more, other
        self.count = len(self.names) if positional == len(self.names) else -1

    @classmethod
    def of(cls, signature: inspect.Signature) -> Binder:
        """Return a binder; it refuses all calls when a parameter is positional-only."""
        parameters = signature.parameters.values()
        kinds = [p.kind for p in parameters]
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        simple = inspect.Parameter.POSITIONAL_ONLY not in kinds
        by_position = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) if simple else -1
        more = inspect.Parameter.VAR_POSITIONAL in kinds
        other = inspect.Parameter.VAR_KEYWORD in kinds
        return cls(tuple(signature.parameters), by_position, defaults, more, other)

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values | None:
        """Return a value for each parameter, defaults filled in; None when the call is wrong. It is
        `args` itself when these are all."""
        if len(args) == self.count and not kwargs:
            return args
        count, defaults = self._positional, self._defaults
        more, left = args[count:], dict(kwargs)
        if count < 0 or (more and not self._more):
            return None
        names = self.names[len(args) : count]
        last = self.names[count + self._more : len(self.names) - self._other]
        try:
            found = [left.pop(name) if name in left else defaults[name] for name in names]
            others = [left.pop(name) if name in left else defaults[name] for name in last]
        except KeyError:
            return None
        if left and (not self._other or not left.keys().isdisjoint(self.names[:count])):
            return None
        ends = (*args[:count], *found), (more,) * self._more, others, (left,) * self._other
        return tuple(chain(*ends))

    @property
    def by_position(self) -> tuple[str, ...]:
        """Names of the parameters that may be passed by position; empty where others cannot be
        passed by name."""
        return () if self._more or self._other else self.names[: max(self._positional, 0)]

    def apart(self, values: Values) -> tuple[Values, dict[str, Any]] | None:
        """Return args and kwargs of a call with these values: positional where possible. None where
        others cannot be passed by name."""
        if self._positional < 0 or self._more or self._other:
            return None
        count = self._positional
        return values[:count], dict(zip(self.names[count:], values[count:], strict=True))

    def refusal(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Describe the error in a call without defaults."""
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
