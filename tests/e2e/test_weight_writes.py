"""Writes to weights after the first call, through whatever alias: the next call knows, in all
modes. What is no write packs nothing anew."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill import CompilerConfig
from kernelmill.compiler import linking
from kernelmill.inference import cache_compile
from kernelmill.runtime.program import Program
from kernelmill.runtime.weights.page_scan import PageScan
from kernelmill.runtime.weights.write_watch import WriteWatch, write_watch

MODES = ["default", "dynamic", "reduce-overhead", "cache_compile", "aot"]
ROWS, WIDTH = 300, 70


class Model(nn.Module):
    """A large weight and a small one."""

    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Linear(WIDTH, ROWS)
        self.small = nn.Linear(ROWS, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)

    def run(self, x: Tensor) -> Tensor:
        return self.small(torch.relu(self.large(x)))


@dataclass
class Running:
    """A compiled model. `weights` are what it computes with."""

    call: Callable[[Tensor], Tensor]
    weights: dict[str, Tensor]
    reports: Callable[[], list[dict[str, int]]]
    packs: bool
    x: Tensor = field(default_factory=lambda: torch.randn(3, WIDTH))

    def expected(self) -> Tensor:
        w = {name: tensor.double() for name, tensor in self.weights.items()}
        hidden = torch.relu(self.x.double() @ w["large.weight"].T + w["large.bias"])
        return hidden @ w["small.weight"].T + w["small.bias"]

    def check(self) -> None:
        with torch.inference_mode() if self.x.is_inference() else torch.no_grad():
            got = self.call(self.x)
            torch.testing.assert_close(got.double(), self.expected(), atol=1e-4, rtol=1e-4)

    def count(self, name: str) -> int:
        return sum(report[name] for report in self.reports())


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    programs: list[Program] = []

    def loading(*args: Any, **kwargs: Any) -> Program:
        programs.append(load(*args, **kwargs))
        return programs[-1]

    load = linking.load
    monkeypatch.setattr(linking, "load", loading)
    monkeypatch.setenv("KERNELMILL_STRICT", "1")

    def begin(mode: str, check: str = "auto", model: Model | None = None) -> Running:
        model = (model or Model()).eval()
        config = CompilerConfig()
        config.check_weights = check
        weights = dict(model.named_parameters())
        if mode == "aot":
            path = str(tmp_path / "model.kmill")
            kernelmill.aot.compile(model, (torch.randn(3, WIDTH),), path=path, config=config)
            loaded = kernelmill.aot.load(path)
            return Running(loaded, dict(loaded.tensors), lambda: [loaded.report()], True)
        if mode == "cache_compile":
            cached = cache_compile(model.run, cache_dir=str(tmp_path), config=config)
            return Running(cached, weights, lambda: [cached.report()], True)
        if mode == "reduce-overhead":
            config.mode = mode
        backend = kernelmill.get_backend(compiler_config=config)
        call = torch.compile(model, backend=backend, dynamic=True if mode == "dynamic" else None)
        packs = mode != "reduce-overhead"  # operators one by one read weights where they are
        return Running(call, weights, lambda: [program.report() for program in programs], packs)

    return begin


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system does not tell of written pages."""
    monkeypatch.setattr(WriteWatch, "allowed", property(lambda self: False))


@pytest.fixture
def allowed() -> None:
    if not write_watch().allowed:
        pytest.skip("this system does not tell of writes")


def one_element(w: Tensor) -> None:
    w.data[151, 33] += 5


def by_numpy(w: Tensor) -> None:
    w.detach().numpy()[[17, 290], 2:9] = 1.5


def by_address(w: Tensor) -> None:
    ctypes.memset(w.data_ptr() + 4 * (WIDTH * 77 + 3), 0, 64)


def by_set(w: Tensor) -> None:
    alias = torch.empty(0).set_(w.untyped_storage(), w.storage_offset(), w.shape, w.stride())
    alias[200].add_(3)


def merged_rows(w: Tensor) -> None:
    w.data[40:44] += torch.randn(4, 2) @ torch.randn(2, WIDTH)


def from_a_file(w: Tensor) -> None:
    """The kernel writes."""
    buffer = memoryview(w.detach().numpy()).cast("B")
    with open("/dev/zero", "rb", buffering=0) as file:
        file.readinto(buffer[4 * WIDTH * 120 : 4 * WIDTH * 121])


WRITES = [one_element, by_numpy, by_address, by_set, merged_rows, from_a_file]


@pytest.mark.parametrize("mode", MODES)
def test_a_write_to_a_few_rows_is_seen(mode: str, start: Start, allowed: None) -> None:
    running = start(mode)
    running.check()
    running.check()
    assert (running.count("weights_watched") > 0) == running.packs
    assert running.count("weights_sampled") == 0
    for write in WRITES:
        write(running.weights["large.weight"])
        before = running.count("repacks")
        running.check()
        running.check()
        assert running.count("repacks") == before + running.packs, write


@pytest.mark.parametrize("check", ["auto", "samples"])
@pytest.mark.parametrize("mode", ["default", "aot"])
def test_small_weights_are_compared_whole(mode: str, check: str, start: Start) -> None:
    running = start(mode, check)
    running.check()
    for column in range(0, ROWS, 37):
        running.weights["small.weight"].data[3, column] += 1
        running.check()


@pytest.mark.parametrize("mode", MODES)
def test_where_pages_are_not_told_full_sees_every_write(
    mode: str, start: Start, refused: None
) -> None:
    running = start(mode, "full")
    running.check()
    running.check()
    assert (running.count("weights_compared") > 0) == running.packs
    assert running.count("weights_watched") == running.count("weights_sampled") == 0
    for write in WRITES:
        write(running.weights["large.weight"])
        before = running.count("repacks")
        running.check()
        running.check()
        assert running.count("repacks") == before + running.packs, write


def test_where_pages_are_not_told_pieces_see_whole_weights_change(
    start: Start, refused: None
) -> None:
    running = start("default")
    running.check()
    assert running.count("weights_sampled") >= 1 and running.count("weights_watched") == 0
    running.weights["large.weight"].data.mul_(1.5)
    running.check()


def test_memory_that_cannot_be_watched_is_compared_whole(
    start: Start, allowed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(self: PageScan, pages: tuple[int, int]) -> None:
        raise OSError("somebody else watches it")

    monkeypatch.setattr(PageScan, "register", taken)
    running = start("default")
    running.check()
    assert running.count("weights_sampled") == running.count("weights_watched") == 0
    one_element(running.weights["large.weight"])
    running.check()


def test_full_sees_signs_that_change_in_pairs(start: Start) -> None:
    running = start("default", "full")
    running.check()
    weight = running.weights["large.weight"].data
    for rows in ([3, 4], [10, 20], [0, 299]):
        weight[rows] *= -1
        running.check()
        weight[[rows[1], rows[0]]] = weight[rows]
        running.check()


def test_a_neighbours_write_packs_nothing(start: Start, allowed: None) -> None:
    room = torch.randn(ROWS * WIDTH + 200)
    model = Model()
    model.large.weight.data = room[100:-100].view(ROWS, WIDTH)
    running = start("default", model=model)
    running.check()
    before = running.count("repacks")
    for times in (1, 10):  # the edges are protected, then loose
        for n in range(times):
            room[n], room[-1 - n] = n + times, n + times
            running.check()
        assert running.count("repacks") == before
        room[100] += 1  # the same page, and ours
        running.check()
        room[-101] += 1
        running.check()
        before += 2
        assert running.count("repacks") == before


@pytest.mark.usefixtures("earlier_garbage_left")
def test_memory_that_is_freed_and_used_again(start: Start) -> None:
    running = start("default")
    weight = running.weights["large.weight"]
    for _ in range(6):
        shape, value = weight.shape, float(torch.randn(()))
        weight.data = torch.empty(0)
        weight.data = torch.full(shape, value)  # where the last one was, as a rule
        running.check()
        gc.collect()


def test_a_forked_process_sees_its_writes_and_the_parent_its_own(start: Start) -> None:
    running = start("default")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # no OpenMP team to lose
    running.check()
    weight = running.weights["large.weight"]
    by_numpy(weight)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            running.check()
            before = running.count("repacks")
            running.check()
            one_element(weight)
            running.check()
            status = 0 if running.count("repacks") == before + 1 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    running.check()
    by_address(weight)
    running.check()
    torch.set_num_threads(threads)


def test_what_is_written_through_another_mapping_is_seen(start: Start, tmp_path: Path) -> None:
    # As by another process: nothing is written to the pages that are watched.
    path = tmp_path / "weight"
    path.write_bytes(bytes(4 * WIDTH * ROWS))
    model = Model()
    with path.open("r+b") as file:
        ours, other = (mmap.mmap(file.fileno(), 0) for _ in range(2))
    mapped = torch.frombuffer(ours, dtype=torch.float32).view(ROWS, WIDTH)
    model.large.weight.data = mapped.copy_(model.large.weight.detach())
    running = start("default", model=model)
    running.check()
    before = running.count("repacks")
    running.check()
    assert running.count("repacks") == before
    torch.frombuffer(other, dtype=torch.float32).normal_()
    running.check()
    with path.open("r+b") as file:
        file.write(torch.randn(ROWS, WIDTH).numpy().tobytes())
    running.check()


@pytest.mark.parametrize("mode", MODES[:-1])
def test_a_model_of_inference_tensors_is_packed_once(mode: str, start: Start) -> None:
    with torch.inference_mode():
        model = Model()
    running = start(mode, model=model)
    with torch.inference_mode():
        running.x = torch.randn(3, WIDTH)
    assert running.weights["large.weight"].is_inference()
    for _ in range(3):
        running.check()
    packed = running.count("repacks")
    for _ in range(3):
        running.check()
    assert running.count("repacks") == packed
    with torch.inference_mode():
        running.weights["large.weight"][151, 33] += 5
    running.check()
    running.check()
    assert running.count("repacks") == packed + running.packs


def test_inference_tensors_are_compared_whole_where_pages_are_not_told(
    start: Start, refused: None
) -> None:
    with torch.inference_mode():
        model = Model()
    running = start("default", "samples", model)
    running.check()
    with torch.inference_mode():
        running.weights["large.weight"][151, 33] += 5
    running.check()
    assert running.count("weights_sampled") == 0


@pytest.mark.parametrize("mode", MODES)
def test_swapped_tensors(mode: str, start: Start) -> None:
    running = start(mode)
    running.check()
    weight = running.weights["large.weight"]
    make = nn.Parameter if isinstance(weight, nn.Parameter) else torch.Tensor.detach
    torch.utils.swap_tensors(weight, make(torch.randn(ROWS, WIDTH)))
    running.check()
    running.check()


@pytest.mark.parametrize("mode", MODES[:-1])
def test_conversions_that_swap(mode: str, start: Start) -> None:
    model = Model()
    running = start(mode, model=model)
    running.check()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        state = {name: torch.randn_like(t) for name, t in model.state_dict().items()}
        model.load_state_dict(state, assign=True)
        running.check()
        model.to(torch.float64)
        running.x = running.x.double()
        running.check()
        model.float()
        running.x = running.x.float()
        running.check()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
