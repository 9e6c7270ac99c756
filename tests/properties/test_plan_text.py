"""Plans of random graphs keep their rules, and survive being printed and parsed."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.core.target.machine import host
from kernelmill.graph.ir import Graph
from kernelmill.lower.driver.program import lower_graph
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.plan.verifier import verify_plan
from tests.strategies import graphs


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.booleans().flatmap(lambda symbolic: graphs(symbolic=symbolic)))
def test_lowered_plans(graph: Graph) -> None:
    plan = lower_graph(graph, host()).plan
    verify_plan(plan, "lowering")
    text = print_plan(plan)
    again = parse_plan(text)
    assert again == plan
    assert print_plan(again) == text
    assert [(s.lo, s.hi) for s in again.symbols] == [(s.lo, s.hi) for s in plan.symbols]
