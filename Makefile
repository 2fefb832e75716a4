# Two commands do all the set-up: `make run` and `make test`.  CMake stands underneath; see CMakePresets.json.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BUILD := build

.PHONY: all run test test-all check setup setup-test build clean install layers size sizes format bench kernels soak fuzz attack \
        test-release test-far test-cuda test-clang test-asan test-tsan test-arm64 test-install

all: setup build

# Install what is missing, build, and serve the shipped model: `make run PORT=9000`, `make run MODEL=path/to/model`, or a
# model of the Hugging Face hub, which is fetched if it is not there: `make run MODEL=org/name:Q4_K_M`.
run: setup build
	@exec $(BUILD)/ridge serve $(if $(MODEL),-hf $(MODEL)) $(if $(PORT),--port $(PORT),--any-port)

setup:
	@scripts/setup build

setup-test:
	@scripts/setup test

build:
	@[ -x $(BUILD)/ridge ] || echo "building $(BUILD)/ridge: a few minutes, the first time"
	@cmake --preset release $(if $(PREFIX),-DCMAKE_INSTALL_PREFIX=$(PREFIX)) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS) --target ridge >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

# Everything that gates, from a bare machine.
test: setup-test
	@scripts/test

test-release test-far test-cuda test-clang test-asan test-tsan test-arm64 test-install:
	@scripts/test $(@:test-%=%)

layers:
	@scripts/layers

size:
	@scripts/size

sizes:
	@scripts/sizes

format:
	@scripts/format

check: layers size sizes format

# Also what does not gate: every architecture, spelling and K/V type on every instruction set, and on the far back end.
test-all: setup-test
	@scripts/test check all far cuda clang asan tsan arm64 install python fuzz_shortly

# The long ones.

# Measure speed, write it to RECORD as JSON and draw it as build/roofline.svg: `make bench`, `make bench MODEL=path/to/model`, or a shape with random weights,
# `make bench MODEL=bench/shapes/tinyllama-1.1b.json RANDOM_TYPE=q4_0`.
RECORD ?= $(BUILD)/bench.json
bench: setup build
	@$(BUILD)/ridge bench $(MODEL) $(if $(RANDOM_TYPE),--random $(RANDOM_TYPE)) --record $(RECORD) \
	  --svg $(BUILD)/roofline.svg \
	  --commit "$$(git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown)"
	@echo "written to $(RECORD) and $(BUILD)/roofline.svg"

kernels: setup-test
	@cmake --preset release >/dev/null && cmake --build $(BUILD) -j $(JOBS) --target bench_kernels >/dev/null
	@$(BUILD)/bench_kernels

soak: setup-test
	@scripts/test soak

fuzz: setup-test
	@scripts/test fuzz

attack: setup-test
	@scripts/test attack

install: build
	@cmake --build $(BUILD) -j $(JOBS) >/dev/null
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"

clean:
	@rm -rf build build-* $(BUILD).log
