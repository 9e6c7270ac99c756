"""Options: typed attributes of a group that check every value when it is set.

An option is declared once, in tree.py, with its default, its allowed values and a sentence on its
effect. The table of accepted.py has options without effect: another value than the default gives a
UserWarning with the reason.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

from kernelmill.config.super_kernel_marks import options_of
from kernelmill.core.errors import ConfigError, ConfigPathError, ConfigTypeError

T = TypeVar("T")
G = TypeVar("G", bound="Group")


class Option(Generic[T]):
    """An option. Subclasses define the allowed values in `check`.

    `summary` describes its effect, `advice` when to set it. `mode`: the compile mode it belongs to,
    else that of its group ("" for both). `in_key`: it changes compiled code, so keys of programs
    include it. `no_effect` is the reason of one that does nothing. None is always allowed where it
    is the default.
    """

    def __init__(
        self,
        default: T,
        summary: str = "",
        *,
        advice: str = "",
        mode: str = "",
        in_key: bool = False,
    ) -> None:
        self.default = default
        self.summary = summary
        self.advice = advice
        self.mode = mode
        self.no_effect = ""
        self.in_key = in_key
        self.name = ""

    def __set_name__(self, owner: type[Group], name: str) -> None:
        self.name = name
        self.mode = self.mode or owner.MODE

    @overload
    def __get__(self, group: None, owner: type[Group]) -> Self: ...
    @overload
    def __get__(self, group: Group, owner: type[Group]) -> T: ...
    def __get__(self, group: Group | None, owner: type[Group]) -> Self | T:
        return self if group is None else group._values.get(self.name, self.default)

    def __set__(self, group: Group, value: T) -> None:
        where = group.path_of(self.name)
        allowed = value is None and self.default is None
        group._values[self.name] = value if allowed else self.check(where, value)
        if self.no_effect and group._values[self.name] != self.default:
            text = f"config.{where} has no effect here: {self.no_effect}"
            warnings.warn(text, UserWarning, stacklevel=3)

    def check(self, where: str, value: object) -> T:
        """Return `value` as it is kept. ConfigError, or one of its two subclasses, if it is bad."""
        raise NotImplementedError

    def values(self) -> str:
        """Return a description of the allowed values, for the documents."""
        raise NotImplementedError


class Choice(Option[T]):
    """One of a few values, None or text or numbers; compared with their types (True is not 1)."""

    def __init__(self, default: T, allowed: tuple[T, ...], summary: str = "", **marks: Any) -> None:
        super().__init__(default, summary, **marks)
        self.allowed = allowed

    def check(self, where: str, value: object) -> T:
        types = {type(good) for good in self.allowed}
        if type(value) not in types:
            names = sorted(t.__name__ for t in types)
            raise ConfigTypeError(f"config.{where}: {value!r} is no {' or '.join(names)}")
        for good in self.allowed:
            if good == value:
                return good
        near = difflib.get_close_matches(str(value), map(str, self.allowed), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"config.{where}: {value!r} is not one of {self.values()}{meant}")

    def values(self) -> str:
        return ", ".join(map(repr, self.allowed))


class Switch(Choice[bool]):
    """True or False."""

    def __init__(self, default: bool, summary: str = "", **marks: Any) -> None:
        super().__init__(default, (True, False), summary, **marks)


_MOST = 2**63 - 1


class Number(Option[int | None]):
    """An integer from `low` on, or None for the default."""

    def __init__(self, default: int | None, low: int, summary: str = "", **marks: Any) -> None:
        super().__init__(default, summary, **marks)
        self.low = low

    def check(self, where: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigTypeError(f"config.{where}: {value!r} is no int")
        if not self.low <= value <= _MOST:
            raise ConfigError(f"config.{where}: {value} is not in [{self.low}, {_MOST}]")
        return value

    def values(self) -> str:
        return f"a whole number from {self.low}"


class Text(Option[str | None]):
    """Text that fully matches a pattern. An empty string is refused unless it is the default."""

    def __init__(
        self, default: str | None, pattern: str, example: str, summary: str = "", **marks: Any
    ) -> None:
        super().__init__(default, summary, **marks)
        self.pattern, self.example = pattern, example

    def check(self, where: str, value: object) -> str | None:
        if value == self.default and type(value) is type(self.default):
            return self.default
        if not isinstance(value, str):
            raise ConfigTypeError(f"config.{where}: {value!r} is no str")
        if not value or not re.fullmatch(self.pattern, value):
            raise ConfigError(f"config.{where}: {value!r} does not look like {self.example!r}")
        return value

    def values(self) -> str:
        return f"text such as {self.example!r}"


class Steps(Text):
    """Numbers and ranges of numbers, as in "0|2-5"; "" is all."""

    def __init__(self, summary: str, **marks: Any) -> None:
        super().__init__("", r"\d+(-\d+)?(\|\d+(-\d+)?)*", "0|1|2-5", summary, **marks)

    def check(self, where: str, value: object) -> str | None:
        text = super().check(where, value)
        if text and not all(steps_of(text)):
            raise ConfigError(f"config.{where}: a range of {text!r} ends before it begins")
        return text


def steps_of(text: str) -> list[range]:
    """Return the ranges that a value of `Steps` names."""
    ends = [part.partition("-") for part in text.split("|") if part]
    return [range(int(first), int(last or first) + 1) for first, _, last in ends]


class Path(Option[str | None]):
    """A path, kept as text. `must_be`: an existing "folder" or "file", or "": we make it."""

    def __init__(
        self, default: str | None, summary: str = "", *, must_be: str = "", **marks: Any
    ) -> None:
        super().__init__(default, summary, **marks)
        self.must_be = must_be

    def check(self, where: str, value: object) -> str:
        if not isinstance(value, (str, os.PathLike)):
            raise ConfigTypeError(f"config.{where}: {value!r} is no path")
        text = os.fsdecode(value)
        if not text:
            raise ConfigError(f"config.{where}: an empty path; '.' is the working directory")
        if self.must_be == "folder" and not os.path.isdir(text):
            raise ConfigPathError(f"config.{where}: no folder {text!r}; make it first")
        if self.must_be == "file" and not os.path.isfile(text):
            raise ConfigPathError(f"config.{where}: no file {text!r}")
        return text

    def values(self) -> str:
        return f"a {self.must_be} that exists" if self.must_be else "a path"


class Instance(Option[T]):
    """An object that `accepts` approves; `expected` names its kind."""

    def __init__(
        self,
        default: T,
        accepts: Callable[[object], bool],
        expected: str,
        summary: str = "",
        **marks: Any,
    ) -> None:
        super().__init__(default, summary, **marks)
        self.accepts, self.expected = accepts, expected

    def check(self, where: str, value: object) -> T:
        if value != self.default and not self.accepts(value):
            raise ConfigTypeError(f"config.{where}: {value!r} is no {self.expected}")
        return value  # pyright: ignore[reportReturnType]  # `accepts` is the type's check

    def values(self) -> str:
        return f"a {self.expected}"


class RangeDict(Option[dict[str, Any] | None]):
    """Options of a super-kernel range as a dict of their names and values, or None."""

    example: ClassVar[dict[str, Any]] = {"debug-sync-all": 1}

    def check(self, where: str, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigTypeError(f"config.{where}: {value!r} is no dict")
        values = cast(dict[str, Any], value)
        try:
            options_of(values)
        except ConfigError as error:
            raise ConfigError(f"config.{where}: {error}") from None
        return dict(values)

    def values(self) -> str:
        return f"a dict such as {self.example!r}"


class Sub(Generic[G]):
    """A group inside a group. It cannot be replaced, only its options can be set."""

    def __init__(self, group: type[G]) -> None:
        self.group = group
        self.name = ""

    def __set_name__(self, owner: type[Group], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, group: None, owner: type[Group]) -> Self: ...
    @overload
    def __get__(self, group: Group, owner: type[Group]) -> G: ...
    def __get__(self, group: Group | None, owner: type[Group]) -> Self | G:
        if group is None:
            return self
        if self.name not in group._children:
            group._children[self.name] = self.group(group.path_of(self.name))
        return cast(G, group._children[self.name])

    def __set__(self, group: Group, value: object) -> None:
        inner = ", ".join(self.group.names())
        where = group.path_of(self.name)
        raise ConfigError(f"config.{where} is a group; set one of its options: {inner}")


class Group:
    """Options and inner groups. Setting a name that is neither raises ConfigError."""

    MODE: ClassVar[str] = ""
    """The compile mode of options that name none."""

    def __init__(self, path: str = "") -> None:
        self.__dict__.update(_path=path, _values={}, _children={})

    _path: str
    _values: dict[str, Any]
    _children: dict[str, Group]

    @classmethod
    def names(cls) -> list[str]:
        """Return options and inner groups in the order of their declaration."""
        return [n for n, v in vars(cls).items() if isinstance(v, (Option, Sub))]

    @classmethod
    def accept(cls, no_effect: str, options: Mapping[str, Option[Any]]) -> None:
        """Add options that do nothing, for this reason."""
        for name, option in options.items():
            option.no_effect = no_effect
            setattr(cls, name, option)
            option.__set_name__(cls, name)

    def path_of(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def options(self) -> Iterator[tuple[str, Option[Any], Any]]:
        """Yield (dotted name, option, current value) of every option here and below, in order."""
        for name in self.names():
            declared = vars(type(self))[name]
            if isinstance(declared, Option):
                yield self.path_of(name), declared, getattr(self, name)
            else:
                yield from getattr(self, name).options()

    def changed(self) -> dict[str, Any]:
        """Return dotted name -> value of the options that are not at their default."""
        return {name: value for name, option, value in self.options() if value != option.default}

    def with_options(self, options: Mapping[Any, Any] | None) -> Self:
        """A copy with these on top, by their dotted names."""
        if options is not None and not isinstance(options, Mapping):  # type: ignore[reportUnnecessaryIsInstance]
            raise ConfigTypeError(f"options: {options!r:.60} is no dict")
        fresh = type(self)()
        for name, value in {**self.changed(), **(options or {})}.items():
            if not isinstance(name, str):  # type: ignore[reportUnnecessaryIsInstance]
                raise ConfigTypeError(f"option {name!r}: names of options are text, such as 'mode'")
            fresh.set(name, value)
        return fresh

    def refuse_another(self, given: object) -> None:
        """ConfigError for a config, given beside a backend of this one, that has other options."""
        same = isinstance(given, type(self)) and given.changed() == self.changed()
        if given is not None and not same:
            raise ConfigError(
                "cache_compile got a config and a backend with another one; pass one of them"
            )

    def __setattr__(self, name: str, value: object) -> None:
        declared = vars(type(self)).get(name)
        if declared is None:
            raise ConfigError(self._unknown(name))
        declared.__set__(self, value)

    def set(self, name: str, value: object) -> None:
        """Set the option of this dotted name. ConfigError if there is none."""
        *groups, option = name.split(".")
        target: Group = self
        for group in groups:
            if not isinstance(vars(type(target)).get(group), Sub):
                raise ConfigError(target._unknown(group))
            target = getattr(target, group)
        setattr(target, option, value)

    def _unknown(self, name: str) -> str:
        valid = self.names()
        near = difflib.get_close_matches(name, valid, n=len(valid), cutoff=0.6)
        ordered = near + [other for other in valid if other not in near]
        where = f"config.{self._path}" if self._path else "config"
        within = [path for path, _, _ in self.options() if path.endswith(f".{name}")]
        if within:
            return f"{where} has no option {name!r}; it is {' or '.join(within)}"
        return f"{where} has no option {name!r}; there are: {', '.join(ordered)}"

    def __repr__(self) -> str:
        changed = (f"{name}={value!r}" for name, value in self.changed().items())
        return f"{type(self).__name__}({', '.join(changed)})"
