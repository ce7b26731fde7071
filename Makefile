# Afterimage. `make help` lists what there is to make.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The binary is static; only the race detector needs a C compiler.
export CGO_ENABLED := 0

# Packages that the race detector leaves out: they spend their time in native code, which it cannot see,
# or have no goroutines.
NO_RACE := internal/engine/llama internal/gguf internal/layers internal/model cmd/afterimage

# Packages whose tests run once more with freed memory poisoned and every reference traced.
DEBUG_MEMORY := internal/arena internal/cache internal/store/ram

TEST_TIMEOUT ?= 15m
# A start of vLLM takes one to two minutes on a quiet machine of two cores, and several on a busy one.
VLLM_TIMEOUT ?= 60m
STATICCHECK  := $(GO) tool -modfile=tools/go.mod staticcheck
GOFILES       = $(shell git ls-files --cached --others --exclude-standard '*.go')

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: deps build ## set everything up and serve the demo model on 127.0.0.1:8000
	@bin/afterimage model demo --out .cache/models/demo
	@exec bin/afterimage up

.PHONY: build
build: ## build bin/afterimage (static, no C compiler)
	@echo "build: bin/afterimage $(VERSION)$$([ -e bin/afterimage ] || echo ' (the first build takes a minute)')"
	@$(GO) build -trimpath -ldflags '-s -w -X afterimage/internal/cli.version=$(VERSION)' -o bin/afterimage ./cmd/afterimage

.PHONY: test
test: deps deps-test deps-browser deps-mooncake build ## run all tests, then those with goroutines again under the race detector
	@from=$$SECONDS; \
	echo "test: go vet ./..."; \
	$(GO) vet ./...; \
	echo "test: go test ./..."; \
	$(GO) test -timeout $(TEST_TIMEOUT) ./...; \
	echo "test: go test -tags arenadebug, the packages that own memory: $(DEBUG_MEMORY)"; \
	$(GO) test -tags arenadebug -timeout $(TEST_TIMEOUT) $(addprefix ./,$(DEBUG_MEMORY)); \
	echo "test: go test -race, all packages but: $(NO_RACE)"; \
	$(MAKE) race; \
	echo "test: all $$($(GO) list ./... | wc -l) packages pass ($$((SECONDS - from)) s)"

.PHONY: test-vllm
test-vllm: deps deps-mooncake ## hold objects against vLLM's own code, and the gateway against its proxy before real vLLM workers (after make peers)
	@[ -f .cache/peers/venv/installed.txt ] || { echo "test-vllm: vLLM is not installed: run make peers" >&2; exit 1; }
	@echo "test-vllm: vLLM, its engine on CPU with random weights and a plugin that lets the shared cache run there, Mooncake and Afterimage are real"
	@$(GO) test -tags vllm -count=1 -v -timeout $(VLLM_TIMEOUT) -run 'TestVLLM' ./internal/system

.PHONY: test-gpu
test-gpu: deps deps-gpu ## run the engine on a Vulkan driver in software: split against whole, GPU against CPU
	@echo "test-gpu: lavapipe, which computes on the CPU: bits and names are what is tested, not speed"
	@$(GO) test -tags gpu -count=1 -v -timeout $(TEST_TIMEOUT) -run 'TestVulkan|TestAuto' ./internal/engine/llama

.PHONY: race
race: ## run the tests under the race detector (needs a C compiler)
	@command -v $${CC:-cc} >/dev/null || { echo "race: no C compiler: install gcc, or name one with CC=" >&2; exit 1; }
	@CGO_ENABLED=1 $(GO) test -race -timeout $(TEST_TIMEOUT) \
		$$($(GO) list ./... | grep -v -x $(foreach p,$(NO_RACE),-e 'afterimage/$(p)'))

# Fuzzers of what strangers send to a gateway: bodies, data URLs, events, headers of requests and of image hosts. Making a
# long input short takes up to a minute by default: the whole time of one.
FUZZ     := openai/FuzzEnvelope openai/FuzzScan openai/FuzzEvents media/FuzzReception media/FuzzParseDataURL media/FuzzValidator proxy/FuzzRequestID tracing/FuzzParse admit/FuzzTimeout
FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## fuzz what reads bodies, data URLs, events and headers, FUZZTIME (30s) each
	@for f in $(FUZZ); do \
		echo "fuzz: $$f for $(FUZZTIME)"; \
		$(GO) test -run '^$$' -fuzz "^$${f#*/}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s "./internal/$${f%/*}"; \
	done

.PHONY: soak
soak: deps deps-mooncake ## run what has a long version: half an hour of load, then kills, an hour in all; a line a minute
	@from=$$SECONDS; \
	soak() { \
		echo "soak: $$(((SECONDS - from) / 60)) min: $$1 in internal/$$2, at most $$3"; \
		AFTERIMAGE_SOAK=1 $(GO) test -count=1 -v -timeout "$$3" -run "^($$1)\$$" "./internal/$$2"; \
	}; \
	soak TestSoakLoad system 60m; \
	soak TestChaos system 10m; \
	soak TestSoak system 25m; \
	soak 'TestKillClients|TestKillStore|TestPinsBesideEvictions' store/ram 15m; \
	soak TestChaos store/mooncake 15m; \
	echo "soak: all pass ($$(((SECONDS - from) / 60)) min)"

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, layers
	@echo "lint: gofmt"
	@bad=$$(gofmt -l $(GOFILES)); [ -z "$$bad" ] || { echo "not formatted; run gofmt -w on:" >&2; echo "$$bad" >&2; exit 1; }
	@echo "lint: go vet ./..."
	@$(GO) vet ./...
	@$(GO) vet -tags vllm ./internal/system
	@$(GO) vet -tags gpu ./internal/engine/llama
	@echo "lint: staticcheck ./..."
	@$(STATICCHECK) ./...
	@echo "lint: layers, package comments, file sizes"
	@$(GO) test -count=1 ./internal/layers
	@echo "lint: clean"

.PHONY: deps
deps: ## fetch the engine libraries and the demo's text model into .cache (once)
	@scripts/deps.sh

.PHONY: deps-test
deps-test: ## make .cache/venv with the pinned OpenAI SDK, and get what completion, units and alert rules are tested with (once)
	@scripts/deps-test.sh
	@scripts/deps-tools.sh

.PHONY: deps-browser
deps-browser: ## fetch a headless Chromium for the tests of the dashboard, unless one is installed (once)
	@scripts/deps-browser.sh

.PHONY: deps-gpu
deps-gpu: ## fetch a Vulkan driver in software for test-gpu into .cache (once)
	@scripts/deps-gpu.sh

.PHONY: deps-mooncake
deps-mooncake: ## fetch Mooncake's master and client into .cache (once)
	@scripts/deps-mooncake.sh

.PHONY: peers
peers: deps-mooncake ## install vLLM, Mooncake's Python client and vllm-router into .cache/peers, to compare with (6.5 GiB, once; opt-in)
	@scripts/peers.sh

.PHONY: dist
dist: ## make archives, a bill of materials and sums for amd64 and arm64 in dist/
	@VERSION='$(VERSION)' scripts/dist.sh

.PHONY: man
man: build ## write the manual pages into dist/man
	@bin/afterimage man --out dist/man
	@echo "man: $$(ls dist/man | wc -l) pages in dist/man"

.PHONY: clean
clean: ## remove what make built; .cache stays (rm -r .cache to fetch it again)
	@rm -rf bin dist
