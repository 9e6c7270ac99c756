"""KERNELMILL_LOGS: which package logs what."""

import logging
import os
import subprocess
import sys

import pytest

from kernelmill.core import log
from kernelmill.core.errors import ConfigError


def test_signs_choose_levels_and_later_parts_win():
    assert log.parse("+lower, store,-codegen") == {
        "lower": logging.DEBUG,
        "store": logging.INFO,
        "codegen": logging.ERROR,
    }
    everything = log.parse("all,-store")
    assert set(everything) == set(log.COMPONENTS)
    assert everything.pop("store") == logging.ERROR
    assert set(everything.values()) == {logging.INFO}


def test_an_unknown_component_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'stroe'.*store"):
        log.parse("stroe")


@pytest.mark.parametrize(("setting", "lines"), [("", 1), ("store", 2), ("+store", 3), ("lower", 1)])
def test_the_variable_decides_what_a_process_prints(setting, lines):
    source = (
        "from kernelmill.core.log import get_logger;log = get_logger('store');"
        "log.debug('d');log.info('i');log.warning('w')"
    )
    environment = os.environ | {
        "KERNELMILL_LOGS": setting,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    run = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True
    )
    assert len(run.stderr.splitlines()) == lines
