"""Written pages of this process' memory, as Linux from 6.7 on reports them.

Memory is registered with userfaultfd(2) and write-protected there, asynchronously: the first write
to a page lifts its protection, without a handler. An ioctl on /proc/self/pagemap (PAGEMAP_SCAN,
admin-guide/mm/pagemap.rst of the kernel's documents) then finds pages without protection. It needs
no rights, but sandboxes and containers often refuse userfaultfd. Writes by the kernel, such as
those of read(2), count too; those of other processes and through other mappings do not.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

PAGE = mmap.PAGESIZE
Range = tuple[int, int]
"""First and end address of pages."""

_SYS_USERFAULTFD = 323
_USER_MODE_ONLY = 1
_UFFD_API = 0xAA
_WP_UNPOPULATED, _WP_ASYNC = 1 << 13, 1 << 15
_MODE_WP, _PROTECT = 1 << 1, 1 << 0
_PROTECT_MATCHING, _CHECK_REGISTERED = 1 << 0, 1 << 1
_IS_WRITTEN, _IS_FILE = 1 << 1, 1 << 2
_MOST_REGIONS = 512

_word = ctypes.c_uint64


def _words(*names: str) -> type[ctypes.Structure]:
    return type("Words", (ctypes.Structure,), {"_fields_": [(name, _word) for name in names]})


_Api = _words("api", "features", "ioctls")
_Register = _words("start", "size", "mode", "ioctls")
_Protect = _words("start", "size", "mode")
_Region = _words("start", "end", "categories")
_Scan = _words(
    "size", "flags", "start", "end", "walk_end", "regions", "region_count", "most_pages",
    "inverted", "mask", "any_of", "wanted",
)  # fmt: skip


def _request(kind: int, number: int, structure: type[ctypes.Structure]) -> int:
    """Return _IOWR of <linux/ioctl.h>."""
    return 3 << 30 | ctypes.sizeof(structure) << 16 | kind << 8 | number


_REQUEST_API = _request(_UFFD_API, 0x3F, _Api)
_REQUEST_REGISTER = _request(_UFFD_API, 0x00, _Register)
_REQUEST_PROTECT = _request(_UFFD_API, 0x06, _Protect)
_REQUEST_SCAN = _request(ord("f"), 16, _Scan)


class PageScan:
    """Files of this process for page scans. OSError where the system does not support or permit
    them. Scans use the descriptor `pagemap`, and `counts_faults` is true if the first write to a
    page is among the page faults that getrusage(2) reports. A forked process needs its own."""

    def __init__(self) -> None:
        flags = os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY
        self._file = _checked(_libc().syscall(_SYS_USERFAULTFD, flags))
        self.pagemap, self.counts_faults = -1, False
        try:
            self.pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            _ioctl(self._file, _REQUEST_API, _Api(_UFFD_API, _WP_UNPOPULATED | _WP_ASYNC, 0))
            self._try()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the files; nothing is watched any more."""
        os.close(self._file)
        if self.pagemap >= 0:
            os.close(self.pagemap)

    def register(self, pages: Range) -> None:
        """Register pages for protection and scans; some may be registered already. OSError for
        memory that cannot be."""
        first, last = pages
        _ioctl(self._file, _REQUEST_REGISTER, _Register(first, last - first, _MODE_WP, 0))

    def protect(self, pages: Range) -> None:
        """Write-protect registered pages, so that they count as not written."""
        first, last = pages
        _ioctl(self._file, _REQUEST_PROTECT, _Protect(first, last - first, _PROTECT))

    def take_written(self, pages: Range) -> list[Range]:
        """Return the written ranges among these pages, in order, and protect them in the same step.
        OSError if some are not registered: other memory has taken their place."""
        found: list[Range] = []
        place, last = pages
        regions = (_Region * _MOST_REGIONS)()
        flags = _PROTECT_MATCHING | _CHECK_REGISTERED
        while place < last:
            scan = _Scan(
                ctypes.sizeof(_Scan), flags, place, last, 0, ctypes.addressof(regions),
                _MOST_REGIONS, 0, 0, _IS_WRITTEN, 0, _IS_WRITTEN,
            )  # fmt: skip
            count = _ioctl(self.pagemap, _REQUEST_SCAN, scan)
            found += [(region.start, region.end) for region in regions[:count]]
            place = scan.walk_end
        return found

    def is_of_file(self, address: int) -> bool:
        """Return whether the page belongs to a file, or to memory that processes share; it has to
        be readable. OSError where nothing is mapped."""
        first = address // PAGE * PAGE
        ctypes.string_at(address, 1)  # a page that is not there yet is of nothing
        region = _Region()
        scan = _Scan(
            ctypes.sizeof(_Scan), 0, first, first + PAGE, 0, ctypes.addressof(region),
            1, 0, 0, _IS_FILE, 0, _IS_FILE,
        )  # fmt: skip
        return _ioctl(self.pagemap, _REQUEST_SCAN, scan) > 0

    def _try(self) -> None:
        """Raise OSError unless writes to memory of ours are found."""
        with mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            view = ctypes.c_char.from_buffer(memory)
            first = ctypes.addressof(view)
            del view
            pages = first, first + 2 * PAGE
            memory[0] = memory[PAGE] = 1
            self.register(pages)
            self.protect(pages)
            before = self.take_written(pages)
            faults = page_faults()
            memory[PAGE] = 2
            self.counts_faults = page_faults() > faults
            after = self.take_written(pages)
        if (before, after) != ([], [(first + PAGE, first + 2 * PAGE)]):
            raise OSError("written pages are not found")


class SharedMappings:
    """The memory of this process that is mapped so that others can write to it: files, and
    anonymous memory that forked processes share. Read at the first question."""

    def have(self, address: int) -> bool:
        """Return whether an address is in one of the mappings."""
        return any(first <= address < last for first, last in self._ranges)

    @cached_property
    def _ranges(self) -> list[Range]:
        # proc_pid_maps(5): 7f3401ab9000-7f3401ac0000 rw-s 00000000 fe:00 338846 /path
        lines = Path("/proc/self/maps").read_bytes().splitlines()
        fields = [line.split(None, 2) for line in lines]
        ends = [pages.split(b"-") for pages, access, _ in fields if access.endswith(b"s")]
        return [(int(first, 16), int(last, 16)) for first, last in ends]


def page_faults() -> int:
    """Return the number of page faults of this process so far, of all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def merged(ranges: Sequence[Range]) -> list[Range]:
    """Return the union of ranges as disjoint ranges, in order; adjacent ones are joined."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        elif first < last:
            found.append((first, last))
    return found


def overlap(ranges: Sequence[Range]) -> bool:
    """Return whether two of these ranges overlap."""
    return _size(ranges) > _size(merged(ranges))


def _size(ranges: Sequence[Range]) -> int:
    return sum(last - first for first, last in ranges)


def meeting(ranges: Sequence[Range], pages: Range) -> range:
    """Return the indices of those of the ranges, in order and disjoint, that overlap `pages`."""
    if pages[0] >= pages[1]:
        return range(0)
    after = bisect_right(ranges, pages[0], key=lambda each: each[1])
    return range(after, bisect_left(ranges, pages[1], after, key=lambda each: each[0]))


def _ioctl(file: int, request: int, argument: ctypes.Structure) -> int:
    return _checked(_libc().ioctl(file, request, ctypes.byref(argument)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def _libc() -> Any:
    library: Any = ctypes.CDLL(None, use_errno=True)
    library.ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
    return library
