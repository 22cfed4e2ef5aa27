/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz/fuzz.h"
#include "loop/loop.h"
#include "xport.h"

static void drop(void *arg, int level, const char *id, const char *line)
{
	(void)arg;
	(void)level;
	(void)id;
	(void)line;
}

struct xport *fuzz_open(const char *backend, const char *emulate, uint32_t depth)
{
	struct xport_attr attr = {
		.size = sizeof(attr), .backend = backend, .emulate = emulate, .log_fn = drop, .queue_depth = depth};
	struct xport *x;

	setenv("XPORT_LIVENESS", "poll", 1);
	loop_manners.cma_min = 16 << 10; /* long data may be read out of the peer's memory, which is ours */
	FUZZ_CHECK(xport_open(&attr, &x) == XPORT_OK);
	unsetenv("XPORT_LIVENESS");
	return x;
}
