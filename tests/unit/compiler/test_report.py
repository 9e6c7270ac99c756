"""What a report says of memory."""

from kernelmill.compiler.pipeline import compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import F32
from tests.compiled import graph


def report_of(rows):
    """Of a chain of products, whose inner results live in the arena, two at a time."""

    def build(b, x, w):
        for _ in range(5):
            x = b.emit("matmul", x, w)
        return x

    made = graph(build, (F32, (rows, 64)), (F32, (64, 64)))
    return compile_graph(made, CompilerConfig()).report


def test_the_arena_stands_beside_what_lives_at_once_and_the_sum_of_all():
    report = report_of(32)
    one = 32 * 64 * 4
    assert (report.arena_bytes, report.live_bytes, report.tensor_bytes) == (
        str(2 * one),
        2 * one,
        4 * one,
    )


def test_symbolic_sizes_have_no_sums():
    report = report_of(of_atom(Sym("s0", 2, 4096)))
    assert (report.live_bytes, report.tensor_bytes) == (None, None)
