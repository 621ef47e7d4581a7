.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench

ARGS ?=
BIN := .venv/bin

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv with the locked packages, a Java and the JVM jars (once; then instant)
	@bash headrace/local/setup.sh

demo: setup ## Run the TuranMart demo; ARGS="..." is passed on
	@$(BIN)/headrace demo $(ARGS)

test: setup check ## Set up, check and run all tests; ARGS="..." is passed to pytest
	@bash tests/tools.sh
	$(BIN)/python -m pytest $(ARGS)

check: setup ## Lint, format, types and the import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_architecture.py

bench: setup ## Run the benchmarks; ARGS="..." is passed on
	@$(BIN)/python -m benchmarks $(ARGS)
