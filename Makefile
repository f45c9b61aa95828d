# Layerline. `make report` goes the whole way; each stage decides by hash what is still valid.
MODEL     ?= gpt2
PRECISION ?= fp32,fp16
BACKEND   ?=
BATCH     ?= 1
SEQ       ?= 128
# Code of one's own has a batch and a seq of its own, where none are named.
size = $(if $(findstring :,$(MODEL))$(filter %.py,$(MODEL)),$(filter-out file,$(origin $1)),yes)
RUN       ?= runs/$(subst :,-,$(notdir $(MODEL)))$(if $(call size,BATCH)$(call size,SEQ),-$(BATCH)x$(SEQ))
TRT_PYTHON ?=
# The first Python that is new enough; name another with PYTHON=…
PYTHON    ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$p && break; done)
# Extra arguments for pip, e.g. PIP_ARGS='--extra-index-url URL' for PyTorch's CPU wheels.
PIP_ARGS  ?=

VENV := .venv
BIN  := $(VENV)/bin
STAMP := $(VENV)/.locked
# Of `make train`, `make memory` and `make ranks`: what is trained, and, where they are not named, a model of seconds in fp32.
WORKLOAD ?= gpt2
# Of `make ranks`: how many, on this machine.
NPROC    ?= 2
of_train = $(if $(filter file,$(origin $1)),$2,$($1))
TRAINED := $(call of_train,MODEL,tiny)
MEMORY_RUN := $(call of_train,RUN,runs/memory-$(WORKLOAD)-$(notdir $(TRAINED)))
RANKS_RUN := $(call of_train,RUN,runs/ranks-$(notdir $(TRAINED))-$(NPROC))
TRAIN_RUN := $(call of_train,RUN,runs/train-$(WORKLOAD)-$(notdir $(TRAINED)))
# Beside the backend that is chosen where none is named: torch.compile, where there is a C++ compiler.
COMPILED := --backend inductor --if-possible
comma := ,
space := $(subst ,, )
precisions := $(subst $(space),$(comma),$(strip $(PRECISION)))

# The repository's root never goes on sys.path: ./profile would stand beside the standard library's.
export PYTHONSAFEPATH := 1
export TRT_PYTHON
unexport PYTHONPATH

.DEFAULT_GOAL := help
# Nothing is built or measured beside anything else, also under -j.
.NOTPARALLEL:
.PHONY: help export engines profile train memory ranks report doctor test lint typecheck bench families mutants lock clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo; echo "  MODEL=$(MODEL) PRECISION=$(precisions) BACKEND=$(or $(BACKEND),auto) BATCH=$(BATCH) SEQ=$(SEQ) RUN=$(RUN)"

$(STAMP): requirements.lock requirements-cuda.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11-3.13 found; install one, or name it with PYTHON=…" >&2; exit 3; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make environments; install it, e.g. apt install python3-venv" >&2; exit 3; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) -r requirements.lock -c requirements-cuda.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

export: $(STAMP) ## the model as ONNX, every node named after its module
	$(BIN)/layerline export --run '$(RUN)' --model '$(MODEL)' --precision '$(precisions)' $(if $(call size,BATCH),--batch $(BATCH)) $(if $(call size,SEQ),--seq $(SEQ)) $(if $(BACKEND),--backend '$(BACKEND)')

engines: export ## inference engines, with their layers resolved to nodes and modules
	$(BIN)/layerline engines --run '$(RUN)' --precision '$(precisions)' $(if $(BACKEND),--backend '$(BACKEND)')
	$(if $(BACKEND),,$(BIN)/layerline engines --run '$(RUN)' --precision '$(precisions)' $(COMPILED))

measure = $(BIN)/layerline profile --run '$(RUN)' --precision '$(precisions)'
measure_chosen = $(measure) $(if $(BACKEND),--backend '$(BACKEND)')
measure_compiled = $(measure) $(COMPILED) --what engine

profile: engines ## measure the engines, eager inference and eager training
	$(measure_chosen)
	$(if $(BACKEND),,$(measure_compiled))

train: $(STAMP) ## train WORKLOAD on text and explain a step: RUN/report/index.html (MODEL=tiny)
	$(BIN)/layerline train '$(WORKLOAD)' --run '$(TRAIN_RUN)' --model '$(TRAINED)' --precision '$(call of_train,PRECISION,fp32)' --batch $(call of_train,BATCH,4) --seq $(call of_train,SEQ,64)
	$(BIN)/layerline report --run '$(TRAIN_RUN)'

memory: $(STAMP) ## what memory holds at its peak in training, and what lowers it: RUN/report/memory.html (MODEL=tiny)
	$(BIN)/layerline train '$(WORKLOAD)' --run '$(MEMORY_RUN)' --model '$(TRAINED)' --precision '$(call of_train,PRECISION,fp32)' --batch $(call of_train,BATCH,4) --seq $(call of_train,SEQ,64) --steps 8 --profile memory
	$(BIN)/layerline memory --run '$(MEMORY_RUN)' --try checkpoint

ranks: $(STAMP) ## NPROC ranks train a Llama, and who waits for whom: RUN/report/ranks.html (NPROC=2, MODEL=tiny)
	$(BIN)/layerline train llama --run '$(RANKS_RUN)' --model '$(TRAINED)' --precision '$(call of_train,PRECISION,fp32)' --nproc $(NPROC) --profile torch
	$(BIN)/layerline ranks --run '$(RANKS_RUN)'

# A wrong engine ends its measuring with 1: the report leads with it, and has what was measured of the others.
may_be_wrong = $1 || { code=$$?; test $$code = 1 || exit $$code; }
report: engines ## the comparison: RUN/report/index.html (everything this machine can do)
	code=0; $(call may_be_wrong,$(measure_chosen)); $(if $(BACKEND),,$(call may_be_wrong,$(measure_compiled));) \
	$(BIN)/layerline report --run '$(RUN)' && exit $$code

doctor: $(STAMP) ## what this machine can and cannot do, and how to get the rest
	$(BIN)/layerline doctor

test: $(STAMP) ## all tests
	$(BIN)/python -m pytest

lint: $(STAMP) ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(STAMP) ## mypy --strict
	@mkdir -p .types/layerline
	@for d in core export engines workloads profile analysis; do ln -sfn ../../$$d .types/layerline/$$d; done
	$(BIN)/mypy

bench: $(STAMP) ## readers beside other tools, both sides in one run
	$(BIN)/python tests/bench/run.py

families: $(STAMP) ## which models go the whole way, and the share of time in modules (FAMILIES="t5 own:unet"; default: all)
	$(BIN)/python tests/bench/families.py $(FAMILIES) --precision '$(precisions)' $(if $(BACKEND),--backend '$(BACKEND)')

mutants: $(STAMP) ## do the tests of MODULE=core/series.py notice when it changes (mutmut)
	@$(BIN)/python -c 'import mutmut' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) --no-build-isolation -e '.[mutants]'
	$(BIN)/python -P tests/mutants/run.py '$(MODULE)'

lock: $(STAMP) ## resolve requirements.lock again (uses uv from PyPI)
	$(BIN)/python -m pip install -q uv
	$(BIN)/python tests/lock.py

clean: ## remove runs, caches and the environment
	rm -rf $(VENV) .types runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
