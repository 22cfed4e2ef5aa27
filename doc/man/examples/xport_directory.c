/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xport_services.h>

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

/* The process that serves: an event loop, until its only user is gone. */
static int serve(int tell)
{
	struct xport_directory_attr attr = {.size = sizeof(attr), .serve = 1};
	struct xport_directory_info info = {.size = sizeof(info)};
	struct xport_completion c = {0};
	struct pollfd p = {.events = POLLIN};
	xport_directory *directory;
	xport_listener *listener;
	char name[64];
	xport_ep *ep;
	xport *x;

	if (xport_open(NULL, &x) ||
	    xport_listen(x, "127.0.0.1:0", NULL, &listener) ||
	    xport_listener_name(listener, name, sizeof(name)) ||
	    write(tell, name, sizeof(name)) != sizeof(name) ||
	    xport_accept(listener, -1, &ep))
		return 1;
	must(xport_directory_create(x, &attr, &directory));
	p.fd = xport_fd(x);
	while (c.type != XPORT_EVENT_CLOSED && c.type != XPORT_EVENT_LOST) {
		poll(&p, 1, xport_directory_timeout(directory));
		if (xport_poll(x, &c, 1) < 1)
			must(xport_directory_step(directory, NULL));
		else
			must(xport_directory_step(directory, &c));
	}
	must(xport_directory_query(directory, &info));
	printf("%llu names are left\n", (unsigned long long)info.names);
	must(xport_directory_destroy(directory, NULL, NULL, 1000));
	xport_close(x);
	return info.names != 0;
}

static struct xport_directory_event next(xport_directory *directory)
{
	struct xport_directory_event e = {.size = sizeof(e)};

	must(xport_directory_wait(directory, &e, NULL, NULL, -1));
	must(e.status);
	printf("event %d: %.*s, version %llu\n", e.type, (int)e.name_len,
	       (char *)e.name, (unsigned long long)e.entry.version);
	return e;
}

int main(void)
{
	struct xport_directory_attr attr = {.size = sizeof(attr),
	                                    .node = "here:7000"};
	struct xport_directory_event e = {.size = sizeof(e)};
	struct xport_directory_entry entry;
	xport_directory *directory;
	char own[100], name[64];
	int tell[2];
	xport_ep *ep;
	xport_mr *mr;
	xport *x;

	if (pipe(tell))
		return 1;
	if (fork() == 0)
		return serve(tell[1]);
	if (read(tell[0], name, sizeof(name)) != sizeof(name) ||
	    xport_open(NULL, &x) || xport_connect(x, name, NULL, -1, &ep) ||
	    xport_mr_reg(x, own, sizeof(own), XPORT_REMOTE_READ, &mr))
		return 1;
	must(xport_directory_create(x, &attr, &directory));
	must(xport_directory_join(directory, ep));

	/* Name a region of this process. */
	must(xport_directory_region(mr, 0, sizeof(own), &entry));
	must(xport_directory_put(directory, "table", 5, &entry, 0, NULL));
	next(directory);

	/* Find it.  With an endpoint to e.entry.node, e.entry.key is for
	 * xport_rkey_unpack. */
	must(xport_directory_find(directory, "table", 5, NULL));
	e = next(directory);
	printf("%llu bytes at %s\n", (unsigned long long)e.entry.length,
	       e.entry.node);

	/* Hear of what there is, and of every change. */
	must(xport_directory_watch(directory, NULL));
	next(directory); /* DONE */
	next(directory); /* CHANGED: table */
	must(xport_directory_remove(directory, "table", 5, NULL));
	next(directory); /* DONE */
	next(directory); /* GONE: table */
	if (xport_directory_next(directory, &e) != 0)
		return 1;

	must(xport_directory_destroy(directory, NULL, NULL, 1000));
	xport_directory_forget(
		NULL, ep); /* between xport_ep_close and xport_ep_destroy */
	xport_close(x);
	return 0;
}
