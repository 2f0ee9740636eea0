.PHONY: help demo demo-train test test-all check format docs clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12
demo: ## fresh environment in .venv-demo, install, plan a real model, make shards
	@bash scripts/demo.sh
demo-train: ## fresh environment with torch, this machine measured, a tiny model planned and trained
	@bash scripts/demo_train.sh
test: ## run the tests in .venv, made when missing
	@bash scripts/test.sh
test-all: ## all tests, the long ones too: every family on every plan; hours
	@bash scripts/test.sh -m "nightly or not nightly"
check: ## everything that must hold: format, lint, types, imports, documentation, tests
	@bash scripts/check.sh
format: ## format the sources and mend what the linter can
	@bash scripts/venv.sh .venv test,dev,data && .venv/bin/ruff format . && .venv/bin/ruff check --fix .
docs: ## write docs/reference from the code
	@bash scripts/venv.sh .venv test,dev,data && .venv/bin/python scripts/generate_docs.py
clean: ## remove environments and caches
	@rm -rf .venv .venv-demo .venv-demo-train .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
