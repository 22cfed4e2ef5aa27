/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_bulk.c - see scenarios.h: bulk transfers of libxport_services. */
#include "scene.h"
#include "services/xport_services.h"

enum {
	BULK_TRANSFERS = 12,
	BULK_PACKED = 512,
	BULK_LOCAL = 6, /* more than fit without memory of their own */
	ON_BULK = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | ENDED,
	ON_BULK_DONE = ON_BULK | BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_CANCELED)
};

void bulk(struct scene *s);

static xport_bulks *bulks;
static int transfers_open; /* accepted, and not DONE */
static int buffers_lent;   /* of these DONE with released 0, and not RELEASED */

static bool to_bulks(struct scene *s, int side, const struct xport_completion *c)
{
	(void)s;
	return side == 1 && bulks != NULL && xport_bulks_step(bulks, c) == 1;
}

static void bulk_turn(struct scene *s)
{
	struct xport_bulk_event e = {.size = sizeof(e)};

	sc_step(s);
	if (xport_bulks_timeout(bulks) >= 0)
		xport_bulks_step(bulks, NULL);
	while (xport_bulks_next(bulks, &e) == 1) {
		if (e.type == XPORT_BULK_RELEASED) {
			buffers_lent--;
			continue;
		}
		transfers_open--;
		buffers_lent += !e.released;
		if (e.status != XPORT_OK && e.status != XPORT_ERR_CANCELED && e.status != XPORT_ERR_TIMEOUT)
			sc_note(s, e.status, ON_BULK_DONE);
	}
	if (transfers_open < 0 || buffers_lent < 0)
		scene_bad(s, "an event of a transfer too many");
}

/* Until all transfers are done, and their buffers are free. */
static void bulk_finish(struct scene *s, const char *what)
{
	int64_t began = sc_now_ms();

	while ((transfers_open > 0 || buffers_lent > 0) && sc_now_ms() - began < MEMORY_LIMIT_MS + OPS_LIMIT_MS) {
		bulk_turn(s);
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	if (transfers_open > 0 || buffers_lent > 0)
		scene_bad(s, "hang: %s: %d transfers without DONE, %d without RELEASED", what, transfers_open,
		          buffers_lent);
}

static void bulk_start(struct scene *s, xport_bulk *b, bool push, size_t pieces, int deadline_ms, uint64_t *id)
{
	struct xport_bulk_info info = {.size = sizeof(info)};
	struct xport_iov iov[BULK_LOCAL];
	struct xport_bulk_args a = {.size = sizeof(a),
	                            .local = iov,
	                            .nlocal = pieces,
	                            .deadline_ms = (uint32_t)deadline_ms,
	                            .flags = XPORT_BULK_SUM,
	                            .id = id};
	size_t each;

	if (!sc_served(s, "xport_bulk_query", xport_bulk_query(b, &info), 0))
		return;
	each = info.length / pieces;
	for (size_t i = 0; i < pieces; i++)
		iov[pieces - 1 - i] = (struct xport_iov){.addr = local[1] + i * each, .len = each};
	if (sc_served(s, "xport_bulk_pull", push ? xport_bulk_push(bulks, b, &a) : xport_bulk_pull(bulks, b, &a),
	              ON_BULK))
		transfers_open++;
}

static void use_bulks(struct scene *s, xport_bulk *b)
{
	uint64_t id = 0;
	int before;

	for (int i = 0; i < BULK_TRANSFERS && sc_connected(s); i++)
		bulk_start(s, b, i % 2 == 1, i % 3 == 0 ? BULK_LOCAL : 1, OPS_LIMIT_MS, NULL);
	bulk_finish(s, "many transfers");
	before = transfers_open;
	if (sc_connected(s))
		bulk_start(s, b, false, 1, OPS_LIMIT_MS, &id);
	if (transfers_open > before && xport_bulk_cancel(bulks, id) != XPORT_OK && !sc_failing(s))
		scene_bad(s, "a transfer cannot be cancelled");
	bulk_finish(s, "a transfer that was cancelled");
	if (sc_connected(s))
		bulk_start(s, b, false, BULK_LOCAL, 1, NULL);
	bulk_finish(s, "a transfer without time");
}

/* The descriptor of side 0, unpacked at side 1. NULL: it failed. */
static xport_bulk *bulk_share(struct scene *s, xport_mr *mr, xport_bulk **own)
{
	struct xport_bulk_run runs[2] = {{.mr = mr, .length = 64, .stride = 256, .count = 30},
	                                 {.mr = mr, .offset = 100, .length = 64, .stride = 256, .count = 30}};
	struct xport_bulk_attr a = {
		.size = sizeof(a), .rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, .owner = "here:1"};
	xport_bulk *b = NULL;
	uint8_t bytes[BULK_PACKED];
	size_t len = sizeof(bytes);

	if (!sc_served(s, "xport_bulk_create", xport_bulk_create(s->x[0], runs, 2, &a, own), ON_BULK))
		return NULL;
	if (!sc_served(s, "xport_bulk_pack", xport_bulk_pack(*own, bytes, &len), 0) || !sc_connected(s) ||
	    !sc_served(s, "xport_bulk_unpack", xport_bulk_unpack(s->ep[1], bytes, len, &b), ON_BULK))
		b = NULL;
	return b;
}

static void bulk_drop(void *arg, const struct xport_completion *c)
{
	(void)arg, (void)c;
}

void bulk(struct scene *s)
{
	struct xport_bulks_attr a = {.size = sizeof(a), .max_in_flight = 65536};
	struct region r = {0};
	xport_bulk *b = NULL, *own = NULL;

	transfers_open = buffers_lent = 0;
	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s))
		sc_share(s, &r, false);
	s->own = to_bulks;
	if (sc_connected(s) && !sc_served(s, "xport_bulks_create", xport_bulks_create(s->x[1], &a, &bulks), ON_BULK))
		bulks = NULL;
	if (bulks != NULL && r.mr != NULL)
		b = bulk_share(s, r.mr, &own);
	if (b != NULL)
		use_bulks(s, b);
	xport_bulk_free(b);
	xport_bulk_free(own);
	s->ending = true;
	inject_relent();
	if (bulks != NULL && s->ep[1] != NULL)
		xport_bulks_forget(bulks, s->ep[1]);
	sc_served(s, "xport_bulks_destroy", xport_bulks_destroy(bulks, bulk_drop, NULL, OPS_LIMIT_MS), 0);
	bulks = NULL;
	s->own = NULL;
	for (int side = 1; side >= 0; side--)
		sc_close_endpoint(s, side);
	sc_unshare(s, &r);
	sc_close_all(s);
}
