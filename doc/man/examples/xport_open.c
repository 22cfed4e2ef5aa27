/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <xport.h>

int main(void)
{
	struct xport_attr attr = {.size = sizeof(attr), .queue_depth = 256};
	struct xport_info info = {.size = sizeof(info)};
	struct xport_error e = {.size = sizeof(e)};
	xport *x = NULL;

	if (xport_open(&attr, &x) < 0 || xport_query(x, &info) < 0) {
		xport_last_error(x, &e);
		fprintf(stderr, "%s: %s\n%s\n", e.operation, e.text, e.hint);
		return 1;
	}
	printf("libxport %s over %s:%s on %s, with %s\n", xport_version(),
	       info.backend, info.provider, info.device, info.stack);
	printf("puts are %s, the target %s call anything for them\n",
	       info.put == XPORT_NATIVE ? "native" : "emulated",
	       info.passive_target ? "need not" : "must");
	xport_close(x);
	return 0;
}
