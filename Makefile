# PodOps needs Go, make and git. Everything else is fetched, or built from the Go module
# proxy, into bin/: `make demo` and `make test` work on a fresh machine.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/bin
TOOLS := $(BIN)/tools

# The image of the manager that deploy installs.
IMG ?=

# YES=1 changes the cluster of deploy, undeploy, install and uninstall without a confirmation.
YES ?=

# kubectl from the local control plane when it was built, else the one of the user.
KUBECTL = $(or $(wildcard $(BIN)/kubectl),kubectl)

# The component with the alerts. A PrometheusRule has the groups of a file of rules in its spec.
ALERTS := config/components/alerts

# The compiler collects garbage for a quarter of its time by default, and writes what debuggers read
# for a fifth. Every build has the same flags, since each set of flags compiles all dependencies.
# `make build GOFLAGS=` builds a program to debug.
ifeq ($(MAKELEVEL),0)
export GOFLAGS := $(strip $(shell go env GOFLAGS) -gcflags=all=-dwarf=false)
endif
GO := GOGC=400 go

GO_DIRS := apis cmd config examples hack pkg policies test

# The sandbox starts children, each of which takes a second under the race detector, and its
# limits of memory have no meaning there. The search for absent facts evaluates thousands of
# inputs in one goroutine.
RACE_PACKAGES = $$(go list ./pkg/... | grep -v -e /pkg/engine/opa/sandbox -e /pkg/engine/opa/absence)

# Tests that measure the heap or the time of modules: the race detector multiplies both.
HEAP_TESTS = ^Test.*Heap$$
# Minutes: a part of test-hostile.
SLOW_TESTS = ^TestEveryBuiltinWithLargeArguments$$

# All but the suites, which have targets of their own.
UNIT_PACKAGES = $$(go list ./... | grep -v -e /test/clients -e /test/integration -e /test/processes -e /test/e2e -e /test/hostile -e /test/image -e /test/matrix -e /test/memlimit -e /test/upgrade -e /test/prometheus/live)

# The packages of the example operator and its store, likewise.
KVSTORE_PACKAGES = $$(go list -C examples/kvstore ./... | grep -v -e /demo -e /test/integration)

# Packages with property tests. Only their tests have the flag of the number of schedules.
PROPERTY_PACKAGES = $$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | awk '/pgregory.net\/rapid/ {print $$1}')

# All of the control plane but the program that links Kubernetes: its imports take minutes to
# check, and none of them is ours.
CONTROLPLANE_PACKAGES = . ./build/... ./cluster/... ./cmd/controlplane/... ./cmd/kubelets/... ./fetch/... ./filelock/... ./kubelet/... ./progress/... ./stages/...
TEST_ENV := PODOPS_BIN=$(BIN) KUBEBUILDER_ASSETS=$(BIN)

##@ General

.PHONY: help
help: ## List every target.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Try it

.PHONY: demo
demo: FIRST = go build -o $(BIN)/ ./cmd/manager ./test/demo
demo: kube ## Show a rollout under rules on a local control plane; ARGS=--help for options.
	$(BIN)/demo $(ARGS)

.PHONY: picture
picture: ## Run the demo, and draw its rollout into docs/images/rollout.svg, the picture of the README.
	$(MAKE) --no-print-directory demo ARGS='-picture docs/images/rollout.svg'

.PHONY: bench-view
bench-view: ## Measure a redraw of a view of 500 pods: the percentiles 50 and 95.
	go test -run '^$$' -bench Redraw -benchtime 300x ./pkg/view/rolloutview

.PHONY: demo-kvstore
demo-kvstore: build bin/demo-kvstore bin/kvstore-operator bin/kvstore controlplane ## Upgrade, roll back and delete a replicated store with the example operator; ARGS=-all for more.
	$(BIN)/demo-kvstore $(ARGS)

.PHONY: traffic
traffic: build bin/traffic controlplane ## Count requests that rollouts lose behind HAProxy; ARGS=--help for options.
	hack/haproxy >/dev/null
	$(BIN)/traffic $(ARGS)

.PHONY: cluster-up
cluster-up: FIRST = go build -o $(BIN)/ ./cmd/manager
cluster-up: kube ## Start a local control plane with PodOps installed; writes bin/kubeconfig.
	$(BIN)/controlplane up --bin $(BIN) --dir $(BIN)/cluster --kubeconfig $(BIN)/kubeconfig
	$(BIN)/kubectl --kubeconfig $(BIN)/kubeconfig apply --server-side --force-conflicts -k config/local
	KUBECONFIG=$(BIN)/kubeconfig hack/manager-kubeconfig $(BIN)/kubectl $(BIN)/manager.kubeconfig
	@echo
	@echo "next: make run, in another shell. Until it prints \"ready\", pods with the label kusionstack.io/control=true"
	@echo "      and PodTransitionRules cannot be created. Then: export KUBECONFIG=$(BIN)/kubeconfig"

.PHONY: cluster-down
cluster-down: controlplane ## End the local control plane and remove its files.
	$(BIN)/controlplane down --dir $(BIN)/cluster
	rm -f $(BIN)/manager.kubeconfig

# The local control plane, unless the environment has another cluster. Targets that change a cluster of a
# user take that of kubectl.
run: export KUBECONFIG ?= $(BIN)/kubeconfig

.PHONY: run
run: build ## Run the manager on this machine against KUBECONFIG; ARGS adds flags.
	hack/manager-kubeconfig $(KUBECTL) $(BIN)/manager.kubeconfig
	hack/run $(BIN)/manager $(BIN)/manager.kubeconfig $(ARGS)

##@ Develop

.PHONY: build
build: ## Build the manager into bin/.
	$(GO) build -o $(BIN)/manager ./cmd/manager

.PHONY: bin/kubectl-podops
bin/kubectl-podops: ## Build the kubectl plugin into bin/.
	@$(GO) build -C cmd/kubectl-podops -o $(BIN)/kubectl-podops .

.PHONY: generate
generate: $(TOOLS)/controller-gen ## Generate the deepcopy methods of the API types.
	$(TOOLS)/controller-gen object paths=./apis/...
	cd examples/kvstore && $(TOOLS)/controller-gen object paths=./apis/...

.PHONY: manifests
manifests: $(TOOLS)/controller-gen ## Generate the CRDs from the API types, and the PrometheusRule from the file of alerts.
	$(TOOLS)/controller-gen crd paths=./apis/apps/... output:crd:dir=config/crd/bases
	cd examples/kvstore && $(TOOLS)/controller-gen crd paths=./apis/... output:crd:dir=$(CURDIR)/examples/kvstore/config/operator/crd
	$(GO) run ./hack/crdbounds config/crd/bases/*.yaml examples/kvstore/config/operator/crd/*.yaml
	{ sed '/^spec:$$/q' $(ALERTS)/prometheusrule.yaml; sed -e '/^#/d' -e 's/^./  &/' $(ALERTS)/rules.yaml; } > $(ALERTS)/new
	mv $(ALERTS)/new $(ALERTS)/prometheusrule.yaml

.PHONY: docs
docs: ## Generate docs/flags.md, docs/metrics.md and docs/kubectl-podops from the manager and the verbs of the plugin.
	$(GO) run ./hack/flagsdoc docs/flags.md
	$(GO) run ./hack/metricsdoc docs/metrics.md
	$(GO) run -C cmd/kubectl-podops ./internal/reference $(CURDIR)/docs/kubectl-podops

.PHONY: chart
chart: bin/kubectl-podops ## Write the Helm chart in charts/podops from the manifests of the plugin and the flags of the manager.
	$(GO) run -C hack/chart . $(BIN)/kubectl-podops $(CURDIR)/charts/podops

.PHONY: budget
budget: ## Compare the size and the language of the code with hack/budget/budget.txt; ARGS=-lower lowers it.
	@$(GO) run ./hack/budget $(ARGS)

.PHONY: graph
graph: ## Print the imports between rooms; fails when one points upwards. ARGS=-packages prints those of each package.
	@$(GO) run ./hack/graph $(ARGS)

.PHONY: fmt
fmt: ## Format the Go sources.
	gofmt -s -w $(GO_DIRS)

.PHONY: vet
vet: ## Run go vet, which is a part of lint but for test/world.
	go vet ./...
	go vet -C test/controlplane $(CONTROLPLANE_PACKAGES)
	go vet -C pkg/adapters/alibabacloudslb ./...
	go vet -C examples/kvstore ./...
	go vet -C cmd/kubectl-podops ./...
	go vet -C test/browser ./...
	go vet -C test/world -tags defects ./...
	go vet -C hack/release ./...
	go vet -C hack/chart ./...

LINT = GOGC=200 $(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yaml
# The other linters check the imports of Kubernetes for minutes.
LINT_WORLD = $(LINT) --fast-only

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Run the linters.
	$(GO) run ./hack/words
	$(GO) run ./hack/links
	$(LINT)
	cd test/controlplane && $(LINT) $(CONTROLPLANE_PACKAGES)
	cd pkg/adapters/alibabacloudslb && $(LINT)
	cd examples/kvstore && $(LINT)
	cd cmd/kubectl-podops && $(LINT)
	cd test/browser && $(LINT)
	cd test/world && $(LINT_WORLD)
	cd hack/release && $(LINT)
	cd hack/chart && $(LINT)

.PHONY: verify
verify: generate manifests docs chart ## Generate, then check format, lint, manifests, and that the tree is clean.
	@unformatted=$$(gofmt -s -l $(GO_DIRS)); \
		test -z "$$unformatted" || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }
	$(GO) run ./hack/budget
	$(MAKE) --no-print-directory lint
	go test -vet=off ./config/...
	@test -z "$$(git status --porcelain)" || \
		{ echo "the tree differs from the last commit; is generated code missing?"; git status --short; git --no-pager diff; exit 1; }

.PHONY: bench
bench: bin/bench ## Compare rules in Rego with the same in Go; ARGS=-check fails on a missed goal.
	$(BIN)/bench $(ARGS)
	@echo "What a user's module costs, by what it reads:"
	go test -vet=off -run '^$$' -bench EvaluateCustom -benchtime 300x ./pkg/engine/opa

# Its own binary: a test may run at the same time.
.PHONY: bench-calls
bench-calls: kube build ## Show that dead approval services do not slow down other rules; fails above 2x.
	go test -vet=off -c -o $(BIN)/bench-calls.test ./test/e2e
	cd test/e2e && $(TEST_ENV) $(BIN)/bench-calls.test -test.timeout 30m -ginkgo.label-filter=bench

# Its own binary, too.
.PHONY: bench-events
bench-events: kube build ## Show that events do not slow down bursts of updates; fails above 15 %.
	go test -vet=off -c -o $(BIN)/bench-events.test ./test/e2e
	cd test/e2e && $(TEST_ENV) $(BIN)/bench-events.test -test.timeout 30m -ginkgo.label-filter=bench-events

# An API server alone: neither scheduler nor kubelets take processor time from the manager.
.PHONY: bench-scale
bench-scale: kube build bin/scale ## Measure the manager beside 10,000 pods; ARGS=-check fails on a missed goal.
	$(BIN)/scale --bin $(BIN) --dir $(BIN)/scale-run --manager $(BIN)/manager $(ARGS)

# The same lifecycles, by a program that decides nothing.
.PHONY: bench-floor
bench-floor: kube bin/scale bin/floor ## Measure what the transport of lifecycles costs without a manager.
	$(BIN)/scale --bin $(BIN) --dir $(BIN)/floor-run --manager $(BIN)/floor $(ARGS)

##@ Test

# Two lanes, since the end-to-end tests wait about half of their time: the others fill the gaps, one after the other and
# at a lower priority, because no kubelet waits for them. Each lane is one target: make starts what is ready, and with more
# targets the end-to-end tests, which wait for programs and take longest, would begin last.
.PHONY: test
test: FIRST = go build -o $(BIN)/ ./cmd/manager
test: kube ## Run the unit tests, and the stories on the local control plane, which the first run fetches or builds.
	$(MAKE) --no-print-directory --jobs=2 test-e2e test-beside

.PHONY: test-beside
test-beside:
	@$(MAKE) --no-print-directory BESIDE='nice -n 5' test-unit test-integration test-controlplane test-processes test-world-share

ifdef BESIDE
.NOTPARALLEL:
endif

# Two at a time, since each waits for most of its time; the longest first. test-hostile keeps a machine busy, so it is alone.
# test-upgrade and test-matrix are not among them: .ci/run calls both.
SUITES = test-race test-kvstore test-versions test-image test-long test-prometheus test-properties test-browser test-alerts

.PHONY: test-suites
test-suites: kube build ## Run the suites that are not part of .ci/run, two at a time.
	$(MAKE) --no-print-directory test-hostile
	$(MAKE) --no-print-directory --jobs=2 --output-sync=line $(SUITES)

# Without vet, which `make lint` runs on tests, too. A property test runs a fifth of its schedules: test-properties
# runs them all. Beside the end-to-end tests a package may take ten times as long as alone.
.PHONY: test-unit
test-unit: test-policies ## Run the unit tests and the Rego tests.
	$(BESIDE) go test -vet=off -short -timeout 30m -skip '$(SLOW_TESTS)' $(UNIT_PACKAGES)
	$(BESIDE) go test -C test/memlimit -vet=off # In its directory go test prints why it skips.
	$(BESIDE) go test -C pkg/adapters/alibabacloudslb -vet=off -timeout 30m ./...
	$(BESIDE) go test -C examples/kvstore -vet=off -short -timeout 30m $(KVSTORE_PACKAGES)
	$(BESIDE) go test -C cmd/kubectl-podops -vet=off -timeout 30m ./...
	$(BESIDE) go test -C hack/release -vet=off -timeout 30m ./...
	$(BESIDE) go test -C hack/chart -vet=off -timeout 30m ./...

# Apart from test: it compiles every dependency once more, and its tests take several times as long.
.PHONY: test-race
test-race: ## Run the unit tests of pkg with the race detector, which needs a C compiler.
	go test -vet=off -race -short -timeout 30m -skip '$(HEAP_TESTS)' $(RACE_PACKAGES)
	go test -C examples/kvstore -vet=off -race -short -timeout 30m ./pkg/operator/...

# How many schedules a property test runs.
CHECKS ?= 100

.PHONY: test-properties
test-properties: ## Run all schedules of the property tests, without the race detector; CHECKS=1000 for more of them.
	go test -vet=off -timeout 30m -skip '$(HEAP_TESTS)|$(SLOW_TESTS)' $(PROPERTY_PACKAGES) -rapid.checks=$(CHECKS)
	go test -C examples/kvstore -vet=off -timeout 30m ./pkg/operator/plan ./pkg/machine -rapid.checks=$(CHECKS)

# How many schedules of a whole cluster test-world plays, and the first seed.
SEEDS ?= 100
FROM ?= 1

# The limit of go test is that of a night.
.PHONY: test-world
test-world: ## Play stories and SEEDS=100 schedules of a whole cluster in virtual time; SEED=7 plays one, and prints its trace; TIMES=100 in as many processes.
	go test -C test/world -vet=off -count=1 -timeout 12h -v . $(if $(SEED),-run Schedules -seed $(SEED) -times $(or $(TIMES),1),-seeds $(SEEDS) -from $(FROM))

# The stories of no known defect, without the longest, and a few schedules.
.PHONY: test-world-share
test-world-share: ## Play the stories and a few schedules of a whole cluster in virtual time.
	$(BESIDE) go test -C test/world -vet=off -count=1 -timeout 20m -short ./...

# Each defect is a build of its own. DEFECT is a pattern of names of patches.
DEFECT ?= *

.PHONY: test-world-defects
test-world-defects: ## Build defects into PodOps, one at a time, and print which law of test-world finds each; DEFECT='scales-*' for some.
	$(GO) run -C test/world ./defects -defect '$(DEFECT)'

# The commands of a policy author on the policies of this repository, with the opa program and
# not with the engine. Only rules of users read the input that the schema describes.
.PHONY: test-policies
test-policies: $(TOOLS)/opa ## Format, check and test the Rego with the opa command.
	$(TOOLS)/opa fmt --list --fail policies
	$(TOOLS)/opa check --strict --capabilities policies/capabilities.json policies
	$(TOOLS)/opa check --strict --capabilities policies/capabilities.json --schema policies/schema/input.json policies/examples
	$(TOOLS)/opa test --capabilities policies/capabilities.json policies
	$(TOOLS)/opa fmt --list --fail examples/sharing
	$(TOOLS)/opa check --strict --capabilities policies/capabilities.json --schema policies/schema/input.json --ignore '*.yaml' examples/sharing
	$(TOOLS)/opa test --capabilities policies/capabilities.json --ignore '*.yaml' examples/sharing

.PHONY: test-integration
test-integration: kube bin/kubectl-podops ## Run the tests against a real API server.
	$(BESIDE) env $(TEST_ENV) go test -vet=off -count=1 -p 1 -timeout 20m ./test/integration/...
	$(BESIDE) env $(TEST_ENV) go test -C examples/kvstore -vet=off -count=1 -timeout 20m ./test/integration

.PHONY: test-controlplane
test-controlplane: kube ## Run the tests of the local control plane.
	$(BESIDE) env $(TEST_ENV) go test -C test/controlplane -vet=off -count=1 -p 1 -timeout 20m $(CONTROLPLANE_PACKAGES)

.PHONY: test-processes
test-processes: kube bin/kvstore ## Run the tests of pods that are real processes.
	$(BESIDE) env $(TEST_ENV) go test -vet=off -count=1 -timeout 20m ./test/processes

# Each process has a cluster of its own. Most of the time the stories wait, so test-e2e has more of them than processors.
# More garbage: with GOGC=400, 39 stories took 35 seconds instead of 42, and an API server 650 MB instead of 405.
E2E_PROCS ?= 2
E2E = $(TEST_ENV) GOGC=300 $(TOOLS)/ginkgo run --vet=off --procs=$(E2E_PROCS) --timeout=40m --poll-progress-after=0

.PHONY: test-e2e
test-e2e: E2E_PROCS = 3
test-e2e: kube build bin/adapter-template bin/kubectl-podops $(TOOLS)/ginkgo ## Run the end-to-end tests, except those of test-long.
	$(E2E) --label-filter='!/bench/ && !long' ./test/e2e

# The oldest version has minutes of compiling of its own, once.
.PHONY: test-versions
test-versions: kube-oldest build bin/kubectl-podops $(TOOLS)/ginkgo ## Run the main end-to-end tests on the oldest Kubernetes version that PodOps supports.
	PODOPS_CONTROLPLANE=$(BIN)/oldest $(E2E) --label-filter=main ./test/e2e

# One at a time: each keeps a machine busy.
.PHONY: test-long
test-long: E2E_PROCS = 1
test-long: kube build $(TOOLS)/ginkgo ## Run the end-to-end tests that take minutes.
	$(E2E) --label-filter=long ./test/e2e

# Its addresses and its control plane are its own.
.PHONY: test-kvstore
test-kvstore: build bin/kvstore-operator bin/kvstore controlplane ## Play the life of a store under load, and kill its operator at each write.
	$(TEST_ENV) go test -C examples/kvstore -vet=off -count=1 -timeout 30m -v ./demo

# Apart from test: its rows take nodes away, and wait for each other where machines are busy.
.PHONY: test-matrix
test-matrix: kube build ## Remove pods in every way on real controllers, and compare with docs/workloads.md; ARGS=-update writes it.
	go test -vet=off -c -o $(BIN)/matrix.test ./test/matrix
	cd test/matrix && $(TEST_ENV) $(BIN)/matrix.test -test.timeout 20m -test.v $(ARGS)

# Programs of other projects, each built in a module of its own: minutes, once.
CLIENTS = descheduler argo-rollouts lws kruise

.PHONY: test-clients
test-clients: kube build $(CLIENTS:%=$(BIN)/clients/%) ## Play stories of programs that remove pods beside PodOps, and compare with docs/workloads.md; ARGS=-update writes it.
	go test -vet=off -c -o $(BIN)/clients.test ./test/clients
	cd test/clients && $(TEST_ENV) $(BIN)/clients.test -test.timeout 20m -test.v -test.run '^TestClients$$' $(ARGS)

.PHONY: bench-waits
bench-waits: kube build ## Measure the requests of a stranger while 500 evictions wait; fails above twice their time. ARGS=-slower=0 only measures.
	go test -vet=off -c -o $(BIN)/clients.test ./test/clients
	cd test/clients && $(TEST_ENV) $(BIN)/clients.test -test.timeout 10m -test.v -test.run '^TestWaits$$' $(ARGS)

# Chromium comes from the packages of the distribution.
.PHONY: test-browser
test-browser: kube build bin/kubectl-podops ## Follow a rollout on the page of the plugin in Chromium; leaves pictures in bin/dashboard.
	CHROMIUM=$$(hack/chromium) && $(TEST_ENV) CHROMIUM=$$CHROMIUM go test -C test/browser -vet=off -count=1 -timeout 15m ./...

# Both programs of Prometheus come from the package of the distribution, unpacked.
.PHONY: test-alerts
test-alerts: ## Check the alerts, test when each fires and when it is silent, and compare them with their pages and the metrics.
	promtool=$$(hack/prometheus | tail -1) && for folder in $(ALERTS) examples/kvstore/alerts; do \
		$$promtool check rules $$folder/rules.yaml && $$promtool test rules $$folder/rules_test.yaml || exit 1; done
	go test -vet=off -count=1 ./test/prometheus

# The demo, scraped.
.PHONY: test-prometheus
test-prometheus: kube build bin/demo ## Evaluate alerts and dashboard in a Prometheus that scrapes the demo; leaves a picture in bin/prometheus.d.
	prometheus=$$(hack/prometheus | head -1) chromium=$$(hack/chromium) && cd test/prometheus/live && \
		$(TEST_ENV) PROMETHEUS=$$prometheus CHROMIUM=$$chromium go test -vet=off -count=1 -timeout 10m . $(ARGS)

# A memory cgroup of its own: the limit of the Deployment is part of what is tested.
.PHONY: test-hostile
test-hostile: kube build ## Attack a manager with 1 GiB of memory, and workers by each builtin; ARGS=-timed also checks a neighbour.
	go test -vet=off -c -o $(BIN)/hostile.test ./test/hostile
	cd test/hostile && $(TEST_ENV) $(BIN)/hostile.test -test.timeout 30m $(ARGS)
	go test -vet=off -count=1 -timeout 30m -v -run '$(SLOW_TESTS)' ./pkg/engine/opa/sandbox

# The previous release is built from the history of this repository.
.PHONY: test-upgrade
test-upgrade: kube build ## Upgrade from the previous release under load, kill leaders, and go back; prints the times of admission.
	go test -vet=off -c -o $(BIN)/upgrade.test ./test/upgrade
	previous=$$(hack/previous-release $(BIN)/previous) && cd test/upgrade && \
		$(TEST_ENV) PODOPS_PREVIOUS=$$previous $(BIN)/upgrade.test -test.timeout 15m

# A release of this machine's platform, of the working tree as it is. Where podman does not run, its images are
# unpacked, and run in a chroot.
.PHONY: test-image
test-image: kube bin/demo $(TOOLS)/release ## Roll the demo on the image and the manifests of a release, in a container; needs root.
	$(TOOLS)/release all -version v0.0.1-test -allow-dirty -platforms linux/$$(go env GOARCH) -out $(BIN)/image-dist
	PODMAN=$$(hack/podman $(BIN)/podman || true); $(TEST_ENV) PODMAN=$$PODMAN PODOPS_DIST=$(BIN)/image-dist \
		go test -vet=off -count=1 -timeout 8m -v ./test/image

##@ Release

# The version of a release; images of a working tree have one that names the commit.
VERSION ?=
# The registry and folder of the images.
REGISTRY ?= ghcr.io/podops-dev
# Platforms to build, such as linux/amd64; empty: all.
PLATFORMS ?=
RELEASE_FLAGS = -version '$(VERSION)' -registry '$(REGISTRY)' -platforms '$(PLATFORMS)' -out dist

# A release has the images: beside it, this target writes nothing.
.PHONY: image
image: $(or $(filter release,$(MAKECMDGOALS)),$(TOOLS)/release) ## Build the images into dist/; VERSION=, REGISTRY= and PLATFORMS= change them.
	$(if $(filter release,$(MAKECMDGOALS)),,$(TOOLS)/release image $(RELEASE_FLAGS))

.PHONY: release
release: $(TOOLS)/release ## Write a release into dist/; VERSION=v0.1.0 is required.
	$(TOOLS)/release all $(RELEASE_FLAGS) $(if $(ALLOW_DIRTY),-allow-dirty)

.PHONY: push
push: $(TOOLS)/release ## Push the images of dist/ to the registry in their names.
	$(TOOLS)/release push dist/*.tar

# KEY is a private key of cosign generate-key-pair, or of openssl; PODOPS_KEY_PASSWORD has its password.
KEY ?=
.PHONY: sign
sign: $(TOOLS)/release ## Sign the provenance of the release in dist/; KEY=cosign.key is required.
	$(TOOLS)/release sign -out dist -key '$(KEY)'

##@ Deploy

# These targets take the kubeconfig that kubectl takes, print cluster and context first, and wait for a
# confirmation before they change a cluster other than the local control plane.
CONFIRMED = $(if $(filter 1,$(YES)),--yes)

.PHONY: install
install: bin/kubectl-podops ## Install the CRDs into the cluster of kubectl; YES=1 confirms.
	@$(BIN)/kubectl-podops install --crds-only $(CONFIRMED) $(ARGS)

.PHONY: uninstall
uninstall: bin/kubectl-podops ## Remove the CRDs, and every rule with them; YES=1 confirms.
	@$(BIN)/kubectl-podops uninstall --crds-only $(CONFIRMED) $(ARGS)

.PHONY: deploy
deploy: image-given bin/kubectl-podops ## Install everything with the image IMG, into the cluster of kubectl; YES=1 confirms, ARGS=--help for options.
	@$(BIN)/kubectl-podops install $(addprefix --image=,$(IMG)) $(CONFIRMED) $(ARGS)

.PHONY: undeploy
undeploy: bin/kubectl-podops ## Leave every pod in service, then remove PodOps; YES=1 confirms, ARGS=--help for options.
	@$(BIN)/kubectl-podops uninstall $(CONFIRMED) $(ARGS)

.PHONY: image-given
image-given:
	@test -n "$(IMG)$(filter --help -h,$(ARGS))" || { \
		echo "make deploy needs an image that the nodes of the cluster can pull, or have: IMG=<registry>/podops-manager:<tag>" >&2; \
		echo "There is no published image: make image builds one." >&2; exit 1; }

# Built on demand. Go knows best what is up to date.

.PHONY: controlplane
controlplane:
	@$(GO) build -C test/controlplane -o $(BIN)/controlplane ./cmd/controlplane

# etcd, kube-apiserver, kubectl and so on, once: fetched, or built in minutes. FIRST is a command that is run
# beside the downloads. PODOPS_KUBE=fetch, PODOPS_KUBE=build and PODOPS_KUBE_MIRROR decide: see test/controlplane.
FIRST =
.PHONY: kube
kube: controlplane
	@$(BIN)/controlplane build --bin $(BIN) --first '$(FIRST)'

# The same of the oldest Kubernetes version, into bin/oldest.
.PHONY: kube-oldest
kube-oldest: kube
	@$(BIN)/controlplane build --oldest --bin $(BIN)

.PHONY: bin/bench
bin/bench:
	@$(GO) build -o $(BIN)/bench ./test/bench

# The adapter that authors of adapters copy.
.PHONY: bin/adapter-template
bin/adapter-template:
	@$(GO) build -o $(BIN)/adapter-template ./pkg/resourceconsist/adaptertest/template

.PHONY: bin/demo
bin/demo:
	$(GO) build -o $(BIN)/demo ./test/demo

.PHONY: bin/demo-kvstore
bin/demo-kvstore:
	$(GO) build -C examples/kvstore -o $(BIN)/demo-kvstore ./demo

.PHONY: bin/kvstore-operator
bin/kvstore-operator:
	$(GO) build -C examples/kvstore -o $(BIN)/kvstore-operator ./cmd/kvstore-operator

.PHONY: bin/traffic
bin/traffic:
	$(GO) build -o $(BIN)/traffic ./test/traffic

.PHONY: bin/scale
bin/scale:
	@$(GO) build -o $(BIN)/scale ./test/scale

.PHONY: bin/floor
bin/floor:
	@$(GO) build -o $(BIN)/floor ./test/scale/floor

# The key-value store of the example operator, and its load generator, in a module of their own.
.PHONY: bin/kvstore
bin/kvstore:
	@$(GO) build -C examples/kvstore -o $(BIN)/ ./cmd/kvstore ./cmd/kvstore-load

# An approval service to try webhook rules with; --help lists its options.
.PHONY: bin/approvals
bin/approvals:
	$(GO) build -o $(BIN)/approvals ./test/approvals/cmd/approvals

# A module of its own, so that its dependencies do not move those of the other tools.
$(TOOLS)/opa: hack/opa/go.mod hack/opa/go.sum
	$(GO) build -C hack/opa -o $@ github.com/open-policy-agent/opa

$(BIN)/clients/%: test/clients/%/go.mod test/clients/%/go.sum
	$(GO) build -C test/clients/$* -o $@ $$(go list -C test/clients/$* -f '{{.ImportPath}}' tool)

# Go knows best whether the sources have changed.
.PHONY: $(TOOLS)/release
$(TOOLS)/release:
	@$(GO) build -C hack/release -o $@ .

$(TOOLS)/ginkgo: go.mod
	$(GO) build -o $@ github.com/onsi/ginkgo/v2/ginkgo

$(TOOLS)/%: hack/tools/go.mod hack/tools/go.sum
	$(GO) build -C hack/tools -o $@ $$(go list -C hack/tools -f '{{.ImportPath}}' tool | grep '/$*$$')
