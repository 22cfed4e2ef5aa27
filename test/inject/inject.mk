# SPDX-License-Identifier: BSD-3-Clause
# inject.mk - `make inject` runs this with GNU make: builds the library with its calls led through the injector, in a folder
# of its own, and runs it.
#
# The objects are linked into one (ld -r) with --wrap for each call of calls.h, so that nobody's calls but the library's
# go by the injector: neither those of the stacks nor those of the tests.  They are compiled without optimisation: each
# call in the sources is then one call in the objects, which the report of what was reached counts.
#
# Given: INJECT_SRC, CC, sources (of the library, its services, and of loop, below INJECT_SRC), backends (names), INJECT_OUT,
# INJECT_CPPFLAGS, INJECT_LIBS, INJECT_ARGS.

out = $(INJECT_OUT)
src = $(INJECT_SRC)
flags = -std=gnu11 -g1 -O0 -fPIE -Wall -Wextra -MMD -include config.h -I. -I$(src)/src -I$(src)/src/api \
	-I$(src)/test $(INJECT_CPPFLAGS) -DXPI_BUILTIN_BACKENDS=1 -DXPI_BUILD_DIR='"$(CURDIR)"' $(INJECT_CFLAGS)
of_backends = $(foreach b,$(backends),$(patsubst $(src)/%,%,$(wildcard $(src)/src/backends/$(b)/*.c)))
library = $(patsubst %.c,$(out)/obj/%.o,$(filter %.c,$(sources)) $(of_backends) test/site.c)
own = $(patsubst %.c,$(out)/obj/%.o,test/inject/inject.c test/inject/inject_check.c test/inject/plan.c test/inject/scene.c test/inject/scene_open.c \
	$(patsubst $(src)/%,%,$(wildcard $(src)/test/inject/scenarios*.c)) $(if $(filter ofi,$(backends)),test/inject/fabric.c) \
	$(if $(filter verbs,$(backends)),test/inject/rdma.c))
wraps = -Wl,--wrap=free $(shell sed -n 's/^CALL.[A-Z]*, *\([a-z0-9_]*\).*/-Wl,--wrap=\1/p' $(src)/test/inject/calls.h)

run: $(out)/inject_check
	@$(src)/test/inject/report $(out) $(INJECT_ARGS)
build: $(out)/inject_check

$(out)/obj/%.o: $(src)/%.c
	@mkdir -p $(@D)
	@echo "  INJECT   $*"
	@$(CC) $(flags) -c -o $@ $<
$(out)/obj/src/backends/ofi/%.o: flags += -include $(src)/test/inject/fabric.h
$(out)/obj/src/backends/ofi/%.o: $(src)/test/inject/fabric.h

$(out)/library.o: $(library) $(src)/test/inject/calls.h
	@$(CC) -r -nostdlib $(wraps) -o $@ $(library)

$(out)/inject_check: $(out)/library.o $(own)
	@echo "  INJECTLD $@"
	@$(CC) -pie $(INJECT_CFLAGS) -o $@ $^ $(INJECT_LIBS) -lpthread -ldl

.SECONDARY:
.PHONY: run build
-include $(shell find $(out)/obj -name '*.d' 2>/dev/null)
