"""Calls of a cached method with objects that hold tensors, some written: natively, never stale."""

import copy

import pytest
import torch
from torch import nn

from kernelmill.inference import cache_compile
from kernelmill.runtime.quick import REFUSED
from tests.kept_methods import KEPT, goes_quickly

pytestmark = KEPT
QUICK = goes_quickly("objects.resolution")

FEATURES = 6


class Slot:
    mode = "add"
    weight = 2.0

    def __init__(self, rows=3):
        self.keys = torch.zeros(rows, FEATURES)
        self.length = torch.zeros((), dtype=torch.int64)
        self.ready, self.factor, self.window = True, 0.5, 300
        self.device = self.keys.device

    @property
    def rows(self):
        return self.keys.shape[0]

    def update(self, x):
        self.length.add_(1)
        return self.keys.add_(x * self.factor) if self.mode == "add" else self.keys.mul_(x)


class Other(Slot):
    def update(self, x):
        return self.keys.add_(x * 3.0)


class Hidden(Slot):
    def __getattribute__(self, name):
        return 9.0 if name == "factor" else super().__getattribute__(name)


class Memory:
    def __init__(self):
        self.slots = [Slot(), Slot()]
        self.offset = None


class Model(nn.Module):
    level = 1.0

    def __init__(self, folder):
        super().__init__()
        self.linear = nn.Linear(FEATURES, FEATURES)
        self.cached = cache_compile(self.step, dynamic=False, cache_dir=str(folder))
        self.eval()

    def step(self, x, memory):
        x = self.linear(x) * self.level
        for slot in memory.slots:
            if slot.ready and slot.device.type == "cpu" and hasattr(slot, "rows"):
                x = x + slot.update(x) * slot.weight + slot.window
        if hasattr(memory, "extra"):
            x = x * memory.extra
        if memory.offset is not None:
            x = x + memory.offset
        return {"x": x, "keys": memory.slots[0].keys}


def tensors(memory):
    return [tensor for slot in memory.slots for tensor in (slot.keys, slot.length)]


def check(model, x, memory):
    """Compare with eager on a copy: results, what is written, and that torch is told once."""
    mirror = copy.deepcopy(memory)
    expected = model.step(x, mirror)
    before = [tensor._version for tensor in tensors(memory)]
    got = model.cached(x, memory)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert got["keys"] is memory.slots[0].keys
    torch.testing.assert_close(tensors(memory), tensors(mirror))
    assert all(now._version > old for now, old in zip(tensors(memory), before, strict=True))


def is_quick(model, x, memory):
    return model.cached._quick((x, memory)) is not REFUSED


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("objects")


@pytest.fixture
def case(folder):
    torch.manual_seed(0)
    model, x, memory = Model(folder), torch.randn(3, FEATURES), Memory()
    with torch.no_grad():
        for _ in range(3):
            check(model, x, memory)
        assert is_quick(model, x, memory) == QUICK
        yield model, x, memory


def replace_slot(memory):
    memory.slots[1] = Slot()


def replace_tensor(memory):
    memory.slots[0].keys = torch.randn(3, FEATURES)


def transposed_tensor(memory):
    memory.slots[0].keys = torch.randn(FEATURES, 3).t()


def set_number(memory):
    memory.slots[1].factor = 4.0


def set_large_integer(memory):
    memory.slots[1].window = 301


def set_flag(memory):
    memory.slots[1].ready = 0


def set_offset(memory):
    memory.offset = torch.ones(FEATURES)


def add_attribute(memory):
    memory.extra = 3.0


def append(memory):
    memory.slots.append(Slot())


def to_tuple(memory):
    memory.slots = tuple(memory.slots)


def hide_class_attribute(memory):
    memory.slots[1].mode = "multiply"


def hide_method(memory):
    memory.slots[0].update = lambda x: x * 5.0


def other_class(memory):
    memory.slots[0].__class__ = Other


def other_attributes(memory):
    memory.slots[1].__dict__ = {**vars(memory.slots[1]), "factor": 8.0}


CHANGES = (
    replace_slot, replace_tensor, transposed_tensor, set_number, set_large_integer, set_flag,
    set_offset, add_attribute, append, to_tuple, hide_class_attribute, hide_method, other_class,
    other_attributes,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_an_object_is_seen_by_the_next_call(case, change):
    model, x, memory = case
    change(memory)
    mirror, expected_memory = copy.deepcopy(memory), copy.deepcopy(memory)
    expected = model.step(x, expected_memory)
    torch.testing.assert_close(model.cached(x, mirror), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(mirror.slots[1].keys, expected_memory.slots[1].keys)


def test_changes_of_classes_are_seen_by_the_next_call(case, monkeypatch):
    model, x, memory = case
    monkeypatch.setattr(Slot, "weight", 7.0)
    check(model, x, memory)
    monkeypatch.setattr(Slot, "mode", "multiply")
    check(model, x, memory)
    monkeypatch.setattr(Model, "level", 5.0)
    check(model, x, memory)


def test_an_attribute_that_its_class_takes_over_is_not_read_past_it(case, monkeypatch):
    model, x, memory = case
    monkeypatch.setattr(Slot, "factor", property(lambda self: 0.25, lambda self, new: None), False)
    assert not is_quick(model, x, memory)


@pytest.mark.needs_internal("objects.plain_fields")  # its floats are equal, and not the same
def test_another_object_that_is_built_alike_is_as_quick(case):
    model, x, memory = case
    for _ in range(12):
        other = Memory()
        check(model, x, other)
        assert is_quick(model, x, other) == QUICK
    assert is_quick(model, x, memory) == QUICK


def test_nothing_of_a_caller_is_kept(case):
    import gc
    import weakref

    model, x, _ = case
    memory = Memory()
    check(model, x, memory)
    assert is_quick(model, x, memory) == QUICK
    alive = weakref.ref(memory.slots[0]), weakref.ref(memory.slots[0].keys)
    del memory
    gc.collect()
    assert not any(reference() for reference in alive)


def test_tensors_that_share_memory_are_told_from_those_that_do_not(case):
    model, x, memory = case
    whole = torch.zeros(2, 3, FEATURES)
    memory.slots[0].keys, memory.slots[1].keys = whole[0], whole[1]
    assert not is_quick(model, x, memory)
    memory.slots[1].keys = memory.slots[0].keys
    assert not is_quick(model, x, memory)
    memory.slots[1].keys = torch.zeros(3, FEATURES)
    check(model, x, memory)
    assert is_quick(model, x, memory) == QUICK
    assert not is_quick(model, memory.slots[1].keys, memory)


def test_inference_tensors_are_written_to_in_inference_mode(case):
    model, x, _ = case
    with torch.inference_mode():
        memory = Memory()
        expected = model.step(x, mirror := copy.deepcopy(memory))
        torch.testing.assert_close(model.cached(x, memory), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(tensors(memory), tensors(mirror))
        assert is_quick(model, x, memory) == QUICK


@pytest.mark.parametrize("kind", [Other, Hidden])
def test_objects_of_other_classes(case, kind):
    model, x, memory = case
    memory.slots[1] = kind()
    expected = model.step(x, copy.deepcopy(memory))
    torch.testing.assert_close(model.cached(x, memory), expected, atol=1e-4, rtol=1e-4)
