"""The options of commands that compile a model."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelmill.core.errors import ConfigError, ConfigTypeError

if TYPE_CHECKING:
    from kernelmill.config import CompilerConfig

Mode = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help="A mode of the config. Default: max-autotune."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="NAME=VALUE", help="An option of the config, by its dotted name; "
        "may be repeated.",
    ),
]  # fmt: skip
Dynamic = Annotated[
    bool | None,
    typer.Option(
        "--dynamic/--static", help="Sizes vary, or none does, as dynamic of torch. Default: "
        "those that change between calls.", show_default=False,
    ),
]  # fmt: skip
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, help="Of torch. Default: what torch takes."),
]

_WORDS = {"true": True, "false": False, "null": None, "none": None}


def config_of(mode: str | None, settings: Iterable[str] | None) -> CompilerConfig:
    """Return the config of a command's options. ConfigError for an unknown option, or an invalid
    value."""
    from kernelmill.config import CompilerConfig

    config = CompilerConfig()
    if mode is not None:
        config.mode = mode
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--config {setting}: write NAME=VALUE, as in --config mode=...")
        try:
            config.set(name, _value(text) if text[:1] == "{" else text)
        except ConfigTypeError:
            value = _value(text)
            if value == text:
                raise
            config.set(name, value)
    return config


def _value(text: str) -> Any:
    """Parse a value of no declared type: a number, True, None, a list, a dict."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextmanager
def on_threads(count: int | None) -> Generator[None]:
    """Run torch with so many threads; None: its default."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
