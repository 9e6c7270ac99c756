"""Steps around a program whose inputs are padded to a gear: data, no torch."""

# Without annotations as texts, as in artifact/manifest.py, which reads these by their types.

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim


@dataclass(frozen=True)
class PaddedInput:
    """Argument `number` is copied into zeros of this shape and these strides (in elements), both at
    the gear's sizes; its elements come first in each dim."""

    number: int
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class PaddedResult:
    """Result `number`, which contains the result of the program without padding.

    Each of its dims is a row-major product of `axes`; the true elements are those inside the true
    size of every axis. `strides` are what eager's result has, at the true sizes.
    """

    number: int
    axes: tuple[tuple[Dim, ...], ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class Padding:
    """Padding of arguments to a gear's sizes, and cropping of results to the true ones. Inputs and
    results that are not named here pass through.

    sizes           integer arguments (number, symbol) that become the gear's size
    size_results    integer results (number, dim) that become the true one
    ranges          (symbol, low, high or None): hold for every true size for which the program was
                    traced
    fixed           (symbol, size): sizes of one gear, of which those count that are the same in all
    tensors         the shapes of all tensor arguments (number, shape)
    """

    inputs: tuple[PaddedInput, ...]
    results: tuple[PaddedResult, ...]
    sizes: tuple[tuple[int, str], ...] = ()
    size_results: tuple[tuple[int, Dim], ...] = ()
    ranges: tuple[tuple[str, int, Dim | None], ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()
    tensors: tuple[tuple[int, tuple[Dim, ...]], ...] = ()
