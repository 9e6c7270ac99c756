"""The tokenizer of all text forms, the text of numbers and strings in them, and words of messages.

Tokens: VALUE is "%" directly followed by a name; STRING is a JSON string; FLOAT has a point or an
exponent; NAME may contain points. White space separates and means nothing else, but for the arrow
"<-", which ends at one: "<-n>" is a bracketed dim.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<value>%[\w.]+)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<float>\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))
    | (?P<int>\d+)
    | (?P<name>[A-Za-z_][\w.]*)
    | (?P<mark>//|<-(?=\s)|[-+*%(){}\[\],:=<>])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


_ENDS = frozenset(",)]}>")
"""Marks that end an item."""


def number_text(value: int | float) -> str:
    """Return an INT, a FLOAT that reads back to the same bits (except NaN), "true" or "false"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return float.__repr__(value) if isinstance(value, float) else int.__repr__(value)


def string_text(value: str) -> str:
    """Return a STRING: quoted, escaped, in ASCII."""
    return json.dumps(value)


class Reader:
    """Tokens of one text, read from the front. Every failure is a ValueError with its line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self.position = 0
        end = 0
        scanner: Any = getattr(_TOKEN, "scanner")(text)  # noqa: B009  # typeshed lacks it
        for match in iter(scanner.match, None):
            kind = match.lastgroup
            self._tokens.append((kind, match[kind], match.start(kind)))
            if kind == "end":
                return
            end = match.end()
        start = end + len(text[end:]) - len(text[end:].lstrip())
        line = text.count("\n", 0, start) + 1
        raise ValueError(f"line {line}: unexpected character {text[start]!r}")

    def at_kind(self, *kinds: str) -> bool:
        """Return whether the next token is a value, string, float, int, name, mark or end."""
        return self._tokens[self.position][0] in kinds

    @property
    def token(self) -> str:
        """Text of the next token; empty at the end."""
        return self._tokens[self.position][1]

    def at(self, *texts: str) -> bool:
        """Return whether the next token is one of these words or marks."""
        return self.token in texts and self.at_kind("name", "mark")

    def next_is_value(self) -> bool:
        """Return whether a VALUE comes after the next token."""
        return not self.at_kind("end") and self._tokens[self.position + 1][0] == "value"

    def take(self) -> str:
        """Take the next token of any kind and return it."""
        if self.at_kind("end"):
            self.fail("more")
        token = self.token
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is this word or mark."""
        kind, token, _ = self._tokens[self.position]
        if token == text and kind in ("name", "mark"):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take this word or mark. ValueError if the next token is another."""
        if not self.accept(text):
            self.fail(repr(text))

    def listed(self, item: Callable[[], T], close: str) -> list[T]:
        """Return a list of items read by `item`, separated by commas, up to and with `close`."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def skip_parentheses(self) -> None:
        """Skip the tokens up to the ")" that closes a "(" already taken."""
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.take(), 0)

    def expect_end(self) -> None:
        if not self.at_kind("end"):
            self.fail("the end")

    def name(self, what: str = "a name") -> str:
        """Take a NAME; `what` is the message's description of it."""
        return self._take("name", what)

    def value(self) -> str:
        """Take a VALUE and return its name, without the "%"."""
        return self._take("value", 'a register ("%name")')[1:]

    def string(self) -> str:
        text = self._take("string", "a string")
        try:
            return json.loads(text)
        except ValueError:
            self.fail_before("a string with JSON's escapes")

    def integer(self) -> int:
        """Take an INT with its sign."""
        sign = -1 if self.accept("-") else 1
        return sign * int(self._take("int", "an integer"))

    def accept_item(self) -> int | None:
        """Take an INT that is a whole item of a list or in brackets; else return None."""
        kind, token, _ = self._tokens[self.position]
        if kind != "int" or self._tokens[self.position + 1][1] not in _ENDS:
            return None
        self.position += 1
        return int(token)

    def at_number(self) -> bool:
        return self.at_kind("int", "float") or self.at("-", "inf", "nan")

    def number(self) -> int | float:
        """Take an INT or a FLOAT ("inf" and "nan" too) with its sign."""
        negative = self.accept("-")
        if self.at_kind("int"):
            value: int | float = int(self.take())
        elif self.at_kind("float") or self.at("inf", "nan"):
            value = float(self.take())
        else:
            self.fail("a number")
        return -value if negative else value

    def _take(self, kind: str, what: str) -> str:
        if not self.at_kind(kind):
            self.fail(what)
        return self.take()

    def fail(self, expected: str) -> NoReturn:
        """Raise ValueError with the line, the expected token and the actual one."""
        found = repr(self.token) if self.token else "the end"
        raise ValueError(f"line {self._line(self.position)}: expected {expected}, found {found}")

    def fail_before(self, expected: str) -> NoReturn:
        """Raise ValueError about the token that was taken last."""
        raise ValueError(f"line {self._line(self.position - 1)}: expected {expected}")

    def _line(self, position: int) -> int:
        return self._text.count("\n", 0, self._tokens[position][2]) + 1


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 kernel", "2 kernels", "0 launches", "3 entries"."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{count} {noun}es"
    return f"{count} {noun[:-1]}ies" if noun.endswith("ry") else f"{count} {noun}s"


def printable(text: str) -> str:
    """Return the text with characters escaped that a terminal would interpret and not show. Texts
    may come from a file that somebody else has made."""
    return "\n".join(
        line if line.isprintable() else "".join(map(_shown, line)) for line in text.split("\n")
    )


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return character.encode("unicode_escape").decode()
