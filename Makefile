# varflash: one Makefile, driven by wildcards. `make help` lists the targets.
#
# Switches: V=1 shows commands, DEBUG=1, SAN=address,undefined, CC=clang, WERROR=0, BUILD=folder (each kind of build has its own),
# JOBS=n tests at a time, FUZZ_SECONDS=n. Files of the CPU backend named cpu_avx2.c and cpu_avx512.c get their -m flags; nothing else does.

ifeq ($(origin CC),default)
CC := gcc
endif
CXX ?= g++
LUA ?= lua5.4
PKG_CONFIG ?= pkg-config
comma := ,

BUILD ?= build$(if $(SAN),/san)$(if $(DEBUG),/debug)$(if $(findstring clang,$(CC)),/clang)
JOBS ?= $(shell nproc 2>/dev/null || echo 1)
FUZZ_SECONDS ?= 20

# A Python with torch, where make deps-python has made one.
PYTHON ?= $(firstword $(wildcard build/python-env/bin/python) python3)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
BASH_COMPLETIONS ?= $(DATADIR)/bash-completion/completions
ZSH_COMPLETIONS ?= $(DATADIR)/zsh/site-functions
FISH_COMPLETIONS ?= $(DATADIR)/fish/vendor_completions.d

PUBLIC_HEADER := runtime/include/varflash/varflash.h
version_part = $(shell sed -n 's/^\#define VF_VERSION_$(1) *//p' $(PUBLIC_HEADER))
MAJOR := $(call version_part,MAJOR)
VERSION := $(MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)

# ---- flags -----------------------------------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wconversion
OPTIMISE := $(if $(DEBUG),-Og -g,$(if $(SAN),-O1 -g1,-O2))
ifdef RUNTIME_ONLY
OPTIMISE := -Os -ffunction-sections -fdata-sections
endif
SANITISE := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
DEFINES := -D_GNU_SOURCE -DVF_BUILD
BASE_CFLAGS := -std=c11 $(DEFINES) $(WARNINGS) $(OPTIMISE) $(SANITISE) -fPIC -fvisibility=hidden -pthread
WERROR_FLAG := $(if $(filter 0,$(WERROR)),,-Werror)

RUNTIME_INCLUDES := -Iruntime/include -Iruntime -I$(BUILD)/gen
ALL_INCLUDES := $(RUNTIME_INCLUDES) -Itools/lib -Itools -Itests/lib -Itests/unit -Itests/sim

# The first of these names that pkg-config knows; Debian's if it knows none, for the linker to complain about.
pkg = $(or $(firstword $(foreach name,$(1),$(shell $(PKG_CONFIG) --exists $(name) 2>/dev/null && echo $(name)))),$(firstword $(1)))
LUA_PKG := $(call pkg,lua5.4 lua-5.4 lua54 lua)
LUA_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(LUA_PKG) 2>/dev/null)
CJSON_CFLAGS := $(shell $(PKG_CONFIG) --cflags libcjson 2>/dev/null)
ZSTD_CFLAGS := $(shell $(PKG_CONFIG) --cflags libzstd 2>/dev/null)

# A static archive that the compiler finds, or nothing.
archive = $(filter /%,$(shell $(CC) -print-file-name=$(1)))
LUA_ARCHIVE := $(if $(RUNTIME_ONLY),,$(call archive,liblua5.4.a))
CJSON_ARCHIVE := $(call archive,libcjson.a)
ZSTD_ARCHIVE := $(if $(RUNTIME_ONLY),,$(call archive,libzstd.a))
LUA_LIBS := $(if $(LUA_ARCHIVE)$(RUNTIME_ONLY),,$(shell $(PKG_CONFIG) --libs $(LUA_PKG) 2>/dev/null))
CJSON_LIBS := $(if $(CJSON_ARCHIVE),,$(shell $(PKG_CONFIG) --libs libcjson 2>/dev/null || echo -lcjson))
ZSTD_LIBS := $(if $(ZSTD_ARCHIVE),,$(shell $(PKG_CONFIG) --libs libzstd 2>/dev/null || echo -lzstd))
LIBS := $(LUA_LIBS) $(CJSON_LIBS) $(ZSTD_LIBS) -ldl -lpthread -lm

# Check pulls in subunit, which is linked statically where that is possible: test programs then run on machines without either.
CHECK_LIBS := $(patsubst -lsubunit,$(or $(call archive,libsubunit.a),-lsubunit),$(shell $(PKG_CONFIG) --libs check 2>/dev/null))

ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
$(BUILD)/runtime/cpu_avx2.o: FILE_FLAGS := -mavx2 -mfma -mf16c
$(BUILD)/runtime/cpu_avx512.o: FILE_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c
endif

# ---- files -----------------------------------------------------------------------------------------------------------------

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
programs = $(patsubst %.c,$(BUILD)/%,$(1))

RUNTIME_SOURCES := $(filter-out runtime/source_none.c,$(wildcard runtime/*.c))
ifdef RUNTIME_ONLY
RUNTIME_SOURCES := $(filter-out runtime/source.c runtime/lua_stdio.c runtime/dev.c runtime/dev_device.c runtime/dev_build.c,$(wildcard runtime/*.c))
endif
TOOL_LIB_SOURCES := $(wildcard tools/lib/*.c)
TOOL_SOURCES := $(wildcard tools/*.c)
TEST_LIB_SOURCES := $(wildcard tests/lib/*.c)
UNIT_SOURCES := $(wildcard tests/unit/test_*.c)
UNIT_HELPERS := $(filter-out $(UNIT_SOURCES),$(wildcard tests/unit/*.c))
GPU_SOURCES := $(wildcard tests/gpu/test_*.c)
GPU_HELPERS := $(filter-out $(GPU_SOURCES),$(wildcard tests/gpu/*.c))
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
SIM_TESTS := $(wildcard tests/sim/test_*.c)
SIM_SOURCES := tests/sim/driver.c $(wildcard tests/unit/stub_*.c)
SIM_ENGINE := $(wildcard tests/sim/*.cpp)
# What kernels are made of there, laid out as templates are.
SIM_KERNEL := $(wildcard tests/sim/ptx/* tests/sim/faults/templates/*.cu tests/sim/faults/templates/*/*)
C_SOURCES := $(RUNTIME_SOURCES) runtime/source_none.c $(TOOL_LIB_SOURCES) $(TOOL_SOURCES) tools/demo/judge.c tools/python/suites.c $(TEST_LIB_SOURCES) $(UNIT_SOURCES) $(UNIT_HELPERS) \
	$(GPU_SOURCES) $(GPU_HELPERS) $(FUZZ_SOURCES) $(wildcard tests/*.c tests/sim/*.c tests/sim/calibrate/*.c)
C_HEADERS := $(wildcard runtime/*.h runtime/include/varflash/*.h tools/*.h tools/lib/*.h tests/*/*.h tests/sim/*/*.h)
TEMPLATES := $(wildcard templates/*.cu templates/*.cuh templates/*/*.cuh)
EMBEDDED := $(wildcard gen/*.lua) $(TEMPLATES) $(wildcard configs/*.json)
LUA_SOURCES := $(wildcard gen/*.lua tools/*.lua tests/*.lua tests/lua/*.lua tests/cli/*.lua tests/sim/*.lua tests/sim/*/gen/*.lua)
SHELL_SOURCES := $(wildcard .ci/run tools/*.sh tests/*.sh tests/cli/*.sh tests/cli/*.bash tests/sim/*/*.sh)

# Where tests spend their time: in float64 answers, with sanitizers in the CPU backend too.
ifndef DEBUG
$(call objects,$(addprefix tools/lib/,reference.c plain.c number.c) $(wildcard tests/unit/cpu_case*.c)): FILE_FLAGS += -O3
ifdef SAN
$(call objects,$(wildcard runtime/cpu*.c)): FILE_FLAGS += -O2
endif
endif

GENERATED_HEADERS := $(if $(wildcard gen/args.lua),$(BUILD)/gen/kernel_args.h)
LIBRARY_OBJECTS := $(call objects,$(RUNTIME_SOURCES)) $(BUILD)/gen/embedded.o
WHOLE := $(BUILD)/varflash.o
STATIC := $(BUILD)/libvarflash.a
SHARED := $(BUILD)/libvarflash.so.$(VERSION)
TOOL_LIB := $(call objects,$(TOOL_LIB_SOURCES))
TOOL := $(if $(TOOL_SOURCES),$(BUILD)/varflash)
UNIT_PROGRAMS := $(call programs,$(UNIT_SOURCES))
GPU_PROGRAMS := $(call programs,$(GPU_SOURCES))
FUZZ_PROGRAMS := $(call programs,$(FUZZ_SOURCES))

# ---- how things are made -------------------------------------------------------------------------------------------------------

Q := $(if $(V),,@)
say = @$(if $(V),:,printf '%-6s %s\n' $(1) $(2))
# Replaces $@ by $@.new only if they differ, so that what depends on it is not rebuilt for nothing.
if_changed = cmp -s $@.new $@ && rm $@.new || mv $@.new $@

.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all
.PHONY: FORCE all lib tools

all: lib tools ## the library and the command (default)
lib: $(STATIC) $(BUILD)/libvarflash.so ## build/libvarflash.a and build/libvarflash.so
tools: $(TOOL) ## build/varflash

# The flags of the last build: a change rebuilds.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS)' > $@.new; $(if_changed)

$(BUILD)/gen/kernel_args.h: $(wildcard gen/*.lua)
	@mkdir -p $(@D)
	$(call say,LUA,$@)
	$(Q)$(LUA) gen/cli.lua args > $@.new
	@$(if_changed)

# The list itself is a prerequisite: a file that is added or removed rebuilds it too.
$(BUILD)/gen/embedded.list: FORCE
	@mkdir -p $(@D)
	@echo '$(EMBEDDED)' > $@.new; $(if_changed)

$(BUILD)/gen/embedded.c: tools/embed.lua $(EMBEDDED) $(BUILD)/gen/embedded.list
	$(call say,EMBED,$@)
	$(Q)$(LUA) tools/embed.lua $(if $(RUNTIME_ONLY),--only-configs) $(EMBEDDED) > $@

$(BUILD)/gen/embedded.o: $(BUILD)/gen/embedded.c $(BUILD)/flags
	$(call say,CC,$@)
	$(Q)$(CC) $(BASE_CFLAGS) $(WERROR_FLAG) $(CFLAGS) $(RUNTIME_INCLUDES) -MMD -MP -c $< -o $@

$(BUILD)/runtime/%.o: INCLUDES = $(RUNTIME_INCLUDES)
INCLUDES = $(ALL_INCLUDES)
$(BUILD)/%.o: %.c $(BUILD)/flags | $(GENERATED_HEADERS)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(BASE_CFLAGS) $(WERROR_FLAG) $(FILE_FLAGS) $(CFLAGS) $(INCLUDES) $(LUA_CFLAGS) $(CJSON_CFLAGS) $(ZSTD_CFLAGS) -MMD -MP -c $< -o $@

# The whole library as one object, Lua included; --wrap: see runtime/lua_stdio.c. Tests and the command link it and reach everything.
$(WHOLE): $(LIBRARY_OBJECTS)
	$(call say,JOIN,$@)
	$(Q)$(CC) -r -nostdlib -o $@ $(LIBRARY_OBJECTS) $(if $(RUNTIME_ONLY),,-Wl$(comma)--wrap=stdin$(comma)--wrap=stdout$(comma)--wrap=stderr) $(LUA_ARCHIVE) $(CJSON_ARCHIVE) $(ZSTD_ARCHIVE)

# Users of the static library see vf_* and nothing else: any number of libraries with a Lua inside can be in one program.
$(STATIC): $(WHOLE)
	$(call say,AR,$@)
	$(Q)objcopy -w --keep-global-symbol='vf_*' $< $(BUILD)/varflash_public.o
	$(Q)rm -f $@ && ar rcs $@ $(BUILD)/varflash_public.o

$(SHARED): $(WHOLE) runtime/varflash.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(if $(RUNTIME_ONLY),-s -Wl$(comma)--gc-sections) $(SANITISE) $(LDFLAGS) -o $@ $< -Wl,-soname,libvarflash.so.$(MAJOR) \
		-Wl,--version-script=runtime/varflash.map $(if $(SAN),,-Wl$(comma)-z$(comma)defs) $(LIBS)

$(BUILD)/libvarflash.so: $(SHARED)
	@ln -sf $(notdir $<) $(BUILD)/libvarflash.so.$(MAJOR)
	@ln -sf libvarflash.so.$(MAJOR) $@

# The archive of zstd once more: the library unpacks, the command packs.
link = $(Q)$(CC) $(SANITISE) $(LDFLAGS) -o $@ $(filter %.o,$^) $(1) $(ZSTD_ARCHIVE) $(LIBS)

$(BUILD)/varflash: $(call objects,$(TOOL_SOURCES)) $(TOOL_LIB) $(WHOLE)
	$(call say,LD,$@)
	$(call link)

$(UNIT_PROGRAMS): $(BUILD)/%: $(BUILD)/%.o $(call objects,$(UNIT_HELPERS) $(TEST_LIB_SOURCES)) $(TOOL_LIB) $(WHOLE)
	$(call say,LD,$@)
	$(call link,$(CHECK_LIBS))

$(GPU_PROGRAMS): $(BUILD)/%: $(BUILD)/%.o $(call objects,$(GPU_HELPERS) $(TEST_LIB_SOURCES)) $(TOOL_LIB) $(WHOLE)
	$(call say,LD,$@)
	$(call link,$(CHECK_LIBS))

$(BUILD)/demo-judge: $(BUILD)/tools/demo/judge.o $(TOOL_LIB) $(WHOLE)
	$(call say,LD,$@)
	$(call link)

# The simulator (docs/testing.md): the command with one more backend, and tests of its driver.
SIM := $(BUILD)/varflash-sim
SIM_PROGRAMS := $(call programs,$(SIM_TESTS))
SIM_OBJECTS := $(call objects,$(SIM_SOURCES)) $(patsubst %.cpp,$(BUILD)/%.o,$(SIM_ENGINE)) $(TOOL_LIB) $(WHOLE)
sim_link = $(Q)$(CXX) $(SANITISE) $(LDFLAGS) -rdynamic -o $@ $(filter %.o,$^) $(1) $(ZSTD_ARCHIVE) -lboost_context $(LIBS)

$(BUILD)/tests/sim/%.o: tests/sim/%.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(CXX) -std=c++17 -O3 -march=native -ffp-contract=off -g1 -Wall -Wextra $(WERROR_FLAG) -pthread -MMD -MP -c $< -o $@

$(SIM): $(call objects,$(TOOL_SOURCES)) $(BUILD)/tests/sim/backend.o $(SIM_OBJECTS)
	$(call say,LD,$@)
	$(call sim_link)

$(SIM_PROGRAMS): $(BUILD)/%: $(BUILD)/%.o $(SIM_OBJECTS)
	$(call say,LD,$@)
	$(call sim_link,$(CHECK_LIBS))

# What the simulator computes beside what a GPU has computed.
CALIBRATE := $(BUILD)/tests/sim/calibrate/calibrate
$(CALIBRATE): $(addprefix $(BUILD)/tests/sim/calibrate/,calibrate.o calibrate_sim.o) $(SIM_OBJECTS)
	$(call say,LD,$@)
	$(call sim_link)

$(BUILD)/calibrate-root/gen/init.lua: $(wildcard gen/*.lua) $(TEMPLATES) $(wildcard tests/sim/calibrate/*)
	$(call say,COPY,$(BUILD)/calibrate-root)
	$(Q)tests/sim/calibrate/root.sh $(BUILD)/calibrate-root

# Built by `make check` with clang in its own build folder.
$(FUZZ_PROGRAMS): $(BUILD)/%: $(BUILD)/%.o $(TOOL_LIB) $(WHOLE)
	$(call say,LD,$@)
	$(Q)$(CC) -fsanitize=fuzzer,address,undefined -o $@ $(filter %.o,$^) $(ZSTD_ARCHIVE) $(LIBS)

-include $(patsubst %.o,%.d,$(call objects,$(C_SOURCES)) $(BUILD)/gen/embedded.o) $(patsubst %.cpp,$(BUILD)/%.d,$(SIM_ENGINE))

# ---- tests (docs/testing.md) -----------------------------------------------------------------------------------------------------
#
# Each tier is a list of "name<tab>command" lines that tests/run.sh runs; it prints a line a program and one closing line.

.PHONY: check check-fast check-gpu check-long check-sim check-sim-long check-sim-coverage check-sim-mutants golden unit-programs fuzzers objects lint lint-c lint-lua lint-templates lint-shell

# Tests leave the user's cache alone, and find their own from run to run.
export VARFLASH_CACHE_DIR ?= $(abspath $(BUILD)/cache)
export VARFLASH_SYSTEM_CACHE ?= $(abspath $(BUILD)/no-system-cache)

# Programs too slow for check-fast: `check` alone runs them. What takes long comes first there, so that both cores are busy to the end.
SLOW := test_cpu test_cpu_faults test_sweep test_faults test_cache_jit
SLOW_UNIT := $(filter $(SLOW:%=$(BUILD)/tests/unit/%),$(UNIT_PROGRAMS))

define newline


endef
tab := $(shell printf '\t')
line = $(1)$(tab)$(2)$(newline)
run_lines = $(if $(strip $(1)),@mkdir -p $(BUILD) $(VARFLASH_CACHE_DIR) $(file >$(BUILD)/$@.list,$(1)) && tests/run.sh $(2) $(BUILD)/$@.list)

unit_lines = $(foreach p,$(1),$(call line,$(patsubst $(BUILD)/tests/%,%,$(p)),$(p)))
lua_lines = $(foreach p,$(wildcard tests/lua/test_*.lua),$(call line,$(p:tests/%=%),$(LUA) $(p)))
cli_lines = $(if $(TOOL),$(foreach p,$(wildcard tests/cli/*.sh),$(call line,$(p:tests/%=%),VARFLASH=$(abspath $(TOOL)) bash $(p))))

FAST_LINES = $(call line,lint,$(MAKE) -s lint) \
$(call line,layers,$(LUA) tests/test_layers.lua) \
$(call line,docs,$(LUA) tools/docs.lua --check) \
$(call line,headers,CC="$(CC)" CXX="$(CXX)" bash tests/headers.sh) \
$(call unit_lines,$(filter-out $(SLOW_UNIT),$(UNIT_PROGRAMS)))$(lua_lines)$(cli_lines)

UNIT_NAMES := $(UNIT_SOURCES:tests/unit/%.c=%)
SAN_LINES = $(foreach p,$(filter $(SLOW),$(UNIT_NAMES)) $(filter-out $(SLOW),$(UNIT_NAMES)),$(call line,san/$(p),CK_TIMEOUT_MULTIPLIER=8 build/san/tests/unit/$(p)))
VALGRIND_LINES = $(foreach p,$(filter-out $(SLOW_UNIT),$(UNIT_PROGRAMS)),$(call line,valgrind/$(notdir $(p)),CK_FORK=no \
	valgrind --quiet --leak-check=full --error-exitcode=9 $(p)))
FUZZ_LINES = $(foreach p,$(FUZZ_SOURCES:tests/fuzz/%.c=%),$(call line,fuzz/$(p),tests/fuzz.sh $(p) $(FUZZ_SECONDS)))
MATRIX_LINES = $(if $(wildcard tests/matrix.lua),$(call line,matrix,BUILD=$(BUILD) JOBS=$(JOBS) $(LUA) tests/matrix.lua $(MATRIX_OPTIONS)))
TIDY_LINES = $(foreach p,$(C_SOURCES),$(call line,tidy/$(p),clang-tidy --quiet $(p) -- -std=c11 $(DEFINES) $(ALL_INCLUDES) $(LUA_CFLAGS) $(CJSON_CFLAGS) $(ZSTD_CFLAGS)))
# The simulator: each variant under SIM_SEEDS seeds, of which three have every kind of batch, drifting lanes and blocks in any order; one of
# SIM_SHARE mutants.
SIM_SEEDS := 3
SIM_SHARE := 5
SIM_PARTS := 1 2
SIM_NEEDS := $(SIM) $(SIM_PROGRAMS) $(CALIBRATE) $(BUILD)/calibrate-root/gen/init.lua
SIM_LUA := SIM=$(SIM) WORK=$(BUILD)/sim JOBS=$(JOBS) $(LUA) tests/sim
MUTANT_LINES = $(foreach i,$(SIM_PARTS),$(call line,sim/mutants-$(i),$(SIM_LUA)/mutants.lua $(SIM_SHARE) $(i)/$(words $(SIM_PARTS))))
SIM_LINES = $(foreach v,$(shell $(LUA) tests/sim/suite.lua list),$(call line,sim/$(v),$(SIM_LUA)/suite.lua run $(v) 1 $(SIM_SEEDS))) \
$(call line,sim/branches,$(LUA) tests/sim/suite.lua branches) \
$(call line,sim/calibrate,$(CALIBRATE) $(BUILD)/calibrate-root $(wildcard tests/sim/calibrate/recorded.txt)) \
$(call line,sim/widths,$(SIM_LUA)/widths.lua) \
$(call unit_lines,$(SIM_PROGRAMS))
INSTALL_LINES = $(call line,install,MAKE="$(MAKE)" CC="$(CC)" CXX="$(CXX)" BUILD=$(BUILD) bash tests/install.sh)
PYTHON_LINES = $(call line,python,BUILD=$(BUILD) PYTHON=$(PYTHON) tests/python.sh)
RUNTIME_LINES = $(call line,runtime-only,MAKE="$(MAKE)" CC="$(CC)" BUILD=$(BUILD) bash tests/runtime_only.sh)
CHECK_LINES = $(MUTANT_LINES)$(SIM_LINES)$(MATRIX_LINES)$(PYTHON_LINES)$(call unit_lines,$(SLOW_UNIT))$(SAN_LINES)$(FUZZ_LINES)$(INSTALL_LINES)$(RUNTIME_LINES)$(FAST_LINES)

check-fast: all unit-programs $(if $(wildcard $(SIM)),$(SIM)) ## tests of two minutes: lint, layers, headers, unit, Lua, command line
	$(call run_lines,$(FAST_LINES),-j $(JOBS))

# What the tests need; also with -j.
.PHONY: check-needs
check-needs: all unit-programs $(SIM_NEEDS) check-variants

check: check-needs ## what CI runs: check-fast and the sweep, compile matrix, simulator and an n-th of its mutants, sanitizers, fuzzers, installation
	$(call run_lines,$(CHECK_LINES),-j $(JOBS))

check-gpu: all $(GPU_PROGRAMS) ## GPU tests; skipped where there is no device
	$(Q)mkdir -p $(VARFLASH_CACHE_DIR) && VARFLASH=$(abspath $(TOOL)) tests/gpu.sh -d $(BUILD)/tests/gpu

check-sim: $(SIM_NEEDS) ## kernels on the simulated GPU: every template branch, many schedules (part of check)
	$(call run_lines,$(SIM_LINES),-j $(JOBS))

check-sim-long: $(SIM) ## the same with new seeds for SECONDS=3600
	$(Q)$(SIM_LUA)/suite.lua long $(or $(SECONDS),3600)

check-sim-coverage: $(SIM) ## template lines that no run of the simulator's suite reaches, under SEEDS=4 seeds
	$(Q)$(SIM_LUA)/coverage.lua $(or $(SEEDS),4)

check-sim-mutants: $(SIM) $(SIM_PROGRAMS) ## faults planted in copies of the templates, one at a time: does the simulator find them? SHARE=n: an n-th of them
	$(Q)$(SIM_LUA)/mutants.lua $(or $(SHARE),1)

check-long: FUZZ_SECONDS = 600
check-long: MATRIX_OPTIONS = --all
check-long: SIM_SEEDS = 4
check-long: SIM_SHARE = 1
check-long: SIM_PARTS = 1 2 3 4
check-long: check-needs ## check with every architecture, valgrind, clang-tidy and long fuzzing
	$(call run_lines,$(CHECK_LINES)$(VALGRIND_LINES)$(TIDY_LINES),-j $(JOBS) -t 7200)

# The same tree built twice more: with sanitizers, and by clang, every file of it, for the fuzzers.
.PHONY: check-variants
check-variants:
	$(Q)$(MAKE) --no-print-directory BUILD=build/san SAN=address,undefined unit-programs
	$(Q)$(MAKE) --no-print-directory BUILD=build/fuzz SAN=fuzzer-no-link,address,undefined CC=clang objects fuzzers

unit-programs: $(UNIT_PROGRAMS)
fuzzers: $(FUZZ_PROGRAMS)
objects: $(call objects,$(C_SOURCES))

golden: $(TOOL) ## rewrite the expanded kernels in tests/golden/ and the help pages in tests/cli/golden/
	$(Q)$(LUA) tests/lua/test_golden.lua --update
	$(Q)UPDATE=1 VARFLASH=$(abspath $(TOOL)) bash tests/cli/help.sh

# Layout is checked with one version only: others disagree about details.
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-14) clang-format)

lint: lint-c lint-lua lint-templates lint-shell ## layout and static checks of C, Lua, templates and shell

lint-c:
	$(call say,LINT,C)
	$(Q)if $(CLANG_FORMAT) --version | grep -q 'version 14'; then $(CLANG_FORMAT) --dry-run -Werror $(C_SOURCES) $(C_HEADERS) $(TEMPLATES) $(SIM_ENGINE) $(SIM_KERNEL); \
		else echo 'lint: clang-format 14 is not here: layout was not checked'; fi
	$(Q)cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability,performance --inline-suppr \
		--suppressions-list=.cppcheck-suppressions $(DEFINES) -Iruntime/include -Iruntime -Itools/lib -Itools $(C_SOURCES)

# luacheck prints its totals even when there is nothing to say.
quiet_luacheck = report=$$($(1)) || { echo "$$report"; exit 1; }

lint-lua:
	$(call say,LINT,Lua)
	$(Q)$(call quiet_luacheck,luacheck --quiet --no-color $(LUA_SOURCES))

lint-templates:
	$(call say,LINT,templates)
	$(Q)mkdir -p $(BUILD); for template in $(TEMPLATES); do $(call quiet_luacheck,$(LUA) gen/cli.lua lua $$template > $(BUILD)/lint.lua && \
		luacheck --quiet --no-color --std lua54 --no-max-line-length --read-globals $$($(LUA) gen/cli.lua names) \
		--filename $$template - < $(BUILD)/lint.lua); done

lint-shell:
	$(call say,LINT,shell)
	$(Q)shellcheck $(SHELL_SOURCES)

# ---- the rest ------------------------------------------------------------------------------------------------------------------

.PHONY: install clean help deps deps-python demo docs bench format size ci gpu-bundle wheel python-library check-python runtime-only deb

install: all ## install under $(DESTDIR)$(PREFIX): library, header, pkg-config file, command, configurations, pages
	$(Q)install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR)/varflash $(DESTDIR)$(DATADIR)/varflash/configs
	$(Q)install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)
	$(Q)ln -sf $(notdir $(SHARED)) $(DESTDIR)$(LIBDIR)/libvarflash.so.$(MAJOR)
	$(Q)ln -sf libvarflash.so.$(MAJOR) $(DESTDIR)$(LIBDIR)/libvarflash.so
	$(Q)install -m 644 $(STATIC) $(DESTDIR)$(LIBDIR)
	$(Q)install -m 644 $(filter-out %_dev.h,$(wildcard runtime/include/varflash/*.h)) $(DESTDIR)$(INCLUDEDIR)/varflash
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		-e 's|@REQUIRES@|$(if $(CJSON_LIBS),libcjson) $(if $(ZSTD_LIBS),libzstd) $(if $(LUA_LIBS),$(LUA_PKG))|' varflash.pc.in \
		> $(DESTDIR)$(LIBDIR)/pkgconfig/varflash.pc
	$(if $(TOOL),$(Q)install -m 755 $(TOOL) $(DESTDIR)$(BINDIR))
	$(if $(wildcard configs/*.json),$(Q)install -m 644 $(wildcard configs/*.json) $(DESTDIR)$(DATADIR)/varflash/configs)
	$(Q)install -d $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man3 $(DESTDIR)$(BASH_COMPLETIONS) $(DESTDIR)$(ZSH_COMPLETIONS) $(DESTDIR)$(FISH_COMPLETIONS)
	$(Q)$(TOOL) pages man > $(DESTDIR)$(MANDIR)/man1/varflash.1
	$(Q)$(TOOL) pages bash > $(DESTDIR)$(BASH_COMPLETIONS)/varflash
	$(Q)$(TOOL) pages zsh > $(DESTDIR)$(ZSH_COMPLETIONS)/_varflash
	$(Q)$(TOOL) pages fish > $(DESTDIR)$(FISH_COMPLETIONS)/varflash.fish
	$(Q)$(LUA) tools/man3.lua $(PUBLIC_HEADER) > $(DESTDIR)$(MANDIR)/man3/varflash.3
	$(Q)for name in $$($(LUA) tools/man3.lua --names $(PUBLIC_HEADER)); do \
		echo '.so man3/varflash.3' > $(DESTDIR)$(MANDIR)/man3/$$name.3; done

deb: all ## build/varflash_VERSION_ARCH.deb: what install installs, as a Debian package
	$(Q)MAKE="$(MAKE)" BUILD=$(BUILD) VERSION=$(VERSION) PKG_LIBRARIES="$(LIBS)" tools/deb.sh

# For machines that get their kernels from bundles: no generator, no templates, and zstd from the system.
runtime-only: ## build/runtime-only/libvarflash.so: without Lua, for bundles; at most 300 KB
	$(Q)$(MAKE) --no-print-directory RUNTIME_ONLY=1 BUILD=$(BUILD)/runtime-only $(BUILD)/runtime-only/libvarflash.so
	@stat -Lc '%s bytes: %n' $(BUILD)/runtime-only/libvarflash.so

demo: ## the main job on real input: packages, build, kernels, forward and backward, check
	$(Q)tools/demo.sh

deps: ## install the packages that building and testing need (Debian, Ubuntu)
	$(Q)tools/deps.sh

deps-python: ## a Python with torch, pytest and transformers in build/python-env, for check-python: 5 GB
	$(Q)tools/deps.sh python

bench: $(TOOL) ## time the default suite
	$(Q)$(TOOL) bench --suite default

# What a machine with a GPU needs to test and measure, and nothing that it must have: Lua, Check and subunit are linked in, cJSON lies beside.
BUNDLE := $(BUILD)/gpu-bundle
BUNDLE_PROGRAMS := $(GPU_SOURCES:tests/gpu/%.c=$(BUNDLE)/%)
bundle_link = $(Q)$(CC) -s $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) $(1) $(ZSTD_ARCHIVE) $(LIBS)

$(BUNDLE_PROGRAMS): $(BUNDLE)/%: $(BUILD)/tests/gpu/%.o $(call objects,$(GPU_HELPERS) $(TEST_LIB_SOURCES)) $(TOOL_LIB) $(WHOLE)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(call bundle_link,$(CHECK_LIBS))

$(BUNDLE)/varflash: $(call objects,$(TOOL_SOURCES)) $(TOOL_LIB) $(WHOLE)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(call bundle_link)

$(BUNDLE)/calibrate: $(addprefix $(BUILD)/tests/sim/calibrate/,calibrate.o calibrate_gpu.o) $(WHOLE)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(call bundle_link)

$(BUNDLE)/demo-judge: $(BUILD)/tools/demo/judge.o $(TOOL_LIB) $(WHOLE)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(call bundle_link)

gpu-bundle: lib $(BUNDLE_PROGRAMS) $(BUNDLE)/calibrate $(BUILD)/calibrate-root/gen/init.lua $(BUNDLE)/demo-judge $(if $(TOOL),$(BUNDLE)/varflash) ## build/gpu-bundle: GPU tests and command for a machine without Lua, cJSON and Check
	$(Q)cp $(SHARED) $(BUNDLE)/libvarflash.so
	$(if $(CJSON_LIBS),$(Q)cp -L $(shell $(CC) -print-file-name=libcjson.so.1) $(BUNDLE)/)
	$(Q)cp -R $(BUILD)/calibrate-root configs tests/run.sh tests/gpu.sh tools/demo/packed.safetensors $(BUNDLE)/
	@du -sh $(BUNDLE)

# What the Python package carries: the library, beside it what a system may lack, and the problems that varflash.compare times.
PYTHON_LIBRARY ?= $(BUILD)/python-library

$(BUILD)/python-suites: $(BUILD)/tools/python/suites.o $(TOOL_LIB) $(WHOLE)
	$(call say,LD,$@)
	$(call link)

python-library: lib $(BUILD)/python-suites
	$(Q)mkdir -p $(PYTHON_LIBRARY) && cp $(SHARED) $(PYTHON_LIBRARY)/libvarflash.so && strip --strip-unneeded $(PYTHON_LIBRARY)/libvarflash.so
	$(Q)$(BUILD)/python-suites > $(PYTHON_LIBRARY)/suites.txt
	$(Q)for package in libcjson1 liblua5.4-dev libzstd-dev; do \
		[ ! -f /usr/share/doc/$$package/copyright ] || cp /usr/share/doc/$$package/copyright $(PYTHON_LIBRARY)/copyright.$$package; done
	$(if $(CJSON_LIBS),$(Q)cp -L $(shell $(CC) -print-file-name=libcjson.so.1) $(PYTHON_LIBRARY)/)

wheel: ## build/wheel/varflash-*.whl: the PyTorch package with the library inside
	$(Q)rm -rf $(BUILD)/wheel
	$(Q)BUILD=$(abspath $(BUILD)) $(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir $(BUILD)/wheel tools/python
	$(Q)for wheel in $(BUILD)/wheel/*.whl; do size=$$(stat -c %s $$wheel); echo "$$wheel: $$size bytes"; [ $$size -le 3000000 ]; done

check-python: lib ## tests of the PyTorch package; skipped where Python has no torch
	$(Q)BUILD=$(BUILD) PYTHON=$(PYTHON) tests/python.sh || [ $$? = 77 ]

format: ## lay out C and CUDA templates
	$(Q)$(CLANG_FORMAT) -i $(C_SOURCES) $(C_HEADERS) $(TEMPLATES) $(SIM_ENGINE) $(SIM_KERNEL)

docs: ## rewrite the generated tables in docs/ and say if they were out of date
	$(Q)$(LUA) tools/docs.lua

size: ## lines per module
	@for folder in gen templates runtime configs tools tests docs; do \
		printf '%-10s %6d\n' $$folder $$(find $$folder -type f -not -name '*.safetensors' -exec cat {} + | wc -l); done

ci: ## what continuous integration runs
	$(Q).ci/run

clean: ## remove everything that was built
	$(Q)rm -rf $(BUILD) build

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^\#]*\#\# \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 27
