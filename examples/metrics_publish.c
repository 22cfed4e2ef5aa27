/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics_publish.c - a program whose counters xport_exporter serves to Prometheus.
 *
 *	mkdir /tmp/metrics
 *	XPORT_METRICS_DIR=/tmp/metrics XPORT_LATENCY=1 metrics_publish [SECONDS] &
 *	xport_exporter /tmp/metrics &
 *	curl http://127.0.0.1:7473/metrics
 *
 * The instance sends a message to itself every 10 ms, for an hour unless told otherwise.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <xport_services.h>

static xport *x;

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_last_error(x, &e);
	fprintf(stderr, "metrics_publish: %s: %s\n", e.operation, e.text);
	exit(1);
}

/* Functions of libxport_services describe their failures themselves. */
static void print_service(void)
{
	struct xport_error e = {.size = sizeof(e)};

	xport_services_last_error(&e);
	fprintf(stderr, "metrics_publish: %s: %s\n", e.operation, e.text);
}

static void must_service(int status)
{
	if (status >= 0)
		return;
	print_service();
	exit(1);
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 3600);
	struct xport_completion c = {0};
	xport_listener *listener;
	xport_metrics *metrics;
	char name[64], text[16];
	xport_ep *ep;

	must(xport_open(NULL, &x));
	must_service(xport_metrics_create(x, NULL, &metrics));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, 0, &ep));
	while (c.type != XPORT_EVENT_CONNECTED)
		must(xport_wait(x, &c, 1, -1));
	printf("connected%s\n", metrics == NULL ? ", XPORT_METRICS_DIR is not set" : "");
	fflush(stdout);
	while (time(NULL) < end) {
		must(xport_recv(x, text, sizeof(text), 1, UINT64_MAX, NULL));
		must(xport_send(ep, "hello", 6, 1, NULL));
		for (int due = 2; due > 0; due--)
			must(xport_wait(x, &c, 1, -1));
		if (xport_metrics_publish(metrics, &ep, 1) != XPORT_OK)
			print_service();
		poll(NULL, 0, 10);
	}
	xport_metrics_destroy(metrics);
	xport_close(x);
	return 0;
}
