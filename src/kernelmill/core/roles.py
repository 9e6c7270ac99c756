"""What a program's tensor argument is to the model."""

from __future__ import annotations

from enum import StrEnum


class InputRole(StrEnum):
    """Whose a tensor argument is. Parameters and buffers may be packed ahead of the call."""

    USER = "user"  # the caller's
    PARAM = "param"  # a parameter of the model
    BUFFER = "buffer"  # a buffer of the model
