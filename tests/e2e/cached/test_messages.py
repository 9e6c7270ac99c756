"""What cache_compile says of arguments that it does not take."""

from typing import Any

import pytest
import torch

from kernelmill.core.errors import InputError
from kernelmill.inference import cache_compile


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (torch.nn.Linear(2, 3), r"got a module \(Linear\): pass model\.forward$"),
        (
            Plain.forward,
            r"the function Plain\.forward, .* call it in __init__, .*\(self\.forward\)$",
        ),
        (3, r"\(self\.method\), got int$"),
    ],
)
def test_what_is_no_method_is_told_what_to_pass(given: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        cache_compile(given)
