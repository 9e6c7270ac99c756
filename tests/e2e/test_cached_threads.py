"""Many callers of one cached method at once."""

import threading

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
