# SPDX-License-Identifier: BSD-3-Clause
# fuzz.mk - `make fuzz` runs this with GNU make: builds each target with libFuzzer, in a folder of its own, and runs it.
#
# Given: top_srcdir, FUZZ_CC (a clang), sources (of the library and of loop, below top_srcdir), FUZZ_LIBS, FUZZ_SECONDS,
# FUZZ_TARGETS, FUZZ_MERGE (yes: adds what is new to the corpus in the sources), FUZZ_MAX_LEN, FUZZ_FAST (yes: without
# AddressSanitizer: more executions, each of which sees less).

ifeq ($(FUZZ_FAST),yes)
out = fuzz/fast
sanitizers = undefined
flags = -O2 -fsanitize=undefined -fsanitize-undefined-trap-on-error
else
out = fuzz
sanitizers = address,undefined
flags = -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
endif
flags += -std=gnu11 -g -fno-omit-frame-pointer \
	-Wall -Wextra -Wno-unknown-warning-option -Werror -MMD \
	-include config.h -I. -I$(top_srcdir)/src -I$(top_srcdir)/src/api -I$(top_srcdir)/test \
	-DXPI_BUILD_DIR='"$(CURDIR)"' $(FUZZ_CFLAGS)
helpers = test/site.c test/fuzz/ledger.c test/fuzz/open.c
objects = $(patsubst %.c,$(out)/obj/%.o,$(filter %.c,$(sources)) $(helpers))
programs = $(FUZZ_TARGETS:%=$(out)/fuzz_%)
corpus = $(top_srcdir)/test/fuzz/corpus

run: $(FUZZ_TARGETS:%=run-%)
build: $(programs)

$(out)/obj/%.o: $(top_srcdir)/%.c
	@mkdir -p $(@D)
	@echo "  FUZZ     $*"
	@$(FUZZ_CC) $(flags) -fsanitize=fuzzer-no-link -c -o $@ $<

$(out)/fuzz_%: $(out)/obj/test/fuzz/fuzz_%.o $(objects)
	@echo "  FUZZLD   $@"
	@$(FUZZ_CC) -fsanitize=fuzzer,$(sanitizers) -o $@ $^ $(FUZZ_LIBS) -lpthread -ldl

# loop is linked in, the others are modules, which are not loaded here.
$(out)/obj/test/loop/%.o: flags += -DXPI_BUILTIN_BACKENDS=1
$(out)/obj/test/fuzz/fuzz_%.o: flags += -DFUZZ_ALONE

# What is new goes to fuzz/new/TARGET, a crash to fuzz/failed-TARGET-*, whose name libFuzzer prints.
run-%: $(out)/fuzz_%
	@mkdir -p $(out)/new/$*
	@echo "fuzz: $* for $(FUZZ_SECONDS) s"
	@env UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 \
		LSAN_OPTIONS=suppressions=$(top_srcdir)/test/lsan.supp:print_suppressions=0 \
		$< -max_total_time=$(FUZZ_SECONDS) -max_len=$(FUZZ_MAX_LEN) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix=$(out)/failed-$*- $(out)/new/$* $(corpus)/$* >$(out)/$*.log 2>&1 || \
		{ tail -n 60 $(out)/$*.log; ls $(out)/failed-$*-* >&2; \
		  echo "fuzz: FAILED: $*; replay: test/fuzz_replay FILE $*" >&2; exit 1; }
	@sed -n 's/^stat::number_of_executed_units: */fuzz: $*: executions /p;s/^stat::average_exec_per_sec: */fuzz: $*: a second /p' \
		$(out)/$*.log
	@if [ "$(FUZZ_MERGE)" = yes ]; then \
		$< -merge=1 -max_len=$(FUZZ_MAX_LEN) $(corpus)/$* $(out)/new/$* >$(out)/$*.merge.log 2>&1; fi

.SECONDARY:
.PHONY: run build
-include $(shell find $(out)/obj -name '*.d' 2>/dev/null)
