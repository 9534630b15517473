# `make` or `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo start test test-all test-fast chaos shards stack stack-down stack-status check build install format bench docs clean

NODE_MODULES := node_modules/.package-lock.json
STACK := node --import tsx test/stack/stack-command.ts
MINUTES ?= 10
SEED ?=
SOURCES := $(shell find api infra pipelines schemas web -type f 2>/dev/null)

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-13s %s\n", $$1, $$2 }'

demo: dist/.built ## Send real traces through everything on a throw-away folder and show the usage
	@node --import tsx docs/demo/demo.ts

start: dist/.built ## Run everything in the foreground, with the environment as given
	@exec node dist/api/command-line/runlake.js all

test: check dist/.built ## Run every check, the short suites and some of the long ones, also on the stack, and stop the stack
	@node test/house/in-memory.mjs $(STACK) during npm test --silent

test-all: check dist/.built ## Run every check and every suite, at full length, with all SDK versions and Node releases
	@RUNLAKE_TEST_ALL=true node test/house/in-memory.mjs $(STACK) during npm test --silent

test-fast: check dist/.built ## Run every check and the short suites that need no stack and no process, in two minutes
	@RUNLAKE_TEST_BUILT=true RUNLAKE_TEST_SHARING=true RUNLAKE_TEST_FAST=true node test/house/in-memory.mjs node node_modules/vitest/vitest.mjs run --project embedded-sharing

chaos: dist/.built ## Kill servers and inject random faults under load: MINUTES=10, SEED=... repeats a run
	@CHAOS_MINUTES=$(MINUTES) RUNLAKE_TEST_SEED=$(SEED) CLICKHOUSE_AWAY_MS=60000 \
	  $(STACK) during npx vitest run --project embedded test/crash/servers.test.ts test/crash/chaos.test.ts

# Suites whose results depend on which rows a server has, and crash suites whose ClickHouse is that of the stack or one of
# their own. Those of stock clients and histories start Runlake themselves, on the stack only in the project `stack`.
ON_SHARDS := $(patsubst %,test/infra/clickhouse/%.test.ts,two-shards shard-of-workspace) \
  test/pipelines/ingest/sink test/pipelines/usage test/pipelines/runs test/pipelines/retention test/pipelines/projects test/pipelines/streams test/pipelines/feedback \
  test/pipelines/exports/histories.test.ts test/pipelines/exports/chunk-reader.test.ts test/pipelines/tenants/delete-workspace-data.test.ts \
  $(patsubst %,test/crash/%.test.ts,agent-servers backlog chaos export-servers exports members partitions sdk servers servers-away stalls steps)

shards: dist/.built ## Run the suites of stored data, crashes, histories and stock clients on two ClickHouse shards
	@RUNLAKE_STACK_CLICKHOUSE_SHARDS=2 node test/house/in-memory.mjs $(STACK) during sh -c \
	  'npx vitest run --project embedded $(ON_SHARDS) && npx vitest run --project stack test/e2e test/histories'

stack: $(NODE_MODULES) ## Bring up Kafka, a schema registry, Redis, S3, ClickHouse and Postgres, without Docker
	@$(STACK) up

stack-down: $(NODE_MODULES) ## Stop the stack and remove its data
	@$(STACK) down

stack-status: $(NODE_MODULES) ## Show whether each part of the stack responds
	@$(STACK) status

check: $(NODE_MODULES) ## Types, lint, format, import direction, cycles, dead code, file size, generated pages
	@npm run check --silent

build: dist/.built ## Compile into dist/

install: $(NODE_MODULES) ## Install the pinned packages

format: $(NODE_MODULES) ## Format the code and apply safe fixes
	@npx biome check --write .

bench: dist/.built ## List the benches; run one with: npm run bench -- NAME
	@npm run bench --silent

docs: $(NODE_MODULES) ## Regenerate the reference pages
	@npm run docs --silent

clean: ## Remove build output
	rm -rf dist

$(NODE_MODULES): package.json package-lock.json
	@node infra/build/check-node.mjs
	@echo "Installing packages, once (about 1 GB, most of it ClickHouse) ..."
	@npm ci --include=dev --include=optional --prefer-offline --no-audit --no-fund --loglevel=error
	@touch $@

dist/.built: $(NODE_MODULES) $(SOURCES) tsconfig.json tsconfig.build.json
	@echo "Compiling ..."
	@npm run build --silent
	@touch $@
