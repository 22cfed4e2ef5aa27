/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p13.c - P13, out of memory: an error, never an abort, never a half-made object. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <sys/mman.h>
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

static int64_t cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * INT64_C(1000000) + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* Two descriptors are left while a client tries to connect: no thread spins meanwhile, and then all is well again. */
static void poor_server(struct h *h)
{
	struct rlimit old, tight;
	struct xport_completion c;
	int64_t cpu, t;

	h_expect_log(h, "");
	h_open(h, NULL);
	h_listen(h);
	getrlimit(RLIMIT_NOFILE, &old);
	tight = old;
	tight.rlim_cur = (rlim_t)dup(0) + 2;
	close((int)tight.rlim_cur - 2);
	h_tell(h, 1, h->address, sizeof(h->address));
	H_TRUE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
	h_tell_u64(h, 1, 1);
	cpu = cpu_us();
	t = h_now_us();
	while (!h_heard(h, 1) || h_now_us() - t < 1000000)
		H_TRUE(xport_wait(h->x, &c, 1, 50) >= 0);
	cpu = cpu_us() - cpu;
	t = h_now_us() - t;
	h_hear_u64(h, 1);
	H_CHECK(cpu < t / 2, "%" PRId64 " us of CPU in %" PRId64 " us", cpu, t);
	H_TRUE(setrlimit(RLIMIT_NOFILE, &old) == 0);
	h_sync(h);
	h->nqueue = 0;
	h_accept(h);
	h_sync(h);
}

static void poor_client(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep = NULL;
	char address[80];
	int s;

	h_expect_log(h, "");
	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h_hear_u64(h, 0);
	s = xport_connect(h->x, address, NULL, 1500, &ep);
	if (s == XPORT_OK) {
		xport_ep_destroy(ep);
	} else {
		H_OK(xport_last_error(h->x, &e));
		H_CHECK(strstr(e.text, "Invalid argument") == NULL || strstr(e.text, "descriptors are left") != NULL,
		        "the text misleads: %s", e.text);
	}
	h_tell_u64(h, 0, 1);
	h_sync(h);
	h_connect(h, address);
	h_sync(h);
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

/* A system without memfd (an old kernel, or a filter of system calls), from when the test says so. */
static atomic_int memfd_error;

H_INTERPOSE int memfd_create(const char *name, unsigned flags)
{
	int (*real)(const char *, unsigned) = (int (*)(const char *, unsigned))dlsym(RTLD_NEXT, "memfd_create");
	int error = atomic_load(&memfd_error);

	if (error == 0 && real != NULL)
		return real(name, flags);
	errno = error != 0 ? error : ENOSYS;
	return -1;
}

/* xport_mr_alloc gives ordinary memory then, which the other role reaches all the same. */
static void without_memfd(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	atomic_store(&memfd_error, (int)h->param);
	h->kind = H_ALLOC;
	m = h_mem_target(h, 100000, 0, H_ALL);
	H_BYTES(m.p, 100000, 0);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p + 1000, 90000, 1);
	h_mem_free(h, &m);
	h_sync(h);
}

static void reaches_ordinary(struct h *h)
{
	enum { GOT = 90000 };
	struct h_mem l, back;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, GOT, 0);
	back = h_mem_local(h, GOT, 0);
	r = h_import(h, 0);
	h_fill(l.p, GOT, 1);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, GOT), &r, 1000, 0));
	H_DONE(h_get(h, h->ep[0], H_AT(back, 0, GOT), &r, 1000));
	H_FILLED(back.p, GOT, 1);
	h_sync(h);
	h_mem_free(h, &l);
	h_mem_free(h, &back);
	h_sync(h);
}

static const struct h_param refusals[] = {
	{"absent", ENOSYS}, {"forbidden", EPERM}, {"of_old_flags", EINVAL}, {NULL, 0}};

const struct h_scenario cases_p13[] = {
	{.name = "P13_no_memfd", .role = {without_memfd, reaches_ordinary}, .params = refusals, .flags = H_KILLS},
	{.name = "P13_huge_regions", .role = {huge_regions}, .flags = H_KILLS},
	{.name = "P13_no_address_space", .role = {target, no_space}, .flags = H_TARGET | H_KILLS},
	{.name = "P13_no_descriptors", .role = {server, no_fds}, .flags = H_KILLS},
	{.name = "P13_server_without_descriptors", .role = {poor_server, poor_client}, .flags = H_KILLS | H_ONCE},
	{.name = NULL},
};
