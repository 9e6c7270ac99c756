# Every target makes the environment it needs in .venv, once; nothing else has to be installed
# but Python 3.11 or newer with its venv module.

PYTHON ?= python3
WORKERS ?= 2
TARGETS ?= x86-64-v2 x86-64-v3 x86-64-v4 x86-64-v4-amx
SHARE ?= 1/1

PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet

.PHONY: demo test test-all libraries test-targets test-without reach compat check style docs bench scoreboard sweep torture installed clean

demo: .venv/stamp-demo          ## compile a sentence-embedding model and compare it with eager
	$(PY) -m examples.demo

# Python may write what it has compiled: hundreds of tests start processes, each of which would
# compile our modules, and pytest changes the asserts of each test module, which takes ten seconds.
test test-all: export PYTHONDONTWRITEBYTECODE =

test: .venv/stamp-dev           ## the shortest of each package, feature and mode, seven minutes
	$(PY) -m compileall -q src tools examples
	$(PY) -m pytest --quick -n $(WORKERS) --dist worksteal --disable-warnings --durations 20

test-all: .venv/stamp-dev       ## all tests, an hour
	$(PY) -m compileall -q src tools examples
	$(PY) -m pytest -n $(WORKERS) --dist worksteal --disable-warnings --durations 100 $(DURATIONS)

test-targets: $(TARGETS:%=test-on-%)  ## compiled code for each of TARGETS; SHARE=1/10: a tenth

# Instructions on tiles are trapped where the processor has none; where they cannot be, products of
# tiles are of vectors.
test-on-%: .venv/stamp-dev
	@on=$*; trap=; if [ $* = x86-64-v4-amx ]; then \
		if $(PY) -m tests.tile_trap -c ''; then trap=--trap-tiles; else on=$*-emulated; fi; fi; \
	if KERNELMILL_TARGET=$$on $(PY) $${trap:+-m tests.tile_trap} \
		-c 'from kernelmill.core.target.isa import host_isa; host_isa()' 2>&1 | \
		grep 'this machine is\|this process may not'; then echo "nothing is tested on $$on"; else \
		echo "$(SHARE) of the tests on $$on"; KERNELMILL_TARGET=$$on $(PY) -m pytest $$trap \
		-n $(WORKERS) --dist worksteal --share $(SHARE) \
		tests/differential tests/e2e tests/properties; fi

test-without: .venv/stamp-dev   ## cached and aot without each private part; SHARE=1/50: so much of it
	$(PY) -m tools.without_each --share $(SHARE) --jobs $(WORKERS)

reach: .venv/stamp-dev          ## compiled code for AArch64 under an emulator; SHARE=1/10: a tenth
	$(PY) -m tools.reach --share $(SHARE)

compat: .venv/stamp-dev         ## other Pythons, of PYTHONS or PATH; docs/lab/private_parts.md
	$(PY) -m tools.compat

check: style                    ## style, types, architecture, sizes
	$(PY) -m pytest -q tests/repo

style: .venv/stamp-dev          ## what of it is none of the tests
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m pyright
	.venv/bin/lint-imports

# In an environment of its own: torchvision and torchaudio of the registry are built for CUDA, and
# beside a torch for CPUs transformers does not import what asks for them.
libraries: .venv-libraries/stamp ## models of other libraries; `python -m tools.libraries`: all
	.venv-libraries/bin/python -m pytest -q --disable-warnings --durations 10 tests/libraries

docs: .venv/stamp-docs          ## the documents as a site in build/site, readable offline
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs --quiet build --strict
	$(PY) -m tools.offline_site build/site

installed: .venv/stamp-dev      ## the wheel and the sdist in environments of their own
	$(PY) -m tools.installed

bench: .venv/stamp-bench        ## measure against eager, Inductor, ONNX Runtime and OpenVINO
	$(PY) -m tools.bench models gears cache
	$(PY) -m tools.landing_plot

# With the runtimes of `bench` beside the libraries of models.
scoreboard: .venv-libraries/stamp-bench ## docs/scoreboard.md; ARGUMENTS="--seconds 1200": a part
	.venv-libraries/bin/python -m tools.scoreboard $(ARGUMENTS)

sweep: .venv/stamp-dev          ## operators, random programs and models; docs/{coverage,programs,state}.md
	$(PY) -m tools.sweep
	$(PY) -m tools.programs --minutes 10
	$(PY) -m tools.state --minutes 10

torture: .venv/stamp-dev        ## kills, wrong arguments, threads; writes docs/reliability.md
	$(PY) -m tools.torture
	$(PY) -m tools.torture_cache
	$(PY) -m tools.torture_calls
	$(PY) -m tools.torture_threads
	$(PY) -m pytest -n $(WORKERS) --dist worksteal --guard-pages tests/unit/lower \
		tests/unit/codegen tests/differential/test_kernels.py tests/differential/test_pieces.py
	$(PY) -m pytest -n $(WORKERS) --dist worksteal --every-size \
		tests/properties/test_dynamic_kernels.py tests/properties/test_guarded_programs.py

clean:                          ## remove the environment
	rm -rf .venv .venv-libraries

.venv/stamp-demo: extras := [demo]
.venv/stamp-dev: extras := [demo,dev,serve]
.venv/stamp-docs: extras := [docs]
.venv/stamp-bench: extras := [demo,dev,serve,bench]

.venv-libraries/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-libraries
	.venv-libraries/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint constraints.txt --editable '.[libraries]'
	touch $@

.venv-libraries/stamp-bench: .venv-libraries/stamp
	.venv-libraries/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint constraints.txt --editable '.[libraries,bench]'
	touch $@

.venv/stamp-%: pyproject.toml constraints.txt
	$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv || \
		{ rm -rf .venv; echo "Python's venv module is needed: apt-get install python3-venv" >&2; exit 1; }
	$(PIP) --constraint constraints.txt --editable '.$(extras)'
	touch $@
