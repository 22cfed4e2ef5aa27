/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_far_wrong.c - wrong arguments to the functions of far memory. */
#include "conform/harness.h"
#include "services/services.h"

static struct xport_far_args far_args(uint64_t pieces, int policy)
{
	return (struct xport_far_args){.size = sizeof(struct xport_far_args),
	                               .length = pieces * XPORT_FAR_PIECE_MIN,
	                               .piece = XPORT_FAR_PIECE_MIN,
	                               .policy = policy};
}

static void far_wrong(struct h *h)
{
	struct xport_far_attr a = {.size = sizeof(a), .piece = 5000};
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	struct xport_far_event e = {.size = 4};
	struct xport_far_args args;
	xport_far_block *b = NULL;
	struct h_mem mem;
	xport_far *f;
	int64_t end;

	h_open(h, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_far_create(NULL, NULL, &f));
	H_STATUS(XPORT_ERR_INVALID, xport_far_create(h->x, &a, &f));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_far_create", "power of 2");
	H_OK(xport_far_create(h->x, NULL, &f));
	H_STATUS(XPORT_ERR_INVALID, xport_far_entry(f, &entry));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_far_entry", "lends nothing");
	H_STATUS(XPORT_ERR_INVALID, xport_far_next(f, &e));
	e.size = sizeof(e);
	H_EQ(0, xport_far_next(f, &e));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_far_wait(f, &e, NULL, NULL, 10));
	args = far_args(0, 0);
	H_STATUS(XPORT_ERR_INVALID, xport_far_alloc(f, &args, &b));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_far_alloc", "length is 0");
	args = far_args(1 << 20, 0);
	H_STATUS(XPORT_ERR_INVALID, xport_far_alloc(f, &args, &b));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_far_alloc", "65536 pieces");
	args.length = UINT64_MAX;
	H_STATUS(XPORT_ERR_INVALID, xport_far_alloc(f, &args, &b));
	args = far_args(1, 3);
	H_STATUS(XPORT_ERR_INVALID, xport_far_alloc(f, &args, &b));
	args = far_args(1, 0);
	args.piece = 1000;
	H_STATUS(XPORT_ERR_INVALID, xport_far_alloc(f, &args, &b));
	/* There is no lender. */
	args = far_args(1, 0);
	H_OK(xport_far_alloc(f, &args, &b));
	end = h_now_us() + (int64_t)h_ms(5000) * 1000;
	while (xport_far_next(f, &e) == 0 && h_now_us() < end)
		(void)xport_far_step(f, NULL);
	H_EQ(XPORT_FAR_DONE, e.type);
	H_STATUS(XPORT_ERR_NO_MEMORY, e.status);
	H_STATUS(XPORT_ERR_BOUNDS, xport_far_get(b, 0, &e, 1, NULL));
	H_STATUS(XPORT_ERR_BOUNDS, xport_far_move(b, 0, 1, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_far_resize(b, 0));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_far_resize", "xport_far_free");
	H_OK(xport_far_free(b));
	H_OK(xport_far_free(NULL));
	/* An entry that is not a lender's. */
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &h->ep[1]));
	h_accept(h);
	H_EVENT(XPORT_EVENT_CONNECTED);
	mem = h_mem_target(h, 8, 0, XPORT_REMOTE_WRITE);
	H_STATUS(XPORT_ERR_INVALID,
	         xport_far_add(f, h->ep[1], &entry, NULL) == XPORT_ERR_BAD_KEY ? XPORT_ERR_INVALID : 0);
	H_OK(xport_directory_region(mem.mr, mem.offset, 8, &entry));
	H_STATUS(XPORT_ERR_INVALID, xport_far_add(f, h->ep[1], &entry, NULL));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_far_add", "not that of a lender");
	h_mem_free(h, &mem);
	H_OK(xport_far_destroy(f, NULL, NULL, h_ms(5000)));
	H_OK(xport_far_destroy(NULL, NULL, NULL, 0));
}

const struct h_scenario svc_cases_far_wrong[] = {
	{"far_wrong", {far_wrong}, NULL, H_ONCE, 0},
	{0},
};
