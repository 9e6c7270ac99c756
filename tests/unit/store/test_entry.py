"""The three files of an entry, and that no damage to them goes unnoticed."""

import json

import pytest

from kernelmill.core.digest import sha256
from kernelmill.store.entry import BadEntry, decode, encode, entry_name, key_of
from tests.unit.store.samples import compiled, key

NAME = entry_name("Square", key(4))


@pytest.fixture
def files():
    return encode(NAME, key(4), compiled(4))


def test_files_hold_what_the_caller_gave_and_what_identifies_them(files):
    launch, info = json.loads(files[".json"]), json.loads(files[".info"])
    assert files[".o"] == compiled(4).object
    assert launch["blockDim"] == 4
    assert launch["binFileName"] + launch["binFileSuffix"] == f"{NAME}.o"
    assert launch["sha256"] == sha256(files[".o"])
    assert info["op_info"]["Type"] == "Square"
    assert info["ingredients"] == dict(key(4).ingredients)


def test_reading_gives_back_what_was_written(files):
    entry = decode(NAME, files)
    assert entry.object == compiled(4).object
    assert entry.launch["blockDim"] == 4
    assert entry.info["op_info"] == compiled(4).info["op_info"]
    assert entry.key == key(4)


def test_the_same_kernel_gives_the_same_bytes(files):
    assert files == encode(NAME, key(4), compiled(4))


@pytest.mark.parametrize("suffix", [".o", ".info", ".json"])
def test_every_flipped_bit_is_noticed(files, suffix):
    good = files[suffix]
    for bit in range(0, 8 * len(good), 1 if suffix == ".json" else 7):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadEntry, match=r"Square_\w+\.(o|info|json)"):
            decode(NAME, files | {suffix: bytes(flipped)})


@pytest.mark.parametrize("suffix", [".o", ".info", ".json"])
@pytest.mark.parametrize("left", [0, 1, 50, -1])
def test_every_truncation_is_noticed(files, suffix, left):
    with pytest.raises(BadEntry):
        decode(NAME, files | {suffix: files[suffix][:left]})


def test_files_of_another_entry_are_noticed(files):
    other = encode(entry_name("Square", key(5)), key(5), compiled(5))
    with pytest.raises(BadEntry, match="belongs to"):
        decode(NAME, other)
    with pytest.raises(BadEntry, match=r"\.o is damaged"):
        decode(NAME, files | {".o": other[".o"]})


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"ingredients": 1}', b"\xff"])
def test_an_info_without_ingredients_is_bad(text):
    with pytest.raises(BadEntry, match="no ingredients"):
        key_of(text)


@pytest.mark.parametrize("type", ["", "a/b", "../x", "a" * 121, "é"])
def test_a_type_must_fit_into_a_file_name(type):
    with pytest.raises(ValueError, match="operator type"):
        entry_name(type, key(0))
