"""`kernelmill.aot`: compiled files in processes that have nothing else, and what they refuse."""

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

import kernelmill
from kernelmill import CompilerConfig
from kernelmill.aot import exporting
from kernelmill.artifact.container import KMILL
from kernelmill.core.errors import (
    ConfigError,
    ConfigTypeError,
    InputError,
    StoreError,
    UnsupportedError,
)
from kernelmill.store.sealed import SealedFile
from tests.e2e.aot.models import Boxed, Pair, arguments

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def environment(folder):
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return {
        **os.environ, "PYTHONPATH": paths, "KERNELMILL_KERNEL_META": str(folder / "kernels")
    }  # fmt: skip


def run(folder, *command):
    """The output of a process that imports nothing but what it names."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment(folder),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def files(fresh, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    fresh.output("-m", "tests.e2e.aot.models", folder, cwd=folder, env=environment(folder))
    return folder


# One of its calls has a size of 1, for which torch traces no program without the part.
NESTED = pytest.param("nested", 3, marks=pytest.mark.needs_internal("export.oblivious_sizes"))


@pytest.mark.parametrize(("name", "calls"), [NESTED, ("static", 1)])
def test_a_process_with_nothing_else_runs_the_file(files, tmp_path, name, calls):
    elsewhere = tmp_path / "elsewhere"
    output = run(elsewhere, HERE / "serving.py", files / f"{name}.kmill", files / "calls.pt", calls)
    # Neither torch._dynamo nor the code generator, and no file but the one that is loaded.
    assert output == "[] []"


def test_weights_are_on_the_cpu_whatever_the_default_device(files):
    with torch.device("meta"):
        program = kernelmill.aot.load(files / "nested.kmill")
    assert {tensor.device.type for tensor in program.tensors.values()} == {"cpu"}


def test_memory_that_tensors_share_is_stored_once(files):
    program = kernelmill.aot.load(files / "nested.kmill")
    assert "second.weight" in program.tensors
    assert "first.weight" not in program.tensors
    assert (files / "nested.kmill").stat().st_size < 200_000


def test_weights_are_mapped_and_may_be_written(files):
    program, other = (kernelmill.aot.load(files / "nested.kmill") for _ in range(2))
    args, kwargs = arguments()
    with torch.no_grad():
        before = program(*args, **kwargs)["y"]
        program.tensors["ramp"].mul_(2.0)
        program.tensors["second.weight"].zero_()
        after = program(*args, **kwargs)["y"]
        assert not torch.allclose(after, before)
        torch.testing.assert_close(other(*args, **kwargs)["y"], before)
    maps = Path("/proc/self/maps").read_text()
    assert any("nested.kmill" in line for line in maps.splitlines())


REFUSED = {
    "argument 'extra' is missing": lambda a, k: (a, {}),
    "argument 'loud' is missing": lambda a, k: (a[:3], k),
    "takes 4 arguments by position, got 5": lambda a, k: ((*a, 1), k),
    "argument 'other' is unknown: the program takes 'x', 'pair', 'n', 'loud',": (
        lambda a, k: (a, {**k, "other": 1})
    ),
    "argument 'x' is given twice": lambda a, k: (a, {**k, "x": a[0]}),
    "argument 'extra': expected NoneType None, got int 1": (lambda a, k: (a, {"extra": 1})),
    "argument 'loud': expected bool True, got bool False": (lambda a, k: ((*a[:3], False), k)),
    "argument 'n': expected int, got float": lambda a, k: ((*a[:2], 2.0, a[3]), k),
    "argument 'pair': expected list of 2, got tuple of 2": (
        lambda a, k: ((a[0], tuple(a[1]), *a[2:]), k)
    ),
    "argument 'pair': expected list of 2, got list of 1": (
        lambda a, k: ((a[0], a[1][:1], *a[2:]), k)
    ),
    "argument 'pair.1': expected dict of ['q'], got dict of ['r']": (
        lambda a, k: ((a[0], [a[1][0], {"r": a[0]}], *a[2:]), k)
    ),
    "argument 'pair.1.q' (number 2): expected shape [4, 6]": (
        lambda a, k: ((a[0], [a[1][0], {"q": a[0][:3]}], *a[2:]), k)
    ),
    "argument 'x' (number 0): expected dtype f32, got dtype f64": (
        lambda a, k: ((a[0].double(), *a[1:]), k)
    ),
    "argument 'x' (number 0): expected a tensor, got int 3": lambda a, k: ((3, *a[1:]), k),
    "dim 0 of argument 'x' is 65, and has to be at least 1 and at most 64": (
        lambda a, k: ((torch.zeros(65, 6), *a[1:]), k)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_an_argument_that_does_not_fit_is_named(files, message):
    program = kernelmill.aot.load(files / "nested.kmill")
    args, kwargs = REFUSED[message](*arguments())
    with torch.no_grad(), pytest.raises(InputError) as caught:
        program(*args, **kwargs)
    assert message in str(caught.value)
    assert program.tensors["state"].tolist() == [0.0] * 6


def test_arguments_that_require_grad_are_refused(files):
    program = kernelmill.aot.load(files / "nested.kmill")
    args, kwargs = arguments()
    with pytest.raises(RuntimeError, match="'x' requires grad"):
        program(args[0].requires_grad_(), *args[1:], **kwargs)
    args, kwargs = arguments()
    args[1][1]["q"].requires_grad_()
    with pytest.raises(RuntimeError, match=r"'pair\.1\.q' requires grad.*pair\.1\.q\.detach"):
        program(*args, **kwargs)


@pytest.mark.needs_internal("tensors.version")  # else weights are packed by the process
def test_packed_weights_come_with_the_file(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 96))
    x = torch.randn(64, 96)
    plain = compiled(tmp_path, model, (x,))
    program = compiled(tmp_path, model, (x,), mmap_packed_weights=True)
    with torch.no_grad():
        torch.testing.assert_close(program(x), plain(x))
        assert (plain.report()["repacks"], program.report()["repacks"]) == (2, 0)
        assert program.report()["packed_bytes"] == plain.report()["packed_bytes"]
        program.tensors["2.weight"].mul_(2.0)
        model[2].weight.mul_(2.0)
        torch.testing.assert_close(program(x), model(x), atol=1e-4, rtol=1e-4)
    assert program.report()["repacks"] == 1


# ---- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["manifest", "plan", "objects", "weights", "header"])
def test_a_changed_file_is_one_clear_error(files, tmp_path, part):
    data = bytearray((files / "static.kmill").read_bytes())
    place = 60 if part == "header" else SealedFile(
        files / "static.kmill", KMILL
    ).sections[part][0] + 3  # fmt: skip
    data[place] ^= 1
    bad = tmp_path / "bad.kmill"
    bad.write_bytes(data)
    with pytest.raises(StoreError, match=f"bad.kmill is damaged: the checksum of its {part}"):
        kernelmill.aot.load(bad)


@pytest.mark.parametrize("keep", [0, 20, 3000, -5000])
def test_a_torn_file_is_one_clear_error(files, tmp_path, keep):
    bad = tmp_path / "bad.kmill"
    bad.write_bytes((files / "static.kmill").read_bytes()[:keep])
    with pytest.raises(StoreError, match=r"bad\.kmill is (damaged|no file)"):
        kernelmill.aot.load(bad)


def test_a_loaded_program_says_how_another_is_had(files):
    program = kernelmill.aot.load(files / "static.kmill")
    for take in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"kernelmill.aot.load\('.*static.kmill'\)"):
            take(program)


def test_a_file_that_others_can_write_to_is_refused(files, tmp_path):
    other = tmp_path / "copy.kmill"
    other.write_bytes((files / "static.kmill").read_bytes())
    other.chmod(0o666)
    with pytest.raises(StoreError, match="chmod"):
        kernelmill.aot.load(other)
    other.chmod(0o600)
    kernelmill.aot.load(other)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        kernelmill.aot.load(tmp_path / "nothing")
    with pytest.raises(StoreError, match="no plain file"):
        kernelmill.aot.load(tmp_path)


def test_a_file_for_another_machine_is_compiled_anew_or_refused(files, tmp_path, monkeypatch):
    path = files / "nested.kmill"
    lacking = "kernelmill.artifact.readable.why_not_here"
    monkeypatch.setattr(lacking, lambda isa: "this machine lacks it")
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    with pytest.raises(
        UnsupportedError, match=r"made for another machine: its instruction set is .*lacks"
    ):
        kernelmill.aot.load(path, rebuild=False)
    program = kernelmill.aot.load(path)
    assert list((tmp_path / "kernels").glob("*.o"))
    for args, kwargs, expected in torch.load(files / "calls.pt", weights_only=True)[:2]:
        with torch.no_grad():
            torch.testing.assert_close(program(*args, **kwargs), expected)
    message = "dim 0 of argument 'x' is 65"
    args, kwargs = REFUSED[f"{message}, and has to be at least 1 and at most 64"](*arguments())
    with torch.no_grad(), pytest.raises(InputError, match=message):
        program(*args, **kwargs)


def test_another_torch_is_warned_of_where_only_kernels_run(files, monkeypatch, caplog):
    args, kwargs = arguments()
    monkeypatch.setattr(torch, "__version__", f"{torch.__version__}.post9")
    kernelmill.aot.load(files / "nested.kmill")
    assert not caplog.records
    monkeypatch.setattr(torch, "__version__", "2.99.1")
    program = kernelmill.aot.load(files / "nested.kmill")
    (record,) = caplog.records
    assert re.search(r"compiled with torch 2\.\S+, and this is torch 2\.99\.1", record.getMessage())
    with torch.no_grad():
        assert program(*args, **kwargs)["y"].isfinite().all()


def test_another_torch_is_refused_where_its_operators_run(tmp_path, monkeypatch):
    x, path = torch.randn(5, 5), tmp_path / "program.kmill"
    kernelmill.aot.compile(lambda x: torch.linalg.inv(x) + 1.0, (x,), path=path)
    monkeypatch.setattr(torch, "__version__", "2.99.1")
    text = r"compiled with torch 2\.\d+\.\S+, this is torch 2\.99\.1, .* \(aten\..*linalg_inv"
    with pytest.raises(UnsupportedError, match=text):
        kernelmill.aot.load(path)
    monkeypatch.undo()
    torch.testing.assert_close(kernelmill.aot.load(path)(x), torch.linalg.inv(x) + 1.0)


# ---- what can be compiled -----------------------------------------------------------------------


def compiled(tmp_path, *args, **options):
    return kernelmill.aot.load(
        kernelmill.aot.compile(*args, path=tmp_path / "program.kmill", **options)
    )


def test_functions_and_methods(tmp_path):
    factor = torch.randn(4)

    def scaled(x, *, shift):
        return x * factor + shift

    x, shift = torch.randn(3, 4), torch.randn(4)
    program = compiled(tmp_path, scaled, (x,), {"shift": shift})
    torch.testing.assert_close(program(x, shift=shift), scaled(x, shift=shift))
    assert repr(program).startswith("AotProgram(scaled(x, shift)")

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def encode(self, x):
            return torch.tanh(self.linear(x))

    model = Two()
    program = compiled(tmp_path, model.encode, (x,))
    torch.testing.assert_close(program(x), model.encode(x).detach())
    assert "linear.weight" in program.tensors


@pytest.mark.parametrize("method", ["by_forward", "by_call"])
def test_methods_that_call_the_models_forward(tmp_path, method):
    class Scaled(nn.Linear):
        def by_forward(self, x):
            return self.forward(x) * 2

        def by_call(self, x):
            return self(x) * 2

    model, x = Scaled(4, 4), torch.randn(3, 4)
    model.register_forward_hook(lambda module, args, result: result + 7)
    program = compiled(tmp_path, getattr(model, method), (x,))
    with torch.no_grad():
        torch.testing.assert_close(program(x), getattr(model, method)(x))


def test_named_tuples_and_dataclasses_come_and_go(tmp_path):
    def swap(pair, boxed):
        return Pair(pair.high * 2.0, pair.low), Boxed(boxed.value + 1.0, boxed.note - 1.0)

    a, b = torch.randn(2, 3)
    program = compiled(tmp_path, swap, (Pair(a, b), Boxed(a, b)))
    got = program(Pair(b, a), Boxed(b, a))
    assert type(got[0]) is Pair and type(got[1]) is Boxed
    torch.testing.assert_close((*got[0], got[1].value), (a * 2.0, b, b + 1.0))
    with pytest.raises(InputError, match=r"argument 'pair': expected .*Pair, got tuple"):
        program((a, b), Boxed(a, b))


def test_a_tensor_given_twice_is_two_arguments(tmp_path):
    x, y = torch.randn(2, 5)
    program = compiled(tmp_path, lambda a, b: a - 2.0 * b, (x, x))
    torch.testing.assert_close(program(x, y), x - 2.0 * y)


def test_arguments_are_updated_in_place(tmp_path):
    def step(total, x):
        total.add_(x)
        return total * 2.0

    program = compiled(tmp_path, step, (torch.zeros(4), torch.ones(4)))
    total, x = torch.zeros(4), torch.ones(4)
    version = total._version
    assert program(total, x).tolist() == [2.0] * 4
    assert program(total, x).tolist() == [4.0] * 4
    assert total.tolist() == [2.0] * 4 and total._version > version
    with pytest.raises(InputError, match="'total' and 'x' share memory"):
        program(total, total)


def test_several_buffers_are_updated_in_place(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(4))
            self.register_buffer("values", torch.zeros(4))

        def forward(self, x):
            self.keys.add_(x)
            self.values.add_(2.0 * x)
            return self.keys + self.values

    program = compiled(tmp_path, Twice(), (torch.ones(4),))
    assert program(torch.ones(4)).tolist() == [3.0] * 4
    assert program(torch.ones(4)).tolist() == [6.0] * 4
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            program(torch.zeros(4))
            with pytest.raises(InputError, match="share memory"):
                program(program.tensors["keys"])
    assert program(torch.ones(4)).tolist() == [9.0] * 4


def test_parts_of_one_memory_that_do_not_meet_are_updated(tmp_path):
    def step(total, x):
        total.add_(x)
        return total * 2.0

    program = compiled(tmp_path, step, (torch.zeros(4), torch.ones(4)))
    whole = torch.arange(12.0)
    assert program(whole[:4], whole[4:8]).tolist() == [8.0, 12.0, 16.0, 20.0]
    assert program(whole[8:], whole[4:8]).tolist() == [24.0, 28.0, 32.0, 36.0]
    for total, x in ((whole[:4], whole[3:7]), (whole[3:7], whole[:4])):
        with pytest.raises(InputError, match="share memory"):
            program(total, x)


def test_sizes_that_are_multiples_of_one(tmp_path):
    half = Dim("half", min=1, max=16)
    program = compiled(
        tmp_path, lambda x: x.reshape(2, -1).sum(0), (torch.randn(8),),
        dynamic_shapes={"x": {0: 2 * half}},
    )  # fmt: skip
    for rows in (8, 4, 10):
        x = torch.randn(rows)
        torch.testing.assert_close(program(x), x.reshape(2, -1).sum(0))
    with pytest.raises(InputError, match="argument 'x'"):
        program(torch.randn(7))
    with pytest.raises(InputError, match="of argument 'x' is 20"):
        program(torch.randn(40))


def test_conditions_of_the_trace_are_kept(tmp_path):
    class Either(nn.Module):
        def forward(self, x):
            return x + 1.0 if x.shape[0] % 4 == 0 else x - 1.0

    with torch.no_grad():
        program = export(
            Either(), (torch.ones(8),),
            dynamic_shapes={"x": {0: Dim.AUTO}},
        )  # fmt: skip
    loaded = compiled(tmp_path, program)
    assert loaded(torch.ones(8)).tolist() == [2.0] * 8
    for rows in (8, 12, 6):
        try:
            got = loaded(torch.ones(rows))
        except InputError:
            assert rows != 8
        else:
            torch.testing.assert_close(got, Either()(torch.ones(rows)))


def test_super_kernels_and_custom_decompositions(tmp_path):
    def run(x):
        with kernelmill.scope.super_kernel("all"):
            return torch.softmax(torch.relu(x) @ x, -1)

    config = CompilerConfig()
    config.experimental_config.super_kernel_optimize = True
    x = torch.randn(64, 64)
    program = compiled(tmp_path, run, (x,), config=config)
    torch.testing.assert_close(program(x), run(x))
    table = {torch.ops.aten.sin.default: lambda x: x * 2.0}
    program = compiled(tmp_path, torch.sin, (x,), custom_decompositions=table)
    torch.testing.assert_close(program(x), x * 2.0)


def test_operators_that_are_left_to_torch(tmp_path):
    x = torch.randn(5, 5)
    program = compiled(tmp_path, lambda x: torch.linalg.inv(x) + 1.0, (x,))
    torch.testing.assert_close(program(x), torch.linalg.inv(x) + 1.0)
    assert program.report()["aten_calls"] > 0


def test_wrong_use_is_refused(tmp_path):
    x = torch.randn(3)
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    with torch.no_grad():
        program = export(nn.ReLU(), (x,))
    with pytest.raises(InputError, match="has been traced"):
        kernelmill.aot.compile(program, (x,))
    with pytest.raises(InputError, match="tuple of positional arguments"):
        kernelmill.aot.compile(torch.sin, x)
    with pytest.raises(InputError, match="expected an ExportedProgram"):
        kernelmill.aot.compile(3, (x,))
    with pytest.raises(ConfigTypeError, match="CompilerConfig"):
        kernelmill.aot.compile(torch.sin, (x,), config={})
    with pytest.raises(ConfigError, match="captures each set of sizes"):
        compiled(
            tmp_path, lambda x: x + 1, (x,), config=config, dynamic_shapes={"x": {0: Dim.DYNAMIC}}
        )
    compiled(tmp_path, torch.sin, (x,), config=config)
    with pytest.raises(UnsupportedError, match="it returns a dict whose keys"):
        compiled(tmp_path, lambda x: {2.5: x}, (x,))


def test_the_file_is_named_after_what_it_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = kernelmill.aot.compile(nn.ReLU(), (torch.randn(3),))
    assert path == str(tmp_path / "ReLU.kmill")
    assert [name for name in os.listdir(tmp_path) if ".tmp-" in name] == []
    json.loads(SealedFile(path, KMILL).text("manifest"))


@pytest.mark.parametrize(
    ("folder", "error"),
    [
        ("missing", FileNotFoundError),
        ("file", NotADirectoryError),
        ("/proc", FileNotFoundError),  # its permissions say that root may write
    ],
)
def test_a_folder_that_takes_no_file_is_told_before_the_compile(
    tmp_path, monkeypatch, folder, error
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(exporting, "Compiler", None)
    place = tmp_path / folder
    with pytest.raises(error, match=r"pass another `path`") as refused:
        kernelmill.aot.compile(torch.relu, (torch.ones(2),), path=place / "relu.kmill")
    assert refused.value.filename == str(place)


def test_a_folder_is_no_place_for_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "Compiler", None)
    with pytest.raises(IsADirectoryError, match="pass a file's name") as refused:
        kernelmill.aot.compile(torch.relu, (torch.ones(2),), path=tmp_path)
    assert refused.value.filename == str(tmp_path)


@pytest.mark.parametrize(
    "dims", [Dim("rows"), Dim("rows", min=1, max=9), Dim.DYNAMIC, Dim.AUTO], ids=str
)
@pytest.mark.parametrize("squeeze", [torch.squeeze, lambda x: x.squeeze(0), lambda x: x.squeeze_()])
def test_a_size_of_one_that_squeeze_would_take_out_is_refused(tmp_path, squeeze, dims):
    def function(x):
        return squeeze(x + 1)

    call = compiled(tmp_path, function, (torch.randn(3, 4),), dynamic_shapes={"x": {0: dims}})
    x = torch.randn(2, 4)
    torch.testing.assert_close(call(x), function(x))
    with pytest.raises(InputError, match="is 1"):
        call(torch.randn(1, 4))


class Strided(nn.Module):
    """Counts elements from the beginning of a weight's memory, of which it holds a part."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x):
        return x + self.weight.as_strided((2,), (3,), 1)


def test_places_are_counted_in_a_weights_own_memory(tmp_path):
    memory = torch.arange(40.0)
    others = nn.Parameter(torch.full((8,), 7.0), requires_grad=False)
    whole, part = Strided(memory[:20]), Strided(memory[8:20])
    whole.before = others
    kernelmill.aot.compile(export(whole, (torch.zeros(2),)), path=tmp_path / "whole.kmill")
    loaded = kernelmill.aot.load(tmp_path / "whole.kmill")
    assert torch.equal(loaded(torch.zeros(2)), torch.tensor([1.0, 4.0]))
    with pytest.raises(UnsupportedError, match="of weight, which does not lie"):
        kernelmill.aot.compile(export(part, (torch.zeros(2),)), path=tmp_path / "part.kmill")


class Picked(nn.Module):
    """An index that is a tensor of one number: torch traces it as a number without bounds."""

    def forward(self, x, at):
        return x[at, :, 0]


def test_an_index_of_unknown_bounds_counts_from_either_end(tmp_path):
    x = torch.randn(3, 4, 5)
    try:
        program = export(Picked(), (x, torch.tensor(1)))
    except GuardOnDataDependentSymNode:  # up to torch 2.12
        pytest.skip("this torch exports no such index")
    picked = kernelmill.aot.load(kernelmill.aot.compile(program, path=tmp_path / "picked.kmill"))
    for at in (0, 2, -1, -3):
        assert torch.equal(picked(x, torch.tensor(at)), x[at, :, 0])
    for at in (3, -4):
        with pytest.raises(IndexError):
            picked(x, torch.tensor(at))


@pytest.mark.filterwarnings("error::FutureWarning")
def test_a_files_making_warns_of_nothing_in_torch(tmp_path):
    program = export(nn.ReLU(), (torch.ones(4),))
    assert kernelmill.aot.compile(program, path=tmp_path / "relu.kmill")
