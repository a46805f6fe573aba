# One target a task; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
STACK ?= article
BIN := .venv/bin
UV_VERSION := 0.13.9

# Python keeps what it compiled: tests start the same programs some hundred times.
export PYTHONDONTWRITEBYTECODE =

# What is locked, each with its options of uv.
define LOCKS
requirements --universal
requirements-dev --universal
lab/kube/requirements --universal --no-deps
lab/e2e/requirements --python-platform x86_64-unknown-linux-gnu --override lab/e2e/overrides.txt
endef
export LOCKS

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9.-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9.-]+):.*## /\1\t/' | expand -t 20
	@echo
	@echo "STACK names a file stacks/Pulumi.STACK.yaml: $(patsubst stacks/Pulumi.%.yaml,%,$(wildcard stacks/Pulumi.*.yaml))"

.venv/runtime: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, $(PYTHON) is {sys.version}")'
	@echo "== .venv: the program's packages (about 430 MB once, one to four minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --requirement requirements.txt
	@touch $@

.venv/dev: .venv/runtime requirements-dev.txt
	@echo "== .venv: the gate's packages (about 250 MB once, a minute)"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --requirement requirements-dev.txt
	@touch $@

.PHONY: tools
tools: .venv/runtime ## Find the Pulumi CLI, or install it into the cache (FASTSTART_CACHE, default ~/.cache/faststart)
	@$(BIN)/python -m lab.rehearsal.pulumi_cli

# An emulated account needs what is in the gate's packages.
REHEARSAL_NEEDS := $(if $(ACCOUNT),.venv/dev,.venv/runtime)
IN_ACCOUNT := $(if $(ACCOUNT),--account $(ACCOUNT))

.PHONY: rehearse
rehearse: $(REHEARSAL_NEEDS) ## Deploy STACK with the real Pulumi engine on stand-in clouds; ACCOUNT=moto: by the real AWS provider
	@$(BIN)/python -m lab.rehearsal up $(STACK) --fresh $(IN_ACCOUNT)

.PHONY: rehearse-update
rehearse-update: $(REHEARSAL_NEEDS) ## The same on top of the last rehearsal: what a change of STACK's file would do
	@$(BIN)/python -m lab.rehearsal up $(STACK) $(IN_ACCOUNT)

.PHONY: rehearse-destroy
rehearse-destroy: $(REHEARSAL_NEEDS) ## Destroy the rehearsed STACK; UNPROTECT=1 gives up protected data first
	@$(BIN)/python -m lab.rehearsal destroy $(STACK) $(if $(UNPROTECT),--unprotect) $(IN_ACCOUNT)

.PHONY: rehearse-cancel
rehearse-cancel: .venv/runtime ## Remove the lock that a killed rehearsal of STACK left in its state, as `pulumi cancel` does
	@$(BIN)/python -m lab.rehearsal cancel $(STACK) $(IN_ACCOUNT)

.PHONY: kube
kube: .venv/dev ## Deploy, disturb and destroy STACK on a real control plane with stand-in nodes; SHORT=1 disturbs nothing
	@$(BIN)/python -m lab.kube $(STACK) $(if $(SHORT),--short)

.PHONY: e2e
e2e: .venv/dev ## Publish, preload, serve and ask STACK's model with the real vLLM on this machine's processors; SHORT=1 takes less
	@$(BIN)/python -m lab.e2e $(STACK) $(if $(SHORT),--short) $(if $(ONLY),--only $(ONLY))

.PHONY: check
check: .venv/dev ## Format, lint, types, units and every recorded stack: the inner loop, no CLI needed
	@echo "== format and lint"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@echo "== types, and at the same time the tests without the engine"
	@types=$$(mktemp); $(BIN)/basedpyright --level error > "$$types" & \
	code=0; $(BIN)/python -m pytest -q -m "not engine and not processes and not inputs and not long" -n auto --maxprocesses 8 --dist loadfile || code=$$?; \
	wait $$! || code=$$?; cat "$$types"; rm -f "$$types"; exit $$code

.PHONY: quick
quick: .venv/dev ## Format, lint and tests of one room in twenty seconds: AREA=preload, or paths; several in quotes
	@$(BIN)/python -m tests.quick $(AREA)

.PHONY: test
test: check ## The gate: check, the copier under faults, then every stack rehearsed on the real Pulumi engine
	@echo "== the copier with failing disks, killed, on real file systems; hostile inputs"
	@$(BIN)/python -m pytest -q -m "processes or inputs" -n auto --maxprocesses 8 --dist loadfile
	@echo "== the Pulumi CLI"
	@$(BIN)/python -m lab.rehearsal.pulumi_cli || { [ $$? = 3 ] && [ "$${CI:-}" != true ]; } # 3: none to be had here
	@echo "== tests on the real engine"
	@$(BIN)/python -m pytest -q -m engine

.PHONY: account
account: .venv/dev ## Fail and change stacks in an emulated account as AWS and people do, an hour; ONLY=failures or changes
	@$(BIN)/python -m lab.rehearsal.pulumi_cli && $(BIN)/python -m lab.provider.tool
	@$(BIN)/python -m pytest -q -m long $(if $(ONLY),tests/lab/rehearsal/engine/test_$(ONLY).py,tests/lab/rehearsal/engine)

.PHONY: bench
bench: .venv/runtime ## Measure preload against other tools, an hour and more, as root; ROWS="verify ..." measures some
	@$(BIN)/python -m lab.bench $(foreach row,$(ROWS),--row $(row))

.PHONY: soak
soak: .venv/dev ## Kill copies HITS times (200) and publishers 50 times, compare every byte, print lines for docs; three minutes
	@$(BIN)/python -m tests.workloads.preload.soak --hits $(or $(HITS),200)
	@$(BIN)/python -m tests.workloads.publish.torment

.PHONY: preload.pyz
preload.pyz: ## Write the copier as one file, build/preload.pyz, for use without this program (docs/preload.md)
	@mkdir -p build && $(PYTHON) -m workloads.programs preload build/preload.pyz && echo build/preload.pyz

.PHONY: format
format: .venv/dev ## Format the code and mend what the linter can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: docs
docs: .venv/runtime ## Write the stack files' key reference again, docs/benchmarks.md from the last bench, docs/timeline.svg from STACK's e2e
	@mkdir -p build && $(BIN)/python -m infra.settings.key_reference > build/keys.md && mv build/keys.md stacks/README.md
	@$(BIN)/python -m lab.bench.page
	@if [ -e build/e2e/$(STACK)/timeline.svg ]; then cp build/e2e/$(STACK)/timeline.svg docs/timeline.svg; fi

.PHONY: pin-images
pin-images: .venv/runtime ## Ask the registries what the images' tags stand for and write stacks/images.lock.json; commit it
	@$(BIN)/python -m ops.pins

.PHONY: remove-revision
remove-revision: .venv/runtime ## Say whether REVISION of MODEL may go from STACK's file system, and with YES=1 remove it
	@$(BIN)/python -m ops.revisions "$(STACK)" "$(MODEL)" "$(REVISION)" $(if $(YES),--yes)

.PHONY: golden
golden: .venv/dev ## Write the golden files again: user data, URNs, what an upgrade changes; read the difference before you commit it
	@FASTSTART_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q -m "not engine and not long" tests/infra/test_user_data.py tests/program/test_urns.py
	@FASTSTART_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q -m engine tests/lab/rehearsal/engine/test_released.py

.PHONY: release
release: .venv/runtime ## Keep the states that the program makes of all stacks as those of VERSION (lab/rehearsal/released/)
	@$(BIN)/python -m lab.rehearsal.release "$(VERSION)"

.PHONY: lock
lock: ## Resolve requirements*.in again into requirements*.txt, with hashes
	@test -x build/uv/bin/uv || { $(PYTHON) -m venv build/uv && build/uv/bin/pip install --quiet uv==$(UV_VERSION); }
	@while read -r name options; do \
	  build/uv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url $$options \
	    --custom-compile-command "make lock" --output-file $$name.txt $$name.in; \
	done <<< "$$LOCKS"

.PHONY: clean
clean: ## Remove what the targets made in this folder; the cache of built tools stays
	@rm -rf .venv build .pytest_cache .ruff_cache .hypothesis
