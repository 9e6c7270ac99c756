"""`install`: sets up torch and the modules of a process for a script for torch_npu. The modules
`torch_npu` and `torchair` are made of kernelmill's functions; names that these lack are errors."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache, wraps
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType, TracebackType
from typing import Any

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

from kernelmill import scope
from kernelmill.backend import get_npu_backend
from kernelmill.backend.replacements import register_replacement
from kernelmill.compat import marks, npu, npugraph_ex, printing, profiler
from kernelmill.compat.devices import NAME, map_devices
from kernelmill.compat.folders import propose_settings
from kernelmill.compat.operators import OF_LENGTHS, OPERATORS
from kernelmill.config import CompilerConfig, given_config
from kernelmill.core.errors import ConfigPathError, InputError, KernelmillError
from kernelmill.inference import cache_compile, readable_cache, set_dim_gears
from kernelmill.torch_internals.devices import (
    UNNAMED,
    backend_name,
    deny_accelerator,
    skip_record_stream,
)  # fmt: skip
from kernelmill.torch_internals.dynamo import fail_in_trace

PAGE = "the page torchair of the documentation lists what there is"


class MissingNameError(KernelmillError, AttributeError):
    """A name that torch_npu or torchair may have and kernelmill has not."""


class MissingModuleError(KernelmillError, ModuleNotFoundError):
    """A module that torch_npu or torchair may have and kernelmill has not."""


_REPLACED: Mapping[str, str] = {
    "kernelmill.aot.compile": "dynamo_export export",
    "custom_decompositions of torchair.get_npu_backend":
        "register_fx_node_ge_converter declare_supported ge ge_concrete_graph",
    "torch.empty": "create_npu_tensors",
    "torch.distributed": "llm_datadist distributed",
    "torchair.ops.record": "npu_tagged_event_record npu_create_tagged_event",
    "torchair.ops.wait": "npu_tagged_event_wait",
    "torch.Tensor.record_stream": "npu_record_tagged_stream",
    "torchair.scope.super_kernel": "npu_prefetch",
    "torch.npu.memory_allocated": "memory_reserved memory_stats memory_summary",
    "torch.npu.max_memory_allocated": "max_memory_reserved max_memory_cached",
    "torch.npu.reset_peak_memory_stats": "reset_max_memory_allocated",
    "torch.npu.get_device_name": "get_device_properties",
    "torch.set_num_threads": "set_device_limit",
    "torch.get_num_threads": "get_device_limit",
    "torchair.scope.limit_core_num": "set_stream_limit get_stream_limit reset_stream_limit",
    'torch.compile(backend="npugraph_ex")': "NPUGraph Graph graph make_graphed_callables",
    "torch_npu.npu_fused_infer_attention_score": "npu_prompt_flash_attention",
    "torch_npu.npu_rotary_mul": "npu_apply_rotary_pos_emb npu_interleave_rope npu_mrope",
    "torch_npu.npu_dequant_swiglu_quant": "npu_swiglu_quant npu_clipped_swiglu",
    "torch_npu.npu_dynamic_quant": "npu_dynamic_quant_asymmetric",
    "torch_npu.npu_moe_gating_top_k": "npu_moe_gating_top_k_softmax",
    "torch.sort": "npu_moe_init_routing",
    "torch.Tensor.index_add": "npu_moe_finalize_routing",
    "torch_npu.npu_scatter_nd_update_":
        "scatter_update scatter_update_ npu_scatter_pa_kv_cache npu_reshape_and_cache",
    "torch.distributed.all_reduce": "npu_mm_all_reduce_base",
    "torch_npu.npu_grouped_matmul": "npu_ffn",
    "torch.Tensor.to": "npu_dtype_cast",
    "torch.use_deterministic_algorithms":
        "enable_deterministic_with_backward disable_deterministic_with_backward",
}  # fmt: skip
BY_MEANING = {name: ours for ours, names in _REPLACED.items() for name in names.split()}
"""Replacements, or the nearest names, by the last part of names that torch_npu and torchair have
and that are not implemented here."""

OF_TORCH: Mapping[str, str] = {
    "attention": "torch.nn.functional.scaled_dot_product_attention",
    "layer_norm": "torch.nn.functional.layer_norm",
    "group_norm": "torch.nn.functional.group_norm",
    "softmax": "torch.softmax",
    "geglu": "torch.nn.functional.gelu",
    "gelu": "torch.nn.functional.gelu",
    "silu": "torch.nn.functional.silu",
    "mish": "torch.nn.functional.mish",
    "bmm": "torch.bmm",
    "linear": "torch.nn.functional.linear",
    "conv2d": "torch.nn.functional.conv2d",
    "conv3d": "torch.nn.functional.conv3d",
    "top_k": "torch.topk",
    "one_hot": "torch.nn.functional.one_hot",
    "transpose": "torch.permute",
}
"""Functions of torch, which kernelmill compiles, that can replace an operator of torch_npu, by a
part of its name. The first one found is taken."""

_MISSPELT, _LIKE = 0.75, 0.6
"""Least similarity to a name for a misspelling, and for a suggestion."""


def nearest_text(name: str, known: Sequence[str]) -> str:
    """Return the message for a dotted name that is none of `known`."""
    found = _nearest(name, known)
    nearest = f"the nearest that is: {found}; " if found else ""
    return f"{name} is not in kernelmill; {nearest}{PAGE}"


def _nearest(name: str, known: Sequence[str]) -> str:
    """Return the entry of `BY_MEANING`; else a similar name of ours, if misspelt; else torch's
    function for such an operator; else one of ours that is spelt alike or shares a word; "" for
    none."""
    if meant := BY_MEANING.get(name.rpartition(".")[2].lstrip("_")):
        return meant
    last, operator = _stem(name), name.startswith("torch_npu.npu_")
    others = [other for other in known if _stem(other)]
    if not others:
        return ""
    best = max(others, key=lambda other: _similarity(last, _stem(other)))
    similarity = _similarity(last, _stem(best))
    if similarity >= _MISSPELT:
        return best
    of_torch = next((found for part, found in OF_TORCH.items() if part in last), "")
    if operator and of_torch:
        return of_torch
    if similarity >= _LIKE:
        return best
    sharing = [other for other in others if _words(last) & _words(_stem(other))]
    return max(sharing, key=lambda other: _similarity(last, _stem(other)), default="")


def _stem(name: str) -> str:
    """Return the last part of a dotted name without the prefix of torch_npu's operators."""
    return name.rpartition(".")[2].lower().removeprefix("npu_")


def _words(stem: str) -> set[str]:
    return {word for word in stem.split("_") if len(word) > 3}


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def refuse_missing(module: ModuleType, known: Callable[[], Sequence[str]]) -> None:
    """Let a module suggest the nearest name when asked for one that it does not have."""

    def missing(name: str) -> Any:
        if name.startswith("__"):  # looked up by Python's own machinery
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        text = nearest_text(f"{module.__name__}.{name}", known())
        fail_in_trace(text)
        raise MissingNameError(text)

    module.__dict__["__getattr__"] = missing


class MissingModules:
    """The last finder of `sys.meta_path`: raises an error with the nearest module of ours for one
    that no other finder has. `from package import name` comes here too, where the package lacks the
    name."""

    def __init__(self, packages: Sequence[str], known: Callable[[], Sequence[str]]) -> None:
        self.packages = tuple(f"{name}." for name in packages)
        self.known = known

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self.packages) or fullname.startswith("torch.npu."):
            return None
        # Without its attribute `name`, by which Python would take it for an optional submodule.
        raise MissingModuleError(nearest_text(fullname, self.known()))


TORCHAIR = "torchair"
NESTED: Mapping[str, Sequence[str]] = {
    TORCHAIR: ("torch_npu.dynamo.torchair",),
    npugraph_ex.NAME: ("torch.npu.npugraph_ex", "torch_npu.dynamo.npugraph_ex"),
}
"""Other names of packages."""


def _get_compiler(compiler_config: CompilerConfig | None = None) -> Callable[..., Any]:
    """Return the compiler of a graph of ATen operators, for a user's backend around AOTAutograd."""
    return npugraph_ex.compiler_of(given_config(compiler_config))


def _patch_for_hcom() -> None:
    """Do nothing: collectives are in the graph in any case, on Gloo."""


def _use_internal_format_weight(model: Any) -> None:
    """Do nothing: constant weights are packed in any case."""


def install_modules() -> None:
    """Put `torch.npu`, `torch_npu`, `torchair` and `npugraph_ex`, the last two by their other names
    too, among the modules of the process."""
    for name in _names():
        _make(name)
    for name, members in _contents().items():
        vars(sys.modules[name]).update(members)
    npu.fill(sys.modules["torch.npu"])
    npu.fill_amp(sys.modules["torch.npu.amp"])
    for name in _names():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, sys.modules[name])
        refuse_missing(sys.modules[name], known_names)
    for name, operator in OPERATORS.items():
        setattr(torch.ops.npu, name, operator)
    for name in ("record", "wait", "scope_enter", "scope_exit"):
        for package in (torch.ops.air, torch.ops.npugraph_ex):
            setattr(package, name, getattr(torch.ops.kernelmill, name))
    vars(sys.modules[TORCHAIR])["Inference"] = sys.modules["torchair.inference"]
    _alias("torch.npu", "torch_npu.npu")
    for package, others in NESTED.items():
        for name in [name for name in _names() if name.split(".")[0] == package]:
            for other in others:
                _alias(name, name.replace(package, other, 1))
    sys.meta_path.append(MissingModules(("torch_npu", *NESTED), known_names))


def known_names() -> list[str]:
    """Return the dotted names of everything in these modules."""
    found: list[str] = []
    for name in _names():
        members = [f"{name}.{each}" for each in vars(sys.modules[name]) if not each.startswith("_")]
        found += [name, *(member for member in members if member not in sys.modules)]
    return found


def _contents() -> dict[str, dict[str, Any]]:
    """Return the contents of modules besides modules. A package comes before its members."""
    version = torch.__version__.partition("+")[0]
    config = {"CompilerConfig": CompilerConfig}
    return {
        "torch_npu": {
            "__version__": f"{version}+kernelmill",
            **OPERATORS,
            "save_npugraph_tensor": printing.save_npugraph_tensor,
        },
        "torch_npu.profiler": profiler.MEMBERS,
        "torch_npu.dynamo": {},
        "torchair": {
            **config,
            "get_npu_backend": get_npu_backend,
            "get_compiler": _get_compiler,
            "register_replacement": register_replacement,
            "patch_for_hcom": _patch_for_hcom,
            "use_internal_format_weight": _use_internal_format_weight,
            **npugraph_ex.LOGGER,
        },
        "torchair.core": {},
        "torchair.core.utils": npugraph_ex.UTILS,
        "torchair.configs": {},
        "torchair.configs.compiler_config": config,
        "torchair.inference": {
            "set_dim_gears": set_dim_gears,
            "cache_compile": cache_compile,
            "readable_cache": readable_cache,
        },
        "torchair.scope": {
            "super_kernel": marks.super_kernel,
            "npu_stream_switch": marks.npu_stream_switch,
            "npu_wait_tensor": scope.wait_tensor,
            "limit_core_num": marks.limit_core_num,
            "data_dump": marks.data_dump,
            "op_never_timeout": marks.op_never_timeout,
        },
        "torchair.ops": {
            "npu_wait_tensor": scope.wait_tensor,
            "record": scope.record,
            "wait": scope.wait,
            "npu_print": printing.npu_print,
            **OF_LENGTHS,
        },
        **npugraph_ex.MEMBERS,
    }


def _names() -> list[str]:
    return [*_contents(), "torch.npu", "torch.npu.amp"]


def _make(name: str) -> None:
    """Make an empty module; a package, so that a search inside of it comes to our finder."""
    module = ModuleType(name, f"{name} as kernelmill has it.")
    module.__path__ = []
    sys.modules[name] = module


def _alias(name: str, other: str) -> None:
    """Register a module under another name too."""
    sys.modules[other] = sys.modules[name]
    parent, _, last = other.rpartition(".")
    setattr(sys.modules[parent], last, sys.modules[name])


_STARTED = os.path.join(os.path.dirname(__file__), "started")
"""Modules that Python finds in processes which multiprocessing starts, and which call `install`."""


@cache
def install() -> None:
    """Provide `torch_npu` and `torchair` in this process, with the CPU as the device "npu".

    It changes torch for the whole process and cannot be undone. Call it before a script imports
    them. InputError where the real torch_npu, or another backend, is registered already.
    """
    taken = backend_name()
    if taken != UNNAMED:
        raise InputError(
            f"torch has the device {taken!r} of another package already: kernelmill runs scripts "
            "for torch_npu in a process that has not imported it"
        )
    propose_settings()
    rename_privateuse1_backend(NAME)
    install_modules()
    map_devices()
    _map_others()
    sys.path.append(_STARTED)


def _map_others() -> None:
    """Wrap torch's functions that take the name of a backend, or look for an accelerator."""
    torch_names: Any = torch
    # There is none whose streams Dynamo, autograd or a DataLoader would have to wait for.
    torch_names.accelerator.is_available = lambda: False
    torch_names.accelerator.current_accelerator = lambda check_available=False: None
    torch_names.accelerator.device_count = lambda: 0
    deny_accelerator()
    original = torch.compile
    skip_once = cache(skip_record_stream)

    @wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        skip_once()
        if kwargs.get("backend") == NAME:
            kwargs["backend"] = get_npu_backend()
        elif kwargs.get("backend") == npugraph_ex.NAME:
            options, mode = kwargs.pop("options", None), kwargs.pop("mode", None)
            kwargs["backend"] = npugraph_ex.by_name(options, mode)
        return original(*args, **kwargs)

    torch_names.compile = compile
    if torch.distributed.is_available() and torch.distributed.is_gloo_available():
        torch.distributed.Backend.register_backend("hccl", _gloo, devices=["cpu"])


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return torch.distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)


INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_OURS = os.path.dirname(__file__)


class _Loader(SourceFileLoader):
    """A loader that compiles the source each time and keeps no bytecode, as for a script."""

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError(f"{path} is not kept as byte code")


def run_script(path: str, arguments: Sequence[str], before: Callable[[], None]) -> int:
    """Run the script as `__main__`; return the exit code. `before` is called once the script is
    found.

    `sys.argv`, `sys.path[0]` and `__main__` are the script's from here on. `sys.excepthook` shows
    its errors, from the script's first line on. ConfigPathError where there is no such file.
    """
    if not os.path.isfile(path):
        raise ConfigPathError(f"no script {path!r}")
    before()
    full = os.path.abspath(path)
    loader = _Loader("__main__", full)
    spec = spec_from_loader("__main__", loader)
    assert spec is not None
    module = module_from_spec(spec)
    module.__spec__ = None
    module.__dict__.pop("__cached__", None)
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    try:
        loader.exec_module(module)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:
        error.__traceback__ = _from_script(error.__traceback__, full)
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_code(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _from_script(traceback: TracebackType | None, script: str) -> TracebackType | None:
    """Return the frames from the script's first one on, without those of this package."""
    frames: list[TracebackType] = []
    inside = False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        inside = inside or file == script
        if inside and os.path.dirname(file) != _OURS:
            frames.append(traceback)
        traceback = traceback.tb_next
    for frame, following in zip(frames, [*frames[1:], None], strict=False):
        frame.tb_next = following
    return frames[0] if frames else None
