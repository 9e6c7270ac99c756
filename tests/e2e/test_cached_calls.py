"""Calls of a cached method after the first: taken apart and checked natively, never stale."""

import threading

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.core.errors import InputError, UnsupportedError
from kernelmill.inference import cache_compile
from kernelmill.runtime.quick import REFUSED
from tests.kept_methods import KEPT, goes_quickly

pytestmark = KEPT
QUICK = goes_quickly()

LEVEL = 3.0
TABLE = [1.0, 2.0]


def outer(x):
    return x * LEVEL + TABLE[1]


class Part(nn.Module):
    bonus = 0.5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("mask", torch.ones(6))
        self.options = {"add": 1.0, "steps": [1.0, 2.0]}

    def forward(self, x):
        return self.linear(x) * self.mask + self.options["add"] * self.options["steps"][0]


class Model(nn.Module):
    def __init__(self, folder, dynamic=True):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.scale = 2.0
        self.cached = cache_compile(self.run, cache_dir=str(folder), dynamic=dynamic)
        self.eval()

    def run(self, x, more, times=1):
        for part in self.parts:
            x = part(x) * self.scale
        x = outer(x) + more["b"] * times
        return {"x": x, "pair": (x + more["c"][0], [more["c"][1] * 2.0])}


def arguments(rows=3, dtype=torch.float32):
    torch.manual_seed(rows)
    x, b, c, d = (torch.randn(rows, 6, dtype=dtype) for _ in range(4))
    return x, {"b": b, "c": [c, d]}


def check(model, *args, **kwargs):
    expected, got = model.run(*args, **kwargs), model.cached(*args, **kwargs)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert type(got["pair"]) is tuple and type(got["pair"][1]) is list


def is_quick(model, *args):
    return model.cached._quick(model.cached._target.values(args, {})) is not REFUSED


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cached")


@pytest.fixture
def model(folder):
    torch.manual_seed(0)
    model = Model(folder)
    with torch.no_grad():
        for _ in range(3):
            check(model, *arguments())
        assert is_quick(model, *arguments()) == QUICK
        yield model


def replace_parameter(model):
    model.parts[0].linear.weight = nn.Parameter(torch.randn(6, 6))


def replace_below(model):
    model.parts[1].linear._parameters["weight"] = nn.Parameter(torch.randn(6, 6))


def replace_submodule(model):
    model.parts[1].linear = nn.Linear(6, 6)


def replace_part(model):
    model.parts[0] = Part()


def shrink(model):
    del model.parts[1]


def load(model):
    model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()})


def write_in_place(model):
    model.parts[0].linear.weight.mul_(2.0)


def write_data(model):
    model.parts[0].linear.weight.data.mul_(2.0)


def set_data(model):
    model.parts[0].linear.weight.data = torch.randn(6, 6)


def write_buffer(model):
    model.parts[0].mask[2] = 7.0


def replace_buffer(model):
    model.parts[0].mask = torch.full((6,), 0.25)


def set_attribute(model):
    model.scale = 4.0


def set_inner(model):
    model.parts[1].options["add"] = 9.0


def set_element(model):
    model.parts[1].options["steps"][0] = 9.0


def swap_dict(model):
    model.parts[0].options = {"add": 5.0, "steps": [3.0]}


def set_class_attribute(model):
    model.parts[0].bonus = 2.0  # which nothing reads


def hook(model):
    model.parts[0].register_forward_hook(lambda module, args, result: result + 1.0)


def replace_forward(model):
    model.parts[1].forward = lambda x: x * 3.0


def count_calls(model):
    model.calls = getattr(model, "calls", 0) + 1


CHANGES = (
    replace_parameter, replace_below, replace_submodule, replace_part, shrink, load,
    write_in_place, write_data, set_data, write_buffer, replace_buffer, set_attribute, set_inner,
    set_element, swap_dict, set_class_attribute, hook, replace_forward, count_calls,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_between_two_calls_is_seen(model, change):
    change(model)
    for _ in range(2):
        check(model, *arguments())


class Tied(nn.Module):
    """One tensor in two places of several kinds."""

    def __init__(self, folder):
        super().__init__()
        weight = nn.Parameter(torch.ones(3), requires_grad=False)
        self.first, self.second = weight, weight
        self.listed = [torch.ones(3)] * 2
        self.parts = nn.ModuleList([nn.Module(), nn.Module()])
        for part in self.parts:
            part.weight = weight
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x):
        x = x * self.first + self.second
        x = x * self.listed[0] + self.listed[1]
        return x * self.parts[0].weight + self.parts[1].weight


UNTIED = {
    "parameter": lambda model, new: setattr(model, "second", new),
    "element": lambda model, new: model.listed.__setitem__(1, new.data),
    "parameter of a part": lambda model, new: setattr(model.parts[1], "weight", new),
}


@pytest.mark.parametrize("place", UNTIED)
def test_a_shared_tensor_that_is_replaced_in_one_place_is_seen(place, tmp_path):
    model, x = Tied(tmp_path), torch.full((3,), 2.0)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(model.cached(x), model.run(x))
        assert is_quick(model, x) == QUICK
        UNTIED[place](model, nn.Parameter(torch.full((3,), 5.0), requires_grad=False))
        assert torch.equal(model.cached(x), model.run(x))
        assert model.cached.statistics["traced"] == 2


def test_globals_are_watched(model, monkeypatch):
    monkeypatch.setitem(globals(), "LEVEL", 4.0)
    check(model, *arguments())
    monkeypatch.setitem(globals(), "UNRELATED", 4.0)
    check(model, *arguments())
    assert is_quick(model, *arguments()) == QUICK
    monkeypatch.setattr(f"{__name__}.TABLE", [1.0, -1.0])
    check(model, *arguments())


def minus(x):
    return x - LEVEL


def forward_of_others(self, x):
    return x * self.mask


def test_functions_are_watched(model, monkeypatch):
    monkeypatch.setitem(globals(), "outer", minus)
    check(model, *arguments())
    assert model.cached.statistics["traced"] + model.cached.statistics["loaded"] == 2
    monkeypatch.setattr(Part, "forward", forward_of_others)
    check(model, *arguments())
    monkeypatch.undo()
    check(model, *arguments())
    check(model, *arguments())
    assert is_quick(model, *arguments()) == QUICK


def test_what_changes_often_does_not_close_the_quick_way(model):
    x, more = arguments()
    for _ in range(3):
        count_calls(model)
        check(model, x, more)
    count_calls(model)
    assert is_quick(model, x, more) == QUICK
    model.scale = 5.0
    assert not is_quick(model, x, more)
    check(model, x, more)


def test_arguments_of_other_sizes_layouts_and_structures(model):
    x, more = arguments()
    for rows in (5, 4, 4):
        check(model, *arguments(rows))
    assert is_quick(model, *arguments(4)) == QUICK
    check(model, torch.randn(6, 3).t(), more)
    check(model, torch.randn(3, 12)[:, ::2], more)
    check(model, torch._neg_view(x), more)
    check(model, x.double().float(), {"c": more["c"], "b": more["b"]})
    check(model, x, {**more, "unused": 1})
    check(model, x, {**more, "c": (*more["c"],)})
    check(model, x, {**more, "c": [*more["c"], x]})
    check(model, x=x, more=more)
    check(model, x, more, 3)
    check(model, x, times=1, more=more)
    check(model, nn.Parameter(x, requires_grad=False), more)


class Plus(torch.Tensor):
    pass


def test_what_is_no_plain_tensor_of_the_processor_is_looked_at_in_full(model):
    x, more = arguments()
    for strange in (x.to("meta"), None, 3, x.numpy()):
        assert not is_quick(model, strange, more)
    assert not is_quick(model, x.to_sparse(), more)
    assert not is_quick(model, x.as_subclass(Plus), more)
    assert not is_quick(model, x, {**more, "b": "text"})
    assert is_quick(model, x, more) == QUICK
    with pytest.raises(TypeError, match="missing"):
        model.cached(x)


def test_settings_of_torch_are_seen(model):
    x, more = arguments()
    with torch.autocast("cpu"):
        assert not is_quick(model, x, more)
    torch.use_deterministic_algorithms(True)
    try:
        assert not is_quick(model, x, more)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.set_default_dtype(torch.float64)
    try:
        assert not is_quick(model, x, more)
    finally:
        torch.set_default_dtype(torch.float32)
    assert is_quick(model, x, more) == QUICK
    with torch.enable_grad():
        assert is_quick(model, x, more) == QUICK
        tracked = x.clone().requires_grad_()
        assert not is_quick(model, tracked, more)
        assert not is_quick(model, x, {**more, "b": tracked})
        with pytest.raises(RuntimeError, match="inference only"):
            model.cached(tracked, more)
        check(model, x, more)
        assert not model.cached(x, more)["x"].requires_grad
    assert is_quick(model, tracked, more) == QUICK


def test_another_dtype_is_another_program(model):
    model.double()
    check(model, *arguments(dtype=torch.float64))
    with pytest.raises((InputError, RuntimeError)):
        model.cached(*arguments())


def test_static_programs_of_several_sizes_take_turns(folder):
    model = Model(folder, dynamic=False)
    with torch.no_grad():
        for rows in (2, 3, 2, 3, 3):
            check(model, *arguments(rows))
        assert is_quick(model, *arguments(3)) == QUICK


def test_threads_call_at_once(model):
    wrong = []

    def work(rows):
        x, more = arguments(rows)
        with torch.no_grad():
            expected = model.run(x, more)
            for _ in range(200):
                try:
                    torch.testing.assert_close(
                        model.cached(x, more), expected, atol=1e-4, rtol=1e-4
                    )
                except BaseException as error:
                    wrong.append(error)
                    return

    threads = [threading.Thread(target=work, args=(2 + n % 2,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Scores(nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.cached = cache_compile(self.forward, cache_dir=str(folder))

    def forward(self, x):
        return x @ x.t()


@pytest.mark.parametrize("way", ["cached", "aot"])
def test_a_call_without_memory_for_its_results_does_no_harm(tmp_path, way):
    model, some = Scores(tmp_path), torch.randn(4, 1)
    file, rows = tmp_path / "scores.kmill", {"x": {0: torch.export.Dim.DYNAMIC}}
    if way == "aot":
        kernelmill.aot.compile(model, (some,), path=file, dynamic_shapes=rows)
    with torch.no_grad():
        call = kernelmill.aot.load(file) if way == "aot" else model.cached
        too_many = torch.zeros(2**24, 1)  # a result of 2 to the 50 bytes
        for sizes in ((), (4,), (5, 4)):
            for size in sizes:
                x = torch.randn(size, 1)
                torch.testing.assert_close(call(x), model(x))
            with pytest.raises(RuntimeError, match="alloc"):
                call(too_many)
        for size in (4, 4, 5, 3, 3):
            x = torch.randn(size, 1)
            torch.testing.assert_close(call(x), model(x))


class Numbered(nn.Module):
    def __init__(self, folder, number):
        super().__init__()
        self.number = number
        self.cached = cache_compile(self.forward, cache_dir=str(folder), dynamic=False)

    def forward(self, x):
        return x * 2 + self.number


def test_methods_are_recorded_more_often_than_dynamo_traces_a_function(tmp_path):
    model = Numbered(tmp_path / "sizes", 1)
    with torch.no_grad():
        for size in range(2, 14):
            assert model.cached(torch.ones(size)).tolist() == [3.0] * size
        for number in range(12):
            other = Numbered(tmp_path / str(number), number)
            assert other.cached(torch.ones(2)).tolist() == [2.0 + number] * 2
    assert model.cached.statistics == {"loaded": 0, "traced": 12, "uncached": 0}


def test_an_entry_is_no_file_to_load(tmp_path):
    model = Numbered(tmp_path, 1)
    with torch.no_grad():
        model.cached(torch.ones(2))
    (entry,) = tmp_path.rglob("*.kmill")
    with pytest.raises(UnsupportedError, match="an entry of the compile cache"):
        kernelmill.aot.load(entry)


class Parted(nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x):
        torch._assert_async((x < 9).all(), "too large")
        y = x.exp()
        return y[1:], y.split(2), x.shape[0], y


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_results_go_the_quick_way(folder, dynamic):
    model = Parted(folder)
    with torch.no_grad():
        for rows in (4, 4, 4, 6, 6, 6) if dynamic else (4, 4, 4):
            x = torch.randn(rows, 3)
            found, expected = model.cached(x), model.run(x)
            assert found[2] == expected[2]
            pairs = zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True)
            for mine, theirs in pairs:
                torch.testing.assert_close(mine, theirs)
                assert mine._base is found[3] and mine.storage_offset() == theirs.storage_offset()
        assert is_quick(model, x) == QUICK
        with pytest.raises(RuntimeError, match="too large"):
            model.cached(x + 20)
