"""The argument of commands on a model."""

from typing import Annotated

import typer

FactoryName = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="package.module:function or file.py:function; the function returns (model, args) or "
        "(model, args, kwargs).",
    ),
]
