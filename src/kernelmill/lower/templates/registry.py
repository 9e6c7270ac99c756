"""All templates, in the order in which they are asked."""

from __future__ import annotations

from typing import Any

from kernelmill.core.errors import UnsupportedError
from kernelmill.lower.schedule.template import GroupContext, Template
from kernelmill.lower.templates.attention.template import AttentionTemplate
from kernelmill.lower.templates.convolution.template import LAYOUTS
from kernelmill.lower.templates.map_reduce.template import MapReduceTemplate
from kernelmill.lower.templates.matmul.template import MatmulTemplate
from kernelmill.lower.templates.recurrent.template import RECURRENT
from kernelmill.lower.templates.scan.template import SCAN
from kernelmill.lower.templates.scatter.template import SCATTER
from kernelmill.lower.templates.search.template import SEARCH
from kernelmill.lower.templates.sort.template import SORT

TEMPLATES: tuple[Template[Any, Any], ...] = (
    MapReduceTemplate(),
    *LAYOUTS,
    MatmulTemplate(),
    AttentionTemplate(),
    SCAN,
    SORT,
    SEARCH,
    RECURRENT,
    SCATTER,
)


def template_for(context: GroupContext) -> Template[Any, Any]:
    """Return the first template that matches. UnsupportedError, naming the seed, if none does."""
    for template in TEMPLATES:
        if template.matches(context):
            return template
    seed = context.group.seed
    where = "" if seed is None else f" at {seed.origin}"
    raise UnsupportedError(f"no template for a group of kind {context.group.kind}{where}")
