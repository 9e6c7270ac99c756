"""Cached methods that put other tensors into the objects they are passed."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill.inference import cache_compile
from kernelmill.runtime.quick import REFUSED
from tests.kept_methods import KEPT

pytestmark = KEPT

WIDTH = 6
Step = Callable[[Any, Any, Any], Any]


class Slot:
    def __init__(self, rows: int = 3) -> None:
        self.keys = torch.randn(rows, WIDTH)
        self.values = torch.randn(rows, WIDTH)
        self.ready = False


class Memory:
    def __init__(self, rows: int = 3) -> None:
        self.slots = [Slot(rows), Slot(rows)]
        self.listed = [torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)]
        self.named = {"a": torch.randn(rows, WIDTH), "b": torch.randn(rows, WIDTH)}
        self.extra: Any = None


def grow(model: Any, x: Any, memory: Any) -> Any:
    for slot in memory.slots:
        slot.keys = torch.cat([slot.keys, x])
        slot.values = torch.cat([slot.values, model.linear(x)])
    return memory.slots[0].keys.sum(0)


def elements(model: Any, x: Any, memory: Any) -> Any:
    memory.listed[1] = memory.listed[0] + model.linear(x)
    memory.named["b"] = memory.named["a"] * 2.0
    memory.named["new"] = x.relu()
    return memory.listed[1].sum()


def appended(model: Any, x: Any, memory: Any) -> Any:
    memory.listed.append(model.linear(x))
    return x + 1.0


def twice(model: Any, x: Any, memory: Any) -> Any:
    both = model.linear(x)
    memory.slots[0].keys = memory.slots[1].keys = memory.listed[0] = both
    return both


def swapped(model: Any, x: Any, memory: Any) -> Any:
    slot = memory.slots[0]
    slot.keys, slot.values = slot.values, slot.keys
    memory.listed[0], memory.listed[1] = memory.listed[1], memory.listed[0]
    return x + 1.0


def arguments(model: Any, x: Any, memory: Any) -> Any:
    memory.slots[0].keys = x
    memory.slots[1].keys = x[1:]
    memory.named["a"] = memory.slots[0].values
    return model.linear(x)


def data(model: Any, x: Any, memory: Any) -> Any:
    for slot in memory.slots:
        if not slot.ready:
            slot.dtype, slot.device, slot.ready = x.dtype, x.device, True
        slot.keys = slot.keys + x
    memory.extra = (memory.slots[0].keys, None, "text")
    return memory.extra[0]


def written_too(model: Any, x: Any, memory: Any) -> Any:
    memory.slots[0].keys.add_(x)
    memory.slots[1].keys = memory.slots[0].keys * 2.0
    return memory.slots[1].keys


def returned_owner(model: Any, x: Any, memory: Any) -> Any:
    memory.listed[0] = x * 3.0
    return {"listed": memory.listed, "slot": memory.listed[0]}


STEPS: tuple[Step, ...] = (
    grow, elements, appended, twice, swapped, arguments, data, written_too, returned_owner,
)  # fmt: skip


class Model(nn.Module):
    def __init__(self, folder: Any, step: Step, dynamic: bool = True) -> None:
        super().__init__()
        self.function = step
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.cached = cache_compile(self.step, dynamic=dynamic, cache_dir=str(folder))
        self.eval()

    def step(self, x: Any, memory: Any) -> Any:
        return self.function(self, x, memory)


def parts(value: Any) -> list[Any]:
    """All that is in a value, in order; objects by their attributes."""
    if isinstance(value, (list, tuple)):
        return [type(value), *(part for each in value for part in parts(each))]
    if isinstance(value, dict):
        return [type(value), *value, *(part for each in value.values() for part in parts(each))]
    if isinstance(value, (Memory, Slot)):
        return [type(value), *parts(dict(sorted(vars(value).items())))]
    return [value]


def identities(value: Any) -> list[int]:
    """Which tensors in a value are the same object: the number of the first such."""
    tensors = [part for part in parts(value) if isinstance(part, torch.Tensor)]
    return [next(n for n, other in enumerate(tensors) if other is each) for each in tensors]


def check(model: Model, x: Any, memory: Any) -> Any:
    """Compare with eager on a copy: results, what is set, what is the same object."""
    mirror_x, mirror = copy.deepcopy((x, memory))
    expected = model.step(mirror_x, mirror)
    got = model.cached(x, memory)
    found, wanted = (
        parts([a, b, c]) for a, b, c in ((got, x, memory), (expected, mirror_x, mirror))
    )
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
            assert one.stride() == other.stride()
        else:
            assert one == other and type(one) is type(other)
    assert identities([got, x, memory]) == identities([expected, mirror_x, mirror])
    return got


@pytest.fixture(autouse=True)
def no_gradients() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


READS_SIZES = pytest.mark.needs_internal("dynamo.tensor_sizes")
"""Of steps that are not kept where nobody knows which sizes of tensors they have read."""


def _marked(steps: Sequence[Step]) -> list[Any]:
    reading = (appended, swapped, arguments, returned_owner)
    return [pytest.param(s, marks=READS_SIZES) if s in reading else s for s in steps]


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("step", _marked(STEPS), ids=lambda step: step.__name__)
def test_what_is_set_is_what_eager_sets(tmp_path: Any, step: Step, dynamic: bool) -> None:
    model = Model(tmp_path, step, dynamic)
    for _ in range(3):
        check(model, torch.randn(3, WIDTH), Memory())
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    again = Model(tmp_path, step, dynamic)
    for _ in range(3):
        check(again, torch.randn(3, WIDTH), Memory())
    assert again.cached.statistics == {"loaded": 1, "traced": 0, "uncached": 0}


def test_one_program_serves_all_sizes(tmp_path: Any) -> None:
    model = Model(tmp_path, grow)
    memory = Memory()
    for rows in (2, 3, 2, 5, 4):
        check(model, torch.randn(rows, WIDTH), memory)
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}


QUICK = (
    "modules.tables", "native.checks", "objects.fields", "objects.functions",
    "objects.resolution", "objects.spaces", "tensors.allocate", "tensors.impl_place",
    "tensors.storage_place",
)  # fmt: skip


@pytest.mark.needs_internal(*QUICK)
def test_a_memory_that_grows_is_served_quickly(tmp_path: Any) -> None:
    model = Model(tmp_path, grow)
    memory = Memory()
    for rows in (2, 3, 3):
        check(model, torch.randn(rows, WIDTH), memory)
    for rows in (3, 4, 2, 2, 5):
        mirror, x = copy.deepcopy(memory), torch.randn(rows, WIDTH)
        assert model.cached._quick((x, memory)) is not REFUSED
        model.step(x, mirror)
        for slot, other in zip(memory.slots, mirror.slots, strict=True):
            torch.testing.assert_close(slot.keys, other.keys)
            torch.testing.assert_close(slot.values, other.values)
    kept = memory.slots[0].keys
    assert model.cached._quick((torch.randn(3, WIDTH + 1), memory)) is REFUSED
    assert memory.slots[0].keys is kept
    check(model, torch.randn(3, WIDTH), memory)


@pytest.mark.needs_internal(*QUICK)
def test_slots_that_grow_apart_are_served_quickly_and_odd_ones_are_not(tmp_path: Any) -> None:
    model = Model(tmp_path, grow)
    memory = Memory()
    for number, slot in enumerate(memory.slots):  # sizes that are all others
        slot.keys, slot.values = (torch.randn(5 + 2 * number + n, WIDTH) for n in (0, 5))
    for rows in (2, 3, 3, 4):
        check(model, torch.randn(rows, WIDTH), memory)
    for number in range(6):
        slot = memory.slots[number % 2]
        slot.values = slot.values[: 4 + number].clone()
        mirror, x = copy.deepcopy(memory), torch.randn(2 + number % 3, WIDTH)
        assert model.cached._quick((x, memory)) is not REFUSED
        model.step(x, mirror)
        assert [(s.keys.shape, s.values.shape) for s in memory.slots] == [
            (s.keys.shape, s.values.shape) for s in mirror.slots
        ]
        for slot, other in zip(memory.slots, mirror.slots, strict=True):
            torch.testing.assert_close(slot.keys, other.keys)
            torch.testing.assert_close(slot.values, other.values)

    x = torch.randn(3, WIDTH)
    right = memory.slots[0].keys
    for odd in (
        None, 3, torch.tensor(1.0), right.to_sparse(), right.unsqueeze(0), right.double(),
        torch.nn.Buffer(right.T.contiguous()),
    ):  # fmt: skip
        memory.slots[0].keys = odd
        kept = [(slot.keys, slot.values) for slot in memory.slots]
        for values in ((x, memory), (torch.randn(5, WIDTH), memory), (odd, memory)):
            assert model.cached._quick(values) is REFUSED
        for slot, (keys, its) in zip(memory.slots, kept, strict=True):
            assert slot.keys is keys and slot.values is its
        memory.slots[0].keys = right
        assert model.cached._quick((x, memory)) is not REFUSED
        right = memory.slots[0].keys
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}


@pytest.mark.needs_internal(*QUICK)
def test_many_slots_and_an_integer_beside_them(tmp_path: Any) -> None:
    def step(model: Any, x: Any, memory: Any) -> Any:
        for slot in memory.slots:
            slot.keys = torch.cat([slot.keys, x])
            slot.values = torch.cat([slot.values, x + float(memory.extra)])
        return memory.slots[-1].values.sum(0)

    def filled(count: int) -> Memory:
        memory = Memory()
        memory.slots = [Slot(2) for _ in range(count)]
        memory.extra = 7
        return memory

    model = Model(tmp_path, step)
    memory = filled(12)
    for rows in (2, 3, 2):
        check(model, torch.randn(rows, WIDTH), memory)
    x = torch.randn(4, WIDTH)
    for number in (7, 8, -3):
        memory.extra = number
        mirror = copy.deepcopy(memory)
        assert model.cached._quick((x, memory)) is not REFUSED
        model.step(x, mirror)
        for slot, other in zip(memory.slots, mirror.slots, strict=True):
            torch.testing.assert_close(slot.keys, other.keys)
            torch.testing.assert_close(slot.values, other.values)
    for wrong in (True, 7.0, 2**70, None, "7"):
        memory.extra = wrong
        assert model.cached._quick((x, memory)) is REFUSED
    memory.extra = 7
    shorter = filled(11)
    assert model.cached._quick((x, shorter)) is REFUSED
    del memory.slots[3].values
    assert model.cached._quick((x, memory)) is REFUSED
    assert memory.slots[0].keys.shape == mirror.slots[0].keys.shape


def test_a_call_that_fails_sets_nothing(tmp_path: Any) -> None:
    def step(model: Any, x: Any, memory: Any) -> Any:
        memory.slots[0].keys = x * 2.0
        return x[memory.extra]

    model = Model(tmp_path, step)
    memory = Memory()
    memory.extra = torch.tensor([0, 2, 1])
    for _ in range(2):
        check(model, torch.randn(3, WIDTH), memory)
    kept = memory.slots[0].keys
    memory.extra = torch.tensor([0, 3, 1])
    with pytest.raises(IndexError):
        model.cached(torch.randn(3, WIDTH), memory)
    assert memory.slots[0].keys is kept
    memory.extra = torch.tensor([0, 1, 1])
    check(model, torch.randn(3, WIDTH), memory)


def test_other_structure_is_another_program(tmp_path: Any) -> None:
    model = Model(tmp_path, data)
    x, memory = torch.randn(3, WIDTH), Memory()
    check(model, x, memory)
    assert memory.slots[0].ready
    check(model, x, memory)  # initialised now
    assert model.cached.statistics["traced"] == 2
    memory.slots.append(Slot())
    check(model, x, memory)
    assert model.cached.statistics["traced"] == 3
    for slots in (2, 3):
        other = Memory()
        other.slots = [Slot() for _ in range(slots)]
        check(model, x, other)
        check(model, x, other)
    again = Model(tmp_path, data)
    for other in (Memory(), memory):
        check(again, x, other)
    assert again.cached.statistics == {"loaded": 2, "traced": 0, "uncached": 0}


def test_two_objects_that_are_one_are_told_from_two(tmp_path: Any) -> None:
    def step(model: Any, x: Any, memory: Any) -> Any:
        first, second = memory.slots
        first.keys = x + 1.0
        second.values = second.keys * 2.0
        return second.keys + first.values

    model = Model(tmp_path, step)
    x, memory = torch.randn(3, WIDTH), Memory()
    for _ in range(3):
        check(model, x, memory)
    memory.slots[1] = memory.slots[0]
    check(model, x, memory)
    check(model, x, memory)
    assert model.cached.statistics["uncached"] <= 1


def test_an_object_that_the_model_has_too_is_told_from_another(tmp_path: Any) -> None:
    def step(model: Any, x: Any, memory: Any) -> Any:
        memory.slots[0].keys = x * 2.0
        return model.linear(x) + model.memory.slots[0].keys

    model = Model(tmp_path, step)
    model.memory = Memory()
    x = torch.randn(3, WIDTH)
    for _ in range(3):
        check(model, x, Memory())
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    for memory in (model.memory, Memory()):
        for _ in range(2):
            own = model.memory.slots[0]
            wanted = model.linear(x) + (x * 2.0 if memory is model.memory else own.keys)
            torch.testing.assert_close(model.cached(x, memory), wanted)
            torch.testing.assert_close(memory.slots[0].keys, x * 2.0)


def test_a_value_that_was_there_already_is_set_in_other_objects_too(tmp_path: Any) -> None:
    def step(model: Any, x: Any, memory: Any) -> Any:
        memory.slots[0].keys = memory.slots[1].keys
        return model.linear(x)

    model = Model(tmp_path, step)
    x, memory = torch.randn(3, WIDTH), Memory()
    memory.slots[0].keys = memory.slots[1].keys
    check(model, x, memory)
    check(model, x, Memory())
    check(model, x, Memory())


def test_threads_have_caches_of_their_own(tmp_path: Any) -> None:
    model = Model(tmp_path, grow)
    check(model, torch.randn(2, WIDTH), Memory())
    failed: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            memory = Memory(3 + seed)
            with torch.no_grad():
                for rows in range(2, 12):
                    check(model, torch.randn(rows, WIDTH), memory)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}


def test_what_was_set_is_let_go_with_its_object(tmp_path: Any) -> None:
    import gc
    import weakref

    model = Model(tmp_path, grow)
    memory = Memory()
    for _ in range(3):
        check(model, torch.randn(3, WIDTH), memory)
    alive = weakref.ref(memory.slots[0].keys)
    memory.slots[0].keys = None
    gc.collect()
    assert alive() is None


# ---- what is no effect ----------------------------------------------------------------------


class Watched:
    def __init__(self) -> None:
        self.keys = torch.zeros(3, WIDTH)
        self.log: list[str] = []

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


class Named(dict[str, Any]):
    pass


def counted(model: Any, x: Any, memory: Any) -> Any:
    memory.extra = memory.extra + 0.5
    return x + memory.extra


def watched(model: Any, x: Any, memory: Any) -> Any:
    memory.extra.keys = x * 2.0
    return x + 1.0


def deleted(model: Any, x: Any, memory: Any) -> Any:
    del memory.extra
    return x + 1.0


def popped(model: Any, x: Any, memory: Any) -> Any:
    return x + memory.listed.pop()


def removed(model: Any, x: Any, memory: Any) -> Any:
    return x + memory.named.pop("a")


def made_object(model: Any, x: Any, memory: Any) -> Any:
    memory.extra = [x + 1.0]
    return x * 2.0


def subclass(model: Any, x: Any, memory: Any) -> Any:
    memory.extra["a"] = x * 2.0
    return x + 1.0


def of_module(model: Any, x: Any, memory: Any) -> Any:
    model.last = model.linear(x)
    return model.last + 1.0


REFUSED_STEPS = (
    (counted, lambda: 1.5, "memory.extra (a number)"),
    (watched, Watched, "memory.extra.keys (its class has a say in that)"),
    (deleted, lambda: 1.5, "memory.extra (which is deleted)"),
    pytest.param(popped, lambda: None, "L['memory'].listed", marks=READS_SIZES),
    pytest.param(removed, lambda: None, "L['memory'].named", marks=READS_SIZES),
    (made_object, lambda: None, "memory.extra (to a new list)"),
    (subclass, lambda: Named(a=torch.zeros(3, WIDTH)), "L['memory'].extra"),
    (of_module, lambda: None, "self.last"),
)


@pytest.mark.parametrize(
    ("step", "extra", "reason"), REFUSED_STEPS, ids=lambda each: getattr(each, "__name__", "")
)
def test_what_is_not_understood_is_refused_and_right(
    tmp_path: Any, step: Step, extra: Callable[[], Any], reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    model = Model(tmp_path, step)
    for _ in range(2):
        memory = Memory()
        memory.extra = extra()
        x, mirror = torch.randn(3, WIDTH), copy.deepcopy(memory)
        expected = model.step(x, mirror)
        torch.testing.assert_close(model.cached(x, memory), expected)
        assert vars(memory).keys() == vars(mirror).keys()
        assert (
            len(memory.listed) == len(mirror.listed) and memory.named.keys() == mirror.named.keys()
        )
    assert reason in caplog.text
    assert "cannot be cached: it changes" in caplog.text
    assert model.cached.statistics["uncached"] == 2 and not list(tmp_path.rglob("*.kmill"))


class Counter(nn.Module):
    """Counts its calls in a buffer, which it assigns back."""

    n: torch.Tensor

    def __init__(self, folder: Any) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(1))
        self.cached = cache_compile(self.counted, cache_dir=folder)

    def counted(self, x: Any) -> Any:
        self.n += 1
        return x * self.n


def test_a_tensor_that_is_assigned_back_to_its_place_is_no_change(tmp_path: Any) -> None:
    model = Counter(tmp_path)
    again = Counter(tmp_path)
    with torch.no_grad():
        for calls in (1, 2, 3):
            torch.testing.assert_close(model.cached(torch.ones(3)), torch.full((3,), float(calls)))
        model.n = torch.full((1,), 7.0)
        torch.testing.assert_close(model.cached(torch.ones(3)), torch.full((3,), 8.0))
        torch.testing.assert_close(again.cached(torch.ones(3)), torch.ones(3))
    assert (model.n.item(), again.n.item()) == (8.0, 1.0)
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    assert again.cached.statistics == {"loaded": 1, "traced": 0, "uncached": 0}
