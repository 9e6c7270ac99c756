"""Writes the pages of options, environment variables and the Python API, and the table of torch's
settings in the page on the compile cache, from their definitions.

    python -m tools.reference

The pages are committed; a test of the repository compares them with what this makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernelmill.artifact.settings import SETTINGS
from kernelmill.config import CompilerConfig
from kernelmill.config.option import Choice, Group, Option, Sub
from kernelmill.core.knobs import KNOBS
from kernelmill.core.log import COMPONENTS
from tools import api_page

DOCS = Path(__file__).resolve().parents[1] / "docs"
WRITTEN = "<!-- Written by `python -m tools.reference`; change the definitions instead. -->\n"

OPTIONS = """# Options

Options are attributes of `kernelmill.CompilerConfig`. Each value is checked when it is set: for an
unknown name or a wrong value, a `ConfigError` lists the allowed ones.

```python
import torch
import kernelmill

model = torch.nn.Linear(8, 8)
config = kernelmill.CompilerConfig()
config.inference_config.gear_miss = "pad"
backend = kernelmill.get_backend(compiler_config=config)
compiled = torch.compile(model, backend=backend)
```

`torch.compile` takes the same options by their dotted names:

```python
options = {"inference_config.gear_miss": "pad"}
compiled = torch.compile(model, backend="kernelmill", options=options)
```

Names, defaults and allowed values are TorchAir's where TorchAir has the option. An option with a
*mode* belongs to that `config.mode`; setting it in the other mode is a `UserWarning`.
"""

WITHOUT_EFFECT = """
## Options without effect

TorchAir scripts may set these. They are checked like others. A value other than the
default is a `UserWarning` with the reason below.

| reason | options, with their values |
|---|---|
"""

ENVIRONMENT = """# Environment variables

Each is read when it is needed, so a script may set it before its first compile. An empty value
counts as unset. An invalid value is a `ConfigError` with the variable's name. For a single model
there are [options](options.md).
"""


def options_page() -> str:
    """The text of docs/options.md."""
    sections = (_section(title, group) for title, group in _groups("", CompilerConfig))
    return WRITTEN + OPTIONS + "".join(sections) + WITHOUT_EFFECT + _without_effect()


def python_page() -> str:
    """The text of docs/api.md."""
    return WRITTEN + api_page.api_page()


def cache_page() -> str:
    """The text of docs/cache.md, with the table of settings made anew."""
    first, mark, rest = (DOCS / "cache.md").read_text().partition("<!-- settings -->\n")
    rest = rest[rest.index("<!-- end of settings -->") :]
    rows = "".join(f"| {setting.name} | {setting.how} |\n" for setting in SETTINGS)
    return f"{first}{mark}| setting | changed by |\n|---|---|\n{rows}{rest}"


def environment_page() -> str:
    """The text of docs/environment.md."""
    parts = (
        f"\n## {k.name}\n\n{k.summary}\n\n- Values: {k.values}.\n- Unset: {k.unset}.\n"
        f"- Advice: {k.advice}\n"
        for k in KNOBS
    )
    packages = ", ".join(f"`{component}`" for component in COMPONENTS)
    logs = f"\nThe packages that `KERNELMILL_LOGS` may name: {packages}.\n"
    return WRITTEN + ENVIRONMENT + "".join(parts) + logs


def _groups(path: str, group: type[Group]) -> Iterator[tuple[str, type[Group]]]:
    """(dotted name, group) of a group and all below."""
    yield path, group
    for name in group.names():
        inner = vars(group)[name]
        if isinstance(inner, Sub):
            yield from _groups(f"{path}.{name}" if path else name, inner.group)


def _options(group: type[Group]) -> Iterable[tuple[str, Option[Any]]]:
    members = ((name, vars(group)[name]) for name in group.names())
    return ((name, member) for name, member in members if isinstance(member, Option))


def _section(path: str, group: type[Group]) -> str:
    """The table of a group's options that do something; nothing where there are none."""
    rows = [
        f"| `{name}` | {_values(option)} | `{option.default!r}` | {_meaning(option)} |\n"
        for name, option in _options(group)
        if not option.no_effect
    ]
    if not rows:
        return ""
    title = f"config.{path}" if path else "config"
    return f"\n## {title}\n\n| option | values | default | meaning |\n|---|---|---|---|\n" + (
        "".join(rows)
    )


def _meaning(option: Option[Any]) -> str:
    parts = [_cell(option.summary)]
    if option.advice:
        parts.append(f"*Advice:* {_cell(option.advice)}")
    if option.mode:
        parts.append(f"*Mode:* `{option.mode}`.")
    return "<br>".join(parts)


def _values(option: Option[Any]) -> str:
    if isinstance(option, Choice):
        return ", ".join(f"`{value!r}`" for value in option.allowed)
    return option.values().replace("|", "\\|")


def _without_effect() -> str:
    """Return a row for each reason, with the options that it is for."""
    rows: dict[str, list[str]] = {}
    for name, option, _ in CompilerConfig().options():
        if option.no_effect:
            text = f"`{name}`: {_values(option)}; default `{option.default!r}`"
            rows.setdefault(_cell(option.no_effect), []).append(text)
    return "".join(f"| {reason} | {'<br>'.join(texts)} |\n" for reason, texts in rows.items())


def _cell(text: str) -> str:
    """Text as a table's cell: bars escaped; names with underscores and calls as code."""
    text = re.sub(r"(?<![`\w./])((?:\./)?[\w.]*\w_\w[\w.]*\w(?:\(\)|='\w+')?)", r"`\1`", text)
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (DOCS / "options.md").write_text(options_page())
    (DOCS / "environment.md").write_text(environment_page())
    (DOCS / "api.md").write_text(python_page())
    (DOCS / "cache.md").write_text(cache_page())
