"""Words that had a term of the field in their place, or several meanings, do not come back."""

import re

from tests.repo.source import DOCUMENTS, PACKAGE, SOURCES, relative

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


def test_one_word_for_one_thing():
    found = {}
    for path in PLACES:
        text = path.read_text()
        found |= {(relative(path), word): TERMS[word] for word in words_of(text) & TERMS.keys()}
        spoken = " ".join(text.split())
        found |= {(relative(path), phrase): "" for phrase in PHRASES if phrase in spoken}
    assert not found, "say what is on the right"


def test_every_word_can_be_found():
    text = " ".join(TERMS) + " "
    assert words_of(text) == set(TERMS)
