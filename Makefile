# make test         everything CI runs: lint, then all tests; installs what it lacks
# make sdks         the SDKs in TypeScript and Python against a real server
# make lint         gofmt, go vet, staticcheck
# make bench        benchmarks of the stores and of the path, PostgreSQL with fsync on
# make bench-peers  Belfry beside River, graphile-worker and asynq; PEERSFLAGS="-jobs 20000 -rounds 1" for a short run
# make bench-guard  commits anew what a thousand runs cost in counts; `make test` fails when one has grown by more than 10 %
# make chaos        the process tests for minutes instead of seconds
# make scale        pruning, sweeping, reaping and fair shares at the size of a large installation

GO ?= go
TESTFLAGS ?=
PEERSFLAGS ?=

.PHONY: build test unit lint deps sdks bench bench-peers bench-guard chaos scale

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o belfry ./cmd/belfry

test: deps lint sdks unit

# Three packages at a time: the tests that kill processes mostly wait.
unit:
	$(GO) test -p 3 -timeout 14m $(TESTFLAGS) ./...

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) -C tools build -o "$(CURDIR)/.tools/staticcheck" honnef.co/go/tools/cmd/staticcheck
	.tools/staticcheck ./...

# PostgreSQL, Prometheus, Chromium, brokers, Node.js and Python for the tests: installed when we may, named when we may not.
deps:
	@sh tools/deps.sh
	@sh test/servers/deps.sh

# Before the other tests: the examples use what it builds.
sdks: deps
	@GO="$(GO)" sh tools/sdks.sh

bench:
	$(GO) test -run '^$$' -bench . -benchtime 3x -timeout 30m ./internal/store ./internal/wheel ./internal/schedule ./worker ./internal/control ./internal/api ./internal/node

# The peers are in a module of their own: the product depends on none of them.
bench-peers: build deps
	@sh bench/peers/deps.sh
	$(GO) -C bench/peers vet .
	$(GO) -C bench/peers test .
	$(GO) -C bench/peers build -o "$(CURDIR)/.tools/peers" .
	.tools/peers $(PEERSFLAGS)

# Prints the costs beside the committed ones and replaces these: review the difference, then commit the file.
bench-guard: deps
	$(GO) test -count=1 -v -run '^TestCostsHaveNotGrown$$' ./internal/store -rewrite

chaos:
	@BELFRY_TEST_CHAOS=1 sh test/servers/deps.sh
	BELFRY_TEST_CHAOS=1 $(GO) test -count=1 -timeout 60m -v ./internal/chaos ./internal/broker
	BELFRY_TEST_CHAOS=1 GO="$(GO)" sh tools/sdks.sh

scale:
	BELFRY_TEST_SCALE=1 $(GO) test -count=1 -timeout 30m -v -run 'Pruning|Unserved' ./internal/node
	BELFRY_TEST_SCALE=1 $(GO) test -count=1 -timeout 30m -v -parallel 1 -run HangingNamespace ./internal/node
	$(GO) test -run '^$$' -bench 'Reap|IdleDuties' -benchtime 3x -timeout 30m ./internal/store/postgres
	$(GO) test -run '^$$' -bench RoleLag -benchtime 1x -timeout 30m ./internal/node
