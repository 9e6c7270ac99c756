"""The driver of a super kernel as LLVM IR text: one function that every thread of the team runs.

    void name(ptr buffers, ptr unused, i64 thread, i64 threads, ptr scratch)

`buffers[0]` has a cache line for each thread, in which it counts its finished sub-kernels. The
addresses of the buffers of one sub-kernel after another follow. The driver calls the sub-kernels'
unchanged objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import evaluate
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.plan.ir import TEAM_PARTS, Launch, Part, SuperKernel

EAGER_SPINS = 64
"""So often a waiting thread looks without a pause: pausing takes a good part of a short wait."""

SPINS = 2000
"""So often it looks before it lets others have its processor."""

_WAIT = f"""
define internal void @wait(ptr %lines, i64 %first, i64 %last, i64 %count) {{
entry:
  br label %each
each:
  %thread = phi i64 [ %first, %entry ], [ %next, %done ]
  %offset = mul i64 %thread, {ALIGNMENT}
  %line = getelementptr i8, ptr %lines, i64 %offset
  br label %look
look:
  %spins = phi i64 [ 0, %each ], [ %more.spins, %again ]
  %behind = load atomic i64, ptr %line acquire, align 8
  %enough = icmp uge i64 %behind, %count
  br i1 %enough, label %done, label %idle
idle:
  %more.spins = add i64 %spins, 1
  %eager = icmp ult i64 %spins, {EAGER_SPINS}
  br i1 %eager, label %again, label %slow
slow:
  %patient = icmp ult i64 %spins, {SPINS}
  br i1 %patient, label %pause, label %give.way
pause:
  {{pause}}
  br label %again
give.way:
  %ignored = call i32 @sched_yield()
  br label %again
again:
  br label %look
done:
  %next = add i64 %thread, 1
  %others = icmp ult i64 %next, %last
  br i1 %others, label %each, label %exit
exit:
  ret void
}}
"""


def driver_ir(
    super_kernel: SuperKernel, launches: Sequence[Launch], spin_hint: tuple[str, str] = ("", "")
) -> str:
    """Return the text of the driver's module, for launches of constant size. `spin_hint`: the hint
    of a waiting thread to the processor, a declaration and a call."""
    return _Driver(super_kernel, launches).text(spin_hint)


class _Driver:
    def __init__(self, super_kernel: SuperKernel, launches: Sequence[Launch]) -> None:
        self.super_kernel = super_kernel
        self.launches = launches
        self.lines: list[str] = []
        self.bounds: dict[Part, int] = {}
        self.awaited = {n for waits in super_kernel.waits for n in waits}

    def text(self, spin_hint: tuple[str, str]) -> str:
        kernels = sorted({launch.kernel for launch in self.launches})
        self._alone()
        self.lines.append("team:")
        for part in dict.fromkeys(self.super_kernel.parts):
            self._bound(part)
        for part, tasks in dict.fromkeys(map(self._split, range(len(self.launches)))):
            self._share(part, tasks)
        self.lines += [
            f"%own.offset = mul i64 %thread, {ALIGNMENT}",
            "%own = getelementptr i8, ptr %lines, i64 %own.offset",
            "br label %sub0",
        ]
        for number in range(len(self.launches)):
            self._sub_kernel(number)
        self.lines += [f"sub{len(self.launches)}:", "ret void"]
        declaration, pause = spin_hint
        head = "ptr %buffers, ptr %unused, i64 %thread, i64 %threads, ptr %scratch"
        return "\n".join([
            "declare i32 @sched_yield()", declaration,
            *(f"declare void @{name}(ptr, ptr, i64, i64, ptr)" for name in kernels),
            *(
                f"@dims{number} = private constant [{len(launch.dims)} x i64] "
                f"[{', '.join(f'i64 {dim}' for dim in launch.dims)}], align 8"
                for number, launch in enumerate(self.launches)
                if launch.dims
            ),
            _WAIT.replace("{pause}", pause),
            f"define void @{self.super_kernel.name}({head}) {{",
            *("  " * (not line.endswith(":")) + line for line in self.lines),
            "}", "",
        ])  # fmt: skip

    def _alone(self) -> None:
        """Emit the path of a single thread: all tasks of all sub-kernels without waits."""
        self.lines += [
            "entry:", "%lines = load ptr, ptr %buffers, align 8",
            "%several = icmp ugt i64 %threads, 1", "br i1 %several, label %team, label %alone",
            "alone:",
        ]  # fmt: skip
        for number, launch in enumerate(self.launches):
            self._call(number, f"alone{number}", "0", str(launch.tasks))
        self.lines.append("ret void")

    def _call(self, number: int, name: str, begin: str, end: str) -> None:
        place = 1 + sum(len(launch.buffers) for launch in self.launches[:number])
        dims = f"@dims{number}" if self.launches[number].dims else "null"
        self.lines += [
            f"%{name} = getelementptr ptr, ptr %buffers, i64 {place}",
            f"call void @{self.launches[number].kernel}"
            f"(ptr %{name}, ptr {dims}, i64 {begin}, i64 {end}, ptr %scratch)",
        ]

    def _bound(self, part: Part) -> None:
        n = self.bounds[part] = len(self.bounds)
        self.lines += [
            f"%p{n}.scaled = mul i64 %threads, {part[0]}",
            f"%p{n}.first = udiv i64 %p{n}.scaled, {TEAM_PARTS}",
            f"%p{n}.least = add i64 %p{n}.first, 1",
            f"%p{n}.end = mul i64 %threads, {part[1]}",
            f"%p{n}.wide = udiv i64 %p{n}.end, {TEAM_PARTS}",
            f"%p{n}.more = icmp ugt i64 %p{n}.wide, %p{n}.least",
            f"%p{n}.last = select i1 %p{n}.more, i64 %p{n}.wide, i64 %p{n}.least",
            f"%p{n}.size = sub i64 %p{n}.last, %p{n}.first",
            f"%p{n}.place = sub i64 %thread, %p{n}.first",
            f"%p{n}.member = icmp ult i64 %p{n}.place, %p{n}.size",
        ]

    def _split(self, number: int) -> tuple[Part, int]:
        """Return the part of a sub-kernel and its number of tasks."""
        return self.super_kernel.parts[number], evaluate(self.launches[number].tasks, {})

    def _share(self, part: Part, tasks: int) -> None:
        """Emit this thread's range of tasks. Divisions are slow, and equal splits frequent."""
        p, s = f"%p{self.bounds[part]}", _share_name(self.bounds[part], tasks)
        self.lines += [
            f"{s}.begin.scaled = mul i64 {p}.place, {tasks}",
            f"{s}.begin = udiv i64 {s}.begin.scaled, {p}.size",
            f"{s}.end.scaled = add i64 {s}.begin.scaled, {tasks}",
            f"{s}.end = udiv i64 {s}.end.scaled, {p}.size",
            f"{s}.any = icmp ult i64 {s}.begin, {s}.end",
        ]

    def _sub_kernel(self, number: int) -> None:
        part, tasks = self._split(number)
        n = self.bounds[part]
        self.lines += [
            f"sub{number}:",
            f"br i1 %p{n}.member, label %share{number}, label %sub{number + 1}",
            f"share{number}:",
        ]
        for awaited, count in self._waited(number).items():
            p = self.bounds[awaited]
            self.lines.append(
                f"call void @wait(ptr %lines, i64 %p{p}.first, i64 %p{p}.last, i64 {count})"
            )
        s = _share_name(n, tasks)
        self.lines += [
            f"br i1 {s}.any, label %run{number}, label %behind{number}",
            f"run{number}:",
        ]
        self._call(number, f"own{number}", f"{s}.begin", f"{s}.end")
        self.lines += [f"br label %behind{number}", f"behind{number}:"]
        if number in self.awaited:
            self.lines.append(f"store atomic i64 {number + 1}, ptr %own release, align 8")
        self.lines.append(f"br label %sub{number + 1}")

    def _waited(self, number: int) -> dict[Part, int]:
        """Return for each part how many sub-kernels its threads must have finished."""
        counts: dict[Part, int] = {}
        for awaited in self.super_kernel.waits[number]:
            part = self.super_kernel.parts[awaited]
            counts[part] = max(counts.get(part, 0), awaited + 1)
        return counts


def _share_name(bound: int, tasks: int) -> str:
    return f"%s{bound}.{tasks}"
