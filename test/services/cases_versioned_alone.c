/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_versioned_alone.c - versioned objects in one process: wrong arguments, and the grace period. */
#include <signal.h>
#include <sys/mman.h>

#include "conform/harness.h"
#include "services/versioned.h"

static void wrong(struct h *h)
{
	struct xport_versioned_attr a = v_attr(XPORT_VERSIONED_CHECKED), b = a;
	xport_versioned *object;
	xport_versioned_peer *p;
	uint64_t data[V_WORDS];
	struct h_mem m;
	xport_mr *nic;

	h_open(h, NULL);
	m = svc_object_memory(h, &a);
	H_EQ(V_BODY + V_LEN, xport_versioned_size(&a));
	H_EQ(0, xport_versioned_size(NULL));
	b.form = 0;
	H_EQ(0, xport_versioned_size(&b));
	b = v_attr(XPORT_VERSIONED_COPIES);
	H_EQ(V_BODY + 16 * (V_LEN + 64), xport_versioned_size(&b));
	H_STATUS(XPORT_ERR_BOUNDS, xport_versioned_create(m.mr, 0, &b, &object));
	b.copies = 1;
	H_EQ(0, xport_versioned_size(&b));
	/* As many bytes as there are numbers, and a few. */
	b.copies = 4;
	b.length = SIZE_MAX / 4;
	H_EQ(0, xport_versioned_size(&b));
	b.copies = 1 << 16;
	b.length = SIZE_MAX / b.copies - 63;
	H_EQ(0, xport_versioned_size(&b));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(m.mr, 0, &b, &object));
	b = a;
	b.length = 0;
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(m.mr, 0, &b, &object));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(NULL, 0, &a, &object));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(m.mr, 8, &a, &object));
	H_STATUS(XPORT_ERR_BOUNDS, xport_versioned_create(m.mr, 1 << 20, &a, &object));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_versioned_create", "and the region has 0 there");
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_peer_create(h->x, NULL, NULL, 0, &a, &p));
	/* The owner's CPU and an adapter would not exclude each other. */
	H_OK(xport_mr_alloc(h->x, xport_versioned_size(&a), H_ALL | XPORT_ATOMIC_NIC, &nic));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(nic, 0, &a, &object));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_versioned_create", "without XPORT_ATOMIC_NIC");
	H_OK(xport_mr_dereg(nic));
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_write(object, NULL));
	v_fill(data, 3);
	H_OK(xport_versioned_write(object, data));
	H_TRUE(memcmp(m.p + V_BODY, data, V_LEN) == 0);
	xport_versioned_destroy(object);
	xport_versioned_destroy(NULL);
	xport_versioned_peer_destroy(NULL);
	H_OK(xport_mr_dereg(m.mr));
}

/* What was published stays as it is for the grace period.  It is an hour until its end is what is looked at, so that a busy
 * machine does not see it pass. */
static void grace(struct h *h)
{
	struct xport_versioned_attr a = v_attr(XPORT_VERSIONED_COPIES);
	uint64_t data[V_WORDS], stride = V_LEN + 64;
	bool ends = h->param;
	xport_versioned *object;
	struct h_mem m;

	h_open(h, NULL);
	a.copies = 3;
	a.grace_ms = ends ? 100 : 3600 * 1000;
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	for (uint64_t n = 1; n <= 2; n++) {
		v_fill(data, n);
		H_OK(xport_versioned_write(object, data));
	}
	v_fill(data, 3);
	h_run_for(h, 150);
	if (ends) {
		H_OK(xport_versioned_write(object, data)); /* over the first, zero one */
		H_TRUE(memcmp(m.p + V_BODY + V_SUM, data, V_LEN) == 0);
	} else {
		H_STATUS(XPORT_ERR_AGAIN, xport_versioned_write(object, data));
		SVC_ERROR(XPORT_ERR_AGAIN, "xport_versioned_write", "the oldest of 3 copies");
	}
	v_fill(data, 1);
	H_TRUE(memcmp(m.p + V_BODY + stride + V_SUM, data, V_LEN) == 0);
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
}

/* Bytes that are slow to read. */
static void *late;

static void after_a_while(int sig)
{
	(void)sig;
	nanosleep(&(struct timespec){0, 400000000}, NULL);
	mprotect(late, V_LEN, PROT_READ);
}

/* It begins when a copy is replaced, not when the next one is begun. */
static void grace_slow(struct h *h)
{
	struct sigaction slow = {.sa_handler = after_a_while, .sa_flags = (int)SA_RESETHAND}, before;
	struct xport_versioned_attr a = v_attr(XPORT_VERSIONED_COPIES);
	xport_versioned *object;
	struct h_mem m;
	int64_t t;
	int r;

	h_open(h, NULL);
	a.copies = 2;
	a.grace_ms = 300;
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	late = mmap(NULL, V_LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	H_TRUE(late != MAP_FAILED);
	H_EQ(0, sigaction(SIGSEGV, &slow, &before));
	H_OK(xport_versioned_write(object, late));
	t = h_now_us();
	H_EQ(0, sigaction(SIGSEGV, &before, NULL));
	r = xport_versioned_write(object, late);
	/* Unless the machine let it pass in between. */
	H_TRUE(r == XPORT_ERR_AGAIN || h_now_us() - t > 200000);
	munmap(late, V_LEN);
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
}

static const struct h_param grace_parts[] = {{"holds", 0}, {"ends", 1}, {NULL, 0}};

const struct h_scenario svc_cases_versioned_alone[] = {
	{"versioned_wrong", {wrong}, NULL, 0, 0},
	{"versioned_grace", {grace}, grace_parts, 0, 0},
	{"versioned_grace_slow", {grace_slow}, NULL, 0, 0},
	{0},
};
