"""The default folder of compiled programs.

It is never in the working directory, whose contents may come from an archive or a checkout: the
user owns them, so checks of owners and modes could not refuse them.
"""

from __future__ import annotations

import os

from kernelmill.core import knobs


def cache_home() -> str:
    """Return $XDG_CACHE_HOME/kernelmill, else ~/.cache/kernelmill, as an absolute path.

    Source: XDG Base Directory Specification, which has relative paths in the variable ignored. For
    a user without a home folder it is below "/", as containers have it, and mostly not writable.
    """
    base = knobs.XDG_CACHE_HOME.get()
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        base = "/.cache"
    return os.path.join(base, "kernelmill")
