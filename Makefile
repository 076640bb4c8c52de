# Everything a user needs: `make run` and `make test` do all set-up themselves.
#   make run   [MODEL=path] [PROMPT="..."] [N_TOKENS=200] [DEVICE=cpu]
#   make chat  [MODEL=path] [DEVICE=cpu]
#   make serve [MODEL=path] [PORT=9377] [SERVE_FLAGS="--device vnpu"]
#   make bench [MODEL=path] [DEVICE=cpu]
#   make profile [MODEL=path] [PROMPT="..."] [N_TOKENS=30] [DEVICE=cpu] [PROFILE_FLAGS="--html p.html"]
#   make plugin LLAMA_CPP=DIR      the llama.cpp plug-in, for a llama.cpp built from the checkout DIR
#   make test-ggml [LLAMA_CPP=DIR] the plug-in inside stock llama.cpp programs, which are fetched and built once
#   make attack [ATTACK_SIZE=full] [ATTACK_FLAGS="--seed 7"]   hostile files, failing devices, forged evidence (docs/attack.md)
#   make test | test-model | build | format | tidy | fuzz | clean

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
export PROMPT MODEL LLAMA_CPP

TYTO := build/release/tyto
MODEL_FLAG = $(if $(MODEL),-m "$$MODEL")

BUILD_PACKAGES := g++ cmake ninja-build pkg-config libfmt-dev libsimdjson-dev nlohmann-json3-dev \
  libcli11-dev libpcre2-dev libutf8proc-dev libxxhash-dev libsodium-dev libboost-dev libtomlplusplus-dev prometheus-cpp-dev
TEST_PACKAGES := $(BUILD_PACKAGES) libgtest-dev python3 git clang-format-19 chromium fonts-dejavu-core \
  nginx systemd curl wrk zsh fish groff man-db
# An npm that did not come from Debian is as good.
GGML_TEST_PACKAGES := $(BUILD_PACKAGES) libgtest-dev python3 git $(if $(shell command -v npm),,npm)
FUZZ_PACKAGES := $(BUILD_PACKAGES) clang-19 libclang-rt-19-dev
TIDY_PACKAGES := $(TEST_PACKAGES) clang-tidy-19

.PHONY: run chat serve bench profile build plugin test test-model test-ggml attack format format-check tidy fuzz clean

run: build
	@$(TYTO) run $(MODEL_FLAG) -p "$$PROMPT" -n $(N_TOKENS) --device $(DEVICE)

chat: build
	@$(TYTO) chat $(MODEL_FLAG) --device $(DEVICE)

serve: build
	@$(TYTO) serve $(MODEL_FLAG) $(if $(PORT),--port $(PORT)) $(SERVE_FLAGS)

bench: build
	@$(TYTO) bench $(MODEL_FLAG) --device $(DEVICE)

profile: N_TOKENS = 30
profile: build
	@$(TYTO) profile $(MODEL_FLAG) -p "$$PROMPT" -n $(N_TOKENS) --device $(DEVICE) $(PROFILE_FLAGS)

build:
	@tools/install_packages $(BUILD_PACKAGES)
	@mkdir -p build && { cmake --preset release > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }; }
	@cmake --build --preset release

plugin:
	@test -n "$$LLAMA_CPP" || { echo "make plugin: name the checkout that your llama.cpp was built from: make plugin LLAMA_CPP=DIR" >&2; exit 2; }
	@tools/install_packages $(BUILD_PACKAGES)
	@mkdir -p build && { cmake --preset release -DTYTO_LLAMA_CPP="$$(realpath "$$LLAMA_CPP")" -DTYTO_PLUGIN_WERROR=$(PLUGIN_WERROR) > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }; }
	@cmake --build --preset release --target ggml-tyto

test:
	@tools/install_packages $(TEST_PACKAGES)
	@tests/scripts/fetch_references build/references
	@cmake --preset dev
	@cmake --build --preset dev
	@ctest --preset dev -j $$(nproc)

# The shipped model's perplexity against transformers', with the program that users run.
test-model: build
	@tools/install_packages python3
	@tests/scripts/check_perplexity.py $(TYTO) models/owlet

# Outside `make test`: the first call fetches and builds llama.cpp.
test-ggml:
	@tools/install_packages $(GGML_TEST_PACKAGES)
	@tests/scripts/build_llama_cpp build/llama.cpp $(if $(LLAMA_CPP),"$$LLAMA_CPP")
	@$(MAKE) --no-print-directory plugin LLAMA_CPP=build/llama.cpp/source PLUGIN_WERROR=ON
	@cmake --build --preset release --target tyto
	@tests/scripts/check_headers "$(CURDIR)/src" build/llama.cpp/source
	@cmake --preset release -DTYTO_GGML_LIBRARIES="$(CURDIR)/build/llama.cpp/build/bin" > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset release --target ggml_test
	@build/release/ggml_test --gtest_brief=1
	@tests/ggml/run_tests.py

# The program that users run; the small attack of `make test` is of the one with sanitizers.
attack: build
	@tools/install_packages python3
	@tests/attack/attack.py $(TYTO) tests/golden/data --size $(ATTACK_SIZE) $(ATTACK_FLAGS)

format:
	@tools/install_packages clang-format-19
	@git ls-files '*.cc' '*.h' | xargs clang-format-19 -i

tidy:
	@tools/install_packages $(TIDY_PACKAGES)
	@cmake --preset dev
	@git ls-files 'src/*.cc' | grep -v '/isa/' | xargs -P $$(nproc) -n 4 clang-tidy-19 -p build/dev --quiet

# Each target runs FUZZ_SECONDS on a copy of its committed corpus.
fuzz:
	@tools/install_packages $(FUZZ_PACKAGES)
	@cmake --preset fuzz
	@cmake --build --preset fuzz --target fuzzers
	@tests/fuzz/run_all build/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf build
