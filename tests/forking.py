"""Work done in a forked child, as a test of what a fork leaves behind."""

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable

SECONDS = 90


def in_child(work: Callable[[], object], *, ends_normally: bool = False) -> None:
    """Run `work` in a forked child. AssertionError with what it raised, or when it hangs.

    `ends_normally` lets the child run what is to run when Python ends.
    """
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with open(read) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGALRM:
            text = f"the child was not done within {SECONDS} s: {text}"
        assert (code, text) == (0, ""), text or f"the child ended with {code}"
        return
    os.close(read)
    faulthandler.register(signal.SIGALRM, file=write, chain=True)
    signal.alarm(SECONDS)  # whoever waits for a lock is ended by it
    try:
        work()
    except BaseException:
        os.write(write, traceback.format_exc().encode()[-60_000:])
        os._exit(1)
    if not ends_normally:
        os._exit(0)
    _end(write)


def _end(write: int) -> None:
    # As Python ends, without pytest's own part of it.
    import atexit

    try:
        atexit._run_exitfuncs()
    except BaseException:
        os.write(write, traceback.format_exc().encode())
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
