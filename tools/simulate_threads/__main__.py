"""How a model would scale on many cores, by a simulation of our own schedules.

    python -m tools.simulate_threads tools.simulate_threads.models:bert --threads 2,4,8,16,32,64
    python -m tools.simulate_threads model.py:make --bandwidth 300 --node-cores 48

The model is compiled, and the time of each launch measured here on one thread. A plan does not
depend on the number of threads, so the launches are those of any machine with this instruction set
and these caches. Then schedule.py plays the rules of runtime/native/launch.c and team.c: which
launches are worth how many threads, which share a region, who claims which tasks and steals from
whom. It prints the time by number of threads, what it was lost to, and the launches that lose most:

few tasks  there are fewer tasks than threads, or they do not divide evenly
small      the launch is worth fewer threads (or one), as it has too little to do
memory     the threads of a node want more bytes than its memory gives
claims     telling threads of tasks, claiming them, counting them as done
regions    opening and closing parallel regions
ATen       operators of torch between launches: their threads are not simulated
outside    checks of the call, Python, and what is done between launches: by one thread

What is assumed:
- All tasks of a launch take equally long, and as long as on one thread: other threads do not slow a
  core's caches or its clock down. Processors with less speed for many cores do worse.
- Weights come from memory if all of them together are larger than the shared cache, another buffer
  if it is larger itself. Each task of a launch reads an equal part, at most at a node's bandwidth
  divided among the threads that work there. Threads fill one memory node after the other; memory is
  spread over the nodes that have threads. One thread's share is in its measured time already.
- A cache line goes from one core to another in `transfer` nanoseconds, `far` times as many between
  nodes. The first thread tells the others one after the other, a transfer each. So does counting
  tasks as done: all count in one line. Taking tasks from another thread takes two transfers.
- A region takes `region` nanoseconds, and two transfers for each thread.
- No thread is held up, and there is one caller.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from kernelmill.compiler.calibration import calibrate
from kernelmill.core.factory import load
from kernelmill.core.target.machine import host
from tools.machine import description
from tools.simulate_threads.measured import Model, measured, measured_here
from tools.simulate_threads.schedule import Costs, Lost, Schedule

CAUSES = ("few tasks", "small", "memory", "claims", "regions", "ATen", "outside")


def simulated(model: Model, threads: int, costs: Costs) -> tuple[float, list[Lost]]:
    """Return the time of a call on so many threads, and where it is lost."""
    schedule = Schedule(threads, costs)
    spent = schedule.run(model.steps) + model.outside
    rest = {"outside": model.outside * (1 - 1 / threads)}
    return spent, [*schedule.lost, Lost("outside", 1, 0, model.outside, rest)]


def table(model: Model, counts: Sequence[int], costs: Costs, here: Mapping[int, float]) -> str:
    """Return a Markdown table of times by number of threads, in parts that were lost."""
    head = ["threads", "time", "measured here", "times one thread", "efficiency", *CAUSES]
    lines = [head, ["---:"] * len(head)]
    for threads in counts:
        spent, lost = simulated(model, threads, costs)
        parts = [sum(each.causes.get(cause, 0.0) for each in lost) / spent for cause in CAUSES]
        known = f"{here[threads] / 1e6:.3g} ms" if threads in here else "-"
        lines.append([
            str(threads), f"{spent / 1e6:.3g} ms", known, f"{model.alone / spent:.1f}",
            f"{model.alone / spent / threads:.0%}", *(f"{part:.0%}" for part in parts),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def worst(model: Model, threads: int, costs: Costs, count: int) -> str:
    """Return a table of the steps that lose most time; equal ones are one row."""
    groups: dict[tuple[str, int, int], list[Lost]] = defaultdict(list)
    for each in simulated(model, threads, costs)[1]:
        name = " | ".join(part.partition(" ")[2] or part for part in each.name.split(" | "))
        groups[name, each.tasks, each.threads].append(each)
    order = sorted(groups.items(), key=lambda row: -sum(sum(e.causes.values()) for e in row[1]))
    head = ["step", "times", "tasks", "threads", "takes", "lost", "to"]
    lines = [head, ["---", *["---:"] * 5, "---"]]
    for (name, tasks, own), alike in order[:count]:
        causes: dict[str, float] = defaultdict(float)
        for each in alike:
            for cause, value in each.causes.items():
                causes[cause] += value
        lost = sum(causes.values())
        said = [f"{cause} {v / lost:.0%}" for cause, v in causes.items() if v > 0.1 * lost]
        spent = sum(each.time for each in alike)
        lines.append([
            name.replace(" | ", " beside "), str(len(alike)), str(tasks), str(own),
            f"{spent / 1e3:.1f} us", f"{lost / 1e3:.1f} us", ", ".join(said),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    usual = Costs()
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate_threads", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("model", metavar="MODULE:FACTORY", help="returns (model, args)")
    parser.add_argument("--threads", default="1,2,4,8,16,32,64", help="numbers of threads")
    parser.add_argument("--calls", type=int, default=9, help="measured calls")
    parser.add_argument("--top", type=int, default=10, help="launches that are shown")
    for name in ("transfer", "far", "region", "node-bandwidth"):
        parser.add_argument(f"--{name}", type=float, default=getattr(usual, name.replace("-", "_")))
    parser.add_argument("--node-cores", type=int, default=usual.node_cores)
    parser.add_argument("--cache-mib", type=int, default=usual.cache >> 20)
    parser.add_argument(
        "--measure", action="store_true",
        help="take transfer from this machine: an empty launch of two threads",
    )  # fmt: skip
    given = parser.parse_args()
    costs = replace(
        usual, transfer=given.transfer, far=given.far, region=given.region,
        node_cores=given.node_cores, node_bandwidth=given.node_bandwidth,
        cache=given.cache_mib << 20, threshold=host().region_work_ns,
    )  # fmt: skip
    if given.measure:
        torch.set_num_threads(2)
        # An empty launch of two threads: one is told, counts, and the first one sees it.
        costs = replace(costs, transfer=calibrate(host()).region_ns / 3)
    counts = [int(number) for number in given.threads.split(",")]
    made = load(given.model)
    with torch.no_grad():
        model = measured(made.model, made.args, costs, given.calls)
        here = measured_here(model, counts, given.calls)
    print(f"`python -m tools.simulate_threads {given.model}`. {description()}\n\n{costs}\n")
    print(f"{len(model.steps)} steps, {model.alone / 1e6:.3g} ms on one thread, "
          f"{model.outside / 1e3:.0f} us of these outside of steps.\n")  # fmt: skip
    print(table(model, counts, costs, here), end="\n\n")
    print(f"On {max(counts)} threads:\n\n{worst(model, max(counts), costs, given.top)}")


if __name__ == "__main__":
    main()
