"""Models whose sizes are equal without being written alike: chunks of a window, halves, padding to
a multiple. Nothing is left to ATen because of that, at any size and however Dynamo gets there."""

import pytest
import torch
import torch.nn.functional as F

from kernelmill.backend.entry import Backend
from kernelmill.core.errors import InputError
from tests.compiled import reported


def padded_chunks(x):
    rows, rest = x.shape[1], (16 - x.shape[1] % 16) % 16
    y = F.pad(x, (0, 0, 0, rest)).reshape(x.shape[0], -1, 16, x.shape[2]).softmax(2)
    return y.reshape(x.shape[0], -1, x.shape[2])[:, :rows] + x


def windows(x):
    y = x.view(x.shape[0], x.shape[1] // 8, 8, x.shape[2]).cumsum(2)
    return y.reshape(x.shape[0], x.shape[1] // 8 * 8, x.shape[2]) + x


def windows_of_a_size(x, like):
    width = like.shape[0]
    y = x.view(x.shape[0], x.shape[1] // width, width, x.shape[2]).flip(2)
    return y.reshape(x.shape[0], x.shape[1] // width * width, x.shape[2]) * x


def scan(x):
    if x.shape[1] < 2:
        return x
    reduced = x[:, :-1:2] + x[:, 1::2]
    odd = scan(reduced)
    even = odd[:, :-1] + x[:, 2::2] if x.shape[1] % 2 == 0 else odd + x[:, 2::2]
    even = torch.cat([x[:, :1], even], 1)
    both = torch.stack([even[:, : odd.shape[1]], odd], 2).flatten(1, 2)
    return torch.cat([both, even[:, odd.shape[1] :]], 1)


def scan_and_add(x):
    """A parallel scan: how often it halves and whether halves are equal depends on the size."""
    return scan(x) * x


def padded_or_cut(x, like):
    return F.pad(x, (1, 0, like.shape[0] - x.shape[1], 0), value=2.0) * 2


def chosen_rows(x, rows, values):
    return x.index_put((rows,), values) + 1


def blocks(x, size):
    """A size that is an integer argument: no range says that it is positive."""
    y = x.view(x.shape[0], x.shape[1] // size, size, x.shape[2])
    y = torch.cat([y[:, 0] + y[:, -1], y.flatten(1, 2)], 1)
    return torch.roll(y, (-(size // 2), 1), (1, 2)) * (x.shape[1] // (size - 1))


def remainders(x, index):
    return x[index % (x.shape[0] - 2)] * 2


def tensors(*shapes):
    return tuple(torch.randn(shape) for shape in shapes)


CALLS = {
    padded_chunks: [tensors((b, n, 5)) for b, n in ((2, 20), (3, 33), (2, 64))],
    windows: [tensors((b, n, 5)) for b, n in ((2, 16), (3, 32))],
    windows_of_a_size: [tensors((b, n, 5), (w,)) for b, n, w in ((2, 16, 4), (3, 36, 6))],
    scan_and_add: [tensors((b, n, 3)) for b, n in ((2, 8), (3, 16))],
    padded_or_cut: [tensors((2, n, 5), (m,)) for n, m in ((4, 9), (9, 4), (6, 6))],
    blocks: [(torch.randn(2, n, 5), w) for n, w in ((16, 4), (36, 6), (18, 3))],
    remainders: [
        (torch.randn(n, 12), torch.randint(-99, 99, (k,))) for n, k in ((6, 9), (10, 3), (14, 5))
    ],
    chosen_rows: [
        (torch.randn(9, k), torch.randperm(9)[:n], torch.randn(n, k)) for n, k in ((4, 5), (7, 3))
    ],
}
AUTOMATIC = (padded_chunks, windows_of_a_size)


@pytest.mark.parametrize(
    ("function", "dynamic"),
    [*[(function, True) for function in CALLS], *[(function, None) for function in AUTOMATIC]],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_equal_sizes_are_seen_to_be_equal(function, dynamic):
    torch._dynamo.reset()
    backend, reports = reported()
    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for args in CALLS[function]:
            torch.testing.assert_close(compiled(*args), function(*args))
    assert not [fallback for report in reports for fallback in report.fallbacks]
    assert not [capture.refused for capture in backend.captures if capture.refused]


def test_sizes_that_have_to_be_equal_are_checked():
    torch._dynamo.reset()
    compiled = torch.compile(chosen_rows, backend=Backend(), dynamic=True)
    compiled(torch.randn(9, 5), torch.arange(4), torch.randn(4, 5))
    wrong = torch.randn(9, 5), torch.arange(4), torch.randn(3, 5)
    with pytest.raises(RuntimeError):
        chosen_rows(*wrong)
    with pytest.raises(InputError, match="needs them equal"):
        compiled(*wrong)


def test_what_a_traced_call_concludes_is_traced_anew_where_it_does_not_hold():
    def scaled(x, size):
        return x * (x.shape[0] // size)

    torch._dynamo.reset()
    backend = Backend()
    compiled = torch.compile(scaled, backend=backend, dynamic=True)
    for rows, size in ((12, 5), (16, 3), (16, -3), (20, -7), (30, 4)):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x, size), scaled(x, size))
    assert [capture.refused for capture in backend.captures] == ["", ""]
