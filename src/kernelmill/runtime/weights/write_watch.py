"""Detection of writes to the memory of weights, by any alias: one watch for all of this process.

Linux can report written pages (page_scan.py). Each watched span of memory has a number, which
changes with every write that is found. At each call the native entry scans the pages that a binding
watches; `look` then gives written spans new numbers, and protects the pages again. The first write
to a protected page is a page fault, so the scan is skipped while the process had none.

A page in which a span begins or ends has other memory too: a write there is attributed by comparing
contents. After a write to the other memory the edge is *loose*: it is no longer protected, and its
contents are compared at each call.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from weakref import WeakValueDictionary

from kernelmill.core.after_fork import ReentryLock
from kernelmill.core.log import get_logger
from kernelmill.runtime.layout import WatchState
from kernelmill.runtime.weights.page_scan import PAGE, PageScan, Range, meeting, merged

Span = tuple[int, int]
"""First and end address of bytes."""

_log = get_logger("runtime")


class WatchedSpan:
    """A watched span of memory; it is watched as long as this object lives.

    `writes` is another number after every write to a page that the span fills; None when the memory
    cannot be watched any more. `looks` is another number after any write found, on edges too.
    """

    def __init__(self, span: Span, number: int) -> None:
        self.span = span
        self.writes: int | None = number
        self._looks = ctypes.c_int64(number)
        self._loose = [False, False]

    @property
    def looks(self) -> int:
        return self._looks.value

    @property
    def address(self) -> int:
        """Address from which the native entry reads `looks`."""
        return ctypes.addressof(self._looks)

    @property
    def pages(self) -> Range:
        """Range of protected pages."""
        first, last = _around(self.span)
        head, tail = self.loose
        return first + PAGE * head, last - PAGE * tail

    @property
    def edges(self) -> tuple[Span, Span]:
        """Parts of the span that share pages with other memory."""
        (start, end), (first, last) = self.span, _within(self.span)
        return (start, first), (last, end)

    @property
    def loose(self) -> tuple[bool, bool]:
        """Flags of the first and the last edge that must be compared at each call."""
        head, tail = self._loose
        return head, tail

    def note(self, written: Sequence[Range], number: int) -> None:
        """Take note of written pages, in order and disjoint.

        An edge written together with pages that the span fills was most likely written with the
        whole span, as by an optimizer's step, and stays protected.
        """
        first, last = _within(self.span)
        low, high = _around(self.span)
        filled = bool(meeting(written, (first, last)))
        if filled:
            self.writes = self._looks.value = number
        for edge, its in enumerate(((low, first), (last, high))):
            if meeting(written, its):
                self._loose[edge] |= not filled
                self._looks.value = number

    def lose(self, number: int) -> None:
        """Mark the memory as no longer watchable."""
        self.writes, self._looks.value = None, number


class WriteWatch:
    """The watch of this process (see the module). `state` is for scans of the native entry: a
    scan's result is invalid if `takes` is odd, or changes meanwhile. A signal handler can interrupt
    a look, where this is `busy` for its thread: the handler's calls must do without. It may fork,
    though."""

    def __init__(self) -> None:
        self.state = WatchState(-1, 0, 0)
        self._forks = 0
        self._scan: PageScan | None = None
        self._refused = False
        self._watches: WeakValueDictionary[Span, WatchedSpan] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._turns = ReentryLock()
        self._forking: list[AbstractContextManager[bool]] = []

    @property
    def busy(self) -> bool:
        """True if this thread is inside a method that holds the lock."""
        return self._turns.inside

    @property
    def allowed(self) -> bool:
        """True if this system lets us watch."""
        if self._scan is None and not self._refused:
            with self._turns.enter() as first:
                if first and self._scan is None:
                    self._open()
        return self._scan is not None

    def watch(self, spans: Iterable[Span]) -> dict[Span, WatchedSpan]:
        """Return a watch of each span (of more than two pages) that can be watched."""
        wanted = set(spans)
        if not wanted or not self.allowed:
            return {}
        with self._turns.enter() as first:
            if not first:
                return {}
            found = {span: self._watches.get(span) for span in wanted}
            missing = [span for span, watch in found.items() if watch is None]
            found.update(self._new(missing))
        return {s: w for s, w in found.items() if w is not None and w.writes is not None}

    def is_of_file(self, address: int) -> bool:
        """Return whether watched memory belongs to a file, or to memory that processes share."""
        try:
            return self._scan is not None and self._scan.is_of_file(address)
        except OSError:
            return False

    def look(self) -> None:
        """Find writes since the last look, and give their watches new numbers."""
        with self._turns.enter() as first:
            self._look_if(first)

    def _look_if(self, first: bool) -> None:
        """Look for writes; inside another look, count all as written."""
        if first:
            self._look()
        else:
            self._note_all()

    def _open(self) -> None:
        forks = self._forks
        try:
            scan = PageScan()
            while forks != self._forks:  # a handler's fork: the files are of the old process
                forks = self._forks
                scan.close()
                scan = PageScan()
            self._scan = scan
            self.state.pagemap = scan.pagemap
            self.state.epoch = 1 + self._forks if scan.counts_faults else 0
        except OSError as error:
            self._refused = True
            _log.info("written pages cannot be found, pieces of weights are compared: %s", error)

    def _begin_to_take(self) -> None:
        """Make `takes` odd: until it is even again, results of scans are invalid. It stays odd
        if Ctrl-C ends this: those writes were reported to nobody, and so all counts as written
        here."""
        unfinished = self.state.takes & 1
        self.state.takes |= 1
        if unfinished:
            self._note_all()

    def _note_all(self) -> None:
        number = next(self._numbers)
        for watch in self._known():
            watch.note([_around(watch.span)], number)

    def _look(self) -> None:
        watches = self._known()
        self._begin_to_take()
        ranges = merged([watch.pages for watch in watches])
        for pages, its in zip(ranges, _by_range(ranges, watches), strict=True):
            self._take(pages, its)
        self.state.takes += 1

    def _known(self) -> list[WatchedSpan]:
        return [watch for watch in self._watches.values() if watch.writes is not None]

    def _take(self, pages: Range, watches: Sequence[WatchedSpan]) -> None:
        if self._scan is None:
            return  # in a child of a handler, which has lost them
        try:
            written = self._scan.take_written(pages)
        except OSError:
            for watch in watches:  # other memory has taken the place of some of it
                watch.note([_around(watch.span)], next(self._numbers))
            self._protect(watches, self._known())
        else:
            if written:
                number = next(self._numbers)
                for watch in watches:
                    watch.note(written, number)

    def _new(self, spans: Sequence[Span]) -> dict[Span, WatchedSpan]:
        """Return watches of spans that are not watched yet."""
        if not spans:
            return {}
        number = next(self._numbers)
        made = {span: WatchedSpan(span, number) for span in spans}
        known, forks = self._known(), -1
        self._begin_to_take()
        while forks != self._forks:  # a handler's fork: protection does not come along
            forks = self._forks
            self._protect(list(made.values()), known)
            self._watches.update(made)
        self.state.takes += 1
        return made

    def _protect(self, watches: Sequence[WatchedSpan], known: Sequence[WatchedSpan]) -> None:
        """Begin to watch these, or lose them; known watches learn of writes to the same pages."""
        ranges = merged([watch.pages for watch in watches])
        groups = zip(ranges, _by_range(ranges, watches), _by_range(ranges, known), strict=True)
        for pages, its, others in groups:
            if self._protected(pages, others):
                continue
            for watch in its:
                met = [other for other in others if meeting([watch.pages], other.pages)]
                if not self._protected(watch.pages, met):
                    watch.lose(next(self._numbers))

    def _protected(self, pages: Range, others: Sequence[WatchedSpan]) -> bool:
        """Protect these pages, partly watched by the others; return whether that succeeded."""
        if self._scan is None:
            return False
        try:
            self._scan.register(pages)
            for part in _without(pages, merged([watch.pages for watch in others])):
                self._scan.protect(part)
            if others:
                written = self._scan.take_written(pages)
                number = next(self._numbers)
                for watch in others:
                    watch.note(written, number)
        except OSError:
            return False
        return True

    # ---- forks ------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Look for writes, for both processes to know them; block looks until the fork is over."""
        turn = self._turns.enter()
        first = turn.__enter__()
        self._forking.append(turn)
        self._look_if(first)

    def in_parent(self) -> None:
        """Resume after a fork."""
        self._forking.pop().__exit__(None, None, None)

    def in_child(self) -> None:
        """Restart in the child: protection is not inherited, and the files are the parent's."""
        watches = list(self._watches.values())
        self._forks += 1
        if self._scan is not None:
            self._scan.close()
            self._scan = None
            self.state.pagemap, self.state.epoch = -1, 0
            self._open()
        if self._scan is not None:
            self._protect(watches, ())
        else:
            for watch in watches:
                watch.lose(next(self._numbers))
        self.in_parent()


def _around(span: Span) -> Range:
    """Return the pages that overlap a span."""
    return span[0] // PAGE * PAGE, -(-span[1] // PAGE) * PAGE


def _within(span: Span) -> Range:
    """Return the pages that lie entirely in a span."""
    return -(-span[0] // PAGE) * PAGE, span[1] // PAGE * PAGE


def _by_range(ranges: Sequence[Range], watches: Sequence[WatchedSpan]) -> list[list[WatchedSpan]]:
    """Return the watches with pages in each of these ranges, which are in order and disjoint."""
    found: list[list[WatchedSpan]] = [[] for _ in ranges]
    for watch in watches:
        for index in meeting(ranges, watch.pages):
            found[index].append(watch)
    return found


def _without(pages: Range, others: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of these pages outside of the others, which are in order."""
    place, end = pages
    for first, last in others:
        if place < min(first, end):
            yield place, min(first, end)
        place = max(place, last)
    if place < end:
        yield place, end


_watch = WriteWatch()
os.register_at_fork(
    before=_watch.before_fork,
    after_in_parent=_watch.in_parent,
    after_in_child=_watch.in_child,
)


def write_watch() -> WriteWatch:
    """Return the watch of this process."""
    return _watch
