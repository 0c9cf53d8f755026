# The tasks of this project. Everything that is more than a line of shell is in xtask/.

CARGO ?= cargo
XTASK = $(CARGO) run --quiet --package xtask --

.DEFAULT_GOAL := help

.PHONY: help
help: ## Lists the tasks
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

.PHONY: check
check: ## Checks formatting, clippy and dependencies
	@$(XTASK) check

.PHONY: fmt
fmt: ## Formats the code
	$(CARGO) fmt --all

.PHONY: clippy
clippy: ## Runs clippy with warnings as errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: deny
deny: ## Checks dependencies: bans, licences, sources, advisories
	@$(XTASK) deny

.PHONY: prepare
prepare: ## Builds what the tests need: Kubernetes, CRDs of other projects, Helm
	@$(XTASK) prepare

.PHONY: test
test: ## Runs everything that CI runs: check, all tests, parity with KubeRay
	@$(XTASK) test

.PHONY: test-neighbours
test-neighbours: ## Builds cert-manager, Prometheus and Traefik, and tests beside them and Redis (ONLY=NAME for one)
	@$(XTASK) test-neighbours

.PHONY: conformance
conformance: ## Runs Kubernetes' conformance suite on manta up (GROUP=node, ONLY=TEXT, JOBS=4, DEBUG=1, UPDATE=1)
	@$(XTASK) conformance

.PHONY: demo
demo: ## Runs a RayCluster, a RayJob and a RayService with real Ray on this machine
	$(CARGO) run --profile demo --package manta -- demo

.PHONY: samples
samples: ## Runs the recorded samples in local mode, one after the other, and counts them
	MANTA_SAMPLES=1 $(CARGO) test --quiet --package manta --test e2e

.PHONY: kills
kills: ## Kills local mode a hundred times and checks that nothing is left behind
	MANTA_KILLS=100 $(CARGO) test --quiet --package manta --test e2e -- kills

.PHONY: chaos
chaos: ## Kills the operator KILLS=200 times on a real control plane while users, nodes and Ray go on (SEED=N)
	MANTA_CHAOS_KILLS=$${KILLS:-200} $(CARGO) test --quiet --package manta --test chaos -- --nocapture

.PHONY: chaos-local
chaos-local: ## Kills Pods, Ray and local mode under a RayService that is asked all the time, ROUNDS=3 times each (SEED=N)
	MANTA_CHAOS_ROUNDS=$${ROUNDS:-3} $(CARGO) test --quiet --package manta --test e2e

.PHONY: gpu-check
gpu-check: ## Checks local mode on a machine with an NVIDIA GPU; needs no Ray and no network
	$(CARGO) build --release --package manta
	python3 tests/gpu/check.py target/release/manta

.PHONY: parity
parity: ## Replays KubeRay's recordings against the operator (see tests/parity/README.md)
	@$(XTASK) parity $(PARITY_FLAGS)

.PHONY: takeover
takeover: ## Takes over objects that KubeRay created and counts pod writes
	@$(XTASK) takeover

.PHONY: simulate
simulate: ## Simulates the system from SEEDS seeds (default 1,000), or replays one with SEED=N (WITHOUT=SAFEGUARD)
	@$(CARGO) run --quiet --profile sim --package manta-sim

.PHONY: coverage
coverage: ## Runs SEEDS=1000 seeds of the simulation, and prints which lines of logic they reach
	@$(XTASK) coverage

# Optimized, because the load that the bench makes must not be what is slow.
BENCH = $(CARGO) run --quiet --profile sim --package xtask -- bench

.PHONY: bench
bench: ## Measures operators side by side (OPERATORS='ours;x=CMD', SCENARIO=scale,rest, SIZES=100,1000), or WHAT=apiserver
	@$(BENCH)

.PHONY: bench-quick
bench-quick: ## Runs every scenario of the benchmark at a tiny size, with a build that links fast
	@PROFILE=$${PROFILE:-sim} $(BENCH) --quick

.PHONY: bench-pictures
bench-pictures: ## Draws growth curves into docs/pictures from FROM=FILE (default: the latest report in target/bench)
	@FROM=$${FROM:-$$(ls target/bench/*.json | tail -n 1)} $(BENCH)

.PHONY: bench-instructions
bench-instructions: ## Counts the instructions of a pass with callgrind, and compares them with the repository's (UPDATE=1)
	@$(XTASK) instructions

.PHONY: page-bench
page-bench: ## Measures the page with CLUSTERS=5000 in Chromium: first view, memory of the server, frames
	MANTA_PAGE_CLUSTERS=$${CLUSTERS:-5000} $(CARGO) test --quiet --profile sim --package manta --test page

.PHONY: page-pictures
page-pictures: ## Takes the pictures of the page for the documentation
	MANTA_PAGE_PICTURES=$(CURDIR)/docs/pictures $(CARGO) test --quiet --package manta --test page

.PHONY: fuzz
fuzz: ## Sends random requests to the embedded API server, with restarts, for MINUTES=60
	MANTA_FUZZ_MINUTES=$${MINUTES:-60} $(CARGO) test --quiet --package manta-apiserver --test stateful -- --nocapture

.PHONY: soak
soak: ## Creates and deletes PODS=10000 pods in local mode over MINUTES=120, and checks that memory stays the same
	@$(XTASK) soak

.PHONY: dist
dist: ## Writes the release to dist/: static archive, krew plugin, SBOM, charts, checksums (TARGET=TRIPLE for another architecture)
	@$(XTASK) dist

.PHONY: image
image: ## Writes the container image to dist/ as an OCI archive, and runs it (TARGET=TRIPLE for another architecture)
	@$(XTASK) image

.PHONY: control-plane
control-plane: ## Runs a real control plane on loopback until interrupted
	@$(XTASK) control-plane
