"""Batches: all tasks once, as much work in each as is wanted, less at the end."""

import random

import pytest

from kernelmill.core.digest import Key
from kernelmill.fleet.dispatch import BATCH_SECONDS, TaskCosts, batches
from kernelmill.fleet.task import CompileTask


def tasks(count, characters=4000):
    lengths = random.Random(0)
    return [
        CompileTask("T", Key.of({"kernel": "x" * lengths.randrange(characters), "n": str(n)}), "k")
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
@pytest.mark.parametrize("workers", [1, 2, 1000])
def test_every_task_is_in_one_batch(count, workers):
    wanted = tasks(count)
    sent = [task for batch in batches(wanted, TaskCosts(), workers) for task in batch]
    assert sorted(task.name for task in sent) == sorted(task.name for task in wanted)


def test_batches_have_as_much_work_as_is_wanted_and_less_at_the_end():
    costs = TaskCosts()
    work = [sum(map(costs.of, batch)) for batch in batches(tasks(5000), costs, 2)]
    assert max(work) <= BATCH_SECONDS
    assert min(work[:20]) > BATCH_SECONDS / 2
    last = [len(batch) for batch in batches(tasks(5000), costs, 2)][-3:]
    assert last == [1, 1, 1]


def test_with_more_workers_than_tasks_each_task_goes_by_itself():
    assert [len(batch) for batch in batches(tasks(50), TaskCosts(), 100)] == [1] * 50


def test_batches_are_smaller_where_tasks_have_taken_longer():
    slow, wanted = TaskCosts(), tasks(500)
    for task in wanted:
        slow.learn(task, 10 * TaskCosts().of(task))
    assert slow.of(wanted[0]) > 5 * TaskCosts().of(wanted[0])
    assert len(list(batches(wanted, slow, 2))) > 3 * len(list(batches(wanted, TaskCosts(), 2)))


def test_a_task_that_takes_long_is_a_batch_by_itself_and_goes_first():
    long = CompileTask("T", Key.of({"kernel": "x" * 100_000}), "k")
    first, *_ = batches([*tasks(50), long], TaskCosts(), 2)
    assert first == (long,)
