"""What became of the graphs a backend was given; the compiler reports what it made of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capture:
    """One graph that AOTAutograd gave us.

    `kind` is "inference", "forward" or "backward". `direct`: Dynamo calls the program without
    AOTAutograd's wrapper in between. `refused` is why the whole graph runs in torch, or "".
    Seconds are those of the import and of everything after it.
    """

    name: str
    kind: str
    fx_nodes: int
    graph_nodes: int = 0
    direct: bool = False
    refused: str = ""
    import_seconds: float = 0.0
    compile_seconds: float = 0.0
