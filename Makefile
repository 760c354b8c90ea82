# Everything runs in .venv, made from requirements.lock by scripts/setup; nothing else needs to be installed.
PYTHON_BIN := .venv/bin

.PHONY: help setup demo test crashes soak bench lint format types contracts check clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 12

setup: ## create or refresh .venv (quick when nothing changed)
	@sh scripts/setup

demo: setup ## run the demo on embedded defaults; leaves nothing running
	@sh scripts/demo

test: setup ## run the tests; needs no running service
	@$(PYTHON_BIN)/python -m pytest

crashes: setup ## kill a worker at every durable write and every send
	@$(PYTHON_BIN)/python -m pytest tests/worker/test_crash_matrix.py tests/worker/test_fan_out.py -m "long or not long" --timeout=600

soak: setup ## five minutes of mixed load under dying workers (MINUTES=n)
	@$(PYTHON_BIN)/python -m tests.worker.soak --minutes $(or $(MINUTES),5)

bench: setup ## measure everything, peers beside it where $$ARCHMAX_BENCH_PEERS names them (BENCH="--quick": small sizes)
	@$(PYTHON_BIN)/python -m bench $(BENCH)

lint: setup ## ruff: rules and format
	@$(PYTHON_BIN)/ruff check
	@$(PYTHON_BIN)/ruff format --check

format: setup ## ruff: repair what can be repaired
	@$(PYTHON_BIN)/ruff check --fix
	@$(PYTHON_BIN)/ruff format

types: setup ## pyrefly, strict
	@$(PYTHON_BIN)/pyrefly check

contracts: setup ## import-linter: dependencies go one way
	@$(PYTHON_BIN)/lint-imports

check: lint types contracts test ## everything that .ci/run checks

clean: ## remove the environment and every cache
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
