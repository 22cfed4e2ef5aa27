/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
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

/* For functions of libxport_services, which describe their failures. */
static void must_service(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

int main(void)
{
	struct xport_metrics_attr attr = {
		.size = sizeof(attr), .name = "example", .interval_ms = 500};
	struct xport_completion c = {0};
	xport_listener *listener;
	xport_metrics *metrics;
	char name[64];
	xport_ep *ep;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must_service(xport_metrics_create(x, &attr, &metrics));
	if (metrics == NULL)
		puts("XPORT_METRICS_DIR is not set: nothing is published");
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, 0, &ep));
	while (c.type != XPORT_EVENT_CONNECTED) {
		must(xport_wait(x, &c, 1, 100));
		must_service(xport_metrics_publish(metrics, &ep, 1));
	}
	xport_metrics_destroy(metrics);
	xport_close(x);
	return 0;
}
