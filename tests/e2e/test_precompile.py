"""Jobs compiled by processes, Dask and Ray: programs find all their kernels afterwards."""

import importlib
import logging
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import kernelmill
from kernelmill import aot
from kernelmill.cli.main import main
from kernelmill.cli.output import FINE, FOUND
from kernelmill.compiler import linking, pipeline
from kernelmill.core.errors import ConfigError, KernelmillError
from kernelmill.fleet import Job, LocalPool, RayExecutor, pull
from kernelmill.inference import set_dim_gears
from kernelmill.store.upkeep import survey
from tests.compiled import reported
from tests.e2e import fleet_models
from tests.e2e.fleet_models import SIZES, marked, net, unsized

NET = "tests.e2e.fleet_models:net"
STATIC = "experimental_config.aclgraph._aclnn_static_shape_kernel"
GEARED = Job(NET, "geared", gears={"x": {0: SIZES}})


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The URL of an empty shared store."""
    monkeypatch.setenv("KERNELMILL_REMOTE_KEY", "k" * 32)
    monkeypatch.delenv("KERNELMILL_REMOTE", raising=False)
    return f"file://{tmp_path}/shared"


def threads():
    return ThreadPoolExecutor(2)


def call(folder, gears=(), mode="max-autotune", factory=net):
    """Call the model compiled with this kernel folder; returns what was compiled for it."""
    config = kernelmill.CompilerConfig()
    config.experimental_config.kernel_meta_dir = str(folder)
    config.mode = mode
    model, (x,) = factory()
    if gears:
        set_dim_gears(x, {0: list(gears)})
    backend, reports = reported(config=config)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for size in gears or (len(x),):
            x = x if size == len(x) else torch.randn(size, 24)
            torch.testing.assert_close(compiled(x), model(x))
    assert sum(report.reused for report in reports) > 0
    return sum(report.compiled for report in reports)


def test_a_precompiled_model_compiles_nothing(tmp_path):
    with threads() as executor:
        done = kernelmill.precompile([Job(NET), GEARED], executor, folder=tmp_path / "k")
    assert (done.jobs, done.failures, done.found) == (("net", "geared"), (), 0)
    assert done.compiled > 0
    assert call(tmp_path / "k") == 0
    assert call(tmp_path / "k", SIZES) == 0
    again = kernelmill.precompile([Job(NET), GEARED], executor, folder=tmp_path / "k")
    assert (again.compiled, again.found) == (0, done.compiled)


def test_a_string_is_the_job_of_that_model(tmp_path):
    with threads() as executor:
        for jobs in (NET, [NET], Job(NET)):
            done = kernelmill.precompile(jobs, executor, folder=tmp_path / "k")
            assert (done.jobs, done.failures) == (("net",), ())


def test_sizes_that_no_gears_have_are_numbers(tmp_path, monkeypatch, caplog):
    """Also of a model that would take any: a service has them as numbers, and gears that share the
    kernels of the program for all sizes look for other ones where more sizes are open."""
    monkeypatch.setattr(linking, "_MOST_LOST", math.inf)
    sizes = tuple(range(2, 9))
    job = Job("tests.e2e.fleet_models:unsized", gears={"x": {0: sizes}})
    with threads() as executor, caplog.at_level(logging.INFO, "kernelmill"):
        done = kernelmill.precompile([job], executor, folder=tmp_path / "k")
    assert done.failures == ()
    assert "7 of 7 gears share kernels" in caplog.text
    assert call(tmp_path / "k", sizes, factory=unsized) == 0


def test_a_fresh_machine_pulls_what_another_precompiled(tmp_path, store):
    with threads() as executor:
        kernelmill.precompile([GEARED], executor, store, folder=tmp_path / "a")
    pulled = pull("geared", store, folder=tmp_path / "b")
    assert pulled.missing == ()
    assert call(tmp_path / "b", SIZES) == 0


def test_jobs_for_other_targets_and_options(tmp_path):
    job = Job(
        NET, targets=("x86-64-v2", "x86-64-v3"),
        options={"experimental_config.pattern_fusion_pass": False},
    )  # fmt: skip
    with threads() as executor:
        done = kernelmill.precompile([job, Job(NET, "fused", ("x86-64-v2",))], executor,
                                     folder=tmp_path / "k")  # fmt: skip
    assert (done.jobs, done.failures) == (("net", "fused"), ())
    found = survey(str(tmp_path / "k"))
    assert found.count("ok") == len(found.rows) == done.compiled


def test_files_and_exported_programs_are_jobs_too(tmp_path):
    model, args = net()
    file = aot.compile(model, args, path=tmp_path / "net.kmill")
    exported = torch.export.export(model, args)
    target = ("x86-64-v2",)
    jobs = [Job(file, "file", target), Job(exported, "exported", target), Job(net, "net", target)]
    with threads() as executor:
        done = kernelmill.precompile(jobs, executor, folder=tmp_path / "k")
    assert (done.jobs, done.failures) == (("file", "exported", "net"), ())
    assert 0 < done.compiled <= done.found + done.compiled
    config = kernelmill.CompilerConfig()
    config.target = "x86-64-v2"
    config.experimental_config.kernel_meta_dir = str(tmp_path / "k")
    kernels = sorted((tmp_path / "k").glob("*.o"))
    aot.compile(exported, path=tmp_path / "v2.kmill", config=config)
    assert sorted((tmp_path / "k").glob("*.o")) == kernels


def test_schedules_follow_the_figures_that_the_folder_has(tmp_path, monkeypatch):
    asked = []
    plain = pipeline.machine_for
    monkeypatch.setattr(
        pipeline, "machine_for",
        lambda store, *rest, **more: asked.append(store.folder.path) or plain(store, *rest, **more),
    )  # fmt: skip
    with threads() as executor:
        kernelmill.precompile([Job(NET)], executor, folder=tmp_path / "k")
    assert asked == [str(tmp_path / "k")]


def test_a_super_kernels_driver_is_precompiled(tmp_path):
    with threads() as executor:
        done = kernelmill.precompile([Job(marked)], executor, folder=tmp_path / "k")
    assert done.failures == ()
    names = [row.name for row in survey(str(tmp_path / "k")).rows]
    assert any(name.startswith("sk_") for name in names)
    config = kernelmill.CompilerConfig()
    config.experimental_config.kernel_meta_dir = str(tmp_path / "k")
    model, args = marked()
    with torch.no_grad():
        torch.compile(model, backend=kernelmill.get_backend(compiler_config=config))(*args)
    assert [row.name for row in survey(str(tmp_path / "k")).rows] == names


@pytest.mark.parametrize("gears", [(), SIZES])
def test_captures_of_mode_reduce_overhead_are_precompiled(tmp_path, gears):
    job = Job(NET, gears={"x": {0: gears}} if gears else {}, options={"mode": "reduce-overhead"})
    with threads() as executor:
        done = kernelmill.precompile([job], executor, folder=tmp_path / "k")
    assert done.failures == () and done.compiled > 0
    assert call(tmp_path / "k", gears, mode="reduce-overhead") == 0


def exported():
    """The model with any number of rows."""
    model, args = net()
    return torch.export.export(model, args, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def test_a_job_that_fails_stops_no_other(tmp_path):
    jobs = [
        Job("tests.e2e.fleet_models:broken"),
        Job("tests.e2e.fleet_models:too_large"),
        Job("tests.e2e.fleet_models:unread"),
        Job("tests.e2e.fleet_models:absent"),
        Job(NET, "no-such-argument", gears={"y": {0: [2, 4]}}),
        Job(NET, "bad-option", options={"no.such": 1}),
        Job(NET, "measured", options={STATIC: True}),
        Job(exported(), "captured", options={"mode": "reduce-overhead"}),
        Job(str(tmp_path / "gone.kmill"), "gone"),
        Job(NET),
    ]
    with threads() as executor:
        done = kernelmill.precompile(jobs, executor, folder=tmp_path / "k")
    assert done.jobs == ("net",)
    reasons = {failure.what: failure.reason for failure in done.failures}
    assert reasons.keys() == {job.name for job in jobs[:-1]}
    assert "no weights here" in reasons["broken"] and "fleet_models.py" in reasons["broken"]
    assert "memory" in reasons["too_large"]
    assert "it runs in torch" in reasons["unread"]
    assert "has no 'absent'" in reasons["absent"]
    assert "no argument 'y' for gears; 0, x" in reasons["no-such-argument"]
    assert "config has no option 'no'" in reasons["bad-option"]
    assert "kernelmill static" in reasons["measured"]
    assert "declare them as gears" in reasons["captured"]
    assert call(tmp_path / "k") == 0


def test_a_shared_store_without_a_key_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELMILL_REMOTE_KEY", raising=False)
    with pytest.raises(ConfigError, match="KERNELMILL_REMOTE_KEY"):
        kernelmill.precompile([Job(NET)], store=f"file://{tmp_path}/s", folder=tmp_path / "k")


def test_processes_compile(tmp_path):
    pool = LocalPool(2)
    try:
        done = kernelmill.precompile([Job(NET)], pool, folder=tmp_path / "k")
    finally:
        pool.shutdown()
    assert done.failures == ()
    assert call(tmp_path / "k") == 0


def test_a_cluster_of_dask_compiles(tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        done = kernelmill.precompile([Job(NET)], client.get_executor(), folder=tmp_path / "k")
    assert done.failures == ()
    assert call(tmp_path / "k") == 0


def test_a_cluster_of_ray_compiles(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    ray = importlib.import_module("ray")
    with pytest.raises(KernelmillError, match=r"call ray\.init"):
        RayExecutor()
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        with RayExecutor() as executor:
            done = kernelmill.precompile([Job(NET)], executor, folder=tmp_path / "k")
    finally:
        ray.shutdown()
    assert done.failures == ()
    assert call(tmp_path / "k") == 0


def test_the_command_does_it_and_goes_on_where_it_was_cut_off(tmp_path, store, capsys):
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[[job]]\nmodel = "{fleet_models.__file__}:net"\n'
        f'[[job]]\nmodel = "{fleet_models.__file__}:broken"\n'
    )
    filling = ["precompile", str(file), "--store", store, "--folder", str(tmp_path / "k")]
    assert main(filling) == FOUND
    told = capsys.readouterr()
    assert "failed: broken: " in told.err and "no weights here" in told.err
    assert "1 of 2 jobs: 0 found" in told.out
    assert main(filling) == FOUND
    assert " 0 compiled" in capsys.readouterr().out
    other = str(tmp_path / "other")
    assert main(["pull", "net", "--store", store, "--folder", other]) == FINE
    assert " 0 missing" in capsys.readouterr().out
    assert main(["pack", "net", str(tmp_path / "net.tar"), "--folder", other]) == FINE
    assert "packed" in capsys.readouterr().out and (tmp_path / "net.tar").exists()
    assert main(["shared", "gc", "--store", store, "--older", "30d"]) == FINE
    assert "removed 0 kernels" in capsys.readouterr().out
    assert call(other) == 0
