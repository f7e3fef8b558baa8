# The commands of this repository; `make help` lists them. Each sets up first whatever is missing.

SHELL := bash
PYTHON_VENV := .venv/bin/python
SECONDS ?= 60
EXAMPLES ?= 500
KILLS ?= 60
LIVES ?= 300
PURE := $(addprefix tests/,config cri devices model placement store wire)
QUICK := $(filter-out tests/wire,$(PURE)) $(filter-out tests/wire/test_server%,$(wildcard tests/wire/test_*.py))
LONG := $(addprefix tests/,devices/usage/test_histories.py placement/policies/test_external.py store/test_large_pods.py)
CHECK := $(PURE) $(addprefix tests/,api/views host node simulate)
AT_ONCE := -p no:cacheprovider -n logical --dist worksteal
BESIDE := $(PURE) $(addprefix tests/,node agent controls lab/tenant)
OWN := $(addprefix tests/,deviceplugin install lab/bench lab/fuzz packaging page)
GUESTS := $(addprefix tests/,api/views cli deploy docs lab/chaos lab/demo lab/lives lab/properties lab/vm matrix nri planted \
	simulate)
PACKAGER := PYTHONPATH=packaging $(PYTHON_VENV) -m packager
ARGS ?=

define beside_lint
	@mkdir -p build; $(MAKE) --no-print-directory lint >build/lint.log 2>&1 & lint=$$!; status=0; \
	$(PYTHON_VENV) -m pytest -q $(1) $(ARGS) || status=$$?; wait $$lint || status=$$?; cat build/lint.log; exit $$status
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo quick check test lint format bench benefit fuzz properties tenant lives chaos runtimes vm cluster thorough package deb image protos lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing: Debian packages (as root), .venv, libraries, this package
	@.ci/setup.sh

demo: setup ## put pods through criproxy and print where they landed and why
	@$(PYTHON_VENV) -m lab.demo $(ARGS)

quick: setup ## lint and the pure tests but for random examples, in a minute: before each commit
	$(call beside_lint,$(AT_ONCE) -m "not hypothesis and not slow" -k "not takes_seconds" $(QUICK) $(addprefix --ignore=,$(LONG)))

check: setup ## lint, all pure tests and those of the controller in one process, in four minutes
	$(call beside_lint,$(AT_ONCE) $(CHECK))

test: setup ## run every test but those that take minutes; ARGS="tests/wire -k hold" for some
ifneq ($(ARGS),)
	@$(PYTHON_VENV) -m pytest $(ARGS)
else # four runs that take about as long as each other; their processes find what they import compiled, guests too
	@$(PYTHON_VENV) -m compileall -q -x '/test_[^/]*$$' criproxy lab packaging tests
	@mkdir -p build; status=0; \
	$(PYTHON_VENV) -m pytest -p no:cacheprovider $(BESIDE) >build/beside.log 2>&1 & beside=$$!; \
	$(PYTHON_VENV) -m pytest -p no:cacheprovider $(OWN) >build/own.log 2>&1 & own=$$!; \
	$(PYTHON_VENV) -m pytest -p no:cacheprovider $(GUESTS) >build/guests.log 2>&1 & guests=$$!; \
	$(PYTHON_VENV) -m pytest $(addprefix --ignore=,$(BESIDE) $(OWN) $(GUESTS)) || status=$$?; \
	wait $$own || status=$$?; wait $$beside || status=$$?; wait $$guests || status=$$?; \
	cat build/guests.log build/own.log build/beside.log; exit $$status
endif

lint: setup ## check style, types, layers and generated files
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PYTHON_VENV) -m mypy
	.venv/bin/lint-imports
	.ci/protos.sh --check

format: setup ## rewrite files in the common format
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: setup ## measure what criproxy adds to calls; ARGS="--peer NAME=SOCKET"
	@$(PYTHON_VENV) -m lab.bench $(ARGS)

benefit: setup ## measure what users gain, 25 minutes; ARGS=--quick for less
	@$(PYTHON_VENV) -m lab.benefit $(ARGS)

fuzz: setup ## feed arbitrary bytes to the data plane for SECONDS (60), from SEED
	@$(PYTHON_VENV) -m lab.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) --json build/fuzz.json $(ARGS)

properties: setup ## try every policy on EXAMPLES (500) random machines and lives, from SEED, on all CPUs
	@$(PYTHON_VENV) -m lab.properties --examples $(EXAMPLES) $(if $(SEED),--seed $(SEED)) --json build/properties.json $(ARGS)
	@$(PYTHON_VENV) -m pytest --thorough $(PURE) tests/lab/properties
	@$(PYTHON_VENV) -m pytest --thorough -m hypothesis $(addprefix --ignore=,$(PURE) tests/lab/properties)

thorough: setup ## run what make test leaves out because it takes minutes; ARGS="tests/wire" for some
	@$(PYTHON_VENV) -m pytest --thorough -m thorough $(ARGS)

vm: setup ## tests in guests with many NUMA nodes; TOPOLOGY=4s-8n for a shell in one, CMD='lscpu' for a command
	@$(PYTHON_VENV) -m $(if $(TOPOLOGY)$(CMD),lab.vm $(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(if $(CMD),--cmd "$$CMD"),pytest --thorough tests/lab/vm) $(ARGS)

cluster: setup ## check criproxy and its agents with Kubernetes' own control plane and kubelet; ARGS="policies" for some
	@$(PYTHON_VENV) -m lab.cluster $(ARGS)

tenant: setup ## put EXAMPLES (500) hostile pods among others under every policy, from SEED, on all CPUs
	@$(PYTHON_VENV) -W ignore -m lab.tenant --examples $(EXAMPLES) $(if $(SEED),--seed $(SEED)) --json build/tenant.json $(ARGS)

lives: setup ## run LIVES (300) random lives of a node with cards, from SEED, on all CPUs; ARGS="--life 7" for one
	@$(PYTHON_VENV) -W ignore -m lab.lives --lives $(LIVES) $(if $(SEED),--seed $(SEED)) --json build/lives.json $(ARGS)

chaos: setup ## kill criproxy KILLS (60) times on busy nodes and look for wrong places, from SEED; then for planted faults
	@$(PYTHON_VENV) -m lab.chaos --kills $(KILLS) $(if $(SEED),--seed $(SEED)) --json build/chaos.json $(ARGS)
	@$(PYTHON_VENV) -m pytest --chance tests/lab/chaos

runtimes: setup ## the e2e tests on containerd 2.x, with and without NRI; ARGS=--lock takes what Debian's sid has now
	@$(PYTHON_VENV) -m tests.runtimes $(or $(ARGS),--test)

package: setup ## build wheel, sdist, Debian package, image, chart and SBOM in dist/; the same bytes from the same commit
	@$(PACKAGER) build $(ARGS)

deb: setup ## build the Debian package in dist/
	@$(PACKAGER) build deb $(ARGS)

image: setup ## build the container image and the Helm chart in dist/
	@$(PACKAGER) build image chart $(ARGS)

protos: setup ## generate the message modules from protos/
	.ci/protos.sh

lock: setup ## refresh .ci/requirements.lock and packaging/requirements.lock; ARGS=--upgrade for newest versions
	.ci/lock.sh $(ARGS)

clean: ## remove what was built, .venv included
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage *.egg-info
	find criproxy lab packaging tests -name __pycache__ -type d -prune -exec rm -rf {} +
