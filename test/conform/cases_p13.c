/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p13.c - P13, out of memory: an error, never an abort, never a half-made object. */
#include <sys/resource.h>

#include "harness.h"

static uint64_t address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (uint64_t)pages * 4096;
}

/*
 * Regions that no machine has: refused, the instance is as good as before.
 *
 * Who tries to make a file that long would eat up the shared memory of the whole machine before it fails.  A limit on
 * the length of files keeps the machine safe from that, and its signal tells.
 */
static atomic_int tried;

static void on_too_long(int sig)
{
	(void)sig;
	atomic_fetch_add(&tried, 1);
}

static void huge_regions(struct h *h)
{
	static const size_t sizes[] = {(size_t)1 << 62, (size_t)1 << 50, SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2};
	struct sigaction sa = {.sa_handler = on_too_long};
	struct rlimit limit;
	struct h_mem m;
	xport_mr *mr = (xport_mr *)&m;

	h_open(h, NULL);
	sigaction(SIGXFSZ, &sa, NULL);
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = 64 << 20;
	H_TRUE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int s = xport_mr_alloc(h->x, sizes[i], H_ALL, &mr);

		H_CHECK(s == XPORT_ERR_NO_MEMORY || s == XPORT_ERR_INVALID, "%zu: %s", sizes[i], xport_status_name(s));
		H_TRUE(mr == (xport_mr *)&m);
		H_CHECK(atomic_load(&tried) == 0,
		        "a region of %zu bytes was really tried: that eats all memory there is", sizes[i]);
	}
	H_STATUS(XPORT_ERR_INVALID, xport_mr_alloc(h->x, 0, H_ALL, &mr));
	m = h_mem_target(h, 4096, 0, H_ALL);
	h_mem_free(h, &m);
}

/* With hardly any address space left, what needs memory fails with a status; with space again all is well. */
static void no_space(struct h *h)
{
	struct rlimit old, tight;
	struct h_mem l;
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o)};
	struct h_op *op;
	xport_mr *mr;
	int s, failed = 0;

	if (h_instrumented())
		h_skip(h, "a limit on the address space is absent: the tool needs more than there is");
	h_expect_log(h, "memory");
	h_mesh(h, NULL);
	l = h_mem_local(h, 65536, 0);
	r = h_import(h, 0);
	o.context = op = h_op(h, XPORT_OP_PUT); /* the suite's own memory, too */
	getrlimit(RLIMIT_AS, &old);
	tight = old;
	tight.rlim_cur = address_space() + (1 << 20);
	H_TRUE(setrlimit(RLIMIT_AS, &tight) == 0);
	for (int i = 0; i < 40; i++) {
		s = xport_mr_alloc(h->x, 1 << 20, H_ALL, &mr);
		H_CHECK(s == XPORT_OK || s == XPORT_ERR_NO_MEMORY, "%s", xport_status_name(s));
		failed += s != XPORT_OK;
	}
	H_CHECK(failed > 0, "forty MiB fitted into one");
	o.mr = l.mr;
	s = xport_put(h->ep[0], l.p, 65536, r.k, r.offset, &o);
	H_CHECK(s == XPORT_OK || s == XPORT_ERR_NO_MEMORY, "%s", xport_status_name(s));
	if (s != XPORT_OK)
		h_op_drop(h, op);
	h_run_for(h, 20);
	H_TRUE(setrlimit(RLIMIT_AS, &old) == 0);
	h_settle(h);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 65536), &r, 0, 0));
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

static void target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, 65536, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
}

/* Without descriptors nothing can be opened or connected: a status, and when there are some again all is well. */
static void no_fds(struct h *h)
{
	struct rlimit old, tight;
	struct xport_attr a = h_attr(h);
	xport *y = NULL;
	xport_ep *ep = NULL;
	char address[80];
	int s;

	h_expect_log(h, "");
	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	getrlimit(RLIMIT_NOFILE, &old);
	for (rlim_t room = 0; room < 12; room++) {
		tight = old;
		tight.rlim_cur = (rlim_t)dup(0) + room;
		close((int)(tight.rlim_cur - room));
		H_TRUE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
		s = xport_connect(h->x, address, NULL, 300, &ep);
		if (s == XPORT_OK)
			xport_ep_destroy(ep);
		else if (room == 0)
			H_CHECK(s == XPORT_ERR_SYSTEM || s == XPORT_ERR_NO_MEMORY, "%s", xport_status_name(s));
		s = xport_open(&a, &y);
		if (s == XPORT_OK)
			xport_close(y);
		else
			H_TRUE(s < 0);
		H_TRUE(setrlimit(RLIMIT_NOFILE, &old) == 0);
	}
	h->nqueue = 0;
	h->ep[0] = h_connect(h, address);
	H_DONE(h_flush(h, h->ep[0]));
	h_tell_u64(h, 0, 1);
}

static void server(struct h *h)
{
	xport_ep *ep;

	h_expect_log(h, "");
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	while (!h_heard(h, 1))
		if (xport_accept(h->listener, 20, &ep) != XPORT_OK)
			h_progress(h);
	h_hear_u64(h, 1);
}

const struct h_scenario cases_p13[] = {
	{.name = "P13_huge_regions", .role = {huge_regions}, .flags = H_KILLS},
	{.name = "P13_no_address_space", .role = {target, no_space}, .flags = H_TARGET | H_KILLS},
	{.name = "P13_no_descriptors", .role = {server, no_fds}, .flags = H_KILLS},
	{.name = NULL},
};
