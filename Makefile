# `make help` lists the targets. Each target sets up what it needs.
# Debian's Python is preferred: it is built with every optimisation and needs a third less time.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11) $(shell command -v python3.11) python3)
VENV := .venv
BIN := $(VENV)/bin
SERVE_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
REF ?= HEAD
MUTANTS_ARGS ?=
OPENSEARCH_PORT ?= 9200
OPENSEARCH_ARGS ?=
DEMO_ARGS ?=
JOBS ?= 6
# The formatter of JavaScript, installed from its lock the first time.
BIOME = $$($(BIN)/python scripts/client-env biome)/@biomejs/cli-*/biome

.DEFAULT_GOAL := help
.PHONY: help size serve sign-in-demo opensearch test soak lint types bytecode format bench bench-compare mutants reference screenshots docs docs-serve dist lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

size: ## count lines and modules of source, tests and docs
	@$(PYTHON) scripts/size

serve: $(VENV)/.installed ## run the service on the embedded default
	@exec $(BIN)/watchword serve $(SERVE_ARGS)

sign-in-demo: $(VENV)/.installed-dev ## run an identity provider and a service that people sign in to with it
	@exec $(BIN)/python scripts/sign-in-demo $(DEMO_ARGS)

opensearch: ## run an OpenSearch to play with
	@$(PYTHON) scripts/search-node fetch opensearch-2
	@echo "When it listens: WATCHWORD_INDEX_URL=http://127.0.0.1:$(OPENSEARCH_PORT) make serve"
	@exec $(PYTHON) scripts/search-node run opensearch-2 --port $(OPENSEARCH_PORT) $(OPENSEARCH_ARGS)

test: $(VENV)/.installed-dev ## check style and types, then run the whole suite, as CI does
	@$(MAKE) --no-print-directory -j 2 --output-sync lint types bytecode
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not soak" $(TEST_ARGS)

soak: $(VENV)/.installed-dev ## run the long forms of fault and load tests
	$(BIN)/pytest -n 4 --dist worksteal -m soak --durations=10 $(TEST_ARGS)

lint: $(VENV)/.installed-dev ## check style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIOME) format src tests/clients/node

types: $(VENV)/.installed-dev ## check types
	$(BIN)/mypy

# Compiles the tests while mypy uses the other processor. Otherwise each worker of pytest compiles all of them.
bytecode: $(VENV)/.installed-dev
	-@$(BIN)/pytest --collect-only -qq > /dev/null 2>&1

format: $(VENV)/.installed-dev ## put the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIOME) format --write src tests/clients/node

bench: $(VENV)/.installed-dev ## measure, against a bare answer in the same run; one of them: bench-verify, bench-lists, ...
	$(BIN)/python -m bench $(BENCH_ARGS)

bench-compare: $(VENV)/.installed-dev ## compare processor time per request with another commit: REF=57b8f58
	$(BIN)/python -m bench compare-ref $(REF) $(BENCH_ARGS)

bench-%: $(VENV)/.installed-dev
	$(BIN)/python -m bench $* $(BENCH_ARGS)

mutants: $(VENV)/.installed-dev ## change the source in 200 places and see whether the tests notice: REF=57b8f58
	$(BIN)/python scripts/mutants --ref $(REF) $(MUTANTS_ARGS)

reference: $(VENV)/.installed-dev ## write the generated pages of docs/reference and the generated part of the client
	$(BIN)/python scripts/generate-client
	$(BIN)/python scripts/reference

screenshots: $(VENV)/.installed-dev ## take the console's screenshots for docs/how-to/console
	$(BIN)/python scripts/screenshots

docs: $(VENV)/.installed-dev ## make the documentation's site, in build/site
	$(BIN)/python scripts/site build

docs-serve: $(VENV)/.installed-dev ## show it at http://127.0.0.1:8000 while you write
	@exec $(BIN)/python scripts/site serve

dist: $(VENV)/.installed-dev ## make wheel and source distribution, in dist
	$(BIN)/python scripts/dist

lock: $(VENV)/.installed-dev ## renew the locked versions
	$(BIN)/python scripts/lock

clean: ## remove what the other targets made
	rm -rf $(VENV) sign-in-demo .clients .nodes .peers bench/results tests/clients/node/node_modules requirements/biome/node_modules build dist src/*.egg-info .mypy_cache .ruff_cache .hypothesis

$(VENV)/.installed: requirements/run.lock pyproject.toml scripts/install
	PYTHON=$(PYTHON) scripts/install run

$(VENV)/.installed-dev: requirements/dev.lock requirements/run.lock pyproject.toml scripts/install
	PYTHON=$(PYTHON) scripts/install dev
