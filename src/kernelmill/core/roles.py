"""Roles of a program's tensor arguments in the model."""

from __future__ import annotations

from enum import StrEnum


class InputRole(StrEnum):
    """The role of a tensor argument. Parameters and buffers may be packed ahead of the call."""

    USER = "user"  # the caller's
    PARAM = "param"  # a parameter of the model
    BUFFER = "buffer"  # a buffer of the model
