# The tasks of this project. More than a line of shell lives in xtask/.

CARGO ?= cargo
XTASK = $(CARGO) run --quiet --package xtask --

.DEFAULT_GOAL := help

.PHONY: help
help: ## Lists the tasks
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

.PHONY: check
check: ## Formatting, clippy and dependencies
	@$(XTASK) check

.PHONY: fmt
fmt: ## Formats the code
	$(CARGO) fmt --all

.PHONY: clippy
clippy: ## Clippy, warnings as errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: deny
deny: ## Dependencies: bans, licences, sources, advisories
	@$(XTASK) deny

.PHONY: prepare
prepare: ## Gets what the tests need: Kubernetes, CRDs of others, Helm
	@$(XTASK) prepare

.PHONY: test
test: ## Everything that CI runs: check, all tests, parity with KubeRay
	@$(XTASK) test

.PHONY: demo
demo: ## A RayCluster, a RayJob and a RayService with real Ray on this machine
	$(CARGO) run --release --package manta -- demo

.PHONY: samples
samples: ## Brings up the recorded samples in local mode, one after the other, and counts them
	MANTA_SAMPLES=1 $(CARGO) test --quiet --package manta --test e2e

.PHONY: kills
kills: ## Kills local mode a hundred times and looks for what is left
	MANTA_KILLS=100 $(CARGO) test --quiet --package manta --test e2e -- kills

.PHONY: parity
parity: ## Plays KubeRay's recordings against the operator, SERVER=embedded on ours; see tests/parity/README.md
	@$(XTASK) parity $(PARITY_FLAGS)

.PHONY: takeover
takeover: ## Takes over objects that KubeRay made and counts pod writes
	@$(XTASK) takeover

.PHONY: bench
bench: ## Measures the operator (CLUSTERS=50 for a quick run, OPERATOR='CMD' for another), or WHAT=apiserver
	@$(XTASK) bench

.PHONY: control-plane
control-plane: ## Runs a real control plane on loopback until interrupted
	@$(XTASK) control-plane
