/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pod.c - one of two programs in different containers, for test/build/containers.
 *
 *   pod serve ADDRESS FILE N   listens there, writes the real address to FILE, serves N clients one after the other
 *   pod use ADDRESS            connects, and checks a put, a get and messages; prints "mapped" or "by messages"
 *   pod watch ADDRESS          connects, prints "connected", and waits until the server is lost; prints "lost"
 *   pod leave DIRECTORY        leaves a socket file there, as a process that is killed at the wrong moment
 *   pod open                   opens an instance
 *
 * XPORT_BACKEND says over what. Exits 0 if all is right, 1 with the error.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "xport.h"

enum {
	LENGTH = 1 << 20,
	REGIONS = 400,
	ASLEEP_US = 200 * 1000,
	TIMEOUT_MS = 20000,
	KEY = 1,
	DONE = 2,
	LONG = 3,
	KEY_MAX = 256
};

static xport *x;

static void fails(const char *what)
{
	struct xport_error err = {.size = sizeof(err)};

	(void)!xport_last_error(x, &err);
	printf("%s: %s%s%s\n", what, err.text, err.hint[0] != '\0' ? "; " : "", err.hint);
	exit(1);
}

static void want(int rc, const char *what)
{
	if (rc != XPORT_OK)
		fails(what);
}

static void stop(const char *what)
{
	printf("%s\n", what);
	exit(1);
}

/* Waits for a completion of this type. With XPORT_EVENT_LOST it may be that. */
static void await(uint32_t type, const char *what)
{
	time_t end = time(NULL) + TIMEOUT_MS / 1000;
	struct xport_completion c;

	while (time(NULL) < end) {
		int n = xport_wait(x, &c, 1, 100);

		if (n < 0)
			fails(what);
		if (n == 1 && c.type == type && (c.status == XPORT_OK || type == XPORT_EVENT_LOST))
			return;
		if (n == 1 && (c.type == type || c.type == XPORT_EVENT_LOST)) {
			printf("%s: %s\n", what, xport_strerror(c.status));
			exit(1);
		}
	}
	printf("%s: nothing came\n", what);
	exit(1);
}

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + (i >> 8) + 7);
}

static void fill(uint8_t *p)
{
	for (size_t i = 0; i < LENGTH; i++)
		p[i] = byte_at(i);
}

static void check(const uint8_t *p, const char *what)
{
	for (size_t i = 0; i < LENGTH; i++)
		if (p[i] != byte_at(i))
			stop(what);
}

/* ---- the server ---- */

static void serve_one(xport_listener *listener, uint8_t *memory, const uint8_t *keys, size_t len)
{
	uint8_t *message = malloc(LENGTH);
	char end[8];
	xport_ep *ep;

	if (message == NULL)
		stop("no memory");
	memset(memory, 0, LENGTH);
	want(xport_accept(listener, 3 * TIMEOUT_MS, &ep), "xport_accept");
	want(xport_recv(x, end, sizeof(end), DONE, UINT64_MAX, NULL), "xport_recv");
	want(xport_recv(x, message, LENGTH, LONG, UINT64_MAX, NULL), "xport_recv");
	want(xport_send(ep, keys, len, KEY, NULL), "xport_send");
	await(XPORT_OP_SEND, "sending the keys");
	await(XPORT_OP_RECV, "the client's messages");
	await(XPORT_OP_RECV, "the client's messages");
	check(memory, "the put is wrong");
	check(message, "the message is wrong");
	(void)!xport_ep_close(ep, 5000);
	xport_ep_destroy(ep);
	free(message);
}

static void serve(const char *address, const char *file, int n)
{
	static uint8_t keys[REGIONS * KEY_MAX];
	char name[64], part[512];
	xport_mr *mr[REGIONS];
	xport_listener *listener;
	struct xport_mr_info info[REGIONS];
	size_t len = 0;
	FILE *f;

	/* More regions than descriptors fit into the queue of a socket. */
	for (int i = 0; i < REGIONS; i++) {
		size_t one = KEY_MAX;

		info[i] = (struct xport_mr_info){.size = sizeof(info[i])};
		want(xport_mr_alloc(x, i == 0 ? LENGTH : 4096, XPORT_REMOTE_WRITE | XPORT_REMOTE_READ, &mr[i]),
		     "xport_mr_alloc");
		want(xport_mr_query(mr[i], &info[i]), "xport_mr_query");
		want(xport_rkey_pack(mr[i], keys + i * KEY_MAX, &one), "xport_rkey_pack");
		len = one;
	}
	for (int i = 1; i < REGIONS; i++)
		memmove(keys + (size_t)i * len, keys + (size_t)i * KEY_MAX, len);
	want(xport_listen(x, address, NULL, &listener), "xport_listen");
	want(xport_listener_name(listener, name, sizeof(name)), "xport_listener_name");
	snprintf(part, sizeof(part), "%s.part", file);
	f = fopen(part, "w");
	if (f == NULL || fprintf(f, "%s\n", name) < 0 || fclose(f) != 0 || rename(part, file) != 0)
		stop("cannot write the address");
	for (int i = 0; i < n; i++)
		serve_one(listener, info[0].base, keys, len * REGIONS);
	xport_listener_close(listener);
}

/* ---- the client ---- */

static xport_ep *meet(const char *address)
{
	xport_ep *ep;

	want(xport_connect(x, address, NULL, TIMEOUT_MS, &ep), "xport_connect");
	return ep;
}

/* All keys at once. */
static void take_keys(xport_ep *ep, xport_rkey *keys[REGIONS])
{
	static uint8_t packed[REGIONS * KEY_MAX];
	struct xport_completion c = {.type = 0};
	time_t end = time(NULL) + TIMEOUT_MS / 1000;
	size_t len;

	want(xport_recv(x, packed, sizeof(packed), KEY, UINT64_MAX, NULL), "xport_recv");
	while (c.type != XPORT_OP_RECV && time(NULL) < end)
		if (xport_wait(x, &c, 1, 100) < 0)
			fails("the keys");
	if (c.type != XPORT_OP_RECV || c.status != XPORT_OK)
		stop("the keys do not come");
	len = (size_t)c.length / REGIONS;
	for (int i = 0; i < REGIONS; i++)
		want(xport_rkey_unpack(ep, packed + (size_t)i * len, len, &keys[i]), "xport_rkey_unpack");
}

/* How many of the regions are mapped, once nothing changes any more. */
static int count_mapped(xport_rkey *keys[REGIONS])
{
	time_t end = time(NULL) + 5;
	struct xport_completion c;
	int n = 0;

	do {
		(void)!xport_wait(x, &c, 1, 10);
		n = 0;
		for (int i = 0; i < REGIONS; i++) {
			struct xport_rkey_info info = {.size = sizeof(info)};

			want(xport_rkey_query(keys[i], &info), "xport_rkey_query");
			n += info.direct;
		}
	} while (n < REGIONS && time(NULL) < end);
	return n;
}

static void use(const char *address)
{
	uint8_t *out = malloc(LENGTH), *in = calloc(1, LENGTH);
	xport_rkey *keys[REGIONS];
	xport_ep *ep = meet(address);
	struct xport_completion c;
	int mapped;

	if (out == NULL || in == NULL)
		stop("no memory");
	fill(out);
	take_keys(ep, keys);
	(void)!xport_poll(x, &c, 1);
	usleep(ASLEEP_US); /* meanwhile the server can fill the queue of the socket */
	mapped = count_mapped(keys);
	want(xport_put(ep, out, LENGTH, keys[0], 0, NULL), "xport_put");
	await(XPORT_OP_PUT, "the put");
	want(xport_get(ep, in, LENGTH, keys[0], 0, NULL), "xport_get");
	await(XPORT_OP_GET, "the get");
	check(in, "the get is wrong");
	want(xport_send(ep, out, LENGTH, LONG, NULL), "xport_send");
	await(XPORT_OP_SEND, "the long message");
	for (int i = 0; i < REGIONS; i++)
		xport_rkey_destroy(keys[i]);
	want(xport_send(ep, "end", 4, DONE, NULL), "xport_send");
	await(XPORT_OP_SEND, "the last message");
	(void)!xport_ep_close(ep, 5000);
	printf("%s %d\n", mapped == REGIONS ? "mapped" : mapped == 0 ? "by messages" : "some are mapped:", mapped);
}

static void watch(const char *address)
{
	(void)meet(address);
	printf("connected\n");
	fflush(stdout);
	await(XPORT_EVENT_LOST, "the end of the server");
	printf("lost\n");
}

static void leave(const char *directory)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_DGRAM, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.60s/xport-0123456789abcdef0123456789abcdef", directory);
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) != 0)
		stop("cannot make a file");
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	if (strcmp(argv[1], "leave") == 0 && argc == 3) {
		leave(argv[2]);
		return 0;
	}
	if (xport_open(NULL, &x) != XPORT_OK)
		fails("xport_open");
	if (strcmp(argv[1], "serve") == 0 && argc == 5)
		serve(argv[2], argv[3], atoi(argv[4]));
	else if (strcmp(argv[1], "use") == 0 && argc == 3)
		use(argv[2]);
	else if (strcmp(argv[1], "watch") == 0 && argc == 3)
		watch(argv[2]);
	else if (strcmp(argv[1], "open") != 0)
		return 2;
	xport_close(x);
	return 0;
}
