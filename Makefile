# make help lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

GO ?= go
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
VENV := .venv
FUZZTIME ?= 10s
TESTFLAGS ?=
BENCHFLAGS ?=
PYTESTFLAGS ?=
HOUSEFLAGS ?=

# The file VERSION on the commit with its tag, v0.1.0; elsewhere 0.1.0-dev0+g<commit>, which sorts before it. Python
# writes the latter as 0.1.0.dev0+g<commit>.
VERSION := $(shell cat VERSION)
ifneq ($(shell git describe --exact-match --dirty --match v$(VERSION) 2>/dev/null),v$(VERSION))
VERSION := $(VERSION)-dev0+$(shell git describe --always --exclude '*' --abbrev=12 --dirty=.dirty 2>/dev/null | sed s/^/g/ | grep . || echo unknown)
endif
BIN ?= bin/shardtool

# One set of flags for all targets: what one has compiled, the others find in the build cache. The race detector needs cgo.
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath

# Pinned: a new release of a checker must not fail a build that passed yesterday.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# ./... leaves folders named testdata out.
PACKAGES := ./... ./testdata

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the static binary, bin/shardtool
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X github.com/shardtool/shardtool/internal/sys/build.Stamp=$(VERSION)' -o "$(BIN)" ./cmd/shardtool

.PHONY: version
version:
	@echo $(VERSION)

# The same commit, Go and zlib give the same bytes.
.PHONY: wheel
wheel: $(VENV)-wheel/ready ## the Python package with the binary inside, dist/*.whl; GOOS=darwin or linux, GOARCH=arm64 or amd64
	@mkdir -p dist && find dist -name 'shardtool-*.whl' ! -name 'shardtool-$(subst -dev,.dev,$(VERSION))-*' -delete
	cd python && SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" ../$(VENV)-wheel/bin/python -m hatchling build -t wheel -d ../dist

RELEASES := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64
.PHONY: release
release: ## binaries for linux and darwin, wheels, SBOM and checksums, in dist/release
	rm -rf dist/release && mkdir -p dist/release
	for target in $(RELEASES); do \
		GOOS=$${target%-*} GOARCH=$${target#*-} $(MAKE) --no-print-directory build BIN=dist/release/shardtool-$$target; done
	for target in $(RELEASES); do GOOS=$${target%-*} GOARCH=$${target#*-} $(MAKE) --no-print-directory wheel; done
	cp dist/*.whl dist/release/
	$(GO) run .ci/sbom.go dist/release/shardtool-linux-amd64 > dist/release/shardtool.cdx.json
	cd dist/release && sha256sum * > SHA256SUMS

IMAGE ?= shardtool
ENGINE ?= $(if $(shell command -v podman),podman,docker)
.PHONY: image
image: ## the container image, with podman or docker; pass flags of its build in IMAGEFLAGS
	$(ENGINE) build -f deploy/Containerfile --build-arg VERSION=$(VERSION) -t $(IMAGE):$(subst +,-,$(VERSION)) $(IMAGEFLAGS) .

.PHONY: man
man: build ## a man page for each command, dist/man1; show one with man -l dist/man1/shardtool-pack.1
	SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct 2>/dev/null || echo 0)" "$(BIN)" man --dir dist/man1

.PHONY: demo
demo: build ## pack a small data set of images, look at it, read every sample back
	@bash testdata/demo.sh bin/shardtool

.PHONY: screenshots
screenshots: build ## draw the pictures of docs/viewing.md (needs Chromium)
	@.ci/screenshots bin/shardtool

.PHONY: notes
notes: ## what CHANGELOG.md has of the version in VERSION; CONTRIBUTING.md says how a release is made
	@$(GO) run .ci/notes.go

.PHONY: test
test: ## every test; lists the tests left out with the reasons, and ends with a line of counts
	@echo "make test: every test, in about ten minutes on two idle cores. Go fetches modules that are not on this machine yet: that needs a network."
	@{ rc=0; $(GO) test -json -timeout 30m $(TESTFLAGS) $(PACKAGES) || rc=$$?; \
		cd test/outside && $(GO) test -json -count=1 $(TESTFLAGS) ./... || rc=$$?; exit $$rc; } | $(GO) run .ci/count.go

.PHONY: corpora
corpora: ## test files of other projects (a part of make test); CORPORA=DIR takes whole clones of them, too
	$(if $(CORPORA),CORPORA="$$(cd "$(CORPORA)" && pwd)") $(GO) test -count=1 -timeout 60m $(TESTFLAGS) -run '^TestCorpora' ./cmd/shardtool

.PHONY: race
# The packages whose own files start goroutines, and the cache, which processes share; the commands start theirs in
# packages of their own. -short and -skip: what one goroutine does bit by bit, every way to read once, and what a killed
# process leaves, has no races, and what counts memory or hits says nothing here; make test does all of it. -vet=off: make lint vets the same files. -p 3: the tests of stores mostly wait. Without GORACE each
# of hundreds of processes sleeps a second before it ends.
race: ## the tests of concurrent code under the race detector, long enumerations shortened (needs a C compiler)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -short -timeout 30m -vet=off -p 3 -skip '^(TestPurge|TestNoPathDelivers|TestSameBytes|TestFormsAgain|TestFeaturesAgain|TestFeaturesHostile|TestHitRate|TestRowsMemory|TestGetAllocates|TestLateKinds|TestArrowDamaged|TestFlips|TestFooters|TestFetches|TestCostsBalance|TestCostsReference|TestCachedHalf|TestLargeOpen|TestSmallSamples|TestRankRequests|TestSameBytesSpilled)$$' $(TESTFLAGS) ./objstore/cache \
		$$($(GO) list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do \
			if ls "$$dir"/*.go | grep -v _test.go | xargs grep -qE '^[^/]*(\<go (func|[A-Za-z.]+\()|\.Go\()'; then echo "$$package"; fi; done | grep -v /cmd/shardtool$$)

.PHONY: fuzz
# One binary for all targets of a package; with FUZZTHIRD=0, 1 or 2 only a third of the packages. Sometimes it calls the
# end of FUZZTIME itself a failure ("context deadline exceeded", without a failing input).
fuzz: ## every fuzz target in turn, each for FUZZTIME (10s)
	@work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	cache=$$($(GO) env GOCACHE)/fuzz; \
	$(GO) list -f '{{.ImportPath}} {{.Dir}}' ./... | { n=0 packages=0; while read -r package dir; do \
		grep -qs '^func Fuzz' "$$dir"/*_test.go || continue; \
		packages=$$((packages + 1)); \
		[ -z "$(FUZZTHIRD)" ] || [ "$$((packages % 3))" = "$(FUZZTHIRD)" ] || continue; \
		$(GO) test -vet=off -fuzz . -c -o "$$work/fuzz.test" "$$package" </dev/null; \
		for target in $$(cat "$$dir"/*_test.go | sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p'); do \
			n=$$((n + 1)); ok=0; \
			echo "fuzz $$package $$target for $(FUZZTIME)"; \
			(cd "$$dir" && "$$work/fuzz.test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 1s \
				-test.fuzzcachedir "$$cache/$$package") </dev/null >"$$work/log" 2>&1 || ok=$$?; \
			tail -n 3 "$$work/log"; \
			if [ "$$ok" != 0 ] && { ! grep -q 'context deadline exceeded' "$$work/log" || grep -q 'Failing input' "$$work/log"; }; then \
				cat "$$work/log"; exit 1; \
			fi; \
		done; \
	done; \
	echo "$$n fuzz targets"; }

.PHONY: vet
vet: ## the types of everything as on macOS, and go vet of the tools; golangci-lint vets the rest
	$(GO) run .ci/types.go darwin $(PACKAGES)
	for tool in .ci/*.go; do $(GO) vet $$tool; done

.PHONY: lint
lint: ## gofmt, vet, golangci-lint with staticcheck and the import rules
	$(GO) run .ci/licenses.go -check
	$(GO) run .ci/notes.go -check
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(MAKE) --no-print-directory vet
	$(GO) run $(GOLANGCI_LINT) run $(PACKAGES)
	for module in $(MODULES); do \
		(cd $$module && $(GO) mod tidy -diff) || { echo "$$module/go.mod: run make tidy, and commit what it changes"; exit 1; }; done
	for module in test test/outside; do (cd $$module && $(GO) run $(GOLANGCI_LINT) run ./...); done

MODULES := . test test/outside
.PHONY: tidy
tidy: ## go.mod and go.sum of all modules, after an import of a module has changed
	for module in $(MODULES); do (cd $$module && $(GO) mod tidy); done

.PHONY: licenses
licenses: ## the licences of all modules in the binary, cmd/shardtool/licenses.txt; run it after changing go.mod
	$(GO) run .ci/licenses.go

.PHONY: house
house: ## the structure of the code: lines by package and folder, floors, exports, arrows up, large structs; HOUSEFLAGS=-graph: imports
	@$(GO) run .ci/house.go $(HOUSEFLAGS)

# The module in test has the S3 servers as dependencies, so that go.mod does not.
.PHONY: test-s3
test-s3: ## the stores with S3 servers, and over bad networks
	cd test && $(GO) vet ./... && $(GO) test -vet=off -timeout 30m $(TESTFLAGS) $$($(GO) list ./... | grep -v -e /slurm -e /kubernetes)

.PHONY: test-view
test-view: ## the pages of shardtool view in headless Chromium, with axe-core (needs Chromium and npm)
	cd test && $(GO) test -vet=off -count=1 -timeout 30m -tags browser $(TESTFLAGS) ./browser

.PHONY: bench-view
bench-view: ## times of the pages of shardtool view, and their requests to a store (makes 10^7 samples in $VIEW_DATA)
	$(GO) test -run '^$$' -bench Pages -benchtime 5x -timeout 30m ./cmd/shardtool/internal/view

AZURITE := .cache/azurite

.PHONY: test-azurite
test-azurite: ## az:// with Azurite, which it installs (needs npm); .ci/run leaves it out
	npm install --silent --no-save --prefix $(AZURITE) azurite@3.35.0
	cd test && SHARDTOOL_AZURITE="$(CURDIR)"/$(AZURITE)/node_modules/.bin/azurite-blob $(GO) test -vet=off $(TESTFLAGS) -run Azurite ./stores

.PHONY: test-slurm
test-slurm: ## deploy: pack under a private Slurm (needs slurm-wlm and munge), check the manifests for Kubernetes
	cd test && $(GO) test -vet=off -count=1 -timeout 30m $(TESTFLAGS) ./slurm ./kubernetes

.PHONY: python
python:
	@$(PYTHON) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || { \
		echo "this needs Python 3.9 or newer with venv, and '$(PYTHON)' is not that: install it (Debian: python3-venv), or give PYTHON=..." >&2; exit 1; }

$(VENV)-wheel/ready: python/requirements-wheel.txt | python
	$(PYTHON) -m venv --clear $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# numpy and torch are those of the system if it has them, such as Debian's python3-torch: pip's packages have gigabytes.
$(VENV)/ready: python/requirements-test.txt python/requirements-wheel.txt python/requirements-torch.txt | python
	$(PYTHON) -m venv --clear --system-site-packages $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	if $(VENV)/bin/python -c 'import torch' 2>/dev/null; then \
		$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r python/requirements-torch.txt; fi
	@touch $@

# A process for each processor, and one more, since tests wait for processes and stores as long as they compute; 4 at most.
PYTESTS = $(shell n=$$(( $$(nproc 2>/dev/null || echo 2) + 1 )); echo $$(( n < 4 ? n : 4 )))
.PHONY: test-python
test-python: build $(VENV)/ready ## the Python package: ruff, mypy and its tests, also of the wheel; pass flags of pytest in PYTESTFLAGS (-n 0: in one process)
	cd python && ../$(VENV)/bin/ruff check && ../$(VENV)/bin/ruff format --check && ../$(VENV)/bin/mypy
	@$(MAKE) --no-print-directory test-portable
	cd python && SHARDTOOL_BINARY="$(CURDIR)/bin/shardtool" ../$(VENV)/bin/python -m pytest -n $(PYTESTS) --dist loadfile $(PYTESTFLAGS)

# What macOS runs, on any system: temporary files, pipes and ps in place of what only Linux has.
PORTABLE := robust writer samples image_fields peers torch_stop
.PHONY: test-portable
test-portable: build $(VENV)/ready ## the Python package without what only Linux has, as on macOS
	cd python && SHARDTOOL_PORTABLE=1 SHARDTOOL_BINARY="$(CURDIR)/bin/shardtool" ../$(VENV)/bin/python -m pytest -q -n $(PYTESTS) --dist loadfile \
		$(PORTABLE:%=tests/test_%.py)

.PHONY: test-torch
test-torch: build $(VENV)/ready ## only the tests with PyTorch; an error if it is missing
	cd python && SHARDTOOL_TEST_TORCH=1 SHARDTOOL_BINARY="$(CURDIR)/bin/shardtool" ../$(VENV)/bin/python -m pytest $(PYTESTFLAGS) tests/test_torch_*.py

.venv-frameworks/ready: python/requirements-frameworks.txt $(VENV)/ready
	$(PYTHON) -m venv --system-site-packages .venv-frameworks
	.venv-frameworks/bin/pip install --quiet --disable-pip-version-check $$(grep '^pytest==' python/requirements-test.txt)
	.venv-frameworks/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

.PHONY: test-frameworks
test-frameworks: build .venv-frameworks/ready ## the snippets of docs/pytorch.md: Lightning, transformers, Accelerate
	cd python && SHARDTOOL_BINARY="$(CURDIR)/bin/shardtool" ../.venv-frameworks/bin/pytest $(PYTESTFLAGS) tests/frameworks.py

.venv-compat/ready: python/requirements-compat.txt python/requirements-recipes.txt bench/mosaicml.txt
	$(PYTHON) -m venv --clear .venv-compat
	.venv-compat/bin/pip install --quiet --disable-pip-version-check -r $<
	.venv-compat/bin/pip install --quiet --disable-pip-version-check --no-deps -r bench/mosaicml.txt
	@touch $@

.PHONY: test-compat
test-compat: build .venv-compat/ready ## the suite and training jobs on current releases (6 GB of packages), and docs/compatibility.md; PARTS=... for some
	$(PYTHON) python/compat.py .venv-compat $(PARTS)

.venv-recipes/ready: python/requirements-recipes.txt
	$(PYTHON) -m venv --clear .venv-recipes
	.venv-recipes/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: test-recipes
test-recipes: build .venv-recipes/ready ## the programs of docs/other-formats.md and those that pack prints, with their libraries, and batches in polars and duckdb
	cd python && SHARDTOOL_BINARY="$(CURDIR)/bin/shardtool" PYTHONPATH=src ../.venv-recipes/bin/python -m pytest $(PYTESTFLAGS) tests/test_recipes.py tests/test_folder_layouts.py \
		tests/test_arrow_consumers.py tests/test_column_forms.py

.venv-engines/ready: python/requirements-engines.txt
	$(PYTHON) -m venv --clear .venv-engines
	.venv-engines/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: test-engines
test-engines: build .venv-engines/ready ## optimize and annotate on Ray, Dask and Spark on this machine, with workers killed (needs Java 17)
	cd python && SHARDTOOL_BINARY="$(CURDIR)/bin/shardtool" PYTHONPATH=src:tests ../.venv-engines/bin/python -m pytest $(PYTESTFLAGS) tests/engines.py

.PHONY: test-kills
KILLS ?= 100
test-kills: build $(VENV)/ready ## Writer, optimize, annotate, layer add, remove and purge, killed at 100 random points each or KILLS=... (their tests take a dozen)
	SHARDTOOL_TEST_KILLS=$(KILLS) $(GO) test -count=1 -v -timeout 60m -run '^TestKilled(Removal|Pairs)$$' ./cmd/shardtool
	cd python && SHARDTOOL_TEST_KILLS=$(KILLS) SHARDTOOL_BINARY="$(CURDIR)/bin/shardtool" ../$(VENV)/bin/python -m pytest $(PYTESTFLAGS) -k test_killed tests/test_writer_kills.py tests/test_optimize.py tests/test_annotate.py

.PHONY: demo-s3
demo-s3: build ## the demo on a private S3 server
	@cd test && $(GO) run ./cmd/s3demo -C .. bash testdata/demo-s3.sh bin/shardtool

.PHONY: bench-s3
bench-s3: ## measure reading from S3 alone; pass flags in BENCHFLAGS
	cd test && $(GO) run ./bench $(BENCHFLAGS)

PEERS ?= .venv-peers

$(PEERS)/ready: bench/requirements.txt bench/mosaicml.txt
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -r $<
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r bench/mosaicml.txt
	@touch $@

.PHONY: bench
bench: $(PEERS)/ready ## measure what has a goal, also from S3, in one table; installs other systems once (6 GB); pass flags in BENCHFLAGS (-old REVISION compares)
	$(GO) run ./bench -python $(abspath $(PEERS))/bin/python $(BENCHFLAGS)

.PHONY: soak
soak: ## a consumer of S3 that needs 90 % of the maximum rate, for ten minutes: its waits and memory
	cd test && $(GO) run ./bench -run paced -long 10m $(BENCHFLAGS)

.PHONY: benchmarks
benchmarks: $(PEERS)/ready ## measure other systems too, and put the tables into docs/benchmarks.md and bench/; pass flags in BENCHFLAGS
	$(GO) run ./bench -python $(abspath $(PEERS))/bin/python -run peers,strings -markdown docs/benchmarks.md,bench/PEERS.md,bench/GOALS.md $(BENCHFLAGS)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist out .cache .venv coverage.*
