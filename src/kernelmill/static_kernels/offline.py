"""Compilation of logs of operators to kernels and packages, without a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kernelmill.compiler.choices import Choices
from kernelmill.compiler.static_build import from_document, package_contents
from kernelmill.core.errors import KernelmillError, file_errors
from kernelmill.core.target.machine import profile
from kernelmill.core.version import VERSION
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.lower.driver.operators import Operator
from kernelmill.lower.driver.program import lower_graph
from kernelmill.static_kernels.logs import Built, documents
from kernelmill.store.entry import Entry
from kernelmill.store.packages import check_name, write_run, write_wheel
from kernelmill.store.store import open_store


class Offline:
    """The operators and programs of one log. KernelmillError for a file that is no log.
    `unreadable` are (name, reason) of documents that this version cannot read; the others are
    used."""

    def __init__(self, path: str, target: str, folder: str | None) -> None:
        self.machine = profile(target)
        self.choices = Choices(open_store(folder), self.machine)
        self._operators: dict[str, Operator] = {}
        self._programs: dict[str, Graph] = {}
        self.unreadable: list[tuple[str, str]] = []
        for document in documents(path):
            try:
                self._take(document)
            except KernelmillError as error:
                self.unreadable.append((str(document.get("name", "a document")), str(error)))
        self.operators = list(self._operators.values())
        self.programs = list(self._programs.values())
        if self.unreadable and not self.operators and not self.programs:
            raise KernelmillError(f"{path}: {self.unreadable[0][1]}")

    def _take(self, document: dict[str, Any]) -> None:
        if "program" in document:
            text = document["program"]
            if text not in self._programs:
                graph = parse_graph(text)
                verify_graph(graph, "a recorded program")
                self._programs[text] = graph
        elif "aten" not in document:
            operator = from_document(document)
            assert operator.graph is not None
            self._operators.setdefault(print_graph(operator.graph, names=False), operator)

    def compile(self, jobs: int) -> Built:
        """Compile the operators without a known choice, `jobs` at a time, and the programs."""
        new = [operator for operator in self.operators if self.choices.known(operator) is None]
        failed = self.choices.make(new, jobs or len(os.sched_getaffinity(0)))
        failures = [*self.unreadable]
        failures += [(f"{f.operator.type} {f.operator.shape}", f.reason) for f in failed]
        for graph in self.programs:
            try:
                self._compile_program(graph)
            except KernelmillError as error:
                failures.append((graph.name, str(error)))
        return Built(len(self.operators), len(new), tuple(failures))

    def build(self, jobs: int, output: str, wheel: bool, name: str) -> Built:
        """Compile, and write the package. See `static_kernels.build`."""
        name = name or f"static_kernel_{datetime.now().strftime('%Y%m%d%H%M%S%f')}"
        check_name(name)
        done = self.compile(jobs)
        contents = package_contents(name, self.choices, self.operators)
        files = dict(contents.files)
        for graph in self.programs:
            for entry in self._compile_program(graph).values():
                files.update(self.choices.store.files(entry))
        contents = replace(contents, files=files)
        with file_errors(output):
            os.makedirs(output, exist_ok=True)
            path = write_wheel(contents, output, VERSION) if wheel else write_run(contents, output)
        return replace(done, path=path)

    def _compile_program(self, graph: Graph) -> Mapping[str, Entry]:
        """Return the entries of a fused program's kernels."""
        return self.choices.obtain(lower_graph(graph, self.machine))
