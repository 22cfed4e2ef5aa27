/* SPDX-License-Identifier: BSD-3-Clause */
/* open_as NAME [ADDRESS] - opens NAME, and listens at ADDRESS; says in one line what came of it. */
#include <stdio.h>
#include <xport.h>

static int report(const xport *x, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (xport_last_error(x, &e) != XPORT_OK || e.status != status) {
		printf("LIED: %s, but the last error is %s\n", xport_status_name(status), xport_status_name(e.status));
		return 2;
	}
	printf("%s|%s|%s|%s|%s\n", xport_status_name(status), e.operation, e.native, e.text, e.hint);
	return 1;
}

int main(int argc, char **argv)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = argc > 1 ? argv[1] : NULL};
	struct xport_info info = {.size = sizeof(info)};
	xport_listener *listener;
	xport *x = NULL;
	int r = xport_open(&attr, &x);

	if (r != XPORT_OK)
		return report(NULL, r);
	r = xport_query(x, &info);
	if (r == XPORT_OK && argc > 2)
		r = xport_listen(x, argv[2], NULL, &listener);
	r = r == XPORT_OK ? 0 : report(x, r);
	if (r == 0)
		printf("opened|%s:%s\n", info.backend, info.provider);
	xport_close(x);
	return r;
}
