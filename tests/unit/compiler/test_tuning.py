"""Schedules chosen by measuring: which, how often, and what is kept of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelmill.compiler import tuning as module
from kernelmill.compiler.tuning import TYPE, Tuner
from kernelmill.core.digest import Key
from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.lower.driver.program import lower_graph
from kernelmill.lower.schedule.search import BY_MODEL, ScheduleSearch
from kernelmill.store import Store
from tests.compiled import check, graph, program, whole

ROWS = 20


def matmul(rows=ROWS):
    return graph(lambda b, x, y: b.emit("matmul", x, y), (F32, (rows, 64)), (F32, (64, 96)))


def attention():
    shape = (1, 2, 40, 16)
    return graph(
        lambda b, q, k, v: b.emit("attention", q, k, v, scale=0.25, causal=False),
        *[(F32, shape)] * 3,
    )


def convolution(groups=1, size=3):
    """One with constant weights and a result channels last."""
    b = GraphBuilder("g")
    x = b.input("x", F32, (1, 32, 14, 15))
    weight = b.input(
        "w", F32, (64 if groups == 1 else 32, 32 // groups, size, size), role=InputRole.PARAM
    )
    window = {"stride": (1, 1), "padding": (size // 2, size // 2), "dilation": (1, 1)}
    found = b.emit("conv", x, weight, groups=groups, **window)
    channels = int(str(found.shape[1]))
    strides = (channels * 14 * 15, 1, channels * 15, channels)
    b.graph.results = [b.emit("layout", b.emit("neg", found), strides=strides)]
    return b.graph


CONVOLUTIONS = {
    "3x3": convolution,
    "pixels": lambda: convolution(size=1),
    "depthwise": lambda: convolution(groups=32),
}


@pytest.fixture
def tuner(tmp_path):
    return Tuner(Store(tmp_path), host())


def again(tuner):
    """As another process would begin: nothing but the folder is left."""
    return Tuner(Store(tuner.store.folder.path), host())


def by(pick):
    """Schedules by the labels that `pick` gives."""
    return ScheduleSearch(pick).settle


def tune(tuner, built):
    return lower_graph(built, host(), settle=by(tuner.pick))


@pytest.mark.parametrize("build", [matmul, attention, convolution])
def test_several_schedules_are_measured_and_the_result_is_right(tuner, build):
    built = build()
    made = tune(tuner, built)
    assert tuner.settled == 1
    assert 2 <= tuner.measured <= 13
    arguments = [torch.randn(*map(int, e.value.type.shape)) for e in built.tensor_inputs()]
    (result,) = program(made)(*arguments)
    (expected,) = program(lower_graph(built, host()))(*arguments)
    torch.testing.assert_close(result, expected)


def test_every_schedule_on_offer_computes_the_same():
    """Whole numbers, whose sums are exact in any order."""
    for built in (matmul(), matmul(1), matmul(130)):
        labels = []
        lower_graph(
            built,
            host(),
            settle=ScheduleSearch(
                lambda t, found=labels: found.extend(t.labels) or BY_MODEL
            ).settle,
        )
        assert labels[0] == BY_MODEL and len(set(labels)) == len(labels) > 2
        arguments = [whole(F32, *map(int, e.value.type.shape)) for e in built.tensor_inputs()]
        expected = arguments[0] @ arguments[1]
        for label in labels:
            made = lower_graph(built, host(), settle=by(lambda t, label=label: label))
            assert torch.equal(program(made)(*arguments)[0], expected), label


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_every_schedule_of_a_convolution_computes_the_same(name):
    built, labels = CONVOLUTIONS[name](), []
    lower_graph(built, host(), settle=by(lambda t: labels.extend(t.labels) or BY_MODEL))
    assert labels[0] == BY_MODEL and len(set(labels)) == len(labels) > 4
    shapes = [tuple(map(int, e.value.type.shape)) for e in built.tensor_inputs()]
    image, weight = (whole(F32, *shape, low=-2, high=3) for shape in shapes)
    groups = image.shape[1] // weight.shape[1]
    padding = weight.shape[-1] // 2
    expected = -torch.nn.functional.conv2d(image, weight, padding=padding, groups=groups)
    for label in labels:
        made = lower_graph(built, host(), settle=by(lambda t, label=label: label))
        assert torch.equal(program(made)(image, weight)[0], expected), label


def test_labels_give_different_kernels():
    texts = {}
    for label in (BY_MODEL, "vectors=1"):
        made = lower_graph(matmul(), host(), settle=by(lambda t, label=label: label))
        texts[label] = set(made.kernels)
    assert texts[BY_MODEL].isdisjoint(texts["vectors=1"])
    assert set(lower_graph(matmul(), host()).kernels) == texts[BY_MODEL]


def test_what_was_chosen_is_known_to_the_next_one(tuner):
    first = tune(tuner, matmul())
    later = again(tuner)
    assert set(tune(later, matmul()).kernels) == set(first.kernels)
    assert (later.settled, later.measured) == (1, 0)
    tune(later, matmul(ROWS + 1))
    assert later.measured > 0


def test_the_threads_belong_to_the_key(tuner):
    tune(tuner, matmul())
    before, threads = tuner.measured, torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        tune(tuner, matmul())
    finally:
        torch.set_num_threads(threads)
    assert tuner.measured > before


@pytest.mark.parametrize("suffix", [".o", ".json", ".info"])
def test_a_damaged_choice_is_made_again(tuner, suffix):
    tune(tuner, matmul())
    (path,) = Path(tuner.store.folder.path).glob(f"{TYPE}_*{suffix}")
    path.write_bytes(path.read_bytes()[:-3])
    later = again(tuner)
    tune(later, matmul())
    assert later.measured == tuner.measured
    assert later.store.counts.set_aside == 1


def test_a_label_that_is_no_longer_on_offer_is_replaced(tuner, monkeypatch):
    monkeypatch.setattr(Tuner, "_times", lambda self, tunable: {BY_MODEL: 100, "gone": 1})
    tune(tuner, matmul())
    monkeypatch.undo()
    later = again(tuner)
    tune(later, matmul())
    assert later.measured > 2
    last = again(tuner)
    tune(last, matmul())
    assert last.measured == 0


@pytest.mark.parametrize(("spent", "chosen"), [(99, BY_MODEL), (90, "vectors=1")])
def test_another_schedule_has_to_be_clearly_faster(tuner, monkeypatch, spent, chosen):
    monkeypatch.setattr(Tuner, "_times", lambda self, t: {BY_MODEL: 100, "vectors=1": spent})
    picked = []
    lower_graph(
        matmul(),
        host(),
        settle=by(lambda t: picked.append(tuner.pick(t)) or picked[-1]),
    )
    assert picked == [chosen]


def test_symbolic_sizes_are_left_to_the_cost_model(tuner):
    rows = of_atom(Sym("s0", 2, 4096))
    tune(tuner, matmul(rows))
    assert (tuner.settled, tuner.measured) == (0, 0)


def test_constants_are_packed_for_the_schedule_that_was_chosen():
    """A weight's panels are as wide as the chosen tile, and nothing else is packed."""
    built = matmul()
    built.inputs[1] = replace(built.inputs[1], role=InputRole.PARAM)
    made = lower_graph(built, host(), settle=by(lambda t: "vectors=1"))
    lanes = host().isa.lanes(F32)
    packed = [buffer.shape for buffer in made.plan.buffers if buffer.kind == "packed"]
    assert packed == [(96 // lanes, 64, lanes)]
    check(built, whole(F32, ROWS, 64), whole(F32, 64, 96))


SECOND = """
import sys, torch
import kernelmill
from kernelmill.backend.entry import Backend

config = kernelmill.CompilerConfig()
config.aoe_config.aoe_mode = "2"
config.experimental_config.kernel_meta_dir = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.GELU(), torch.nn.Linear(48, 32))
x = torch.randn(24, 64)
made = []
compiled = torch.compile(model, backend=Backend(config, on_compiled=made.append))
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x), rtol=2e-5, atol=1e-5)
(only,) = made
print(only.report.tuned, only.report.schedules_measured)
"""


def test_a_second_process_measures_nothing(fresh, tmp_path):
    def run():
        output = fresh.output("-c", SECOND, tmp_path / "kernels", cwd=tmp_path)
        return tuple(map(int, output.split()[-2:]))

    tuned, measured = run()
    assert tuned == 2 and measured > 2
    assert run() == (2, 0)


def test_entries_name_target_threads_and_kernel(tuner):
    tune(tuner, matmul())
    (info,) = Path(tuner.store.folder.path).glob(f"{TYPE}_*.info")
    key = module.key_of(host(), tuning="", threads="")
    assert isinstance(key, Key)
    names = {name for name, _ in key.ingredients}
    assert all(f'"{name}"' in info.read_text() for name in names)


def test_a_bar_tells_of_the_schedules(tuner, monkeypatch):
    shown = []
    monkeypatch.setattr(tuner._progress, "show", lambda done, total: shown.append((done, total)))
    tune(tuner, matmul())
    tune(tuner, matmul(ROWS + 1))
    first, last = shown[0], shown[-1]
    assert first[0] == 0 and last == (tuner.measured, tuner.measured)
    assert all(done <= total for done, total in shown)
