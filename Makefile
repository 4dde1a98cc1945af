# Copyright 2026 The Refold Authors
# SPDX-License-Identifier: Apache-2.0

# Variables that a caller may set, with their defaults.
ACCOUNTS  ?= 1000
COMMANDS  ?= 100000
SEED      ?= 1
JOURNAL   ?= leveldb:bank-data
PKG       ?= ./...
BENCH     ?= .
BENCHTIME ?= 1s
FUZZTIME  ?= 30s
SOAK      ?= .
SOAKTIME  ?= 10m
MUTANTS   ?=
SEEDS     ?=
IMAGES    ?= tmp/pages
BASE      ?=

# The directory of Go's own installation instructions, in case it is not in the path.
export PATH := $(PATH):/usr/local/go/bin
# An account without a home directory still needs a directory for caches.
ifeq ($(shell test -d "$$HOME" && test -w "$$HOME" && echo yes),)
export HOME := $(shell echo "$${TMPDIR:-/tmp}/refold-home-$$(id -u)" && mkdir -p "$${TMPDIR:-/tmp}/refold-home-$$(id -u)")
endif
# No version stamps: git refuses to run in a checkout of another owner. No paths: all checkouts on a machine share the
# build cache.
export GOFLAGS := $(GOFLAGS) -buildvcs=false -trimpath

# The address of a database may hold a password, so commands receive it in the environment.
ifneq ($(filter postgres://% postgresql://%,$(JOURNAL)),)
export REFOLD_POSTGRES := $(JOURNAL)
override JOURNAL := postgres:
endif
# Without an address, the target runs a private server.
PRIVATE := $(if $(REFOLD_POSTGRES)$(PGHOST)$(PGHOSTADDR)$(PGSERVICE)$(PGDATABASE),,$(filter postgres: postgresql:,$(JOURNAL)))

# The bank on an embedded journal needs neither PostgreSQL nor NATS, which take most of the time to compile.
EMBEDDED := $(filter leveldb:% inmem:%,$(JOURNAL))

LINT := go tool -modfile=tools/go.mod golangci-lint
# Tests of package leveldb in which writes fail while the engine compacts. The engine has a data race in this case, so
# these tests do not compact under the race detector.
COMPACTING := PowerCut|FailedChange|Crash|FullDisk
AT   := $(if $(filter-out leveldb:bank-data,$(JOURNAL)), --journal $(JOURNAL))
FILE := tmp/bank-$(ACCOUNTS)x$(COMMANDS)-$(SEED).csv

.PHONY: help
help: ## list the targets
	@echo 'make TARGET [VARIABLE=value]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: bank
bank: need-go $(if $(PRIVATE),need-postgres) ## run the bank: 100,000 commands on 1,000 accounts, then the audit (ACCOUNTS, COMMANDS, SEED, JOURNAL)
	@mkdir -p bin tmp
	@go build $(if $(EMBEDDED),-tags embedded) -o bin/bank ./examples/bank
	@test -s $(FILE) || { bin/bank generate --accounts $(ACCOUNTS) --commands $(COMMANDS) --seed $(SEED) > $(FILE).part && mv $(FILE).part $(FILE); }
ifeq ($(PRIVATE),)
	bin/bank apply $(FILE) --journal $(JOURNAL)
	bin/bank audit --journal $(JOURNAL)
	@printf '\nThe audit found no difference. Try next$(if $(filter postgres:,$(JOURNAL)), with REFOLD_POSTGRES set to the address of the database):\n'
	@printf '%s\t%s\n' \
		'make bank$(if $(AT), JOURNAL=$(JOURNAL))' 'each command is executed once' \
		'bin/bank statement a00001$(AT)' 'the history of an account' \
		'bin/bank lookup a00001 --at-seq 5$(AT)' 'its state after five events' \
		"bin/bank refold events 'account|a00001'$(AT)" 'its events in the journal' \
		"bin/bank refold rebuild 'account|a00001'$(AT)" 'replay its events and compare the state' \
		'bin/bank refold verify$(AT)' 'check the journal for gaps and damage' \
		'make bank SEED=2$(if $(AT), JOURNAL=$(JOURNAL))' 'execute 100,000 more commands' \
		$(if $(AT),,'make clean' 'remove the data and start over') | \
		awk -F '\t' '{call[NR] = $$1; text[NR] = $$2; if (length($$1) > width) width = length($$1)} \
			END {for (i = 1; i <= NR; i++) printf "  %-" width "s  %s\n", call[i], text[i]}'
else
	go run ./cmd/refold/internal/withpostgres sh -c 'bin/bank apply $(FILE) --journal $(JOURNAL) && bin/bank audit --journal $(JOURNAL)'
	@printf '\nThe audit found no difference. The private server and its data are removed. To use your own server:\n'
	@printf '  make bank JOURNAL="postgres://USER@HOST/DATABASE?sslmode=verify-full"\n'
endif

# Many tests wait for nodes that join and for servers, so more packages run at a time than there are cores. make check
# runs vet. Without debug information, the tests compile a fifth faster and the 77 test programs link a third faster.
# The compiler's flag is in GOFLAGS, because all go commands must use it to share compiled packages.
TESTFLAGS := -vet=off -ldflags=-w -shuffle=on
check test quick browser screenshots: export GOFLAGS := $(GOFLAGS) -gcflags=github.com/refold-io/refold/...=-dwarf=false
PARALLEL := $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))
# The tests of the pages in a browser. They have a module of their own, whose tests build and start the bank. With the
# race detector, make test has compiled most of it before.
BROWSERTEST = REFOLD_IMAGES='$(abspath $(IMAGES))' GOFLAGS="$$GOFLAGS -race" go -C internal/browsertest test -ldflags=-w -shuffle=on -count=1 -timeout=15m
# The tests of deploy/. They have a module of their own, whose tests build the bank as the image does.
DEPLOYTEST = go -C internal/deploytest test -vet=off -ldflags=-w -shuffle=on -count=1 -timeout=15m
# The packages with the longest tests run first, so that no core is idle at the end.
LONGEST = $(if $(filter ./...,$(PKG)),./plugins/postgres ./plugins/leveldb ./sharding ./examples/bank)

.PHONY: quick
quick: need-go ## run the tests that need no server, in about a minute: no PostgreSQL, no C compiler, no root
	@go test $(TESTFLAGS) -short -p $(PARALLEL) -timeout=10m $$(.ci/need without-postgres ./...)

.PHONY: test
test: need-go ## run all tests with the race detector, in random order (PKG); root on Debian installs missing packages unless PKG is set
	@INSTALL=$(if $(filter ./...,$(PKG)),yes) .ci/need tests $(PKG)
	go test $(TESTFLAGS) -race -p $(PARALLEL) -timeout=20m $(LONGEST) $(PKG)
ifneq ($(filter ./... ./plugins/leveldb,$(PKG)),)
	@echo '== without the race detector: failed writes during compactions'
	go test $(TESTFLAGS) -timeout=10m -run '$(COMPACTING)' ./plugins/leveldb
endif
ifeq ($(PKG),./...)
	@echo '== the documentation site'
	go -C internal/site test -ldflags=-w -shuffle=on .
	@echo '== the console and the page of the bank in a headless Chromium (images in $(IMAGES))'
	$(BROWSERTEST) .
	@echo '== the files of deploy/, and a rolling restart with them'
	$(DEPLOYTEST) .
endif

.PHONY: check
check: format vet lint tidy rules ## check formatting, vet, lint, go.mod and the rules about the source (make -k check runs all of them)

.PHONY: format vet lint tidy rules
format: need-go
	@echo '== format (make fmt repairs it)'
	@$(LINT) fmt --diff
vet: need-go
	@echo '== vet and build'
	@go vet ./...
	@go build -o /dev/null ./...
lint: need-go
	@echo '== lint'
	@$(LINT) run
tidy: need-go
	@echo '== go.mod'
	@go mod tidy -diff
rules: need-go
	@echo '== rules about the source'
	@go test ./internal/archtest ./internal/mutants

.PHONY: fmt
fmt: need-go ## format the source
	$(LINT) fmt

.PHONY: bench
bench: need-go need-postgres ## run the benchmarks (PKG, BENCH, BENCHTIME)
	go test -run='^$$' -bench='$(BENCH)' -benchmem -benchtime=$(BENCHTIME) $(PKG)

.PHONY: fuzz
fuzz: need-go ## fuzz every decoder for a while (PKG, FUZZTIME=30s each)
	@.ci/fuzz '$(FUZZTIME)' $(PKG)

.PHONY: site
site: need-go ## write the documentation as HTML to bin/site: for a browser or any web server
	@go -C internal/site run . ../.. ../../bin/site

.PHONY: browser screenshots
browser: need-go need-cc need-chromium ## use the console and the page of the bank in a headless Chromium (IMAGES=folder for images of the pages)
	$(BROWSERTEST) -v .
screenshots: override IMAGES := docs/images/console
screenshots: need-go need-cc need-chromium ## take the images of the pages in docs/images/console
	$(BROWSERTEST) -run='TestBank|TestPages|TestProjection' .

.PHONY: soak
soak: need-go need-cc need-postgres ## run all tests at their full counts: kills, histories, late commits; one to two hours (PKG, SOAK=test names)
	go test -race -count=1 -timeout=1h ./eventsourcing -refold.histories=200 -refold.late=1000
	REFOLD_SOAK=1 go test -race -shuffle=on -count=1 -timeout=3h -run '$(SOAK)' $(PKG)
	@echo '== without the race detector: the tests of code without concurrency'
	go list -f '{{.Dir}}' $(PKG) | while read -r dir; do grep -qs 'effort\.Count[[(]' "$$dir"/*_test.go && echo "$$dir"; done | \
		REFOLD_SOAK=1 xargs -r go test -shuffle=on -count=1 -timeout=3h -run '$(SOAK)'
	REFOLD_SOAK=1 go test -shuffle=on -count=1 -timeout=1h -run '$(COMPACTING)' ./plugins/leveldb
	@echo '== a rolling restart under 2,000 commands a second'
	REFOLD_SOAK=1 $(DEPLOYTEST) -v -run=TestRollingRestart .

.PHONY: soak-cluster
soak-cluster: need-go need-postgres ## kill, stop and drain three processes of the bank for SOAKTIME=10m with each state store, with and without standbys, then audit
	REFOLD_SOAK=1 REFOLD_SOAK_TIME=$(SOAKTIME) go test -v -count=1 -timeout=2h -run 'TestProcessesUnderFaults' ./examples/bank

.PHONY: sim
sim: need-go ## simulate clusters: SEEDS=300 of them, or print one (SEED=number)
ifeq ($(origin SEED),file)
	@go run ./internal/sim/run -seeds $(or $(SEEDS),300)
else
	@go run ./internal/sim/run -seed $(SEED)
endif

.PHONY: sim-large
sim-large: need-go ## simulate a rolling restart of 500 nodes, and 2,000 nodes that join while 100 crash; up to an hour (SEEDS=10)
	@mkdir -p bin
	@go build -o bin/sim ./internal/sim/run
	@failed=; REFOLD_SIM_LARGE=1 go -C internal/sim/rolling test -v -count=1 -timeout=1h -run=TestFigures || failed=1; echo; bin/sim -large 2000 -seeds $(or $(SEEDS),10) || failed=1; test -z "$$failed"

.PHONY: mutants
mutants: need-go need-postgres ## plant each known fault and require a test to fail (MUTANTS=name prefix)
	@go run ./internal/mutants/run $(MUTANTS)

.PHONY: apidiff
apidiff: need-go ## list the changes of the public API since the last release, or since BASE=commit
	@.ci/apidiff $(BASE)

.PHONY: vuln
vuln: need-go ## report known vulnerabilities in the code that this module calls; needs the network
	@.ci/vuln

.PHONY: clean
clean: ## remove the files that the other targets made
	rm -rf bin tmp bank-data

.PHONY: need-go need-cc need-postgres need-chromium
need-go:
	@.ci/need go
need-cc:
	@INSTALL=yes .ci/need cc
need-postgres:
	@INSTALL=yes .ci/need postgres
need-chromium:
	@INSTALL=yes .ci/need chromium
