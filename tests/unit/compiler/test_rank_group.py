"""What the processes of a machine tell each other."""

import threading

import pytest
import torch.distributed as distributed

from kernelmill.compiler import static_build as module
from kernelmill.compiler.static_build import RankGroup, RankLost, rank_group
from kernelmill.core.errors import ConfigError


def world(monkeypatch, size, rank=0):
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: size)
    monkeypatch.setattr(distributed, "get_rank", lambda: rank)


@pytest.mark.parametrize("value", ["two", "0", "-1", "1.5"])
def test_a_bad_value_is_an_error(value, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", value)
    with pytest.raises(ConfigError, match=r"LOCAL_WORLD_SIZE.*above 0"):
        rank_group()


def test_a_value_that_does_not_divide_the_world_is_an_error(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    world(monkeypatch, 4)
    with pytest.raises(ConfigError, match="does not divide the 4 processes"):
        rank_group()


def test_without_the_value_or_without_a_job_there_is_no_group(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert rank_group() is None
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert rank_group() is None


def members(size):
    store = distributed.HashStore()
    return [RankGroup(place, size, store) for place in range(size)]


def test_everybody_gets_what_all_have_in_one_order():
    found = {}

    def gather(member):
        found[member.place] = member.gather("numbers", [member.place * 10, 1])

    threads = [threading.Thread(target=gather, args=(member,)) for member in members(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {place: [0, 1, 10, 1, 20, 1] for place in range(3)}


def test_who_does_not_answer_is_lost_and_not_waited_for_again(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(module, "_lost", [False])
    with pytest.raises(RankLost, match="numbers"):
        members(2)[0].gather("numbers", [])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    world(monkeypatch, 2)
    assert rank_group() is None
