"""What happens at a call, as a list of steps."""

from kernelmill.plan.text import parse_plan
from kernelmill.runtime.calls.steps import print_steps, steps_of

LAUNCHES = """
plan "launches" symbols(s0 in [2, inf]) inputs(
  "x": f32[s0, 4]{4, 1},
  "w": f32[4]{1} param,
  "y": f32[4]{1} updated
) {
  kernel k type "K"
  buffer %0 = input(0): f32[s0, 4]{4, 1}
  buffer %1 = input(1): f32[4]{1}
  buffer %2 = packed: f32[4]{1}
  buffer %3 = input(2): f32[4]{1}
  buffer %4 = tensor: f32[s0, 4]{4, 1}
  buffer %5 = view: f32[4, s0]{1, 4}
  prepare {
    launch k(%1, %2) tasks(1) work(1)
  }
  launch k(%0, %2, %4) tasks(1) work(1)
  launch k(%3, %2, %3) tasks(1) work(1)
  views {
    aten "aten.t.default"(%4) gives(%5)
  }
  return(%5, <s0>)
}
"""

WITH_OPERATORS = """
plan "operators" inputs(
  "x": f32[4]{1}
) {
  kernel k type "K"
  buffer %0 = input(0): f32[4]{1}
  buffer %1 = tensor: f32[4]{1}
  buffer %2 = tensor: f32[4]{1}
  buffer %3 = tensor: f32[4]{1}
  buffer %4 = tensor: f32[0]{1}
  launch k(%0, %1) tasks(1) work(1)
  aten "aten.sort.default"(%1) gives(%2, _)
  launch k(%2, %3) tasks(1) work(1)
  launch k(%3, %3) tasks(1) work(1)
  return(%3, %4)
}
"""


def printed(text: str) -> list[str]:
    return print_steps(steps_of(parse_plan(text))).splitlines()


def test_tensors_of_launches_alone_are_there_before_the_check() -> None:
    assert printed(LAUNCHES) == [
        "FindSizes sources(s0 = argument 0 dim 0)",
        "BindWeights arguments(1)",
        "MakeTensors buffers(4)",
        "CheckArguments tensors(0, 2) updated(2)",
        "RunLaunches first(0) last(2)",
        'MakeViews calls(aten "aten.t.default"(%4) gives(%5))',
        "ReturnResults results(%5, <s0>)",
    ]


def test_between_operators_launches_make_what_they_touch_first() -> None:
    assert printed(WITH_OPERATORS) == [
        "MakeTensors buffers(4)",
        "CheckArguments tensors(0)",
        "RunLaunches first(0) last(1) makes(1)",
        'CallOperator call(aten "aten.sort.default"(%1) gives(%2, _)) placed(2) drops(1)',
        "RunLaunches first(1) last(3) makes(3) drops(2)",
        "ReturnResults results(%3, %4)",
    ]
