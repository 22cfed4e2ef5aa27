/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_far.c - see scenarios.h: far memory of libxport_services. Side 0 lends, side 1 uses it. */
#include <string.h>

#include "scene.h"
#include "services/xport_services.h"

enum {
	PIECE = 4096,
	ON_FAR = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | BIT(XPORT_ERR_BAD_KEY) | BIT(XPORT_ERR_INVALID) |
	         ENDED,
	ON_ACCESS = ON_FAR | BIT(XPORT_ERR_AGAIN) | BIT(XPORT_ERR_BOUNDS)
};

void far_memory(struct scene *s);

static xport_far *far[2];
static int seen[XPORT_FAR_LOST + 1], last_status;
static bool hopeless; /* what is asked for now cannot succeed */

static bool to_far(struct scene *s, int side, const struct xport_completion *c)
{
	(void)s;
	return far[side] != NULL && xport_far_step(far[side], c) == 1;
}

static void turn(struct scene *s)
{
	struct xport_far_event e = {.size = sizeof(e)};

	sc_step(s);
	for (int side = 0; side < 2; side++) {
		if (far[side] == NULL)
			continue;
		if (xport_far_timeout(far[side]) >= 0)
			xport_far_step(far[side], NULL);
		while (xport_far_next(far[side], &e) == 1) {
			seen[e.type]++;
			last_status = e.status;
			if (e.status != XPORT_OK && !hopeless)
				sc_note(s, e.status, ON_FAR);
		}
	}
}

/* Waits for an event of a type, and returns whether it is a success. A loss of the peer ends it. */
static bool event(struct scene *s, int type, const char *what)
{
	int64_t began = sc_now_ms();

	while (seen[type] == 0 && sc_now_ms() - began < MEMORY_LIMIT_MS + OPS_LIMIT_MS) {
		turn(s);
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	if (seen[type] == 0)
		scene_bad(s, "hang: no event of %s", what);
	if (seen[type] > 1)
		scene_bad(s, "%d events of %s", seen[type], what);
	memset(seen, 0, sizeof(seen));
	return last_status == XPORT_OK;
}

static void use_block(struct scene *s, xport_far_block *b)
{
	struct xport_far_place place = {.size = sizeof(place)};

	if (sc_served(s, "xport_far_locate", xport_far_locate(b, PIECE, &place), ON_FAR | BIT(XPORT_ERR_BOUNDS)) &&
	    sc_connected(s))
		sc_put(s, place.rkey, 100, place.offset, 0);
	sc_settle(s);
	if (sc_served(s, "xport_far_resize", xport_far_resize(b, 5 * PIECE), ON_FAR))
		event(s, XPORT_FAR_DONE, "xport_far_resize");
	hopeless = true; /* there is no other lender */
	if (sc_connected(s) && sc_served(s, "xport_far_move", xport_far_move(b, 0, 1, NULL), ON_ACCESS)) {
		(void)event(s, XPORT_FAR_DONE, "xport_far_move");
		if (last_status == XPORT_OK)
			scene_bad(s, "a piece moved to nobody");
	}
	hopeless = false;
}

static void use_far(struct scene *s)
{
	struct xport_far_args args = {.size = sizeof(args), .length = 3 * PIECE, .piece = PIECE};
	static struct xport_directory_entry entry = {.size = sizeof(entry)};
	xport_far_block *b = NULL;

	memset(seen, 0, sizeof(seen));
	if (!sc_served(s, "xport_far_entry", xport_far_entry(far[0], &entry), ON_FAR) ||
	    !sc_served(s, "xport_far_add", xport_far_add(far[1], s->ep[1], &entry, NULL), ON_FAR) ||
	    !event(s, XPORT_FAR_JOINED, "xport_far_add"))
		return;
	if (!sc_served(s, "xport_far_alloc", xport_far_alloc(far[1], &args, &b), ON_FAR))
		return;
	if (event(s, XPORT_FAR_DONE, "xport_far_alloc") && sc_connected(s))
		use_block(s, b);
	sc_served(s, "xport_far_free", xport_far_free(b), 0);
}

static void drop(void *arg, const struct xport_completion *c)
{
	(void)arg, (void)c;
}

void far_memory(struct scene *s)
{
	struct xport_far_attr attr = {.size = sizeof(attr), .lend = 1 << 20};

	if (sc_open_both(s))
		sc_connect_both(s);
	s->own = to_far;
	for (int side = 0; side < 2 && sc_connected(s); side++, attr.lend = 0)
		if (!sc_served(s, "xport_far_create", xport_far_create(s->x[side], &attr, &far[side]), ON_FAR | ON_REG))
			far[side] = NULL;
	if (far[0] != NULL && far[1] != NULL)
		use_far(s);
	s->ending = true;
	inject_relent();
	for (int side = 0; side < 2; side++) {
		if (far[side] != NULL && s->ep[side] != NULL)
			xport_far_forget(far[side], s->ep[side]);
		sc_served(s, "xport_far_destroy", xport_far_destroy(far[side], drop, NULL, OPS_LIMIT_MS), 0);
		far[side] = NULL;
	}
	s->own = NULL;
	sc_close_all(s);
}
