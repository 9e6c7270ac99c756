"""Many callers of one cached method at once."""

import gc
import threading
from collections import deque

import pytest
import torch
from torch import nn

from kernelmill.artifact.bind import Bound
from kernelmill.core.errors import InputError
from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT


class Model(nn.Module):
    def __init__(self, folder, **options):
        super().__init__()
        self.cached = cache_compile(self.run, cache_dir=str(folder), **options)

    def run(self, x, times):
        return x * times + 1


def check(model, times):
    x = torch.randn(3)
    with torch.no_grad():
        torch.testing.assert_close(model.cached(x, times), model.run(x, times))


@pytest.fixture
def model(tmp_path):
    made = Model(tmp_path, dynamic=False)
    for times in (2, 3, 4):
        check(made, times)
    assert made.cached.statistics == {"loaded": 0, "traced": 3, "uncached": 0}
    return made


def test_a_call_sees_all_programs_while_another_call_puts_one_first(model, monkeypatch):
    tried, go_on, plain = threading.Event(), threading.Event(), Bound.__call__

    def call(self, values):
        try:
            return plain(self, values)
        except InputError:
            if threading.current_thread() is not threading.main_thread():
                tried.set()
                assert go_on.wait(60)
            raise

    monkeypatch.setattr(Bound, "__call__", call)
    thread = threading.Thread(target=check, args=(model, 2))
    thread.start()  # tries the programs for 4, 3 and 2
    assert tried.wait(60)
    check(model, 2)  # which is the first one now
    go_on.set()
    thread.join()
    assert model.cached.statistics == {"loaded": 0, "traced": 3, "uncached": 0}
    assert len(model.cached._bound) == 3


def test_many_callers_in_turns(model):
    start, errors = threading.Barrier(8), []

    def work(number):
        try:
            start.wait(60)
            for turn in range(60):
                check(model, 2 + (turn + number) % 3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert model.cached.statistics == {"loaded": 0, "traced": 3, "uncached": 0}
    assert len(model.cached._bound) == 3


def between():
    """What happens inside of a call of `Meeting`."""


@torch.library.custom_op("kernelmill_tests::meet", mutates_args=())
def meeting(x: torch.Tensor) -> torch.Tensor:
    between()
    return x.clone()


@meeting.register_fake
def _(x):
    return torch.empty_like(x)


class Meeting(nn.Module):
    """Cannot be kept: nothing says how to make a deque."""

    def __init__(self, folder):
        super().__init__()
        self.cached = cache_compile(self.run, cache_dir=str(folder), dynamic=False)

    def run(self, x):
        return meeting(x) + 1, deque([x.sum().item()])


def test_what_cannot_be_kept_is_called_by_several_threads_at_once(tmp_path, monkeypatch):
    model, x = Meeting(tmp_path), torch.zeros(2)
    with torch.no_grad():
        assert torch.equal(model.cached(x)[0], x + 1)
    inside, collected = threading.Barrier(2, timeout=60), []

    def meet():
        inside.wait()
        collected.append(gc.isenabled())

    monkeypatch.setattr("tests.e2e.test_cached_threads.between", meet)
    results = []

    def call():
        with torch.no_grad():
            results.append(model.cached(x))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result, _ in results] == [[1.0, 1.0]] * 2
    assert collected == [True, True]
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 3}


def test_a_caller_that_waited_takes_what_another_has_traced(tmp_path, monkeypatch):
    model, x = Model(tmp_path), torch.randn(3)
    tracing, go_on, plain = threading.Event(), threading.Event(), type(model.cached)._trace

    def trace(self, *args):
        tracing.set()
        assert go_on.wait(60)
        return plain(self, *args)

    monkeypatch.setattr(type(model.cached), "_trace", trace)
    results = []

    def call():
        with torch.no_grad():
            results.append(model.cached(x, 2))

    first = threading.Thread(target=call)
    first.start()
    assert tracing.wait(60)
    second = threading.Thread(target=call)
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join()
    for result in results:
        torch.testing.assert_close(result, x * 2 + 1)
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
