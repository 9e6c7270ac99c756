"""A graph as TensorFlow's GraphDef in protobuf text form, which Netron and TensorBoard open.

Format: tensorflow/core/framework/{graph,node_def,attr_value,types}.proto.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelmill.core.dim import Dim, Expr
from kernelmill.core.dtype import DType
from kernelmill.graph.ir import Attr, DimInput, Graph, Node, TensorType, Value

_TYPES = {
    "f64": "DT_DOUBLE", "f32": "DT_FLOAT", "f16": "DT_HALF", "bf16": "DT_BFLOAT16",
    "i64": "DT_INT64", "i32": "DT_INT32", "i16": "DT_INT16", "i8": "DT_INT8", "u8": "DT_UINT8",
    "bool": "DT_BOOL", "c64": "DT_COMPLEX64", "c128": "DT_COMPLEX128", "u16": "DT_UINT16",
    "u32": "DT_UINT32", "u64": "DT_UINT64",
}  # fmt: skip


def to_pbtxt(graph: Graph) -> str:
    """Return the text of a GraphDef: inputs are Placeholders, results Identity nodes `result_N`."""
    writer = _GraphDefWriter()
    for entry in graph.inputs:
        if isinstance(entry, DimInput):
            writer.node(
                entry.symbol.name, "Placeholder", (), ['key: "dtype" value { type: DT_INT64 }']
            )
        else:
            writer.node(writer.of(entry.value), "Placeholder", (), _typed(entry.value.type))
    for node in graph.nodes:
        inputs = [writer.of(operand) for operand in node.operands]
        attrs = [_attr(name, value) for name, value in node.attrs.items()]
        writer.node(writer.of(node.results[0]), _operator(node), inputs, _outputs(node) + attrs)
    for number, result in enumerate(graph.results):
        if isinstance(result, Value):
            writer.node(f"result_{number}", "Identity", (writer.of(result),), _typed(result.type))
    for target, value in graph.updates:
        inputs = (writer.of(target), writer.of(value))
        writer.node(f"update_{writer.of(target)}", "Assign", inputs, _typed(target.type))
    return "\n".join(writer.lines) + "\n"


class _GraphDefWriter:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def of(self, value: Value) -> str:
        """Return the tensor's name: that of its node, with `:n` for a later output."""
        node = value.node
        if node is None:
            return value.name
        position = node.results.index(value)
        name = f"{node.op}_{node.results[0].name}"
        return name if position == 0 else f"{name}:{position}"

    def node(self, name: str, op: str, inputs: Iterable[str], attrs: Iterable[str]) -> None:
        self.lines.append("node {")
        self.lines.append(f"  name: {_quoted(name)}")
        self.lines.append(f"  op: {_quoted(op)}")
        self.lines += [f"  input: {_quoted(source)}" for source in inputs]
        self.lines += [f"  attr {{ {attr} }}" for attr in attrs]
        self.lines.append("}")


def _operator(node: Node) -> str:
    return str(node.attrs["target"]) if node.op == "aten" else node.op


def _outputs(node: Node) -> list[str]:
    shapes = " ".join(f"shape {{ {_shape(value.type)} }}" for value in node.results)
    found = [f'key: "_output_shapes" value {{ list {{ {shapes} }} }}']
    if node.results[0].dtype.name in _TYPES:
        found.append(f'key: "T" value {{ type: {_TYPES[node.results[0].dtype.name]} }}')
    if node.origin:
        found.append(f'key: "origin" value {{ s: {_quoted(node.origin)} }}')
    return found


def _typed(kind: TensorType) -> list[str]:
    found = [f'key: "_output_shapes" value {{ list {{ shape {{ {_shape(kind)} }} }} }}']
    if kind.dtype.name in _TYPES:
        found.append(f'key: "dtype" value {{ type: {_TYPES[kind.dtype.name]} }}')
    return found


def _shape(kind: TensorType) -> str:
    return " ".join(f"dim {{ {_size(size)} }}" for size in kind.shape)


def _size(size: Dim) -> str:
    return f"size: {size}" if isinstance(size, int) else f"size: -1 name: {_quoted(str(size))}"


def _attr(name: str, value: Attr) -> str:
    return f"key: {_quoted(name)} value {{ {_value(value)} }}"


def _value(value: Attr) -> str:
    if isinstance(value, bool):
        return f"b: {str(value).lower()}"
    if isinstance(value, int):
        return f"i: {value}"
    if isinstance(value, DType) and value.name in _TYPES:
        return f"type: {_TYPES[value.name]}"
    text = str(value) if isinstance(value, DType | Expr | str) else repr(value)
    return f"s: {_quoted(text)}"


def _quoted(text: str) -> str:
    """Quote a protobuf text string: printable ASCII as it is, other bytes as octal escapes."""
    parts = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{"".join(parts)}"'
