# Bare "make" lists the targets. Everything is an ordinary go command; this file only saves typing.
export CGO_ENABLED = 0
FUZZTIME ?= 30s
PROMPT ?= Why is the sky blue?

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./draftlab
	go build -trimpath -o draftlab ./cmd/draftlab

test: ## run the tests, as the README says
	go test ./...

short: ## run the tests that need no model
	go test -short ./...

ci: ## run everything that must hold before a merge
	.ci/run

run: ## write an answer to PROMPT with the default model
	go run ./cmd/draftlab generate "$(PROMPT)"

generate: ## make the generated files anew (assembly)
	cd engine/compute/cpu/kernel && go generate ./...

bench: ## measure the default model on this machine
	go run ./cmd/draftlab microbench

fuzz: ## run every fuzz target for FUZZTIME
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$name"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done

cross: ## build for every platform that we ship to
	.ci/run cross

.PHONY: help build test short ci run generate bench fuzz cross
