"""Waiting for packed weights, and moving a model's own weights to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kernelmill.core.errors import InputError
from kernelmill.core.log import get_logger
from kernelmill.inference.cache_directories import root_folder
from kernelmill.inference.kept_programs import folder_given
from kernelmill.runtime import background
from kernelmill.runtime.weights.contents import move_to_disk

_log = get_logger("inference")


def finish_packing() -> None:
    """Wait until the weights of all programs called so far are packed, and background compiles are
    done.

    A first call of a large model does not wait for this: it packs weights as it reads them, and a
    thread packs them for later calls. Call it after warming up a server, or before measuring.
    """
    background.wait()


def move_weights_to_disk(model: Any, folder: object = None) -> Any:
    """Move the weights of a model to unnamed files, and return the model.

    model   a module. Its parameters and buffers of 64 KiB or more move. They can still be read
            and written; writes stay in this process
    folder  a folder on a disk with room for the weights until the process ends; by default that of
            `cache_compile`

    Programs read packed weights, so memory then only holds these. As after `model.to`, a tensor
    outside of the model that shares its memory keeps the old one. If the folder cannot hold the
    weights, they stay in memory, with a warning.

    Raises InputError if `model` is not a module.
    """
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise InputError(f"weights on disk are those of a torch.nn.Module, not {kind}")
    place = Path(root_folder(folder_given(folder)))
    try:
        place.mkdir(parents=True, exist_ok=True)
        move_to_disk(model, place)
    except OSError as error:
        _log.warning("%s: weights stay in memory: %s", place, error.strerror)
    return model
