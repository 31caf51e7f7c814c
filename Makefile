# All commands of the project. `make demo` needs Python 3.11+ and nothing else.
PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
TORCH ?= 2.10.0
ORDER ?= 1
SINCE ?= HEAD
OTHER := $(VENV)-$(notdir $(PYTHON))-torch-$(TORCH)
FAST_TESTS := -m pytest -q -m "not slow" --numprocesses auto --maxprocesses 4 --dist loadfile
# What differs elsewhere: instruction sets, a locale that was never generated, time zone, hashes, order.
ELSEWHERE := ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
    LC_ALL=xx_XX.UTF-8 TZ=Pacific/Kiritimati PYTHONHASHSEED=$(ORDER)
.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: demo
demo: $(VENV)/.examples  ## train the toy translator and show its translations (3 minutes)
	$(BIN)/python examples/translate.py train --run runs/demo --corpus toy --preset tiny --snapshots --resume
	$(BIN)/python examples/translate.py evaluate --run runs/demo

.PHONY: notebooks
notebooks: $(VENV)/.docs  ## run the chapters of the book, and make their notebooks
	$(BIN)/python docs/_ext/execution.py

.PHONY: translations
translations: $(VENV)/.docs  ## update the translations, and list what is not translated
	$(BIN)/python docs/_ext/localisation.py

.PHONY: record
record: $(VENV)/.docs  ## run the book's long computations, and record their output (some minutes)
	$(BIN)/python docs/_ext/execution.py --record

.PHONY: api
api: $(VENV)/.dev  ## write docs/reference from the code, and list what breaks for users: SINCE=v0.1.0
	$(BIN)/python docs/_ext/reference_pages.py
	-$(BIN)/griffe check transformer_blocks --search src --against $(SINCE)

.PHONY: pictures
pictures: $(VENV)/.docs $(VENV)/.dev demo  ## make all pictures that are committed (needs Chromium)
	$(BIN)/python docs/figures/pictures.py

.PHONY: test
test: $(VENV)/.dev  ## run the fast tests, with the examples in docstrings and README
	$(BIN)/python $(FAST_TESTS)

.PHONY: test-portable
test-portable: $(VENV)/.dev  ## run the fast tests as another machine would, in random order: ORDER=1
	$(ELSEWHERE) $(BIN)/python $(FAST_TESTS) --random-order --random-order-seed=$(ORDER)

.PHONY: test-torch
test-torch: $(OTHER)/.dev  ## run the fast tests with another torch or Python: TORCH=2.10.0, pinned or newest; PYTHON=python3.13
	$(OTHER)/$(SCRIPTS)/python $(FAST_TESTS)

.PHONY: test-slow
test-slow: $(VENV)/.dev $(VENV)/.docs  ## run the long tests alone: kill loops, trainings, pages
	$(BIN)/python -m pytest -q -m slow

.PHONY: check
check: $(VENV)/.dev  ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

.PHONY: bench
bench: $(VENV)/.bench  ## time decoding beside other libraries (23 minutes, with the machine to itself)
	$(BIN)/python benchmarks/decoding.py

.PHONY: bench-blocks
bench-blocks: $(VENV)/.bench  ## time the blocks and measure their memory beside other libraries (15 minutes)
	$(BIN)/python benchmarks/blocks.py

.PHONY: bench-training
bench-training: $(VENV)/.bench  ## time the training beside other loops (5 minutes)
	$(BIN)/python benchmarks/training.py

.PHONY: bench-pretrained
bench-pretrained: $(VENV)/.bench  ## time published models beside transformers (5 minutes)
	$(BIN)/python benchmarks/published.py

.PHONY: bench-lengths
bench-lengths: $(VENV)/.bench  ## time attention against the length of the sequence (8 minutes)
	$(BIN)/python benchmarks/lengths.py

.PHONY: kill
kill: $(VENV)/.dev  ## kill trainings at every save and compare their results bit by bit
	$(BIN)/python -m pytest -k "kill or stopped_at_any_save or torchrun_restarts" tests/examples

.PHONY: format
format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(VENV)/.docs  ## render the docstrings as pages: docs/_build/html/index.html
	$(BIN)/python docs/_ext/pages.py docs docs/_build/html

.PHONY: teaching
teaching: $(VENV)/.docs  ## write the notebooks of the book without solutions: docs/_build/teaching
	$(BIN)/python docs/_ext/execution.py --without-solutions docs/_build/teaching

.PHONY: clean
clean:  ## remove the environment and build outputs; runs/ and data/ remain
	rm -rf $(VENV) $(VENV)-*-torch-* docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis

# An install leaves a stamp: it is done again only when what it depends on changes.
$(VENV)/.examples $(VENV)/.dev $(VENV)/.docs $(VENV)/.bench: $(VENV)/.%: pyproject.toml constraints.txt src/transformer_blocks/_version.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch $@

# Beside it, an environment with another version of torch or Python, and all else as in constraints.txt.
$(OTHER)/.dev: pyproject.toml constraints.txt src/transformer_blocks/_version.py
	$(PYTHON) -m venv $(@D)
	grep -v $(if $(filter pinned,$(TORCH)),'^$$','^torch==') constraints.txt > $(@D)/constraints.txt
	$(@D)/$(SCRIPTS)/python -m pip install -q --disable-pip-version-check -c $(@D)/constraints.txt torch$(if $(filter pinned newest,$(TORCH)),,==$(TORCH)) -e ".[dev]"
	@touch $@
