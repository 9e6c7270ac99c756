"""The rank group: processes of one machine that compile static kernels together.

They communicate through the key-value store of torch.distributed, not through collectives: the
program's own communication is left alone, and a dead process shows as a missing answer. A process
whose wait times out goes on alone; kernels and packages are safe without any of this.
"""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from typing import Any

from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, KernelmillError
from kernelmill.torch_internals.groups import default_store

PATIENCE_SECONDS = 120.0
"""Longest wait for another process. Compiling its share takes seconds."""

_meetings = itertools.count()
_lost = [False]


class RankLost(KernelmillError):
    """Another process did not answer in time."""


@dataclass(frozen=True)
class RankGroup:
    """A group seen by process `place` of `size` on a machine; 0 leads. `store` has messages."""

    place: int
    size: int
    store: Any

    def gather(self, what: str, mine: list[Any]) -> list[Any]:
        """Return the lists of all processes, concatenated, in each of them."""
        self.say(f"{what}/{self.place}", mine)
        if self.place == 0:
            lists = [self.hear(f"{what}/{place}") for place in range(self.size)]
            self.say(what, [item for each in lists for item in each])
        return self.hear(what)

    def meet(self, where: str) -> None:
        """Wait until all processes have called this."""
        self.gather(where, [])

    def say(self, what: str, value: Any) -> None:
        """Send a value, which must be JSON-able, to the other processes."""
        try:
            self.store.set(what, json.dumps(value))
        except RuntimeError as error:
            raise self._loss(what, error) from None

    def hear(self, what: str) -> Any:
        """Return a value that a process has sent or will send. RankLost when it does not come."""
        try:
            self.store.wait([what], timedelta(seconds=PATIENCE_SECONDS))
            return json.loads(self.store.get(what))
        except RuntimeError as error:
            raise self._loss(what, error) from None

    def _loss(self, what: str, error: Exception) -> RankLost:
        _lost[0] = True  # once is enough: the others would be waited for again and again
        return RankLost(f"{what}: {str(error).splitlines()[0]}")


def rank_group() -> RankGroup | None:
    """Return the processes of this machine, for one more build; None for this one alone.

    Their number is LOCAL_WORLD_SIZE; without it, and without torch.distributed, nothing is shared.
    ConfigError when it is no number above 0, or does not divide the world.
    """
    import torch.distributed as distributed

    size = knobs.LOCAL_WORLD_SIZE.get()
    if size is None:
        return None
    world = rank = 0
    if distributed.is_available() and distributed.is_initialized():
        world, rank = distributed.get_world_size(), distributed.get_rank()
    if world % size:
        raise ConfigError(
            f"environment variable LOCAL_WORLD_SIZE={size} does not divide the {world} processes "
            "of the job; every machine must run as many"
        )
    if world == 0 or size == 1 or _lost[0]:
        return None
    from torch.distributed.distributed_c10d import PrefixStore

    get_store = default_store.get()
    if get_store is None:
        return None
    machine, place = divmod(rank, size)
    prefix = f"kernelmill/static/{machine}/{next(_meetings)}"
    return RankGroup(place, size, PrefixStore(prefix, get_store()))
