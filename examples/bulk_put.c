/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk_put - writes 64 MiB into the memory of another process, with many puts in flight.
 *
 *   bulk_put             the target: prints its address, and needs no code for the transfer
 *   bulk_put HOST:PORT   the initiator: puts, flushes, reads everything back, compares
 *
 * The puts are quiet: they have no completion of their own, and one flush completes after all of them.
 */
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xport.h>

enum { SECOND = 1000, PIECE = 64 << 10, PIECES = 1024, SIZE = PIECE * PIECES };
static xport *x;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

/* Makes progress until a completion of this type arrives. */
static void wait_for(uint32_t type)
{
	struct xport_completion c = {0};

	while (c.type != type) {
		check(xport_wait(x, &c, 1, -1));
		if (c.status < 0 && c.type != XPORT_EVENT_CLOSED)
			errx(1, "%s", xport_strerror(c.status));
	}
}

/* Returns the memory of a new region.  What the library allocates is the fastest memory that the network has. */
static unsigned char *allocate(uint32_t rights, xport_mr **mr)
{
	struct xport_mr_info info = {.size = sizeof(info)};

	check(xport_mr_alloc(x, SIZE, rights, mr));
	check(xport_mr_query(*mr, &info));
	return info.base;
}

static void target(void)
{
	char key[1024], address[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = key, .private_len = sizeof(key)};
	xport_listener *listener;
	xport_mr *mr;
	xport_ep *ep;

	allocate(XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &mr);
	check(xport_rkey_pack(mr, key, &attr.private_len));
	check(xport_listen(x, "127.0.0.1:0", &attr, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	check(xport_accept(listener, 60 * SECOND, &ep));
	wait_for(XPORT_EVENT_CLOSED); /* makes progress: over some networks the puts need it */
}

/* Posts one quiet put.  While the queue is full, reaps and tries again. */
static void post(xport_ep *ep, const unsigned char *data, uint64_t offset, xport_rkey *rkey, xport_mr *mr)
{
	struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_QUIET, .mr = mr};
	struct xport_completion c;
	int status;

	while ((status = xport_put(ep, data + offset, PIECE, rkey, offset, &opt)) == XPORT_ERR_AGAIN)
		check(xport_wait(x, &c, 1, -1)); /* returns when it is worth trying again */
	check(status);
}

static void initiator(const char *address)
{
	struct xport_ep_info peer = {.size = sizeof(peer)};
	struct timespec start, end;
	xport_mr *mr, *back_mr;
	xport_rkey *rkey;
	xport_ep *ep;
	unsigned char *data = allocate(0, &mr), *back = allocate(0, &back_mr);
	double seconds;

	for (size_t i = 0; i < SIZE; i++)
		data[i] = (unsigned char)(i * 2654435761U >> 24);
	check(xport_connect(x, address, NULL, 10 * SECOND, &ep));
	check(xport_ep_query(ep, &peer));
	check(xport_rkey_unpack(ep, peer.private_data, peer.private_len, &rkey));
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (uint64_t offset = 0; offset < SIZE; offset += PIECE)
		post(ep, data, offset, rkey, mr);
	check(xport_flush(ep, NULL));
	wait_for(XPORT_OP_FLUSH); /* success: all bytes are in the target's memory */
	clock_gettime(CLOCK_MONOTONIC, &end);
	check(xport_get(ep, back, SIZE, rkey, 0, &(struct xport_opt){.size = sizeof(struct xport_opt), .mr = back_mr}));
	wait_for(XPORT_OP_GET);
	if (memcmp(data, back, SIZE) != 0)
		errx(1, "wrong bytes");
	check(xport_ep_close(ep, 5 * SECOND));
	seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
	printf("%d MiB in %.3f s, %.2f GB/s\n", SIZE >> 20, seconds, 1e-9 * SIZE / seconds);
}

int main(int argc, char **argv)
{
	check(xport_open(NULL, &x));
	argc < 2 ? target() : initiator(argv[1]);
	xport_close(x);
	return 0;
}
