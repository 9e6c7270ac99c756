"""Folders of the entries of a cached method."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kernelmill.core import knobs
from kernelmill.core.cache_home import cache_home
from kernelmill.core.digest import Key

DEFAULT_FOLDER = "methods"
"""Folder below `cache_home()`."""

_SIZES = {True: "dynamic", False: "static", None: "auto"}
"""Parts of folder names by the `dynamic` option of traces."""


def ranks_folder(global_rank: int | None, tp_rank: int | None, pp_rank: int | None) -> str:
    """Return "world2global_rank1_tp_rank1": this process' place in a distributed job, or "" for a
    single process. The world size, and the rank unless it is given, are those of torch.distributed,
    if it has been initialised."""
    import torch.distributed as distributed

    running = distributed.is_available() and distributed.is_initialized()
    rank = distributed.get_rank() if running and global_rank is None else global_rank or 0
    world = max(distributed.get_world_size() if running else 1, rank + 1)
    if world == 1 and tp_rank is None and pp_rank is None:
        return ""
    name = f"world{world}global_rank{rank}"
    if tp_rank is not None:
        name += f"_tp_rank{tp_rank}"
    return name if pp_rank is None else f"{name}_pp_rank{pp_rank}"


def class_folder(
    cache_dir: str | None, kind: str, dynamic: bool | None, ingredients: Mapping[str, str]
) -> str:
    """Return {root_folder(cache_dir)}/{Class}_{SIZES}_{digest}
    with the digest over the named ingredients; SIZES is dynamic, static or, for None, auto."""
    digest = Key.of(ingredients).digest
    return os.path.join(root_folder(cache_dir), f"{kind}_{_SIZES[dynamic]}_{digest}")


def root_folder(cache_dir: str | None) -> str:
    """Return {cache_dir | $KERNELMILL_CACHE_HOME | cache_home()/methods}, as an absolute path."""
    root = cache_dir or knobs.CACHE_HOME.get() or os.path.join(cache_home(), DEFAULT_FOLDER)
    return os.path.abspath(root)
