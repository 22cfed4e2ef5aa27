/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport.h>

static xport *x;

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_last_error(x, &e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

int main(void)
{
	static char table[4096];
	struct xport_mr_info info = {.size = sizeof(info)};
	xport_mr *fast, *own;

	must(xport_open(NULL, &x));
	must(xport_mr_reg(x, table, sizeof(table), XPORT_REMOTE_READ, &own));
	must(xport_mr_alloc(x, 1 << 20, XPORT_REMOTE_WRITE, &fast));
	must(xport_mr_query(fast, &info));
	memset(info.base, 1, info.length);
	printf("%zu bytes from the library, rights %u\n", info.length,
	       (unsigned)info.rights);
	must(xport_mr_dereg(own));  /* from here on table may be reused */
	must(xport_mr_dereg(fast)); /* and here its memory is gone */
	xport_close(x);
	return 0;
}
