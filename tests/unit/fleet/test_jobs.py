"""Jobs as they are written in TOML, and what is wrong with them."""

import pytest

from kernelmill.core.errors import ConfigError
from kernelmill.fleet import Job, read_jobs

GOOD = """
[[job]]
model = "models:embedder"
targets = ["native", "x86-64-v3"]

[job.gears.input_ids]
0 = [1, 2, 4]
1 = [32, 64]

[job.options.experimental_config]
pattern_fusion_pass = false

[[job]]
model = "shop/ranker.kmill"
name = "ranker-2"
"""


def test_jobs_are_read(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(GOOD)
    first, second = read_jobs(path)
    assert first == Job(
        "models:embedder", "embedder", ("native", "x86-64-v3"),
        {"input_ids": {0: [1, 2, 4], 1: [32, 64]}},
        {"experimental_config.pattern_fusion_pass": False},
    )  # fmt: skip
    assert (second.name, second.is_file, second.targets) == ("ranker-2", True, ("native",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"no \[\[job\]\]"),
        ("job = 3", r"no \[\[job\]\]"),
        ("[[job]", "fleet.toml: "),
        ("[[jobs]]\nmodel = 'a:b'", "there is no field 'jobs'; job"),
        ("[[job]]\nname = 'x'", "job 1: model must be a text"),
        ("[[job]]\nmodel = 'a:b'\ntarget = 'native'", "job 1: there is no field 'target'; model"),
        ("[[job]]\nmodel = 'a:b'\ntargets = ['pentium']", "there is no target 'pentium'; native"),
        ("[[job]]\nmodel = 'a:b'\ntargets = []", "no targets"),
        ("[[job]]\nmodel = 'a:b'\ntargets = 'native'", "targets: expected a list"),
        ("[[job]]\nmodel = 'a:b'\nname = 'a b'", "job name 'a b': letters"),
        ("[[job]]\nmodel = 'a:b'\ngears = {x = {0 = 3}}", r"gears\.x\.0: expected"),
        ("[[job]]\nmodel = 'a:b'\ngears = {x = {first = [1, 2]}}", r"gears\.x\.first: expected"),
        ("[[job]]\nmodel = 'a.kmill'\ngears = {x = {0 = [1, 2]}}", "gears are for functions"),
        ("[[job]]\nmodel = 'a:b'\n[[job]]\nmodel = 'c:b'", "two jobs are called 'b'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, told):
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_jobs(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        read_jobs(tmp_path / "none.toml")
