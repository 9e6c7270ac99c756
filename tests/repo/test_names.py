"""Words that had a term of the field in their place, or several meanings, do not come back."""

import re

import pytest

from tests.repo.source import DOCUMENTS, PACKAGE, ROOT, SOURCES, relative

TERMS = {
    "heirs": "donated_buffers",
    "borrowers": "aliases",
    "TurnedMap": "a transpose map",
    "Trials": "schedule search, benchmark",
    "WORD_OF_128": "zero point",
    "Site": "emit context, call site",
    "fetching_ahead": "prefetch_b",
    "expecting_rows": "prefetch_a",
    "lasting_values": "prepacked constants",
    "past_caches": "non-temporal store",
    "bytewise": "dot_i8",
    "GroupHeads": "fold repeated KV",
    "ShareEqual": "CSE",
    "DropUnused": "DCE",
    "reduce_peak": "reduce_maxnum",
    "Obtaining": "kernel build queue",
    "Draft": "LoweredProgram",
    "Team": "rank group, thread range",
    "shortcut": "fast path",
    "_TooMuch": "unsupported relocation",
    "admit": "validate",
    "admission": "argument validation",
    "Cell": "bound parameter",
    "_Forgetter": "binding finalizer",
    "Shelf": "huge page arena",
    "unmoved": "guards_hold",
    "Seen": "GuardResult",
    "Gone": "MissingPath",
    "cache_places": "cache directories",
    "Turn": "lock",
    "litter": "stale files",
    "rooms": "packages, layers",
}
"""By the name or the word: what to say."""

PHRASES = ("what is told", "who asks for more", "as it lies", "by what the host has at hand")

PLACES = [*SOURCES, *sorted((PACKAGE / "runtime" / "native").glob("*.[ch]")), *DOCUMENTS]


def words_of(text: str) -> set[str]:
    """Names in a text."""
    return set(re.findall(r"\w+", text))


@pytest.mark.parametrize("path", PLACES, ids=relative)
def test_one_word_for_one_thing(path):
    text = path.read_text()
    found = {word: TERMS[word] for word in words_of(text) & TERMS.keys()}
    assert not found, f"{path.relative_to(ROOT)}: say what is on the right"
    spoken = " ".join(text.split())
    assert not [phrase for phrase in PHRASES if phrase in spoken]


def test_every_word_can_be_found():
    text = " ".join(TERMS) + " "
    assert words_of(text) == set(TERMS)
