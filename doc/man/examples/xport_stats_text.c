/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

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
	struct xport_completion c = {0};
	xport_listener *listener;
	char name[64], *text = NULL;
	size_t len = 0;
	xport_ep *ep;
	int r;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, 0, &ep));
	while (c.type != XPORT_EVENT_CONNECTED)
		must(xport_wait(x, &c, 1, -1));

	/* The text may have grown since its size was asked for. */
	while ((r = xport_stats_text(x, &ep, 1, text, &len)) ==
	       XPORT_ERR_BOUNDS) {
		free(text);
		text = malloc(len);
		if (text == NULL)
			return 1;
	}
	if (r != XPORT_OK) {
		struct xport_error e = {.size = sizeof(e)};

		xport_services_last_error(&e);
		fprintf(stderr, "%s: %s\n", e.operation, e.text);
		return 1;
	}
	fputs(text, stdout);
	r = strstr(text, "xport_ep_operations_total{") == NULL;
	free(text);
	xport_close(x);
	return r;
}
