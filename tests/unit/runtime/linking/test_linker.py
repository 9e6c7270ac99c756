"""Objects become code in this process: the same bytes once, for as long as somebody uses them."""

import ctypes
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernelmill.core.errors import CodegenError
from kernelmill.runtime.linking import linker
from tests.unit.runtime.kernels import add, compile_text, elementwise

ANSWER = "define i32 @answer() { ret i32 42 }"


def call_answer(linked: linker.LinkedObject) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int32)(linked["answer"])()


@pytest.mark.parametrize("image", [b"", b"\x7fELF", b"MZ" * 100, compile_text(ANSWER)[:200]])
def test_what_is_no_object_is_refused(image: bytes) -> None:
    with pytest.raises(CodegenError, match="object of answer"):
        linker.link_once("answer", image)


def test_the_same_bytes_are_linked_once() -> None:
    first, second = (linker.link_once("answer", compile_text(ANSWER)) for _ in range(2))
    assert first is second and call_answer(first) == 42
    other = linker.link_once("answer", compile_text(ANSWER.replace("42", "43")))
    assert call_answer(other) == 43 and call_answer(first) == 42


def test_unused_code_is_unloaded() -> None:
    kernel = elementwise("unloaded", "fmul float %x0, 3.0")
    linked = linker.link_once("unloaded", kernel)
    key = next(key for key, value in linker._linked.items() if value is linked)
    del linked
    gc.collect()
    assert key not in linker._linked
    assert linker.link_once("unloaded", kernel)["unloaded"]


def test_threads_may_link_at_once() -> None:
    images = [compile_text(ANSWER.replace("42", str(number))) for number in range(100, 140)]
    with ThreadPoolExecutor(4) as pool:
        linked = list(pool.map(lambda image: linker.link_once("answer", image), images * 2))
    assert [call_answer(one) for one in linked] == [*range(100, 140)] * 2
    assert linked[:40] == linked[40:]


def test_a_missing_symbol_is_named() -> None:
    with pytest.raises(CodegenError, match="object of subtract does not link"):
        linker.link_once("subtract", add())
