"""Kernels written straight as LLVM IR, so that the runtime is tested without the code generator."""

from functools import cache

import llvmlite.binding as llvm

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32, DType, InputRole
from kernelmill.graph.ir import row_major
from kernelmill.plan.ir import BufferSpec, KernelRef, Launch, TensorInput

HEAD = "define void @{name}(ptr %buffers, ptr %dims, i64 %begin, i64 %end, ptr %scratch)"

LOOP = """
{head} {{
entry:
{setup}
  br label %head
head:
  %task = phi i64 [ %begin, %entry ], [ %task.next, %done ]
  %more = icmp ult i64 %task, %end
  br i1 %more, label %body, label %exit
body:
{body}
  br label %done
done:
  %task.next = add i64 %task, 1
  br label %head
exit:
  ret void
}}
{declarations}
"""


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc="pic", codemodel="small"
    )


@cache
def compile_text(text: str) -> bytes:
    """The object of a module of LLVM IR."""
    module = llvm.parse_assembly(text)
    module.verify()
    return _machine().emit_object(module)


def _pointers(count: int) -> str:
    lines: list[str] = []
    for i in range(count):
        lines.append(f"  %b{i}.at = getelementptr ptr, ptr %buffers, i64 {i}")
        lines.append(f"  %b{i} = load ptr, ptr %b{i}.at")
    return "\n".join(lines)


def each_task(name: str, buffers: int, body: str, declarations: str = "") -> bytes:
    """A kernel that runs `body` for each %task; buffer i's address is %b<i>."""
    head = HEAD.format(name=name)
    return compile_text(
        LOOP.format(head=head, setup=_pointers(buffers), body=body, declarations=declarations)
    )


def elementwise(name: str, expression: str, inputs: int = 1, declarations: str = "") -> bytes:
    """out[task] = expression of %x0, %x1...: float32, one element a task, the output last."""
    lines: list[str] = []
    for i in range(inputs):
        lines.append(f"  %p{i} = getelementptr float, ptr %b{i}, i64 %task")
        lines.append(f"  %x{i} = load float, ptr %p{i}")
    lines.append(f"  %y = {expression}")
    lines.append(f"  %out = getelementptr float, ptr %b{inputs}, i64 %task")
    lines.append("  store float %y, ptr %out")
    return each_task(name, inputs + 1, "\n".join(lines), declarations)


def add(name: str = "add") -> bytes:
    return elementwise(name, "fadd float %x0, %x1", 2)


def double(name: str = "double") -> bytes:
    return elementwise(name, "fadd float %x0, %x0")


def ref(name: str, digest: str = "") -> KernelRef:
    """A reference whose digest is the name's own unless given: tests share linked kernels."""
    return KernelRef(name, name.title(), digest or f"digest of {name}")


def tensor_input(
    name: str, *shape: Dim, dtype: DType = F32, role: str = "user", updated: bool = False
) -> TensorInput:
    return TensorInput(name, dtype, shape, row_major(shape), InputRole(role), updated)


def buffer(
    kind: str, *shape: Dim, dtype: DType = F32, source: int = -1, offset: Dim = 0
) -> BufferSpec:
    return BufferSpec(kind, dtype, shape, row_major(shape), source, offset)


def launch(
    kernel: str, buffers: tuple[int, ...], tasks: Dim, *dims: Dim, scratch: Dim = 0, work: Dim = 100
) -> Launch:
    return Launch(kernel, buffers, dims, tasks, scratch, work)
