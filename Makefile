# Everything a user needs: `make run` and `make test` do all set-up themselves. `make help` shows the lines that have ##.

PROMPT ?= Tell me a story about a fox who finds a lamp.
N_TOKENS ?= 300
DEVICE ?= cpu
MODEL ?=
PORT ?=
FUZZ_SECONDS ?= 60
ATTACK_SIZE ?= full
ATTACK_FLAGS ?= --write build/attack
LLAMA_CPP ?=
PLUGIN_WERROR ?= OFF
PREFIX ?= /usr/local
DESTDIR ?=
export PROMPT MODEL LLAMA_CPP

TYTO := build/release/tyto
MODEL_FLAG = $(if $(MODEL),-m "$$MODEL")
# What the user gave; without it these commands have defaults of their own.
GIVEN_PROMPT = $(if $(filter file,$(origin PROMPT)),,-p "$$PROMPT")
COMPILE_DEVICE = $(if $(filter file,$(origin DEVICE)),vnpu,$(DEVICE))
# Which commit is built is looked up each time; that alone is not worth a line.
SOURCES := src data packaging CMakeLists.txt CMakePresets.json
QUIETLY = $(if $(shell [ -e build/release/share/written ] && [ -z "$$(find $(SOURCES) -newer $(TYTO) -print -quit)" ] && echo yes),-- --quiet)

# What CMake says is shown where it fails.
configure = @mkdir -p build && { cmake --preset $(1) > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }; }

BUILD_PACKAGES := g++ cmake ninja-build pkg-config libfmt-dev libsimdjson-dev \
  libpcre2-dev libutf8proc-dev libxxhash-dev libsodium-dev libcurl4-openssl-dev libssl-dev libedit-dev \
  libboost-dev libtomlplusplus-dev prometheus-cpp-dev libvulkan-dev glslang-tools
TEST_PACKAGES := $(BUILD_PACKAGES) libgtest-dev mold python3 git clang-format-19 chromium fonts-dejavu-core \
  systemd curl wrk zsh fish groff man-db mesa-vulkan-drivers vulkan-validationlayers
# Debian would start these when it installs them, so they are only unpacked.
UNPACKED_PACKAGES := nginx
SANITIZED_TEST_PACKAGES := $(BUILD_PACKAGES) libgtest-dev mold python3 curl wrk mesa-vulkan-drivers vulkan-validationlayers
# An npm that did not come from Debian is as good.
GGML_TEST_PACKAGES := $(BUILD_PACKAGES) libgtest-dev python3 git $(if $(shell command -v npm),,npm)
FUZZ_PACKAGES := $(BUILD_PACKAGES) clang-19 libclang-rt-19-dev
TIDY_PACKAGES := $(TEST_PACKAGES) clang-tidy-19
PACKAGE_PACKAGES := $(BUILD_PACKAGES) dpkg-dev file

.PHONY: help run chat serve bench profile verify compile build install uninstall package plugin test test-sanitized test-model \
  test-package test-compilers test-ggml attack format tidy fuzz clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' Makefile | expand -t 17

run: build ## answer a prompt: [MODEL=] [PROMPT=] [N_TOKENS=] [DEVICE=]
	@$(TYTO) run $(MODEL_FLAG) -p "$$PROMPT" -n $(N_TOKENS) --device $(DEVICE)
	@$(if $(MODEL),,echo "Next: make chat talks with it, $(TYTO) pull lists models for this machine." >&2)

chat: build ## talk with the model: [MODEL=] [DEVICE=]
	@$(TYTO) chat $(MODEL_FLAG) --device $(DEVICE)

serve: build ## answer over HTTP: [MODEL=] [PORT=] [SERVE_FLAGS=]
	@$(TYTO) serve $(MODEL_FLAG) $(if $(PORT),--port $(PORT)) $(SERVE_FLAGS)

bench: build ## measure speed: [MODEL=] [DEVICE=]
	@$(TYTO) bench $(MODEL_FLAG) --device $(DEVICE)

# What is given on the command line counts before these.
profile: N_TOKENS = 30
profile: build ## where the time goes: [MODEL=] [PROMPT=] [N_TOKENS=] [DEVICE=]
	@$(TYTO) profile $(MODEL_FLAG) -p "$$PROMPT" -n $(N_TOKENS) --device $(DEVICE) $(PROFILE_FLAGS)

verify: N_TOKENS = 32
verify: build ## is a device right? [MODEL=] [PROMPT=] [N_TOKENS=] [DEVICE=]
	@$(TYTO) verify $(MODEL_FLAG) $(GIVEN_PROMPT) -n $(N_TOKENS) --device $(DEVICE) $(VERIFY_FLAGS)

# Images are of a model and a device: PROMPT and N_TOKENS change nothing.
compile: build ## NPU kernel images of a model: [MODEL=] [DEVICE=vnpu or npu]
	@$(TYTO) compile $(MODEL_FLAG) --device $(COMPILE_DEVICE) $(COMPILE_FLAGS)

build: ## build/release/tyto, the program that users run
	@tools/install_packages $(BUILD_PACKAGES)
	$(call configure,release)
	@cmake --build --preset release $(QUIETLY)

# Root builds nothing in a tree that belongs to somebody else: what is built there would be root's.
OTHERS_TREE := $(shell [ "$$(id -u)" != 0 ] || [ "$$(stat -c %u .)" = 0 ] || echo yes)
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export DESTDIR := $(DESTDIR)

install: $(if $(OTHERS_TREE),,build) ## the program and all that belongs to it: [PREFIX=] [DESTDIR=]
	@packaging/install build/release "$$PREFIX" "$$DESTDIR"

uninstall: ## remove what install put there: the same [PREFIX=] [DESTDIR=]
	@packaging/uninstall "$$PREFIX" "$$DESTDIR"

package: build ## build/package/tyto_VERSION_ARCHITECTURE.deb
	@tools/install_packages $(PACKAGE_PACKAGES)
	@cpack --config build/release/CPackConfig.cmake -B build/package

plugin: ## the llama.cpp plug-in: LLAMA_CPP=DIR, a checkout
	@test -n "$$LLAMA_CPP" || { echo "make plugin: name the checkout that your llama.cpp was built from: make plugin LLAMA_CPP=DIR" >&2; exit 2; }
	@tools/install_packages $(BUILD_PACKAGES)
	$(call configure,release -DTYTO_LLAMA_CPP="$$(realpath "$$LLAMA_CPP")" -DTYTO_PLUGIN_WERROR=$(PLUGIN_WERROR))
	@cmake --build --preset release --target ggml-tyto

test: build ## every test, with the program that users run
	@tools/install_packages $(TEST_PACKAGES)
	@tools/unpack_packages build/programs $(UNPACKED_PACKAGES)
	@tests/scripts/fetch_references build/references
	$(call configure,release -DTYTO_TESTS=ON)
	@cmake --build --preset release --target tests $(QUIETLY)
	@PATH="$$PATH:$(CURDIR)/build/programs/usr/sbin" tests/scripts/run_ctest release

test-sanitized: ## memory, threads and hostile input under ASan and UBSan
	@tools/install_packages $(SANITIZED_TEST_PACKAGES)
	@tests/scripts/fetch_references build/references
	$(call configure,sanitized)
	@cmake --build --preset sanitized --target tests
	@tests/scripts/run_ctest sanitized

# With the program that users run.
test-model: build ## the shipped model's perplexity against transformers'
	@tools/install_packages python3
	@tests/scripts/check_perplexity.py $(TYTO) models/owlet

# Outside `make test`: it wants root and a network.
test-package: package ## install, use and remove the package in a bare Debian
	@tools/install_packages mmdebstrap
	@tests/scripts/test_package build/package

test-compilers: ## build all with each compiler that is here
	@tests/scripts/test_compilers

# Outside `make test`: the first call fetches and builds llama.cpp.
test-ggml: ## the plug-in in stock llama.cpp programs: [LLAMA_CPP=DIR]
	@tools/install_packages $(GGML_TEST_PACKAGES)
	@tests/scripts/build_llama_cpp build/llama.cpp $(if $(LLAMA_CPP),"$$LLAMA_CPP")
	@$(MAKE) --no-print-directory plugin LLAMA_CPP=build/llama.cpp/source PLUGIN_WERROR=ON
	@cmake --build --preset release --target tyto
	@tests/scripts/check_headers "$(CURDIR)/src" build/llama.cpp/source
	$(call configure,release -DTYTO_GGML_LIBRARIES="$(CURDIR)/build/llama.cpp/build/bin")
	@cmake --build --preset release --target ggml_test
	@build/release/ggml_test --gtest_brief=1
	@tests/ggml/run_tests.py --jobs $$(nproc)

# The program that users run; the small attack of `make test` is of the one with sanitizers.
attack: build ## hostile files and devices (docs/attack.md): [ATTACK_SIZE=full]
	@tools/install_packages python3
	@tests/attack/attack.py $(TYTO) tests/golden/data --size $(ATTACK_SIZE) $(ATTACK_FLAGS)

format: ## the source as clang-format has it
	@tools/install_packages clang-format-19
	@git ls-files '*.cc' '*.h' | xargs clang-format-19 -i

tidy: ## what clang-tidy says of the source
	@tools/install_packages $(TIDY_PACKAGES)
	$(call configure,sanitized)
	@git ls-files 'src/*.cc' | grep -v '/isa/' | xargs -P $$(nproc) -n 4 clang-tidy-19 -p build/sanitized --quiet

# Each target runs FUZZ_SECONDS on a copy of its committed corpus.
fuzz: ## each fuzz target for a while: [FUZZ_SECONDS=60]
	@tools/install_packages $(FUZZ_PACKAGES)
	$(call configure,fuzz)
	@cmake --build --preset fuzz --target fuzzers
	@tests/fuzz/run_all build/fuzz $(FUZZ_SECONDS)

clean: ## remove build/
	rm -rf build
