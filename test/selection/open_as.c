/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * open_as NAME [ADDRESS] - opens NAME, and listens at ADDRESS; says in one line what came of it.  ADDRESS may be "taken":
 * a port at which it listens already.
 */
#include <stdio.h>
#include <string.h>
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

static int listen_twice(xport *x)
{
	xport_listener *listener;
	char address[64];
	int r = xport_listen(x, "127.0.0.1:0", NULL, &listener);

	if (r == XPORT_OK)
		r = xport_listener_name(listener, address, sizeof(address));
	return r == XPORT_OK ? xport_listen(x, address, NULL, &listener) : r;
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
		r = strcmp(argv[2], "taken") == 0 ? listen_twice(x) : xport_listen(x, argv[2], NULL, &listener);
	r = r == XPORT_OK ? 0 : report(x, r);
	if (r == 0)
		printf("opened|%s:%s\n", info.backend, info.provider);
	xport_close(x);
	return r;
}
