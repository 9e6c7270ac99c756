"""What holds for every test: a folder of compiled kernels of its own, and threads that share.

The folder is one for the whole run, also over the workers of pytest-xdist, which then compile each
kernel once between them. Tests of the store make folders of their own.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from operator import attrgetter
from pathlib import Path

import hypothesis
import pytest

from tests import shares
from tests.fresh import FreshProcesses, fresh_processes

# Before torch loads OpenMP: waiting threads that spin would starve the other worker's.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# What is printed goes into a pipe: pytest-xdist tells its workers of a terminal of 80 columns.
os.environ.pop("COLUMNS", None)

_FOLDER = pytest.StashKey[str]()
"""What the tests of a run leave behind, until its end."""

# How long an example takes says nothing on a busy machine; each run has the same examples.
hypothesis.settings.register_profile("kernelmill", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=3000)
hypothesis.settings.register_profile("graphs", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("kernelmill")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs_internal(*names): asserts what is so only with these private parts"
    )
    if config.getoption("--trap-tiles"):
        _trap_tiles(config)
    _leave_out(config.getoption("--without-internal"))
    _emulate(config.getoption("--emulate"))
    if config.getoption("--guard-pages"):
        from tests import guard_pages

        guard_pages.begin()
    if config.getoption("--hypothesis-profile") == "long":
        # Torch's test modules load profiles of their own, so the current one says nothing.
        hypothesis.settings.register_profile("graphs", hypothesis.settings.get_profile("long"))
    if not _is_worker(config):
        if config.getoption("--write-durations"):
            config.pluginmanager.register(shares.Durations())
        config.stash[_FOLDER] = folder = tempfile.mkdtemp(prefix="kernelmill-tests-")
        os.environ["KERNELMILL_KERNEL_META"] = config.getoption("--kernels") or folder
        os.environ["KERNELMILL_STATIC_KERNELS"] = os.path.join(folder, "packages")
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache_home")


def _leave_out(names: list[str]) -> None:
    """Have the probes of these fail in this process and those that it starts."""
    if not names:
        return
    from kernelmill.torch_internals import registry

    # The variable first: some modules ask for what they need as they are imported.
    os.environ["KERNELMILL_WITHOUT_INTERNALS"] = ",".join(names)
    registry.register_all()
    if unknown := set(names) - registry.known().keys():
        known = ", ".join(sorted(registry.known()))
        raise pytest.UsageError(f"--without-internal {', '.join(unknown)}: there are {known}")


def _skip_what_needs_it(config: pytest.Config, item: pytest.Item) -> None:
    """Skip a test that says that a part is needed which is left out."""
    left_out = set(config.getoption("--without-internal"))
    needed = {name for mark in item.iter_markers("needs_internal") for name in mark.args}
    if missing := sorted(needed & left_out):
        item.add_marker(pytest.mark.skip(reason=f"what it asserts needs {', '.join(missing)}"))


def _emulate(name: str) -> None:
    """Compile for another processor, and run kernels under its emulator."""
    if not name:
        return
    from tests import emulation
    from tools.reach.environment import Unavailable

    try:
        emulation.begin(name)
    except (Unavailable, ValueError) as error:
        raise pytest.UsageError(f"--emulate {name}: {error}") from None


def _trap_tiles(config: pytest.Config) -> None:
    """Begin anew on a processor with a tile unit."""
    from tests.tile_trap import trap

    if trap.has_tiles():
        return
    config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
    try:
        trap.execute(sys.orig_argv[1:], count=True)
    except trap.Unavailable as error:
        raise pytest.UsageError(f"--trap-tiles: {error}") from None


FLAGS = {
    "--update-golden": "write the texts of tests/golden anew",
    "--quick": "run what fits into seven minutes, of each test the first of its parameters",
    "--write-durations": "write to tests/durations.txt how long tests take: --quick chooses by it",
    "--guard-pages": "run compiled kernels between pages that nobody may touch (guard_pages.py)",
    "--every-size": "run kernels and programs of dynamic sizes with every dtype, divisor and size "
    "(dynamic_graphs.py)",
    "--trap-tiles": "run as on a processor with a tile unit: each of its instructions raises a "
    "signal here, whose handler does what it would do (tile_trap)",
}
VALUES = {
    "--share": ("1/1", "K/N", "run the K-th of N parts, chosen by name"),
    "--emulate": ("", "ISA", "run kernels under an emulator of this instruction set (tools/reach)"),
    "--kernels": ("", "FOLDER", "have kernels in this folder, which stays"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for flag, text in FLAGS.items():
        parser.addoption(flag, action="store_true", help=text)
    for name, (default, metavar, text) in VALUES.items():
        parser.addoption(name, default=default, metavar=metavar, help=text)
    parser.addoption(
        "--without-internal", action="append", default=[], metavar="NAME",
        help="run as if the probe of this private part failed; see kernelmill.torch_internals, and "
        "tools/without_each.py for one after another",
    )  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported here is garbage: to look for it took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.unfreeze()  # all of it counts as old now
        # To look at what is old takes a second: tests that ask for it collect it themselves.
        gc.set_threshold(*gc.get_threshold()[:2], 400)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        share = shares.part_of(config.getoption("--share"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    for first in shares.firsts_of(items).values():
        first.user_properties.append(shares.FIRST)
    part = shares.quick_of(items) if config.getoption("--quick") else items
    kept = {item.nodeid for item in part if shares.is_in(item.nodeid, share)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]
    for item in items:
        _skip_what_needs_it(config, item)


@pytest.fixture(scope="session", autouse=True)
def usual_machine() -> None:
    """Programs are compiled for the committed figures of this machine: what one test measured
    would change what is chosen in all that come after it."""
    from kernelmill.compiler.calibration import keep_figures
    from kernelmill.core.target.machine import target_machine
    from kernelmill.store.store import open_store

    keep_figures(open_store(), target_machine("native"))


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """A test draws the same numbers whatever ran before it."""
    random.seed(0)
    for name, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if name in sys.modules:
            attrgetter(seed)(sys.modules[name])(0)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Generator[None]:
    """A test compiles anew: what others traced counts towards a limit, beyond which Dynamo gives
    up on functions that tests share."""

    def reset() -> None:
        if "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()

    reset()
    yield
    reset()


@pytest.fixture(scope="session")
def every_size(request: pytest.FixtureRequest) -> bool:
    """Whether dynamic sizes, dtypes and instruction sets are all to be tried."""
    return bool(request.config.getoption("--every-size"))


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshProcesses]:
    """Python processes that need not import torch again."""
    with fresh_processes(tmp_path_factory.mktemp("fresh")) as processes:
        yield processes


@pytest.fixture
def earlier_garbage_left() -> Iterator[None]:
    """gc.collect() does not look at what was there before the test, which takes a second."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def threads_as_before() -> Iterator[None]:
    """The test may change torch's number of threads."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("stage/name.txt", text)` compares with the file of that name in tests/golden."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.read_text() == text, f"{name}: look at it, then run with --update-golden"

    return compare


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.getoption("--emulate"):
        from tests import emulation

        terminalreporter.write_line(emulation.summary())
    if config.getoption("--trap-tiles"):
        from tests.tile_trap import trap

        found = ", ".join(f"{count} {name}" for name, count in trap.counted().items())
        terminalreporter.write_line(f"instructions on tiles that were trapped: {found or None}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.getoption("--emulate"):
        from tests import emulation

        emulation.end()
    if config.getoption("--trap-tiles") and not _is_worker(config):
        from tests.tile_trap import trap

        trap.end()
    if not _is_worker(config):
        del os.environ["KERNELMILL_KERNEL_META"]
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)
