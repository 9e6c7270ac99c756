"""Mode reduce-overhead: one set of kernels for all sizes, a capture for each set of sizes."""

import logging

import pytest
import torch

from kernelmill.compiler import choices
from kernelmill.compiler.pipeline import Compiler, compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import F32
from kernelmill.core.errors import InputError
from kernelmill.graph.builder import GraphBuilder


def softmax(rows, columns, dims=()):
    """A graph of five operators over (rows, columns)."""
    b = GraphBuilder("softmax")
    for dim in dims:
        b.dim_input(dim)
    x = b.input("x", F32, (rows, columns))

    def spread(value):
        column = b.emit("reshape", value, shape=(rows, 1))
        return b.emit("expand", column, shape=(rows, columns))

    shifted = b.emit("exp", b.emit("sub", x, spread(b.emit("reduce_max", x, dims=(1,)))))
    total = b.emit("reduce_sum", shifted, dims=(1,))
    b.graph.results = [b.emit("div", shifted, spread(total))]
    return b.graph


def config(tmp_path, limit=64):
    made = CompilerConfig()
    made.mode = "reduce-overhead"
    made.experimental_config.kernel_meta_dir = str(tmp_path)
    made.debug.aclgraph.static_capture_size_limit = limit
    return made


def check(program, *args):
    (result,) = program(*args)
    torch.testing.assert_close(result, args[-1].softmax(1))


def test_a_second_shape_needs_no_compile(tmp_path):
    reports = []
    for shape in ((4, 8), (6, 32), (5, 1000)):
        made = compile_graph(softmax(*shape), config(tmp_path))
        check(made.program, torch.randn(shape))
        reports.append(made.report)
    first, *others = reports
    assert first.compiled == 5
    assert [report.compiled for report in others] == [0, 0]
    assert {kernel.kind for report in reports for kernel in report.kernels} == {"dynamic"}
    assert all(len(kernel.operators) == 1 for kernel in first.kernels)


@pytest.fixture
def dynamic(tmp_path):
    """A program over a symbolic number of rows, with room for two captures."""
    n = of_atom(Sym("n", 2, 100))
    return compile_graph(softmax(n, 16, (n,)), config(tmp_path, limit=2)).program


def test_each_set_of_sizes_is_captured_once(dynamic):
    for rows in (3, 7, 3, 3):
        check(dynamic, rows, torch.randn(rows, 16))
    assert dynamic.captures == ((3,), (7,))
    assert dynamic.report()["captures"] == 2
    assert dynamic.report()["calls"] == 4


def test_captures_compile_nothing(tmp_path):
    n, made = of_atom(Sym("n", 2, 100)), []
    program = Compiler(config(tmp_path), made.append).compile(softmax(n, 16, (n,))).program
    for rows in (5, 9):
        check(program, rows, torch.randn(rows, 16))
    reports = [each.report for each in made[1:]]
    assert [report.name for report in reports] == ["softmax at n=5", "softmax at n=9"]
    assert [report.compiled for report in reports] == [0, 0]


def test_beyond_the_limit_the_oldest_capture_goes_with_one_warning(dynamic, caplog):
    with caplog.at_level(logging.INFO, logger="kernelmill"):
        for rows in (3, 4, 5, 6, 3):
            check(dynamic, rows, torch.randn(rows, 16))
    assert dynamic.captures == ((6,), (3,))
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "static_capture_size_limit" in warnings[0].getMessage()


def test_bad_arguments_are_named_and_captured_for_nothing(dynamic):
    with pytest.raises(InputError, match="n"):
        dynamic(101, torch.randn(101, 16))
    with pytest.raises(InputError, match="argument"):
        dynamic(3, torch.randn(4, 16))
    with pytest.raises(InputError, match="takes 2 arguments"):
        dynamic(3)
    with pytest.raises(InputError, match="argument"):
        dynamic(3, None)
    check(dynamic, 3, torch.randn(3, 16))


def test_static_kernels_for_sizes_to_come(tmp_path, caplog, monkeypatch):
    """Captures at sizes that were said beforehand find all choices made."""
    monkeypatch.setattr(choices, "compare", lambda *arguments: (1.0, 2.0))
    made_for = []
    make = choices.Choices.make

    def counted(self, operators, jobs):
        made_for.append(len(operators))
        return make(self, operators, jobs)

    monkeypatch.setattr(choices.Choices, "make", counted)
    n, m = of_atom(Sym("n", 2, 100)), of_atom(Sym("m", 2, 64))
    made = config(tmp_path)
    option = made.experimental_config.aclgraph
    option._aclnn_static_shape_kernel = True
    option._aclnn_static_shape_kernel_build_dir = str(tmp_path)
    option._aclnn_static_shape_kernel_sym_value_range = [4, 6, 101]
    option._aclnn_static_shape_kernel_sym_index = 1
    compiled = []
    program = Compiler(made, compiled.append).compile(softmax(n, m, (n, m))).program
    del compiled[:]
    with caplog.at_level(logging.WARNING):
        for columns in (5, 4, 6, 7):
            check(program, 3, columns, torch.randn(3, columns))
    assert "m cannot be 101: its sizes are 2 to 64" in caplog.text
    at_one_size = made_for[3]
    assert made_for == [3 * at_one_size, 0, 0, at_one_size] and at_one_size > 0
    kinds = {kernel.kind for each in compiled for kernel in each.report.kernels}
    assert kinds == {"static (this run)"}


def test_a_symbol_that_is_not_there_is_a_warning(tmp_path, caplog):
    n = of_atom(Sym("n", 2, 100))
    made = config(tmp_path)
    option = made.experimental_config.aclgraph
    option._aclnn_static_shape_kernel_sym_value_range = [4]
    with caplog.at_level(logging.WARNING):
        compile_graph(softmax(n, 8, (n,)), made)
    assert "does nothing without _aclnn_static_shape_kernel" in caplog.text
    option._aclnn_static_shape_kernel = True
    option._aclnn_static_shape_kernel_build_dir = str(tmp_path)
    option._aclnn_static_shape_kernel_sym_index = 1
    with caplog.at_level(logging.WARNING):
        check(compile_graph(softmax(n, 8, (n,)), made).program, 3, torch.randn(3, 8))
    assert "there are 1 symbols (n)" in caplog.text
