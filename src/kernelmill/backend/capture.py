"""Compilation of one Dynamo graph through AOTAutograd: each resulting graph is compiled, or run by
torch if that is not possible."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from functorch.compile import aot_module_simplified, min_cut_rematerialization_partition
from torch import fx
from torch.compiler import disable
from torch.fx.traceback import preserve_node_meta

from kernelmill.backend.arguments import argument_names, argument_roles, in_order
from kernelmill.backend.custom_passes import apply_passes
from kernelmill.backend.data_dump import asked_dump, data_dump
from kernelmill.backend.gear_calls import BackgroundCalls, GearedCalls, check_squeezes
from kernelmill.backend.gears import (
    CaptureGears,
    capture_gears,
    linked_results,
    recall,
    relax_guards,
    remember,
    shapes_of,
    shown_errors,
    traced_arguments,
)
from kernelmill.backend.graph_breaks import watch_compiles
from kernelmill.backend.report import Capture, or_in_torch
from kernelmill.backend.runnable import name_complex_constants, note_determinism, settle_given
from kernelmill.compiler.pipeline import Compiler
from kernelmill.compiler.precision import by_precision
from kernelmill.config import CompilerConfig
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import GearError, PaddingError, UnsupportedError
from kernelmill.core.interpreter import collection_paused
from kernelmill.core.log import get_logger, write_stage
from kernelmill.core.scalar import FUNCTIONS, TO_WORD
from kernelmill.core.version import minor_of
from kernelmill.frontend.conditions import squeezed
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.eager_checks import refused_by_eager
from kernelmill.frontend.importer import ImportedGraph, import_fx
from kernelmill.frontend.recurrent import settle_recurrent
from kernelmill.frontend.results import UpdatedArguments, report_output_strides
from kernelmill.graph.ir import Graph
from kernelmill.runtime.program import Program
from kernelmill.torch_internals import autograd
from kernelmill.torch_internals.compiles import drops_guards
from kernelmill.torch_internals.dispatch import outside_modes, plain_calls
from kernelmill.torch_internals.dynamo import source_names
from kernelmill.torch_internals.tracing import sizes_when_read

TESTED = frozenset({"2.12", "2.13", "2.14", "2.15"})
"""Versions of torch with which all tests of cached methods and files have passed (`make compat`).
With others, ways around Dynamo's guards (gears that check sizes themselves, programs that are kept
on disk) and around AOTAutograd's wrapper are not taken."""


def is_tested() -> bool:
    """Return whether this version of torch has been tested."""
    return minor_of(torch.__version__) in TESTED


_log = get_logger("backend")
_numbers = itertools.count()
Call = Callable[..., Any]


def compile_capture(
    gm: fx.GraphModule, example_inputs: Sequence[Any], compiler: Compiler,
    decompositions: Mapping[Any, Call], record: Callable[[Capture], None],
    observe: Callable[[Traced], None] | None = None, instead: Callable[[Graph], Call] | None = None,
) -> Call:  # fmt: skip
    """Return the function that Dynamo calls in place of `gm`. `observe` gets the source of each
    compiled graph; `instead` returns a replacement for a compiled graph."""
    watch_compiles()
    config = compiler.config
    with shown_errors():
        gears = _gears(gm, config)
    compilation = _Compilation(gm, compiler, record, gears, observe, instead)
    write_stage(compilation.name, "dynamo_out_graph", lambda: str(gm.graph), numbered=False)
    reason = settle_recurrent(gm) or refused_by_eager(gm) or settle_given(gm)
    if reason is not None:
        kind = "forward" if torch.is_grad_enabled() else "inference"
        record(Capture(compilation.name, kind, fx_nodes=len(gm.graph.nodes), refused=reason))
        _log.warning("%s runs in torch: %s", compilation.name, reason)
        return _forward(gm)
    note_determinism(gm)
    pass_on = None
    if gears is not None and config.inference_config.gears_with_graph_breaks:
        pass_on = linked_results(gm, gears)
    # AOTAutograd makes as many short-lived objects as the compiler.
    with shown_errors(), collection_paused():
        wrapped = _through_autograd(compilation, example_inputs, decompositions)
    if gears is not None:
        remember(gears)
        exact = config.inference_config.gear_miss != "dynamic" and not compilation.refused
        if exact and is_tested():
            relax_guards(gm)
    call = compilation.direct or wrapped
    if pass_on is not None:
        call = pass_on(call)
    elif compilation.direct is not None:
        return call
    return disable(call, reason="it runs a compiled program")


def _forward(gm: fx.GraphModule) -> Call:
    """Return the graph in torch, with its Python made: a first call that has to make it prints a
    traceback of each error that operators raise."""
    assert gm.code
    return gm.forward


def compile_traced(
    gm: fx.GraphModule, example_inputs: Sequence[Any] | None, compiler: Compiler
) -> Call:
    """Return a function of the arguments of a graph of ATen operators, as AOTAutograd gives it to a
    user's compiler; its nodes have their values. It is unknown which arguments are weights: none
    are packed."""
    compilation = _Compilation(gm, compiler, list[Capture]().append, None, None, None)
    values = [node.meta["val"] for node in _placeholders(gm)]
    given = values if example_inputs is None else example_inputs
    boxed = compilation.compile(gm, given, kind="traced")
    return lambda *args: boxed([*args])


def _through_autograd(
    compilation: _Compilation, example_inputs: Sequence[Any], decompositions: Mapping[Any, Call]
) -> Call:
    experimental = compilation.config.experimental_config
    # Effects (assertions inside linear algebra) are ordered by our ATen calls, not by tokens.
    # The marks of `kernelmill.scope` stay on the operators.
    vary = any(isinstance(value, torch.SymInt) for value in example_inputs)
    sizes = sizes_when_read() if vary else nullcontext()
    with autograd.our_settings(), preserve_node_meta(), sizes:
        return aot_module_simplified(
            compilation.gm, example_inputs,
            fw_compiler=partial(compilation.compile, kind="forward"),
            bw_compiler=compilation.compile_backward,
            inference_compiler=partial(compilation.compile, kind="inference"),
            partition_fn=min_cut_rematerialization_partition,
            decompositions={**decomposition_table(), **decompositions},
            keep_inference_input_mutations=experimental.keep_inference_input_mutations,
        )  # fmt: skip


def _gears(gm: fx.GraphModule, config: CompilerConfig) -> CaptureGears | None:
    arguments = traced_arguments(gm)
    gears = capture_gears(gm, arguments, config)
    if gears is None and config.inference_config.gear_miss != "dynamic":
        earlier = recall(arguments)
        shapes = shapes_of(arguments)
        if earlier is not None and not earlier.takes(shapes):
            raise earlier.refusal(shapes)
    return gears


@dataclass(frozen=True)
class Traced:
    """A graph that was compiled. `geared` is its call where it has gears.

    `metadata` is AOTAutograd's ViewAndMutationMeta (None where there is none), `whole` whether the
    graph takes Dynamo's arguments and returns its results, all and unchanged.
    """

    kind: str
    imported: ImportedGraph
    geared: GearedCalls | None
    metadata: Any
    whole: bool


@dataclass
class _Compilation:
    """Compilation of one graph of Dynamo's: one inference graph, or a forward and a backward."""

    gm: fx.GraphModule
    compiler: Compiler
    record: Callable[[Capture], None]
    gears: CaptureGears | None
    observe: Callable[[Traced], None] | None
    instead: Callable[[Graph], Call] | None
    geared: GearedCalls | None = None
    direct: Call | None = None
    refused: bool = False

    def __post_init__(self) -> None:
        self.config = self.compiler.config
        self.sources = source_names(self.gm)
        self.name = f"graph_{next(_numbers)}"

    def compile_backward(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Call:
        # Values saved by the forward may differ from the trace in their layout.
        for node, example in zip(_placeholders(gm), example_inputs, strict=True):
            node.meta["val"] = example
        # Autograd calls the backward outside of the frames that Dynamo knows it has compiled.
        compiled = self.compile(gm, example_inputs, kind="backward")
        return disable(compiled, reason="it runs a compiled program")

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: str) -> Call:
        """Return a function of one list of arguments, which it empties (AOTAutograd's rule)."""
        capture = Capture(f"{self.name}_{kind}", kind, fx_nodes=len(gm.graph.nodes))
        asked = asked_dump(self.config.dump_config)
        if asked is None or asked.options.data_dump_stage != "original":
            apply_passes(gm, example_inputs, self.config, capture.name)
        name_complex_constants(gm)
        if self.config.debug.run_eagerly:
            return self._refuse(gm, capture, "config.debug.run_eagerly is set")
        if (dumping := data_dump(gm, self.config, capture.name)) is not None:
            self._refuse(gm, capture, "its data is written: debug.data_dump or dump_config")
            return autograd.boxed(dumping)
        compile = partial(self._compile, gm, capture)
        return or_in_torch(capture.name, compile, partial(self._refuse, gm, capture))

    def _refuse(self, gm: fx.GraphModule, capture: Capture, reason: str) -> Call:
        self.refused = True
        self.record(replace(capture, refused=reason))
        return autograd.boxed(_forward(gm))

    @collection_paused()  # a backward is often compiled at its first call
    def _compile(self, gm: fx.GraphModule, capture: Capture) -> Call:
        start = time.perf_counter()
        names = argument_names(_placeholders(gm), self.sources)
        imported = self._import(gm, capture, names)
        middle = time.perf_counter()
        direct = capture.kind == "inference" and self._needs_no_wrapper(gm)
        nodes = len(imported.graph.nodes)
        known = replace(capture, graph_nodes=nodes, direct=direct, import_seconds=middle - start)
        others = imported.words or imported.objects  # which the program is not given as they are
        in_torch = None if others else self._in_torch(gm, capture.kind)
        call_of = partial(self._call_of, known, names, in_torch)
        # The compiler makes and reads real tensors; AOTAutograd's modes would make them fakes.
        call = outside_modes(lambda: by_precision(imported.graph, self.config, call_of))
        end = time.perf_counter()
        call = _with_constants(_by_words(call, imported.words), imported.constants)
        call = _for_objects(call, imported.objects, plain_calls(gm.forward))
        if direct:
            self.direct = call
        if self.observe is not None:
            metadata, whole = autograd.metadata(), self._is_whole(gm)
            self.observe(Traced(capture.kind, imported, self.geared, metadata, whole))
        if capture.kind == "forward":
            report_output_strides(gm, imported.graph)
        if in_torch is None or self.gears is not None:
            self.record(replace(known, compile_seconds=end - middle))
        return autograd.boxed(call)

    def _in_torch(self, gm: fx.GraphModule, kind: str) -> Call | None:
        """Return what runs the graph during its compile in the background; None if calls wait."""
        wanted = self.config.experimental_config.compile_in_background and self._may_wait
        # A backward is traced for the values that the compiled forward saves.
        if not wanted or kind != "inference":
            return None
        count = len(_placeholders(gm))  # constants of the import follow them
        run = plain_calls(gm.forward)

        def in_torch(*args: Any) -> list[Any]:
            return list(run(*args[:count]))

        return disable(in_torch, reason="it runs what is not compiled yet")

    @property
    def _may_wait(self) -> bool:
        """True unless the programs are kept or reported on, which needs all of them at once."""
        return self.observe is None and self.compiler.on_compiled is None

    def _call_of(
        self, capture: Capture, names: Sequence[str], in_torch: Call | None, graph: Graph
    ) -> Call:
        """Return the function of a compiled graph, and set `geared` if it has gears. A graph that
        is compiled in the background runs `in_torch`, if given, until then."""
        if self.instead is not None:
            return self.instead(graph)
        if self.gears is None:
            if in_torch is None:
                program = self.compiler.compile(graph).program
                if isinstance(program, Program):
                    program.pack_at_once()
                return program.call
            return BackgroundCalls(partial(self._behind, capture, in_torch, graph), in_torch)
        if capture.kind != "inference" and self.config.inference_config.gear_miss == "pad":
            raise PaddingError('gear_miss="pad" is for inference: call under no_grad()')
        self.geared = geared = GearedCalls(
            graph, self.gears, names, self.compiler, self._may_wait, in_torch
        )
        return geared.call

    def _behind(self, capture: Capture, in_torch: Call, graph: Graph) -> Call:
        """Return the function of a graph compiled in the background; `in_torch` if it cannot be."""
        start = time.perf_counter()

        def refused(reason: str) -> Call:
            self.record(replace(capture, refused=reason))
            return in_torch

        def compiled() -> Call:
            call = self.compiler.compile(graph).program.call
            self.record(replace(capture, compile_seconds=time.perf_counter() - start))
            return call

        return or_in_torch(capture.name, compiled, refused)

    def _import(self, gm: fx.GraphModule, capture: Capture, names: Sequence[str]) -> ImportedGraph:
        placeholders = _placeholders(gm)
        if autograd.has_unknown_effects(gm):
            raise UnsupportedError("it has effects")
        if shared := autograd.shared_memory(placeholders):
            if self.gears is not None and any(_varies(node) for node in shared):
                # Torch traces the sizes of their memory without a way to look at them in a call.
                raise GearError(
                    "gears are for arguments that do not share memory where one of them is written "
                    "to: pass a clone of the others"
                )
            raise UnsupportedError("arguments that share memory are written to")
        metadata = autograd.metadata()
        roles = [InputRole.USER] * len(placeholders)
        # In training the optimiser changes parameters at every step: packing them would not pay.
        saved_from: int | None = None
        if metadata is not None and capture.kind == "inference":
            self._share_updated(gm, metadata)
            roles = argument_roles(placeholders, self.sources, metadata.static_input_indices)
        elif metadata is not None and capture.kind == "forward":
            saved_from = metadata.num_forward
        if self.gears is not None:
            check_squeezes(gm, self.gears)
        # Callers that have Dynamo drop its guards may call with one row after a trace with more.
        ones = self.gears is None and drops_guards() and not _squeezes_symbols(gm)
        return import_fx(gm, capture.name, roles, names, saved_from, ones)

    def _share_updated(self, gm: fx.GraphModule, metadata: Any) -> None:
        """Replace results that AOTAutograd knows to be arguments updated by the graph, or views of
        arguments, by these in the graph."""
        placeholders, results = _placeholders(gm), list(_results(gm))
        kinds = autograd.output_kinds.get()
        copies = {
            copy.args[0]: copy
            for copy in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
        }
        if kinds is None or len(results) != len(metadata.output_info):
            return
        if not in_order(placeholders, len(self.sources)):
            return
        for number, info in enumerate(metadata.output_info):
            of_input = info.output_type in kinds.of_input
            copy = copies.get(placeholders[info.base_idx]) if of_input else None
            if copy is None and of_input and info.output_type != kinds.itself:
                results[number] = _alias(gm.graph, results[number])
            elif copy is not None:
                updated = UpdatedArguments(gm.graph, {copy.args[1]: copy})
                results[number] = updated.result(results[number])
        gm.graph.output_node().args = (tuple(results),)
        gm.recompile()

    def _is_whole(self, gm: fx.GraphModule) -> bool:
        """Return whether AOTAutograd's wrapper would only call the graph, and make views of
        arguments, which the results are already.

        It would do more for arguments it merged or unpacked, for mutations it applies after the
        call, and for a change of grad mode. The program itself handles grad mode, autocast and
        version counters.
        """
        meta = autograd.metadata()
        return (
            meta is not None
            and in_order(_placeholders(gm), len(self.sources))
            and not meta.mutated_inp_runtime_indices
            and meta.num_intermediate_bases == 0
            and meta.grad_enabled_mutation is None
            and not meta.tokens
            and len(_results(gm)) == meta.num_outputs
            and self._lie_where_known(gm, meta)
        )

    def _lie_where_known(self, gm: fx.GraphModule, metadata: Any) -> bool:
        """Return whether results that are views of arguments are so in the graph, too: not of
        lazily negated arguments, which it negates."""
        kinds, placeholders = autograd.output_kinds.get(), _placeholders(gm)
        if kinds is None:
            return metadata.num_outputs_aliased == 0
        return all(
            _storage(result) == _storage(placeholders[info.base_idx])
            and not placeholders[info.base_idx].meta["val"].is_neg()
            for result, info in zip(_results(gm), metadata.output_info, strict=True)
            if info.output_type in kinds.of_input
        )

    def _needs_no_wrapper(self, gm: fx.GraphModule) -> bool:
        """Return whether the wrapper would pass arguments and results through, also without marking
        the sizes of results as dynamic. Views of tensors that require a gradient it makes anew."""
        meta = autograd.metadata()
        return (
            is_tested()
            and self._is_whole(gm)
            and not autograd.views_with_gradients(meta)
            and (not meta.dynamic_outputs or self.gears is not None)
            and not autograd.waits_for_collectives(meta)
            and not autograd.random_numbers_are_functions()
        )


def _placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    return list(gm.graph.find_nodes(op="placeholder"))


def _varies(placeholder: fx.Node) -> bool:
    value: Any = placeholder.meta["val"]
    return any(isinstance(size, torch.SymInt) for size in value.shape)


def _results(gm: fx.GraphModule) -> Sequence[Any]:
    results: Any = gm.graph.output_node().args[0]
    return results


def _alias(graph: fx.Graph, result: fx.Node) -> fx.Node:
    """Return a view of all of an argument; other results unchanged."""
    if result.op != "placeholder":
        return result
    with graph.inserting_before(graph.output_node()):
        alias = graph.call_function(torch.ops.aten.alias.default, (result,))
    alias.meta = {"val": result.meta["val"]}
    return alias


def _storage(node: fx.Node) -> Any:
    return node.meta["val"].untyped_storage()


def _by_words(call: Call, words: Sequence[tuple[int, str]]) -> Call:
    """Wrap a function to take floats and truth values instead of the integers that encode them."""
    if not words:
        return call
    converted = [(place, FUNCTIONS[TO_WORD[kind]]) for place, kind in words]

    def by_words(*args: Any) -> Any:
        given = list(args)
        for place, to_word in converted:
            given[place] = to_word(given[place])
        return call(*given)

    return by_words


def _squeezes_symbols(gm: fx.GraphModule) -> bool:
    return any(isinstance(size, torch.SymInt) for _, size in squeezed(gm))


def _for_objects(call: Call, objects: Sequence[tuple[int, object]], in_torch: Call) -> Call:
    """Wrap a function of a graph to take these objects too; calls with others run `in_torch`."""
    if not objects:
        return call

    def for_objects(*args: Any) -> Any:
        given = list(args)
        for place, known in reversed(objects):
            if given.pop(place) != known:
                return in_torch(*args)
        return call(*given)

    return for_objects


def _with_constants(call: Call, constants: tuple[torch.Tensor, ...]) -> Call:
    if not constants:
        return call
    return lambda *args: call(*args, *constants)
