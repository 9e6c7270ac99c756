"""The documents beside an object have the fields that MindSpore's have."""

import json

from kernelmill.compiler.objects import Request, obtain
from kernelmill.core.target.machine import host
from kernelmill.kernel.text import parse_kernel
from kernelmill.store.store import Store

SQUARE = """kernel square(a: f32[3] in, b: f32[3] out) tasks(1) type "Square" {
  for i0 = 0 to 3 step 1 {
    %0: f32 = load a[i0]
    %1: f32 = mul(%0, %0)
    store b[i0], %1
  }
}"""

INFO = {
    "SocInfo": "autoTilingMode coreNum coreType l1Fusion l2Fusion l2Mode op_debug_level "
    "op_impl_mode op_impl_mode_list socVersion",
    "op_info": "Type attrs full_name gen_model graph_id inputs is_dynamic_shape kernel_name "
    "module_name name outputs py_module_path socVersion",
}
TENSOR = "dtype format name ori_format ori_shape param_type range shape valid"
LAUNCH = (
    "batchBindOnly binFileName binFileSuffix blockDim kernelName magic opParaSize parameters sha256"
)


def test_every_field_of_the_originals(tmp_path):
    kernel = parse_kernel(SQUARE)
    store = Store(tmp_path / "kernel_meta")
    (entry,) = obtain([Request(kernel, ("square",), "")], store, host().isa).values()
    info = json.loads((tmp_path / "kernel_meta" / f"{entry.name}.info").read_text())
    launch = json.loads((tmp_path / "kernel_meta" / f"{entry.name}.json").read_text())
    assert info.keys() >= {"SocInfo", "op_info", "impl_path", "platform"}
    for part, fields in INFO.items():
        assert info[part].keys() >= set(fields.split())
    for kind in ("inputs", "outputs"):
        ((tensor,),) = info["op_info"][kind]
        assert tensor.keys() >= set(TENSOR.split())
        assert (tensor["shape"], tensor["range"], tensor["dtype"]) == ([3], [[3, 3]], "float32")
    assert launch.keys() >= set(LAUNCH.split())
    assert launch["binFileName"] + launch["binFileSuffix"] == f"{entry.name}.o"
