"""Where the entries of a cached method are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kernelmill.core import knobs
from kernelmill.core.cache_home import cache_home
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import Key

DEFAULT_FOLDER = "methods"
"""Below `cache_home()`."""


@dataclass(frozen=True)
class Ranks:
    """This process' place in a distributed job. `world` is 1 without one."""

    world: int = 1
    rank: int = 0
    tensor: int | None = None
    pipeline: int | None = None

    @classmethod
    def of(cls, global_rank: int | None, tp_rank: int | None, pp_rank: int | None) -> Ranks:
        """What was given; else what torch.distributed says, if it has been initialised."""
        import torch.distributed as distributed

        running = distributed.is_available() and distributed.is_initialized()
        world = distributed.get_world_size() if running else 1
        rank = distributed.get_rank() if running and global_rank is None else global_rank or 0
        return cls(max(world, rank + 1), rank, tp_rank, pp_rank)

    @property
    def folder(self) -> str:
        """ "world2global_rank1_tp_rank1", empty for a process of its own."""
        if self.world == 1 and self.tensor is None and self.pipeline is None:
            return ""
        name = f"world{self.world}global_rank{self.rank}"
        if self.tensor is not None:
            name += f"_tp_rank{self.tensor}"
        return name if self.pipeline is None else f"{name}_pp_rank{self.pipeline}"


def class_folder(
    cache_dir: str | None, kind: str, dynamic: bool, ingredients: Mapping[str, str]
) -> str:
    """{cache_dir | $KERNELMILL_CACHE_HOME | cache_home()/methods}/{Class}_{dynamic|static}_{digest}
    with the digest over the named ingredients."""
    root = cache_dir or knobs.CACHE_HOME.get() or os.path.join(cache_home(), DEFAULT_FOLDER)
    digest = Key.of(ingredients).digest
    name = f"{kind}_{'dynamic' if dynamic else 'static'}_{digest}"
    return os.path.join(os.path.abspath(root), name)
