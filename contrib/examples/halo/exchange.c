/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - keys, puts of rows and columns, notifications, flushes. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MS = 60000, PIECES = 64, CELL = sizeof(double) };

const char *const way_names[WAYS] = {"putv", "getv", "put", "pack"};

void halo_check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	if (e.status != status)
		(void)xport_last_error(NULL, &e);
	fprintf(stderr, "halo: %s: %s\n", xport_strerror(status), e.status == status ? e.text : "");
	exit(1);
}

static void take(struct exchange *e, const struct xport_completion *c)
{
	int mine = xport_group_step(e->group, c);

	halo_check(mine);
	if (mine == 1 || (e->over && c->type == XPORT_EVENT_CLOSED))
		return;
	halo_check(c->status);
	if (c->type == XPORT_OP_GET)
		e->gets--;
	for (int d = 0; d < DIRECTIONS; d++) {
		struct side *s = &e->side[d];

		if (s->rank < 0 || s->ep != c->ep)
			continue;
		if (c->type == XPORT_EVENT_NOTIFY && c->tag != ++s->told) {
			fprintf(stderr, "halo: notification %llu of rank %d came as number %llu\n",
			        (unsigned long long)c->tag, s->rank, (unsigned long long)s->told);
			exit(1);
		}
		if (c->type == XPORT_OP_FLUSH)
			s->flushes--;
	}
}

static void turn(struct exchange *e)
{
	struct xport_completion c[16];
	int n = xport_wait(e->x, c, 16, 100);

	if (n != XPORT_ERR_TIMEOUT)
		halo_check(n);
	for (int i = 0; i < n; i++)
		take(e, &c[i]);
	halo_check(xport_group_step(e->group, NULL));
}

static void on_other(void *arg, const struct xport_completion *c)
{
	take(arg, c);
}

/* ---- places ---- */

/* In the region of a block: two layers, then four packed columns of neighbours. */
static size_t region_cells(const struct block *b)
{
	return 2 * block_cells(b) + 4 * (size_t)b->ny;
}

static uint64_t offset_of(const struct block *b, int layer, int x, int y)
{
	return CELL * ((size_t)layer * block_cells(b) + block_at(b, x, y));
}

static uint64_t offset_of_staging(const struct block *b, int layer, int column)
{
	return CELL * (2 * block_cells(b) + (size_t)(2 * layer + column) * (size_t)b->ny);
}

/* The edge of a block in this direction; inside, or in the halo. */
static int edge_x(const struct block *b, int d, int halo)
{
	return d == WEST ? 1 - halo : d == EAST ? b->nx + halo : 1;
}
static int edge_y(const struct block *b, int d, int halo)
{
	return d == NORTH ? 1 - halo : d == SOUTH ? b->ny + halo : 1;
}
static int opposite(int d)
{
	return d ^ 1;
}

/* ---- moving one side ---- */

static const struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};

static void move_pieces(struct exchange *e, struct side *s, int layer, int d, int get)
{
	struct xport_iov here[PIECES];
	struct xport_riov there[PIECES];
	int vertical = d == WEST || d == EAST, all = vertical ? e->block.ny : 1, n, r;
	size_t len = vertical ? CELL : CELL * (size_t)e->block.nx;

	for (int from = 0; from < all; from += n) {
		n = all - from < PIECES ? all - from : PIECES;
		for (int i = 0; i < n; i++) {
			int o = opposite(d), x = edge_x(&e->block, d, get), y = edge_y(&e->block, d, get) + from + i;

			here[i] = (struct xport_iov){&e->layer[layer][block_at(&e->block, x, y)], len, e->mr};
			there[i] = (struct xport_riov){offset_of(&s->block, layer, edge_x(&s->block, o, !get),
			                                         edge_y(&s->block, o, !get) + from + i),
			                               len};
		}
		do {
			r = get ? xport_getv(s->ep, here, (size_t)n, s->rkey, there, (size_t)n, NULL)
			        : xport_putv(s->ep, here, (size_t)n, s->rkey, there, (size_t)n, &quiet);
			if (r == XPORT_ERR_AGAIN)
				turn(e);
		} while (r == XPORT_ERR_AGAIN);
		halo_check(r);
		e->gets += (uint64_t)(get != 0);
	}
}

static void put(struct exchange *e, struct side *s, const double *from, size_t len, uint64_t offset)
{
	struct xport_opt o = quiet;
	int r;

	o.mr = from >= e->layer[0] && from < e->layer[0] + region_cells(&e->block) ? e->mr : NULL;
	while ((r = xport_put(s->ep, from, len, s->rkey, offset, &o)) == XPORT_ERR_AGAIN)
		turn(e);
	halo_check(r);
}

static void move_cells(struct exchange *e, struct side *s, int layer, int d)
{
	int o = opposite(d), x = edge_x(&e->block, d, 0);

	for (int y = 1; y <= e->block.ny; y++)
		put(e, s, &e->layer[layer][block_at(&e->block, x, y)], CELL,
		    offset_of(&s->block, layer, edge_x(&s->block, o, 1), y));
}

static void move_packed(struct exchange *e, struct side *s, int layer, int d)
{
	double *packed = e->packed[layer][d == EAST];
	int x = edge_x(&e->block, d, 0);

	for (int y = 1; y <= e->block.ny; y++)
		packed[y - 1] = e->layer[layer][block_at(&e->block, x, y)];
	/* What goes east comes from the west. */
	put(e, s, packed, CELL * (size_t)e->block.ny, offset_of_staging(&s->block, layer, d == WEST));
}

static void unpack(struct exchange *e, int layer, int d)
{
	const double *from = e->staging[layer] + (d == EAST ? (size_t)e->block.ny : 0);
	int x = edge_x(&e->block, d, 1);

	for (int y = 1; y <= e->block.ny; y++)
		e->layer[layer][block_at(&e->block, x, y)] = from[y - 1];
}

static void move_side(struct exchange *e, enum way way, int layer, int d)
{
	int vertical = d == WEST || d == EAST;

	if (vertical && way == BY_PUT)
		move_cells(e, &e->side[d], layer, d);
	else if (vertical && way == BY_PACK)
		move_packed(e, &e->side[d], layer, d);
	else
		move_pieces(e, &e->side[d], layer, d, way == BY_GETV);
}

/* ---- all sides ---- */

/* The value counts the notifications, so that a lost or repeated one is seen. */
static void notify(struct exchange *e, struct side *s)
{
	struct xport_opt o = quiet;
	int r;

	o.value = e->step + 1;
	while ((r = xport_put_notify(s->ep, NULL, 0, s->rkey, 0, &o)) == XPORT_ERR_AGAIN)
		turn(e);
	halo_check(r);
	while ((r = xport_flush(s->ep, NULL)) == XPORT_ERR_AGAIN)
		turn(e);
	halo_check(r);
	s->flushes++;
}

void exchange_halo(struct exchange *e, enum way way)
{
	int layer = (int)(e->step % 2);

	exchange_settle(e); /* the layer that the next step overwrites is no source any more */
	for (int d = 0; d < DIRECTIONS; d++) {
		if (e->side[d].rank < 0)
			continue;
		if (way != BY_GETV)
			move_side(e, way, layer, d);
		notify(e, &e->side[d]);
	}
	e->step++;
	for (int d = 0; d < DIRECTIONS; d++) {
		struct side *s = &e->side[d];

		while (s->rank >= 0 && s->told < e->step)
			turn(e);
		if (s->rank >= 0 && way == BY_GETV)
			move_side(e, way, layer, d);
		if (s->rank >= 0 && way == BY_PACK && (d == WEST || d == EAST))
			unpack(e, layer, d);
	}
	while (e->gets > 0)
		turn(e);
}

void exchange_settle(struct exchange *e)
{
	for (int d = 0; d < DIRECTIONS; d++)
		while (e->side[d].rank >= 0 && e->side[d].flushes > 0)
			turn(e);
}

/* ---- opening ---- */

static void know(struct exchange *e, struct side *s)
{
	char name[32], key[1024];
	size_t len = sizeof(key);

	snprintf(name, sizeof(name), "key of %d", s->rank);
	halo_check(xport_group_get(e->group, name, key, &len));
	halo_check(xport_group_ep(e->group, s->rank, LIMIT_MS, &s->ep));
	halo_check(xport_rkey_unpack(s->ep, key, len, &s->rkey));
}

void exchange_open(struct exchange *e, xport *x, xport_group *group, int width, int height)
{
	struct xport_group_info info = {.size = sizeof(info)};
	struct xport_mr_info region = {.size = sizeof(region)};
	char name[32], key[1024];
	size_t len = sizeof(key), ny;

	memset(e, 0, sizeof(*e));
	e->x = x;
	e->group = group;
	halo_check(xport_group_query(group, &info));
	e->rank = info.rank;
	e->shape = shape_of(width, height, info.members);
	e->block = block_of(&e->shape, e->rank);
	ny = (size_t)e->block.ny;
	halo_check(xport_mr_alloc(x, CELL * region_cells(&e->block), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &e->mr));
	halo_check(xport_mr_query(e->mr, &region));
	for (int i = 0; i < 2; i++) {
		e->layer[i] = (double *)region.base + (size_t)i * block_cells(&e->block);
		e->staging[i] = (double *)region.base + 2 * block_cells(&e->block) + (size_t)i * 2 * ny;
		for (int k = 0; k < 2; k++)
			e->packed[i][k] = malloc(CELL * ny);
		if (e->packed[i][0] == NULL || e->packed[i][1] == NULL)
			halo_check(XPORT_ERR_NO_MEMORY);
	}
	halo_check(xport_rkey_pack(e->mr, key, &len));
	snprintf(name, sizeof(name), "key of %d", e->rank);
	halo_check(xport_group_put(group, name, key, len));
	halo_check(xport_group_fence(group, LIMIT_MS));
	for (int d = 0; d < DIRECTIONS; d++) {
		e->side[d].rank = neighbour_of(&e->shape, e->rank, d);
		if (e->side[d].rank < 0)
			continue;
		e->side[d].block = block_of(&e->shape, e->side[d].rank);
		know(e, &e->side[d]);
	}
}

void exchange_close(struct exchange *e)
{
	halo_check(xport_mr_dereg(e->mr));
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 2; k++)
			free(e->packed[i][k]);
}

struct xport_group_attr exchange_attr(struct exchange *e)
{
	return (struct xport_group_attr){.size = sizeof(struct xport_group_attr), .other = on_other, .arg = e};
}
