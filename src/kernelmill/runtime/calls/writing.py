"""Operators that write to arguments, in torch's functional form: they write to copies, which they
return. Torch's own way to them is tens of microseconds of Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.operators import overload_named, schema_of


def auto_functionalized_v2(operator: Any, *, _all_bases: Sequence[Any], **given: Any) -> Any:
    """Return the results of `operator` and the copies of all bases, as torch's namesake."""
    written = _written(operator, tuple(given))
    bases = (
        [] if written is None else [base if base is None else base.clone() for base in _all_bases]
    )
    if written is None or any(
        copy is not None and copy.stride() != base.stride()
        for copy, base in zip(bases, _all_bases, strict=True)
    ):
        torchs = overload_named("higher_order.auto_functionalized_v2")
        return torchs(operator, _all_bases=_all_bases, **given)
    for name, is_view in written:
        place = given.pop(f"_{name}_base_index")
        given[name] = None if place is None else bases[place]
        if is_view:
            size, strides, offset = (given.pop(f"_{name}_{part}") for part in _VIEW)
            given[name] = given[name].as_strided(size, strides, offset)
    outcome = operator(**given)
    return (*(outcome if isinstance(outcome, tuple) else (outcome,)), *bases)


_VIEW = ("size", "stride", "storage_offset")


@cache
def _written(operator: Any, given: tuple[str, ...]) -> Sequence[tuple[str, bool]] | None:
    """Return the arguments that an operator writes to, each with whether it is a view of its base,
    from the keyword names of torch's operator; None for keywords that only torch can interpret."""
    try:
        arguments = schema_of(operator).arguments
    except UnsupportedError:  # an operator of operators
        return None
    names = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    bases = {f"_{name}_base_index" for name in names}
    views = {f"_{name}_{part}" for name in names for part in _VIEW}
    plain = {argument.name for argument in arguments}
    if not bases <= set(given) <= bases | views | plain:
        return None
    return [(name, f"_{name}_storage_offset" in given) for name in names]
