/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reconnect - a client that survives a crash of its server.
 *
 *   reconnect -s HOST:PORT   the server: prints its address.  With -c instead of -s it crashes at the 50th put
 *   reconnect HOST:PORT      the client: puts 100 values; after a crash it connects again and repeats all of them
 *
 * An endpoint that is lost stays lost, and so do its keys.  An operation that failed with it may have taken effect or not. */
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <xport.h>

enum { SECOND = 1000, VALUES = 100, CRASH = 50 };
static uint64_t values[VALUES];
static xport *x;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s. %s", e.operation, e.text, e.hint);
	}
}

static void serve(const char *address, int crash_at)
{
	char key[1024], name[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = key, .private_len = sizeof(key)};
	struct xport_completion c = {0};
	xport_listener *listener;
	xport_mr *mr;
	xport_ep *ep;

	check(xport_mr_reg(x, values, sizeof(values), XPORT_REMOTE_WRITE, &mr));
	check(xport_rkey_pack(mr, key, &attr.private_len));
	check(xport_listen(x, address, &attr, &listener));
	check(xport_listener_name(listener, name, sizeof(name)));
	printf("%s\n", name);
	fflush(stdout);
	check(xport_accept(listener, 60 * SECOND, &ep));
	while (c.type != XPORT_EVENT_CLOSED && c.type != XPORT_EVENT_LOST) {
		c.type = 0;
		check(xport_wait(x, &c, 1, -1));
		if (c.type == XPORT_EVENT_NOTIFY && --crash_at == 0)
			raise(SIGKILL);
	}
	for (uint64_t i = 0; i < VALUES; i++)
		if (values[i] != i + 1)
			errx(1, "value %d is missing", (int)i);
}

/* Returns the status of the operation in flight.  An event only confirms what that status says. */
static int complete(void)
{
	struct xport_completion c;
	int n;

	do
		check(n = xport_wait(x, &c, 1, -1));
	while (n == 0 || c.type >= XPORT_EVENT_NOTIFY);
	return c.status;
}

/* Connects, and puts all values.  Returns XPORT_OK, or the first failure. */
static int put_all(const char *address)
{
	struct xport_ep_info server = {.size = sizeof(server)};
	xport_rkey *rkey = NULL;
	xport_ep *ep;
	int status = xport_connect(x, address, NULL, 10 * SECOND, &ep);

	if (status < 0)
		return status;
	check(xport_ep_query(ep, &server)); /* a new server has a new key */
	status = xport_rkey_unpack(ep, server.private_data, server.private_len, &rkey);
	for (uint64_t i = 0; i < VALUES && status == XPORT_OK; i++) {
		uint64_t value = i + 1;

		status = xport_put_notify(ep, &value, sizeof(value), rkey, i * sizeof(value), NULL);
		if (status == XPORT_OK) /* accepted: exactly one completion will come */
			status = complete();
	}
	if (status == XPORT_OK)
		status = xport_ep_close(ep, 5 * SECOND);
	xport_rkey_destroy(rkey);
	xport_ep_destroy(ep);
	return status;
}

static void run(const char *address)
{
	int status;

	while ((status = put_all(address)) != XPORT_OK)
		switch (status) {
		case XPORT_ERR_PEER_LOST:   /* the server died, stopped, or cannot be reached any more */
		case XPORT_ERR_PEER_CLOSED: /* it closed the endpoint */
		case XPORT_ERR_REFUSED:     /* nobody listens there: it may be starting */
		case XPORT_ERR_TIMEOUT:     /* it does not answer */
		case XPORT_ERR_UNREACHABLE: /* the network is down */
			printf("%s\n", xport_strerror(status));
			usleep(100000);
			break;
		default: /* AUTH, INCOMPATIBLE, ADDRESS and others do not pass by waiting */
			check(status);
		}
}

int main(int argc, char **argv)
{
	check(xport_open(NULL, &x));
	argc > 2 ? serve(argv[2], argv[1][1] == 'c' ? CRASH : 0) : run(argv[1]);
	xport_close(x);
	return 0;
}
