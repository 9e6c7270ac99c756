"""Logs compiled and packed, by the functions and by the command."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill import static_kernels
from kernelmill.cli.main import main
from kernelmill.compiler import choices
from kernelmill.core.errors import ConfigError, KernelmillError
from kernelmill.core.target.machine import host, profile
from kernelmill.store import Store, packages
from tests.other_processors import ELF_MACHINES, OTHER, machine_of


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A log of a program in each mode: six operators and a fused program."""
    log = tmp_path_factory.mktemp("recorded") / "log"
    torch.manual_seed(0)
    with torch.no_grad(), static_kernels.record(log):
        for mode in ("reduce-overhead", "max-autotune"):
            torch._dynamo.reset()
            program()[mode](torch.randn(4, 8))
    torch._dynamo.reset()
    return log


def program():
    model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 4)).eval()
    made = {}
    for mode in ("reduce-overhead", "max-autotune"):
        config = kernelmill.CompilerConfig()
        config.mode = mode
        made[mode] = torch.compile(model, backend=kernelmill.get_backend(compiler_config=config))
    return made


def test_compiled_once(recorded, tmp_path, capsys):
    arguments = ["static", "compile", str(recorded), "--jobs", "2", "--folder", str(tmp_path)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "5 operators, 5 compiled now, 0 failed\n"
    assert main(arguments) == 0
    assert capsys.readouterr().out == "5 operators, 0 compiled now, 0 failed\n"


def test_a_second_run_loads_neither_torch_nor_the_compiler(recorded, tmp_path):
    folder, log = tmp_path / "kernels", tmp_path / "log"
    operators = [line for line in recorded.read_text().splitlines() if '"program"' not in line]
    log.write_text("".join(f"{line}\n" for line in operators))
    first = static_kernels.compile_log(log, folder=str(folder))
    assert first.compiled == first.operators > 0
    code = f"""
import sys
from kernelmill import static_kernels
built = static_kernels.compile_log({str(log)!r}, folder={str(folder)!r})
print(built.operators, built.compiled, "torch" in sys.modules, "kernelmill.compiler" in sys.modules)
"""

    def second_run():
        return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout

    assert second_run().decode() == f"{first.operators} 0 False False\n"
    next(folder.glob("Choice_*.json")).unlink()
    assert second_run().decode() == f"{first.operators} 1 True True\n"


def test_a_document_of_another_version_stops_none_of_the_others(recorded, tmp_path):
    first, *others = recorded.read_text().splitlines(keepends=True)
    document = json.loads(first)
    document["graph"] = document["graph"].replace("matmul", "unheard_of")
    log = tmp_path / "log"
    log.write_text(json.dumps(document) + "\n" + "".join(others))
    built = static_kernels.compile_log(log, folder=str(tmp_path / "meta"))
    assert built.operators == built.compiled == 4
    ((name, reason),) = built.failures
    assert name == document["name"] and "unheard_of" in reason
    log.write_text(json.dumps(document) + "\n")
    with pytest.raises(KernelmillError, match="unheard_of"):
        static_kernels.compile_log(log, folder=str(tmp_path / "meta"))


def test_a_name_for_no_package_is_refused_at_once(recorded, tmp_path):
    with pytest.raises(ConfigError, match="'a b' is no name for a package"):
        static_kernels.build(recorded, tmp_path, name="a b", folder=str(tmp_path / "meta"))
    assert not list(tmp_path.rglob("*.o"))


def test_a_folder_of_documents_is_a_log(recorded, tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    for number, line in enumerate(recorded.read_text().splitlines()):
        (folder / f"{number}.json").write_text(line)
    built = static_kernels.compile_log(folder, folder=str(tmp_path / "meta"))
    assert built.operators == 5


def test_a_failure_is_told_at_the_end_and_stops_nothing(recorded, tmp_path, monkeypatch, capsys):
    compile_kernel = choices.obtain

    def obtain(requests, *rest):
        if requests[0].kernel.type == "Sigmoid":
            raise kernelmill.CodegenError("no such instruction")
        return compile_kernel(requests, *rest)

    monkeypatch.setattr(choices, "obtain", obtain)
    assert main(["static", "compile", str(recorded), "--folder", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == "5 operators, 5 compiled now, 1 failed\n"
    assert told.err == "failed: Sigmoid (4, 16): no such instruction\n"


def test_a_package_serves_both_modes_without_a_compile(recorded, fresh, tmp_path, capsys):
    arguments = ["static", "build", str(recorded), "--folder", str(tmp_path / "meta")]
    assert main([*arguments, "--output", str(tmp_path), "--name", "mine"]) == 0
    assert capsys.readouterr().out.endswith(f"; {tmp_path}/mine.run\n")
    command = [sys.executable, str(tmp_path / "mine.run"), "--install", "--path"]
    subprocess.run([*command, str(tmp_path / "packages")], check=True, capture_output=True)
    shutil.rmtree(tmp_path / "meta")
    script = """
import torch, kernelmill
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 4)).eval()
for mode in ("reduce-overhead", "max-autotune"):
    config = kernelmill.CompilerConfig()
    config.mode = mode
    with torch.no_grad():
        found = kernelmill.explain(model, torch.randn(4, 8), compiler_config=config).as_dict()
    assert found["compiled"] == 0, found["kernels"]
    assert {kernel["source"] for kernel in found["kernels"]} == {"package mine"}
"""
    environment = {
        "KERNELMILL_STATIC_KERNELS": str(tmp_path / "packages"),
        "PYTHONPATH": ":".join(sys.path),
        "XDG_CACHE_HOME": str(tmp_path / "cache_home"),
    }
    fresh.output("-c", script, cwd=tmp_path, env=environment)
    assert not (tmp_path / "cache_home").exists()


def test_a_wheel(recorded, tmp_path):
    built = static_kernels.build(recorded, tmp_path, wheel=True, name="my-kernels")
    with zipfile.ZipFile(built.path) as wheel:
        manifest = json.loads(wheel.read("my_kernels/manifest.json"))
    assert manifest["target"] == str(host())
    assert built.path.endswith(f"my_kernels-{kernelmill.__version__}-py3-none-linux_x86_64.whl")


def test_another_target(recorded, tmp_path):
    built = static_kernels.build(recorded, tmp_path, name="old", target="x86-64-v2")
    packages.installer.install(built.path, str(tmp_path / "packages"))
    (package,) = packages.packages_in(str(tmp_path / "packages"))
    assert package.machine.isa.cpu == "x86-64-v2"
    store = Store(tmp_path / "empty", packages=[package])
    found = choices.Choices(store, host())
    log = [json.loads(line) for line in recorded.read_text().splitlines()]
    operator = choices_of(log)
    form, choice, kernels = found.packaged(operator)
    assert (form, choice.kernel, kernels.machine) == (operator, "static", package.machine)


def test_a_package_for_another_family_of_processors(recorded, tmp_path):
    build = {"target": OTHER, "folder": str(tmp_path / "kernels")}
    built = static_kernels.build(recorded, tmp_path, name="other", **build)
    assert not built.failures
    with zipfile.ZipFile(built.path) as archive:
        images = [archive.read(name) for name in archive.namelist() if name.endswith(".o")]
        manifest = json.loads(archive.read("manifest.json"))
    # An operator's choice of a kernel is an entry too.
    code = [image for image in images if image.startswith(b"\x7fELF")]
    assert len(code) >= 5 and {machine_of(image) for image in code} == {ELF_MACHINES[OTHER]}
    family = profile(OTHER).isa.family
    assert manifest["machine"] == family
    with pytest.raises(packages.installer.Refused, match=f"it is for {family} processors"):
        packages.installer.install(built.path, str(tmp_path / "packages"))
    wheel = static_kernels.build(recorded, tmp_path, wheel=True, name="other", **build)
    assert wheel.compiled == 0 and wheel.path.endswith(f"py3-none-linux_{family}.whl")


def test_a_package_is_passed_over_where_programs_are_for_less(recorded, tmp_path):
    built = static_kernels.build(recorded, tmp_path, name="new", target="x86-64-v4")
    with zipfile.ZipFile(built.path) as archive:
        archive.extractall(tmp_path)
    package = packages.Package("new", str(tmp_path / "kernels"), profile("x86-64-v4"))
    log = [json.loads(line) for line in recorded.read_text().splitlines()]
    store = Store(tmp_path / "empty", packages=[package])
    assert choices.Choices(store, profile("x86-64-v4-bf16")).packaged(choices_of(log)) is not None
    assert choices.Choices(store, profile("x86-64-v3")).packaged(choices_of(log)) is None


def choices_of(log):
    from kernelmill.compiler.static_build import from_document

    return from_document(next(document for document in log if document["type"] == "Sigmoid"))


@pytest.mark.parametrize("text", ["not json\n", '{"graph": 3}\n', "[]\n"])
def test_what_is_no_log_is_an_error(text, tmp_path, capsys):
    (tmp_path / "log").write_text(text)
    assert main(["static", "compile", str(tmp_path / "log"), "--folder", str(tmp_path)]) == 2
    assert "operator" in capsys.readouterr().err


def test_lines_that_were_cut_short_are_left_out(recorded, tmp_path):
    whole = recorded.read_bytes()
    first = whole.index(b"\n") + 1
    (tmp_path / "log").write_bytes(whole[:20] + b"\n" + whole[:first] + whole[first : first + 30])
    assert static_kernels.compile_log(tmp_path / "log", folder=str(tmp_path)).operators == 1


def test_misuse_of_the_command(tmp_path, capsys):
    (tmp_path / "log").write_text("")
    meta = ["--folder", str(tmp_path)]
    assert main(["static", "compile", str(tmp_path / "none"), *meta]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["static", "compile", str(tmp_path / "log"), "--target", "z80", *meta]) == 2
    assert "x86-64-v3" in capsys.readouterr().err
    assert main(["static", "compile", str(tmp_path / "log"), "--jobs", "0"]) == 2
