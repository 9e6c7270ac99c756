"""Two versions of kernelmill, with one folder and one Redis server."""

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import kernelmill
from kernelmill.core.errors import StoreError
from kernelmill.core.target.isa import named_isa
from kernelmill.fleet import Job, clean, pull
from kernelmill.fleet.manifest import SharedManifests, manifest_name, own_compiler
from kernelmill.store.remote import open_shared
from tests.compiled import reported
from tests.e2e.fleet_models import net
from tests.servers import redis_server

SOURCES = Path(kernelmill.__file__).parent
NET = "tests.e2e.fleet_models:net"


def use(url, folder):
    """Precompile the model into folder and store, and call it; what came of that."""
    torch.compiler.reset()
    with ThreadPoolExecutor(2) as executor:
        done = kernelmill.precompile([Job(NET)], executor, url, folder=folder)
    return {"found": done.found, "compiled": done.compiled, "called": call(folder)}


def call(folder):
    """Call the model with these kernels, compare with eager; how many kernels are compiled."""
    config = kernelmill.CompilerConfig()
    config.experimental_config.kernel_meta_dir = str(folder)
    model, args = net()
    backend, reports = reported(config=config)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), model(*args))
    return sum(report.compiled for report in reports)


def another(url, folder, fresh):
    """All that the process of the other version does; what it saw, as JSON."""
    import kernelmill.fleet.manifest as manifest

    seen = use(url, folder)
    seen |= {"from": kernelmill.__file__, "manifest": name(), "pulled": list(entries(url))}
    pulled = pull("net", url, folder=fresh)
    seen |= {"fetched": pulled.fetched, "after pull": call(fresh)}
    seen["removed"] = clean(open_shared(url), -1).removed
    manifest.FORMAT = 99
    with ThreadPoolExecutor(2) as executor:
        kernelmill.precompile([Job(NET, "later")], executor, url, folder=folder)
    print(json.dumps(seen))


def name(model="net"):
    return manifest_name(model, own_compiler(), str(named_isa("native")))


def entries(url):
    return SharedManifests(open_shared(url)).read(name()).entries


def other_version(path):
    """A copy of the sources whose code generator is another."""
    shutil.copytree(SOURCES, path / "kernelmill", ignore=shutil.ignore_patterns("__pycache__"))
    with open(path / "kernelmill" / "codegen" / "compile.py", "a") as file:
        file.write("\n# of another version\n")
    return path


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELMILL_REMOTE_KEY", "k" * 32)
    monkeypatch.delenv("KERNELMILL_REMOTE", raising=False)
    with redis_server(tmp_path) as url:
        yield url


def test_two_versions_share_a_folder_and_a_store(tmp_path, url, fresh):
    folder = tmp_path / "k"
    first = use(url, folder)
    assert first["compiled"] > 0 and first["called"] == 0
    script = f"from {__name__} import another; another({url!r}, {str(folder)!r}, 'fresh')"
    paths = [str(other_version(tmp_path / "other")), *map(os.path.abspath, sys.path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    output = fresh.output("-c", script, cwd=tmp_path, env=environment)
    second = json.loads(output.splitlines()[-1])
    assert second["from"].startswith(paths[0]) and second["manifest"] != name()
    mine = entries(url)
    assert not set(mine) & set(second["pulled"])
    assert second["found"] == second["called"] == second["after pull"] == second["removed"] == 0
    assert second["compiled"] == second["fetched"] == len(second["pulled"]) == len(mine)

    assert use(url, folder) == {"found": len(mine), "compiled": 0, "called": 0}
    pulled = pull("net", url, folder=tmp_path / "mine")
    assert (pulled.fetched, pulled.missing) == (len(mine), ())
    assert call(tmp_path / "mine") == 0
    with pytest.raises(StoreError, match=r"manifest\.later@\w+ has format 99"):
        clean(open_shared(url), -1)
    assert open_shared(url).present(mine) == set(mine)
