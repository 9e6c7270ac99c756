"""Names and roles of arguments, as users and the packing of weights need them."""

from __future__ import annotations

import pytest

from kernelmill.backend.arguments import names_of, readable


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['input_ids']", "input_ids"),
        ("L['self']._modules['layer']._modules['0']._parameters['weight']", "layer.0.weight"),
        ("L['self'].encoder._buffers['mean']", "encoder.mean"),
        ("L['args'][0]", "args.0"),
        ("L['batch']['mask']", "batch.mask"),
        ("L['x'].size()[0]", "x.size().0"),
        ("G['WEIGHT']", "WEIGHT"),
        ("L['self']._modules['proj']._parameters['weight']", "proj.weight"),
        ("L['m']._modules['0'].scale", "m.0.scale"),
        ("L['batch']['input-ids']", "batch.input-ids"),
        ("L['batch']['']", "batch"),
    ],
)
def test_sources_become_names(source: str, name: str) -> None:
    assert readable(source) == name


def test_no_two_arguments_have_one_name() -> None:
    sources = ["L['x']", "L['self']._buffers['x']", "L['y']"]
    assert names_of(sources) == [*sources[:2], "y"]
