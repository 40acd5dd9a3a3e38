# Two commands from an empty machine: `make demo` (the main job) and `make test`. Both set up first.
BIN := .venv/bin
NATIVE := $(shell find runtime/native CMakeLists.txt -type f -not -path '*/build/*')
PYTEST ?= $(BIN)/python -m pytest

.PHONY: help setup demo demo-live test check check-native generate format fuzz soak peers example-train bench chaos report clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.setup ## .venv with everything, native core built

.venv/.setup: scripts/setup pyproject.toml clients/python/pyproject.toml constraints.txt $(NATIVE)
	@scripts/setup

demo: setup ## serve the example model and rank 80 items for real users; serves until Ctrl-C
	@$(BIN)/anabranch demo --keep

demo-live: setup ## train on real rows while they are served: a delta for each hour; ARGS=--keep serves on
	@cd examples && ../$(BIN)/python -m open_bandit.live $(ARGS)

test: setup ## all tests, JOBS (2) at a time
	@PYTEST='$(PYTEST)' scripts/run_tests $(ARGS)

check: setup ## lint, types, layering, formatting, generated files
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pyright
	scripts/generate_stubs --check
	$(BIN)/python benchmarks/report.py --check

check-native: setup ## ctest: plain, ASan and UBSan, TSan (short); models of the protocol
	scripts/check_native

generate: setup ## rewrite the generated files that are kept in git
	scripts/generate_protos
	scripts/generate_stubs

format: setup ## format Python and C++
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/clang-format -i $$(git ls-files 'runtime/native/*.h' 'runtime/native/*.cpp' 'tests/support/cuda_stub/*.h' 'tests/support/cuda_stub/*.cpp')

fuzz: setup ## 100,000 mutated inputs per decoder
	ANABRANCH_FUZZ_CASES=100000 $(PYTEST) tests/fuzz $(ARGS)

soak: setup ## the long forms of tests that have one
	ANABRANCH_SOAK=1 $(PYTEST) -m soak $(ARGS)

peers: ## virtual environments of clients and servers that pin other versions; PEERS=triton makes one
	benchmarks/peers/make_peers $(PEERS)

example-train: setup ## retrain the example model on examples/open_bandit
	examples/open_bandit/retrain

bench: setup ## the figures of docs/benchmarks.md; two hours on a quiet machine
	$(BIN)/python benchmarks/serving.py --json benchmarks/results/serving.json
	$(BIN)/python benchmarks/session_group.py --json benchmarks/results/session_group.json
	$(BIN)/python benchmarks/split.py --json benchmarks/results/split.json
	$(BIN)/python benchmarks/reload.py --only W9 --json benchmarks/results/reload_load.json --pictures docs/images
	$(BIN)/python benchmarks/reload.py --only W10 --json benchmarks/results/reload_freshness.json --pictures docs/images
	$(BIN)/python benchmarks/reload.py --only W12 --json benchmarks/results/reload_thousand.json
	$(BIN)/python benchmarks/reload.py --only W13 --only W14 --json benchmarks/results/reload_starts.json
	$(BIN)/python benchmarks/delta_endurance.py --json benchmarks/results/delta_endurance.json --pictures docs/images
	$(BIN)/python benchmarks/lookup.py --json benchmarks/results/lookup.json
	$(BIN)/python benchmarks/isolation.py --json benchmarks/results/isolation.json
	$(BIN)/python benchmarks/ranking.py --json benchmarks/results/ranking.json
	$(MAKE) report

chaos: setup ## minutes of kills under load: worker, supervisor, loader; with deltas their publisher
	cd load_tests && ../$(BIN)/python -m chaos $(ARGS)
	$(if $(ARGS),,cd load_tests && ../$(BIN)/python -m chaos --deltas)

report: setup ## docs/benchmarks.md from benchmarks/results
	$(BIN)/python benchmarks/report.py

clean: ## remove what was built
	rm -rf build dist .venv
