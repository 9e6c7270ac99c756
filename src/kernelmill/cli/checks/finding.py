"""Findings of a check: facts, and whether they are wrong or slow."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from kernelmill.core.dataclass import dataclass

Level = Literal["wrong", "slow", "note"]
"""wrong: something does not work or is not to be trusted; slow: works, and could be faster; note:
worth knowing."""


@dataclass(frozen=True)
class Finding:
    """A finding: `what` was found, and the remedy (`do`)."""

    level: Level
    what: str
    do: str


@dataclass
class Section:
    """One subject: its facts by name (values of JSON's types) and findings."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    findings: list[Finding] = field(default_factory=list[Finding])

    def wrong(self, what: str, do: str) -> None:
        """Add a finding of an error."""
        self.findings.append(Finding("wrong", what, do))

    def slow(self, what: str, do: str) -> None:
        """Add a finding of needless slowness."""
        self.findings.append(Finding("slow", what, do))

    def note(self, what: str, do: str) -> None:
        """Add a finding worth knowing."""
        self.findings.append(Finding("note", what, do))
