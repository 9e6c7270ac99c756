"""Symbol tables of object files."""

from __future__ import annotations

import pytest

from kernelmill.core.elf import code_around, undefined_symbols
from tests.unit.runtime.kernels import compile_text

ANSWER = "define i32 @answer() { ret i32 42 }"


def test_undefined_symbols_are_read_from_the_object() -> None:
    text = """
    declare float @expf(float)
    declare void @other()
    define float @mine(float %x) {
      call void @other()
      %y = call float @expf(float %x)
      ret float %y
    }
    """
    assert undefined_symbols(compile_text(text)) == ("expf", "other")
    assert undefined_symbols(compile_text(ANSWER)) == ()


@pytest.mark.parametrize("image", [b"MZ" + bytes(100), compile_text(ANSWER)[:200]])
def test_what_is_no_object_is_refused(image: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        undefined_symbols(image)


def test_the_code_around_a_function_is_its_whole_section() -> None:
    image = compile_text(ANSWER + "\ndefine i32 @other() { ret i32 7 }")
    first, second = code_around(image, "answer"), code_around(image, "other")
    assert first[1] == second[1] > second[0] > first[0] == 0
    with pytest.raises(KeyError):
        code_around(image, "nobody")
