"""CompilerConfig: what it takes, what it refuses, and what it says about it."""

import copy
import warnings

import pytest

from kernelmill.config import CompilerConfig
from kernelmill.core.errors import ConfigError


@pytest.fixture
def config():
    return CompilerConfig()


def set_option(config: CompilerConfig, dotted: str, value: object) -> None:
    *groups, name = dotted.split(".")
    target = config
    for group in groups:
        target = getattr(target, group)
    setattr(target, name, value)


def good_value(option, tmp_path):
    """Some value other than the default that the option takes; the default if there is none."""
    file = tmp_path / "file.json"
    file.write_text('{"dump": {"dump_path": "."}}')
    candidates = [
        *getattr(option, "allowed", ()),
        *((option.low, option.low + 7) if hasattr(option, "low") else ()),
        getattr(option, "example", None),
        str(file) if getattr(option, "must_be", None) == "file" else str(tmp_path),
        {"a": 1},
        [1, 2],
        ["a"],
        print,
    ]
    for value in candidates:
        try:
            kept = option.check("x", value)
        except ConfigError:
            continue
        if kept != option.default:
            return value
    return option.default


STEPS_OF_NONE = ("0ad", "0|2&", "--", "1-", "-1", "02||||34", "1--", "1--6", "5-2")


def test_unknown_names_are_refused_nearest_first(config):
    with pytest.raises(ValueError, match=r"no option 'graphdump'; there are: graph_dump,"):
        config.debug.graphdump = 1
    with pytest.raises(ValueError, match=r"config has no option 'moed'; there are: mode,"):
        config.moed = "max-autotune"


@pytest.mark.parametrize(
    ("dotted", "value", "error"),
    [
        ("mode", "fast", ValueError),
        ("mode", 1, TypeError),
        ("target", "x86-64-v9", ValueError),
        ("target", 4, TypeError),
        ("debug.graph_dump.type", "svg", ValueError),
        ("debug.graph_dump.type", 3, TypeError),
        ("dump_config.dump_path", "/no/such/folder", FileNotFoundError),
        ("debug.graph_dump.path", "", ValueError),
        ("debug.graph_dump.path", 7, TypeError),
        ("debug.run_eagerly", 1, TypeError),
        ("dump_config.dump_step", "1..2", ValueError),
        ("dump_config.dump_step", 1, TypeError),
        *(("dump_config.dump_step", text, ValueError) for text in STEPS_OF_NONE),
        ("fusion_config.fusion_switch_file", "/no/such/file", FileNotFoundError),
        ("experimental_config.kernel_meta_dir", "", ValueError),
        ("experimental_config.static_model_ops_lower_limit", -2, ValueError),
        ("experimental_config.static_model_ops_lower_limit", True, TypeError),
        ("export.inputs_name", ["x", 1], TypeError),
        ("inference_config.dynamic_gears_merge_policy", "cross", ValueError),
        ("post_grad_custom_pre_pass", "not callable", TypeError),
        ("experimental_config.aclgraph._super_kernel_optimize_options", {"a": 1}, ValueError),
        ("experimental_config.aclgraph._super_kernel_debug_options", "a=1", TypeError),
        ("debug", None, ValueError),
        ("debug.graph_dump", "txt", ValueError),
    ],
)
def test_bad_values_are_refused_where_they_are_set(config, dotted, value, error):
    before = config.as_dict()
    with pytest.raises(error, match=rf"config\.{dotted}") as caught:
        set_option(config, dotted, value)
    assert isinstance(caught.value, ConfigError)
    assert config.as_dict() == before


def test_a_target_that_is_none_is_refused_with_those_there_are(config):
    with pytest.raises(ConfigError, match="one of None, 'native', 'x86-64-v2', 'x86-64-v3'"):
        config.target = "skylake"


def test_every_option_takes_its_default_without_a_word(config):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, value in config.as_dict().items():
            set_option(config, name, value)
    assert config.as_dict() == CompilerConfig().as_dict()


def test_an_option_does_something_or_says_that_it_does_not(config, tmp_path):
    for name, option, default in config.options():
        value = good_value(option, tmp_path)
        if value == default:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            set_option(config, name, value)
        assert config.as_dict()[name] == value
        assert len(caught) == bool(option.no_effect), name
        assert all(name in str(w.message) and w.filename == __file__ for w in caught)


def test_every_option_is_explained(config):
    assert [
        name for name, option, _ in config.options() if len(option.no_effect or option.summary) < 4
    ] == []


def test_an_option_of_the_other_mode_warns_when_the_backend_is_made(config):
    config.warn_other_mode()
    config.experimental_config.aclgraph._aclnn_static_shape_kernel = True
    with pytest.warns(UserWarning, match="_aclnn_static_shape_kernel belongs to mode 'reduce-over"):
        config.warn_other_mode()
    config.mode = "reduce-overhead"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.warn_other_mode()


def test_ingredients_hold_what_changes_the_code_and_nothing_else(config, tmp_path):
    assert config.ingredients() == ()
    config.debug.graph_dump.path = tmp_path
    config.debug.graph_dump.type = "txt"
    config.experimental_config.kernel_meta_dir = str(tmp_path)
    assert config.ingredients() == ()
    config.experimental_config.remove_noop_ops = False
    config.target = "x86-64-v3"
    assert config.ingredients() == (
        ("config.target", "'x86-64-v3'"),
        ("config.experimental_config.remove_noop_ops", "False"),
    )


def test_configs_are_independent_and_can_be_copied(config):
    config.debug.run_eagerly = True
    assert CompilerConfig().debug.run_eagerly is False
    kept = copy.deepcopy(config)
    config.debug.run_eagerly = False
    assert kept.debug.run_eagerly is True
    assert repr(kept) == "CompilerConfig(debug.run_eagerly=True)"


def test_an_option_of_a_group_is_found_where_it_is_not_looked_for() -> None:
    match = r"config has no option 'gear_miss'; it is inference_config\.gear_miss$"
    with pytest.raises(ValueError, match=match):
        CompilerConfig().gear_miss = "error"  # type: ignore[attr-defined]
