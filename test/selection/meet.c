/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * meet.c - two processes with different values of XPORT_BACKEND connect, and use the connection.
 *
 *   meet MINE THEIRS
 *
 * A client with MINE connects to a server with THEIRS. Prints "over BACKEND:PROVIDER; passed over TEXT", or "none: " and the
 * error, of the client. Exits 0 if they connected and the data is right, 3 if xport_connect returned an error, else 1.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "xport.h"

enum { LENGTH = 100000, TIMEOUT_MS = 20000 };

static xport *open_as(const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	struct xport_error err = {.size = sizeof(err)};
	xport *x;

	if (xport_open(&attr, &x) == XPORT_OK)
		return x;
	(void)!xport_last_error(NULL, &err);
	fprintf(stderr, "%s: %s\n", backend, err.text);
	exit(1);
}

static void fails(xport *x, const char *what)
{
	struct xport_error err = {.size = sizeof(err)};

	(void)!xport_last_error(x, &err);
	fprintf(stderr, "%s: %s\n", what, err.text);
	exit(1);
}

/* Waits for a completion of this type, and checks its status. */
static void await(xport *x, uint32_t type, const char *what)
{
	time_t end = time(NULL) + 30;
	struct xport_completion c;

	while (time(NULL) < end) {
		int n = xport_wait(x, &c, 1, 100);

		if (n < 0)
			fails(x, what);
		if (n == 0)
			continue;
		if (c.type == type && c.status == XPORT_OK)
			return;
		if (c.type == type || c.type == XPORT_EVENT_LOST) {
			fprintf(stderr, "%s: %s\n", what, xport_strerror(c.status));
			exit(1);
		}
	}
	fprintf(stderr, "%s: nothing came\n", what);
	exit(1);
}

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + 7);
}

static void serve(const char *backend, int to_client)
{
	struct xport_error err = {.size = sizeof(err)};
	xport *x = open_as(backend);
	xport_listener *listener;
	uint8_t *memory = calloc(1, LENGTH), key[256];
	size_t len = sizeof(key);
	xport_ep *ep;
	xport_mr *mr;
	char name[64], end[4];
	int r;

	if (memory == NULL ||
	    xport_mr_reg(x, memory, LENGTH, XPORT_REMOTE_WRITE | XPORT_REMOTE_READ, &mr) != XPORT_OK ||
	    xport_rkey_pack(mr, key, &len) != XPORT_OK || xport_listen(x, "127.0.0.1:0", NULL, &listener) != XPORT_OK ||
	    xport_listener_name(listener, name, sizeof(name)) != XPORT_OK)
		fails(x, "the server");
	if (write(to_client, name, sizeof(name)) != sizeof(name))
		exit(1);
	r = xport_accept(listener, TIMEOUT_MS, &ep);
	if (r != XPORT_OK) {
		(void)!xport_last_error(x, &err);
		exit(3);
	}
	if (xport_send(ep, key, len, 1, NULL) != XPORT_OK)
		fails(x, "xport_send");
	await(x, XPORT_OP_SEND, "sending the key");
	if (xport_recv(x, end, sizeof(end), 2, UINT64_MAX, NULL) != XPORT_OK)
		fails(x, "xport_recv");
	await(x, XPORT_OP_RECV, "the client's message");
	for (size_t i = 0; i < LENGTH; i++) {
		if (memory[i] == byte_at(i))
			continue;
		fprintf(stderr, "byte %zu of the put is wrong\n", i);
		exit(1);
	}
	if (xport_mr_dereg(mr) != XPORT_OK)
		fails(x, "xport_mr_dereg");
	(void)!xport_ep_close(ep, 5000);
	xport_close(x);
	exit(0);
}

/* Puts a pattern, gets it back, and says that it is there. */
static void use(xport *x, xport_ep *ep)
{
	uint8_t *out = malloc(LENGTH), *in = calloc(1, LENGTH), key[256];
	xport_rkey *k;

	if (out == NULL || in == NULL || xport_recv(x, key, sizeof(key), 1, UINT64_MAX, NULL) != XPORT_OK)
		fails(x, "xport_recv");
	for (size_t i = 0; i < LENGTH; i++)
		out[i] = byte_at(i);
	await(x, XPORT_OP_RECV, "the key");
	if (xport_rkey_unpack(ep, key, 52, &k) != XPORT_OK || xport_put(ep, out, LENGTH, k, 0, NULL) != XPORT_OK)
		fails(x, "xport_put");
	await(x, XPORT_OP_PUT, "the put");
	if (xport_get(ep, in, LENGTH, k, 0, NULL) != XPORT_OK)
		fails(x, "xport_get");
	await(x, XPORT_OP_GET, "the get");
	if (memcmp(in, out, LENGTH) != 0) {
		fprintf(stderr, "the get is wrong\n");
		exit(1);
	}
	xport_rkey_destroy(k);
	if (xport_send(ep, "end", 4, 2, NULL) != XPORT_OK)
		fails(x, "xport_send");
	await(x, XPORT_OP_SEND, "the last message");
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_error err = {.size = sizeof(err)};
	int fds[2], status = 0, r;
	char name[64];
	pid_t server;
	xport_ep *ep;
	xport *x;

	if (argc != 3 || pipe(fds) != 0)
		return 2;
	server = fork();
	if (server == 0)
		serve(argv[2], fds[1]);
	close(fds[1]);
	if (read(fds[0], name, sizeof(name)) != sizeof(name))
		return 1;
	x = open_as(argv[1]);
	r = xport_connect(x, name, NULL, TIMEOUT_MS, &ep);
	if (r != XPORT_OK) {
		(void)!xport_last_error(x, &err);
		printf("none: %s: %s\n", xport_status_name(r), err.text);
		kill(server, 9);
		return 3;
	}
	if (xport_ep_query(ep, &info) != XPORT_OK)
		fails(x, "xport_ep_query");
	printf("over %s:%s; passed over %s\n", info.backend, info.provider, info.passed_over);
	use(x, ep);
	(void)!xport_ep_close(ep, 5000);
	xport_close(x);
	waitpid(server, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
