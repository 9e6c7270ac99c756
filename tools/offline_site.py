"""Checks that a built site can be read without a network.

python -m tools.offline_site FOLDER     exit code 1 lists what pages would load from elsewhere
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""The tags whose address a browser loads by itself, with the attribute that holds it."""

_PASSIVE = {"canonical", "next", "prev", "alternate"}
"""What `link` may say without anything being loaded."""


class _Page(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get(_LOADED.get(tag, ""))
        if address and not (tag == "link" and values.get("rel") in _PASSIVE):
            self.loaded.append(address)


def loaded_from_elsewhere(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, address) of everything in the folder that a browser would fetch from a network."""
    for path in sorted(folder.rglob("*.html")):
        page = _Page()
        page.feed(path.read_text())
        for address in page.loaded:
            if re.match(r"(\w+:)?//", address):
                yield str(path.relative_to(folder)), address
    for path in sorted(folder.rglob("*.css")):
        for address in re.findall(
            r"(?:@import\s+|url\(\s*)[\"']?((?:https?:)?//[^\"')]+)", path.read_text()
        ):
            yield str(path.relative_to(folder)), address


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    if not (folder / "index.html").is_file():
        print(f"{folder} has no site", file=sys.stderr)
        return 2
    found = list(loaded_from_elsewhere(folder))
    for path, address in found:
        print(f"{path} loads {address}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
