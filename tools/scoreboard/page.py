"""docs/scoreboard.md and its pictures, from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import geometric_mean, median

from kernelmill.core.text import counted
from tools.bench.harness import document as sectioned
from tools.bench.harness import duration, slug, table
from tools.drawing import Line, drawing
from tools.scoreboard.records import INDUCTOR, MOST_OTHERS, OURS, PEERS, Records, Result, Run

BEHIND = 0.95
"""Rows with fewer times the speed of the best peer are behind."""

_DRAWN = 40
_FIGURES = ("rows", "measured", "wrong", "compiled, %", *PEERS, "best peer", "behind",
            "first calls", "memory")  # fmt: skip
_GOALS = {
    "wrong": 0, "compiled, %": 99.5, INDUCTOR: 1.6, "best peer": 1.1, "behind": 0,
    "first calls": 10.0,
}  # fmt: skip
_INTRODUCTION = f"""\
The models that PyTorch's dashboard of Inductor runs, with random weights, and our own rows, each \
in a process of its own. Left out are models of torchbench whose code is its own \
or that take no tensors: BERT_pytorch, Background_Matting, LearningToPaint, Super_SloMo, \
attention_is_all_you_need_pytorch, dcgan, dlrm, fastNLP_Bert, functorch_dp_cifar10, \
lennard_jones, nvidia_deeprecommender, phlippe_densenet, phlippe_resnet, pytorch_unet, \
speech_transformer, tts_angular, vision_maskrcnn, yolov3.

- **contestants**: the time of each over that of {OURS}. Contestants take turns; a time is the \
median of its calls, and the mean of several rows is geometric.
- **best peer**: the same for the fastest contestant of each row besides {OURS}.
- **wrong**: rows in which our result is further from float64's than rounding explains.
- **compiled**: rows that run wholly in kernels of ours, in percent of the rows that we tried.
- **behind**: rows below {BEHIND} of the best peer.
- **first calls**: Inductor's time over ours. It includes compiling, and no imports.
- **memory**: how much the process grew in our first call, over the size of the weights: the \
median of rows with 8 MB and more.

The goal for {INDUCTOR} is that of float32.

`make scoreboard` makes an environment with the libraries and the runtimes, and measures all rows; \
`make scoreboard ARGUMENTS="--only resnet18 own/bert"` measures these, `python -m tools.scoreboard \
--help` has the rest. Nothing else may run: rows during which other work had more than \
{MOST_OTHERS:.0%} of the processors' time have no times."""


def figures(results: Iterable[Result]) -> dict[str, float]:
    """Return the figures of these rows by their names in the table, those that there are."""
    every = list(results)
    raced, tried = [r for r in every if r.best], [r for r in every if r.tried]
    times = {name: [r.times(name) for r in raced if name in r.seconds] for name in PEERS}
    times["best peer"] = best = [r.times(r.best or "") for r in raced]
    times["first calls"] = [r.first[INDUCTOR] / r.first[OURS] for r in raced if INDUCTOR in r.first]
    found = {name: geometric_mean(values) for name, values in times.items() if values}
    if tried:
        found["compiled, %"] = 100 * sum(r.compiled for r in tried) / len(tried)
    if grown := [r.memory[OURS] / r.weights for r in tried if OURS in r.memory and r.weights >> 23]:
        found["memory"] = median(grown)
    return {
        "rows": len(every), "measured": len(raced), "behind": sum(each < BEHIND for each in best),
        "wrong": sum(OURS in r.wrong for r in every), **found,
    }  # fmt: skip


def document(records: Records) -> str:
    """Return the whole page."""
    sections = {name: _section(name, run) for name, run in records.items()}
    lacking = "" if records else "\n\nNo row has been measured yet."
    return sectioned(f"# Scoreboard\n\n{_INTRODUCTION}{lacking}", sections)


def picture_name(name: str) -> str:
    """Return the file of a run's picture, beside the page."""
    return f"scoreboard-{slug(name)}.svg"


def picture(run: Run) -> str:
    """Return the means of each list, then the rows in which we are slowest."""
    means = [(of, found) for of, found in _by_list(run).items() if found["measured"]]
    lines = [
        Line(f"{of}, mean of {found['measured']}", found, found["best peer"]) for of, found in means
    ]
    for key, result in _slowest(run)[:_DRAWN]:
        places = {name: result.times(name) for name in PEERS if name in result.seconds}
        lines.append(Line(key, places, min(places.values())))
    return drawing(lines, PEERS, f"time over {OURS}'s", "best peer")


def _by_list(run: Run) -> dict[str, dict[str, float]]:
    lists = sorted({key.partition("/")[0] for key in run})
    found = {of: figures(r for key, r in run.items() if key.startswith(f"{of}/")) for of in lists}
    return {**found, "all": figures(run.values())}


def _slowest(run: Run) -> list[tuple[str, Result]]:
    raced = [(key, result) for key, result in run.items() if result.best]
    return sorted(raced, key=lambda entry: entry[1].times(entry[1].best or ""))


def _section(name: str, run: Run) -> str:
    head = ("model", "arguments", OURS, "best peer", "which", "times", "first call", INDUCTOR,
            "weights, MB", "memory, MB", INDUCTOR, "fallbacks", "other work")  # fmt: skip
    occasions = Counter(result.measured for result in run.values())
    parts = [
        f"![Times of each contestant over ours]({picture_name(name)})",
        table(("list", *_FIGURES), [
            [of, *(_number(found.get(figure)) for figure in _FIGURES)]
            for of, found in {**_by_list(run), "goal": _GOALS}.items()
        ]),
    ]  # fmt: skip
    if rows := [_row(key, result) for key, result in _slowest(run)]:
        parts += ["### Slowest first", table(head, rows)]
    if notes := list(_notes(run)):
        parts += ["### Wrong, refused, stopped, unavailable", "\n".join(notes)]
    when = (f"- {counted(rows, 'row')}. {text}" for text, rows in occasions.items())
    return "\n\n".join([*parts, "### When", "\n".join(when)])


def _number(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"


def _row(key: str, result: Result) -> Sequence[str]:
    best = result.best or ""
    grown = [f"{result.memory[n] >> 20}" if n in result.memory else "-" for n in (OURS, INDUCTOR)]
    return (
        key, result.shape, duration(result.seconds[OURS]), duration(result.seconds[best]), best,
        f"{result.times(best):.2f}", duration(result.first[OURS]),
        duration(result.first.get(INDUCTOR)), f"{result.weights >> 20}", *grown,
        str(result.fallbacks), f"{result.others:.0%}",
    )  # fmt: skip


def _notes(run: Run) -> Iterable[str]:
    for key, result in run.items():
        notes = [f"{name} is wrong by {result.errors[name]:.1e}" for name in result.wrong]
        notes += [f"{name}: {reason}" for name, reason in result.refused.items()]
        notes += [f"a graph in torch: {reason}" for reason in result.uncompiled]
        notes += [f"by torch.compile: {reason}" for reason in result.by_torch]
        notes += [note for note in (result.unavailable, result.stopped) if note]
        yield from (f"- {key}, {' '.join(note.replace('|', '/').split())}" for note in notes)
