"""What ran, and at which shapes, in both modes and from profiler sessions."""

import json

import pytest
import torch
from torch import nn
from torch.profiler import profile

import kernelmill
from kernelmill import static_kernels
from kernelmill.compiler import static_build


def compiled(mode, dynamic=False):
    config = kernelmill.CompilerConfig()
    config.mode = mode
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh()).eval()
    backend = kernelmill.get_backend(compiler_config=config)
    return torch.compile(model, backend=backend, dynamic=dynamic)


def names(log):
    return [json.loads(line)["name"] for line in log.read_text().splitlines()]


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_programs_called_inside_are_recorded_at_the_shapes_of_the_calls(mode, dynamic, tmp_path):
    log = tmp_path / "log"
    called, idle = compiled(mode, dynamic), compiled(mode, dynamic)
    with torch.no_grad():
        called(torch.randn(3, 8))
        idle(torch.randn(7, 8))
        with static_kernels.record(log):
            pass
        assert names(log) == []
        with static_kernels.record(log):
            called(torch.randn(5, 8) if dynamic else torch.randn(3, 8))
        rows = 5 if dynamic else 3
        operators = [f"MatMul_float_ND_{rows}_8", f"Add_float_ND_{rows}_16"]
        operators.append(f"Tanh_float_ND_{rows}_16")
        found = names(log)
        assert [name for name in found if not name.endswith("_program")] == operators
        assert len(found) == 3 + (mode == "max-autotune")


def test_a_program_compiled_inside_is_recorded_and_each_operator_once(tmp_path):
    log = tmp_path / "log"
    with torch.no_grad():
        for _ in range(2):
            with static_kernels.record(log):
                compiled("reduce-overhead")(torch.randn(4, 8))
    assert len(names(log)) == 3


def test_the_random_state_and_the_model_are_left_alone(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    model = Counting()
    called = torch.compile(model, backend="kernelmill")
    with torch.no_grad(), static_kernels.record(tmp_path / "log"):
        x = torch.ones(3)
        state = torch.random.get_rng_state()
        assert called(x).tolist() == [1, 1, 1]
        assert torch.equal(state, torch.random.get_rng_state())
    assert model.count == 1
    assert names(tmp_path / "log")


def test_a_log_that_cannot_be_written_is_an_error_before_anything_runs(tmp_path):
    with pytest.raises(OSError), static_kernels.record(tmp_path / "no" / "log"):
        raise AssertionError("ran")


def test_a_line_that_was_cut_short_is_left_behind(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b'{"graph": "a"}\n{"gra')
    assert static_build.append(str(log), [{"graph": "a"}, {"graph": "b"}]) == 1
    assert log.read_bytes() == b'{"graph": "a"}\n{"gra\n{"graph": "b"}\n'


@pytest.mark.parametrize("dynamic", ["False", "True"])
def test_a_whole_process(dynamic, fresh, tmp_path, monkeypatch):
    script = f"""
import torch, kernelmill
compiled = torch.compile(torch.nn.Tanh(), backend="kernelmill", dynamic={dynamic})
for rows in (3, 4):
    compiled(torch.randn(rows, 5))
"""
    monkeypatch.setenv("KERNELMILL_RECORD_OPS", str(tmp_path / "log"))
    fresh.output("-c", script, cwd=tmp_path)
    found = [name for name in names(tmp_path / "log") if not name.endswith("_program")]
    assert sorted(found) == ["Tanh_float_ND_3_5", "Tanh_float_ND_4_5"]


def test_a_profiler_session_is_a_source(tmp_path):
    log = tmp_path / "log"
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Softmax(-1))
    with torch.no_grad(), profile(record_shapes=True) as session:
        model(torch.randn(4, 8)).t().exp()
        torch.cat([torch.ones(2), torch.ones(3)])
    new, skipped = static_kernels.from_profiler(session, log)
    found = names(log)
    assert new == len(found)
    assert skipped >= 1  # the list of tensors
    assert {"MatMul_float_ND_4_8", "ReduceMax_float_ND_4_16", "Exp_float_ND_16_4"} <= set(found)


def test_a_session_without_shapes_is_refused(tmp_path):
    with profile() as session:
        torch.randn(4).exp()
    with pytest.raises(kernelmill.ConfigError, match="record_shapes"):
        static_kernels.from_profiler(session, tmp_path / "log")


def test_recording_under_the_profiler(tmp_path):
    with torch.no_grad(), profile(record_shapes=True):
        called = compiled("reduce-overhead")
        with static_kernels.record(tmp_path / "log"):
            called(torch.randn(4, 8))
    assert len(names(tmp_path / "log")) == 3
