# One verb a chore. `make` alone lists them; `make demo` and `make test` work as the first command on
# a fresh machine. CMake does the building: see CMakePresets.json for what each build is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
BENCH_ARGS ?=
export JOBS FUZZ_SECONDS

# ccache keeps its cache in the home directory; where there is none to write to, it goes here.
ifeq ($(CCACHE_DIR),)
ifneq ($(shell test -n "$$HOME" -a -d "$$HOME" -a -w "$$HOME" && echo yes),yes)
export CCACHE_DIR := $(CURDIR)/.cache/ccache
endif
endif

# Paths below this folder are relative for ccache, so that clones and the copies that tests make share what was compiled.
# Without the second line the folder of the build, which debug information names, is part of what is compared.
CCACHE_BASEDIR ?= $(CURDIR)
CCACHE_NOHASHDIR ?= 1
# Without it, results depend on LANG, and files that use a precompiled header are not cached at all.
CCACHE_SLOPPINESS ?= locale,pch_defines,time_macros
export CCACHE_BASEDIR CCACHE_NOHASHDIR CCACHE_SLOPPINESS

.PHONY: help setup setup-build demo demo-cpp build python python-dev wheel test-wheel check test test-long soak test-coexist test-recipes test-formats test-frameworks test-ray test-packaging test-page test-faults test-types lint format bench bench-python bench-rows bench-figure fuzz docs docs-check clean

help: ## List what make can do
	@echo "make <verb>, where <verb> is one of:"
	@awk -F ':.*## ' '/^[a-z%-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: ## Install the packages that are missing (tools/packages.txt)
	@tools/setup.sh

setup-build: ## Install those of them that a build needs, without the tests'
	@tools/setup.sh build

DEMO_ARGS ?=
demo: setup-build ## An agent learns CartPole through a server, in about a minute; DEMO_ARGS="--seed 1" is passed on
	@tools/demo.sh $(DEMO_ARGS)

demo-cpp: setup build/dev/build.ninja ## Build and run the C++ examples
	@cmake --build build/dev --parallel $(JOBS) --target reverb_demo reverb_actor_learner reverb_table_extension
	@build/dev/examples/cpp/reverb_demo
	@echo
	@build/dev/examples/cpp/reverb_actor_learner
	@echo
	@build/dev/examples/cpp/reverb_table_extension
	@echo
	@echo "The sources are in examples/cpp; docs/cpp.md explains the API."

build: build-dev ## Build everything with GCC (build/dev)

build-%: setup build/%/build.ninja ## Build a preset: debug, release, lto, asan, tsan, clang, bench, fuzz
	@cmake --build build/$* --parallel $(JOBS)

# Configures once; afterwards the build itself notices changes of CMake files, and this rule those of
# the presets.
.PRECIOUS: build/%/build.ninja
build/%/build.ninja: CMakePresets.json | setup
	@CXX=$$(tools/cxx.sh) cmake --preset $*
	@touch $@

python: setup-build ## Build and install the Python package for each CPython that is here (build/venv-3.x)
	@for version in $$(tools/python.sh versions); do tools/python.sh install $$version; done

PYTHON_VERSION ?= $(lastword $(shell tools/python.sh versions))
python-dev: setup ## Build the extension beside the Python files, for work on them (PYTHON_VERSION=3.x)
	@tools/python.sh develop $(PYTHON_VERSION)

WHEEL_VERSIONS ?=
wheel: setup-build ## Build wheels that install on other machines, for each CPython that is here (dist; WHEEL_VERSIONS="3.13")
	@tools/wheel.sh build $(WHEEL_VERSIONS)

test-wheel: wheel ## Build the wheels and use each in a new environment outside the tree
	@tools/wheel.sh test $(WHEEL_VERSIONS)

check: setup ## The gate before a commit: include rules, dev build, unit and conformance tests, Python tests of the newest CPython
	@tools/check.sh

test: setup ## All checks and tests: GCC, clang, AddressSanitizer, ThreadSanitizer
	@tools/test.sh

test-long: setup ## The same with the tests' long settings, without optimisation, with link-time optimisation, and the soak
	@REVERB_TEST_LONG=1 tools/test.sh

SOAK_SECONDS ?= 600
soak: build-dev ## Kill and restart a server under writers and samplers for SOAK_SECONDS, and check what they see
	@tools/python.sh develop $(PYTHON_VERSION)
	@PYTHONPATH=python build/venv-$(PYTHON_VERSION)/bin/python tests/faults/soak.py --program build/dev/apps/reverb --seconds $(SOAK_SECONDS)

test-coexist: setup ## Python beside TensorFlow, Torch, JAX and gRPC (environments of many GB in build/coexist-*)
	@tools/coexist.sh

test-types: setup ## Check the types of the Python package with mypy and pyright
	@tools/python.sh types

test-recipes: setup ## The learners of examples/python/recipes in Torch and JAX (environments as for test-coexist)
	@tools/recipes.sh

test-formats: setup ## Exports and imports with the real libraries (Minari, LeRobot with Torch: many GB in build/formats)
	@tools/formats.sh

test-frameworks: setup ## TensorFlow, Torch, JAX and Ray, each in its environment (many GB in build/framework-*)
	@tools/frameworks.sh

test-ray: setup ## reverb.ray on a local Ray cluster of several nodes (an environment of 600 MB, build/framework-ray)
	@tools/frameworks.sh ray

test-faults: setup build/dev/build.ninja ## Kill, stop and disturb servers and clients (tests/faults); REVERB_TEST_LONG=1: 200 kills
	@tools/faults.sh

test-packaging: setup build/dev/build.ninja ## The image, the systemd unit, the Helm chart and the Slurm job of packaging/ (helm in build/tools)
	@tools/packaging.sh

test-page: setup build/dev/build.ninja ## The page of the admin port in Chromium (tests/browser; installs chromium, Playwright in build/page)
	@tools/page.sh

lint: setup build/clang/build.ninja ## Check format, clang-tidy and include directions
	@tools/lint.sh

format: setup ## Format our C++ files in place
	@tools/sources.sh | xargs --no-run-if-empty clang-format -i

bench: build-bench ## Build and run the benchmarks; BENCH_ARGS="..." is passed on
	@build/bench/benchmarks/engine_bench $(BENCH_ARGS)
	@build/bench/benchmarks/checkpoint_bench $(CHECKPOINT_BENCH_ARGS)

# The program `reverb` is there for the empty call that single calls are compared with.
DM_REVERB ?= $(DM_REVERB_PYTHON)
bench-python: setup build/bench/build.ninja ## What Python programs feel, beside dm-reverb (DM_REVERB=its python); BENCH_ARGS
	@cmake --build build/bench --parallel $(JOBS) --target reverb_program
	@tools/python.sh install $(PYTHON_VERSION)
	@build/venv-$(PYTHON_VERSION)/bin/python benchmarks/python $(if $(DM_REVERB),--dm-reverb $(DM_REVERB)) $(BENCH_ARGS)
	@tools/frameworks.sh --installed --bench torch jax

bench-rows: setup ## Row tables beside a Ray actor that holds a dict (an environment of 600 MB, build/framework-ray); BENCH_ARGS
	@tools/frameworks.sh --prepare ray
	@PYTHONPATH=python build/framework-ray/bin/python benchmarks/python/row_tables.py $(BENCH_ARGS)

fuzz: setup build/fuzz/build.ninja ## Run each fuzzer for FUZZ_SECONDS (default 60)
	@tools/fuzz.sh

bench-figure: setup ## Measure beside dm-reverb, in an environment made for it, and draw the README's picture
	@tools/bench_figure.sh

docs: setup ## Build the site: pages, pictures, references from docstrings and headers (build/docs/site)
	@tools/docs.sh

docs-check: setup ## Check that links between documents lead somewhere
	@python3 tools/check_docs.py

clean: ## Remove everything that was built
	rm -rf build dist
