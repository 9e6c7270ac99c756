"""Keys: what their digest depends on, and what it does not."""

import hashlib
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.core.digest import Key

INGREDIENTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)


def test_digest_is_blake2b_over_length_prefixed_pairs():
    assert Key.of({}).digest == "3345524abf6bbe1809449224b5972c41790b6cf2"
    written_out = b"\1\0\0\0\0\0\0\0a\2\0\0\0\0\0\0\0\xc3\xa9"
    expected = hashlib.blake2b(written_out, digest_size=20).hexdigest()
    assert Key.of({"a": "é"}).digest == expected


def test_order_of_ingredients_does_not_matter():
    assert Key((("a", "1"), ("b", "2"))) == Key((("b", "2"), ("a", "1")))


def test_a_name_given_twice_is_refused():
    with pytest.raises(ValueError, match="given twice: cpu"):
        Key((("cpu", "1"), ("cpu", "2")))


def test_moving_a_letter_between_name_and_value_changes_the_digest():
    assert Key.of({"ab": "c"}).digest != Key.of({"a": "bc"}).digest


@given(INGREDIENTS, INGREDIENTS)
def test_equal_digests_mean_equal_ingredients(a, b):
    assert (Key.of(a).digest == Key.of(b).digest) == (a == b)


@given(INGREDIENTS, INGREDIENTS)
def test_differences_name_exactly_what_differs(a, b):
    names = Key.of(a).differences(Key.of(b))
    assert names == Key.of(b).differences(Key.of(a))
    assert set(names) == {n for n in a.keys() | b.keys() if a.get(n) != b.get(n)}


def test_digest_is_the_same_in_every_process_and_folder(tmp_path):
    source = (
        "from kernelmill.core.digest import Key;"
        "print(Key.of({n: n * 2 for n in {'kernel', 'target', 'llvm', 'options'}}).digest)"
    )
    digests = set()
    for seed in ("0", "1", "12345"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", source],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(run.stdout)
    assert len(digests) == 1
