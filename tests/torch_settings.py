"""Each of torch's settings that a saved program depends on, changed for the time of a `with`."""

from contextlib import contextmanager

import torch

from kernelmill.artifact.settings import SETTINGS


@contextmanager
def _set(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


def threads_set(count):
    """Inside, torch has so many threads."""
    return _set(torch.set_num_threads, count, torch.get_num_threads())


def settable():
    """Lets all of torch.backends be set, which torch's own test modules forbid once imported."""
    return getattr(torch.backends, "__allow_nonbracketed_mutation")()


def forget_precisions():
    """Sets no precision of products: `torch.set_float32_matmul_precision` leaves one of oneDNN's,
    which counts more than those of all operators and all backends."""
    with settable():
        for part in (torch.backends.mkldnn.matmul, torch.backends.mkldnn, torch.backends):
            part.fp32_precision = "none"


def _precision(operators):
    part = getattr(torch.backends.mkldnn, operators)

    def setter(value):
        part.fp32_precision = value

    return lambda: _set(setter, "bf16", "none")


CHANGES = {
    "autocast": [lambda: torch.autocast("cpu"), lambda: torch.autocast("cpu", torch.float16)],
    "deterministic": [lambda: _set(torch.use_deterministic_algorithms, True, False)],
    "default dtype": [lambda: _set(torch.set_default_dtype, torch.float64, torch.float32)],
    "default device": [
        lambda: torch.device("meta"),
        lambda: _set(torch.set_default_device, "meta", None),
    ],
    "float32 precision": [
        lambda: _set(torch.set_float32_matmul_precision, "high", "highest"),
        lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
        *map(_precision, ("matmul", "conv", "rnn")),
    ],
    "flush denormals": [lambda: _set(torch.set_flush_denormal, True, False)],
}
"""Ways to change each row of `SETTINGS` of artifact/settings.py, by its name."""


def _turned(switch):
    return lambda: _set(switch.set, not switch.get(), switch.get())


CHANGES |= {s.name: [*map(_turned, s.switches)] for s in SETTINGS if s.switches}

WAYS = [(name, number) for name, ways in CHANGES.items() for number in range(len(ways))]
