"""Views that are returned leave the steps; one that steps read is made twice."""

from kernelmill.core.dtype import F32
from kernelmill.lower.driver.finish import returned_views
from kernelmill.plan.ir import AtenCall, BufferSpec, Launch, TensorResult

KINDS = ("input", "tensor", "tensor", "tensor", "tensor")
BUFFERS = tuple(BufferSpec(kind, F32, (4,), (1,), 0 if kind == "input" else -1) for kind in KINDS)


def view(source: int, result: int, target: str = "aten.alias.default") -> AtenCall:
    return AtenCall(target, (("tensor", source),), (), (result,))


def launch(*buffers: int) -> Launch:
    return Launch("kernel", buffers, (), 1, 0, 1)


def test_a_chain_of_views_is_made_at_the_end() -> None:
    steps = (view(0, 1), launch(0, 2), view(1, 3), view(2, 4))
    made = returned_views(steps, BUFFERS, (TensorResult(3), TensorResult(2), TensorResult(4), None))
    assert made.steps == (steps[1],)
    assert made.calls == (steps[0], steps[2], steps[3])
    assert [buffer.kind for buffer in made.buffers] == ["input", "view", "tensor", "view", "view"]
    assert made.results == (TensorResult(3), TensorResult(2), TensorResult(4), None)


def test_a_view_that_a_kernel_reads_is_made_for_both() -> None:
    steps = (view(0, 1), launch(1, 2))
    made = returned_views(steps, BUFFERS, (TensorResult(1), TensorResult(2)))
    assert made.steps == steps
    assert made.calls == (view(0, 5),)
    assert made.buffers == (*BUFFERS, BufferSpec("view", F32, (4,), (1,)))
    assert made.results == (TensorResult(5), TensorResult(2))


def test_what_writes_or_makes_something_new_stays_a_step() -> None:
    steps = (view(0, 1, "aten.clone.default"), view(2, 3, "aten.relu_.default"))
    made = returned_views(steps, BUFFERS, (TensorResult(1), TensorResult(3)))
    assert (made.steps, made.calls, made.buffers) == (steps, (), BUFFERS)


def assertion(source: int) -> AtenCall:
    return AtenCall("aten._assert_async.msg", (("tensor", source), "no"), (), ())


def test_assertions_with_only_launches_behind_them_are_looked_at_at_the_end() -> None:
    steps = (assertion(1), view(0, 2, "aten.clone.default"), assertion(2), launch(0, 3), view(3, 4))
    results = (TensorResult(3), TensorResult(4))
    made = returned_views(steps, BUFFERS, results)
    assert (made.steps, made.calls) == ((*steps[:2], steps[3]), (steps[2], steps[4]))
    made = returned_views(steps, BUFFERS, results, only_results=False)
    assert (made.steps, made.calls) == (steps[:4], (steps[4],))
