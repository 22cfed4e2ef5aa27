/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_services.c - see scenarios.h: scenarios of libxport_services. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/object/place.h"
#include "scene.h"
#include "services/node.h"
#include "services/xport_services.h"

enum { BLOCKS = 6 };
enum {
	ON_SERVICE =
		BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_NOT_SUPPORTED) | BIT(XPORT_ERR_FAULT) | BIT(XPORT_ERR_SYSTEM)
};

void pool_blocks(struct scene *s);
void pool_busy(struct scene *s);
void cache(struct scene *s);
void metrics(struct scene *s);
void prepared(struct scene *s);
void versioned(struct scene *s);

static void use_pool(struct scene *s, xport_pool *pool)
{
	struct xport_pool_info info = {.size = sizeof(info)};
	struct xport_block b[BLOCKS], again;
	int n = 0;

	sc_served(s, "xport_pool_reserve", xport_pool_reserve(pool, 1 << 16), ON_SERVICE);
	for (size_t len = 1; n < BLOCKS; len *= 13, n++) {
		if (!sc_served(s, "xport_pool_alloc", xport_pool_alloc(pool, len, 0, &b[n]), ON_SERVICE))
			break;
		memset(b[n].address, n, len);
	}
	for (int i = 0; i < n; i++) {
		sc_served(s, "xport_pool_find", xport_pool_find(pool, b[i].address, &again), 0);
		sc_served(s, "xport_pool_hold", xport_pool_hold(pool, b[i].address), ON_SERVICE);
		sc_served(s, "xport_pool_release", xport_pool_release(pool, b[i].address), 0);
		sc_served(s, "xport_pool_free", xport_pool_free(pool, b[i].address), 0);
	}
	sc_served(s, "xport_pool_query", xport_pool_query(pool, &info), 0);
	if (info.in_use != 0)
		scene_bad(s, "all blocks were freed, and %llu bytes are in use", (unsigned long long)info.in_use);
	sc_served(s, "xport_pool_trim", xport_pool_trim(pool), 0);
}

/* A sysfs with one device, on node 0, which has no processors. */
static void device_node(struct scene *s)
{
	static const char *const parts[] = {"/class", "/class/net", "/class/net/x0", "/class/net/x0/device"};
	char dir[] = "/tmp/xport-sysfs-XXXXXX", path[64], text[160], line[XPI_PLACE_ROOM];
	int node = -1;
	FILE *f;

	if (mkdtemp(dir) == NULL)
		return;
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s%s", dir, parts[i]);
		(void)mkdir(path, 0700);
	}
	snprintf(path, sizeof(path), "%s/class/net/x0/device/numa_node", dir);
	f = fopen(path, "w");
	if (f != NULL) {
		fputs("0\n", f);
		fclose(f);
	}
	svc_node_sysfs = dir;
	if (svc_node_device("x0", &node, text, sizeof(text)) ? node != 0 : strstr(text, "no NUMA node") == NULL)
		scene_bad(s, "device x0: node %d, \"%s\"", node, text);
	svc_node_sysfs = "/sys";
	xpi_place_sysfs = dir;
	if (xpi_place_find("x0", line) >= 0 || strstr(line, "has no ") == NULL)
		scene_bad(s, "processors near x0: \"%s\"", line);
	xpi_place_sysfs = "/sys";
	(void)unlink(path);
	for (int i = 3; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s%s", dir, parts[i]);
		(void)rmdir(path);
	}
	(void)rmdir(dir);
}

void pool_blocks(struct scene *s)
{
	static const struct xport_pool_attr attrs[] = {
		{.size = sizeof(struct xport_pool_attr),
	         .flags = XPORT_POOL_DEBUG | XPORT_POOL_LOCK,
	         .slab_bytes = 1 << 20,
	         .rights = RIGHTS},
		{.size = sizeof(struct xport_pool_attr),
	         .flags = XPORT_POOL_HUGE,
	         .slab_bytes = 2 << 20,
	         .node = XPORT_POOL_NODE_LOCAL},
	};

	device_node(s);
	if (sc_open_side(s, 0))
		for (int i = 0; i < 2; i++) {
			xport_mr *mr = NULL;
			xport_pool *pool;

			if (!sc_served(s, "xport_pool_create", xport_pool_create(s->x[0], &attrs[i], &pool),
			               ON_SERVICE))
				continue;
			if (i == 0 &&
			    sc_ok(s, s->x[0], "xport_mr_alloc", xport_mr_alloc(s->x[0], 1 << 18, RIGHTS, &mr), ON_REG))
				sc_served(s, "xport_pool_add", xport_pool_add(pool, mr), ON_SERVICE);
			use_pool(s, pool);
			sc_served(s, "xport_pool_destroy", xport_pool_destroy(pool), 0);
			xport_mr_dereg(mr);
		}
	sc_close_all(s);
}

/* A slab that cannot end yet, and has so many spans that the table would grow if they were entered beside themselves. */
void pool_busy(struct scene *s)
{
	struct xport_pool_attr attr = {.size = sizeof(attr), .slab_bytes = 5 << 20, .rights = RIGHTS};
	struct xport_opt opt = {.size = sizeof(opt)};
	struct xport_completion c;
	struct xport_block b;
	xport_pool *pool;
	uint64_t id;
	int r;

	if (sc_open_side(s, 0) &&
	    sc_served(s, "xport_pool_create", xport_pool_create(s->x[0], &attr, &pool), ON_SERVICE)) {
		if (sc_served(s, "xport_pool_alloc", xport_pool_alloc(pool, 5000, 0, &b), ON_SERVICE)) {
			opt.mr = b.mr;
			opt.id = &id;
			r = xport_recv(s->x[0], b.address, 5000, 1, UINT64_MAX, &opt);
			sc_served(s, "xport_pool_free", xport_pool_free(pool, b.address), 0);
			if (sc_ok(s, s->x[0], "xport_recv", r, ON_POST)) {
				r = xport_pool_trim(pool);
				if (r != XPORT_ERR_BUSY)
					scene_bad(s, "xport_pool_trim beside a posted receive: %d", r);
				sc_ok(s, s->x[0], "xport_cancel", xport_cancel(s->x[0], id), 0);
				while (xport_poll(s->x[0], &c, 1) == 0)
					continue;
			}
		}
		sc_served(s, "xport_pool_destroy", xport_pool_destroy(pool), 0);
	}
	sc_close_all(s);
}

void cache(struct scene *s)
{
	struct xport_cache_attr attr = {.size = sizeof(attr), .max_entries = 3};
	struct xport_cached got;
	xport_cache *c = NULL;

	if (sc_open_side(s, 0) &&
	    sc_served(s, "xport_cache_create", xport_cache_create(s->x[0], &attr, &c), ON_SERVICE)) {
		for (int i = 0; i < 6; i++)
			if (sc_served(s, "xport_cache_get", xport_cache_get(c, buffer[0] + 8192 * i, 100, &got),
			              ON_SERVICE))
				sc_served(s, "xport_cache_put", xport_cache_put(c, &got), 0);
		sc_served(s, "xport_cache_invalidate", xport_cache_invalidate(c, buffer[0] + 8192 * 5, 100), 0);
		sc_served(s, "xport_cache_destroy", xport_cache_destroy(c), 0);
	}
	sc_close_all(s);
}

void prepared(struct scene *s)
{
	struct xport_prepared_run run = {.length = 1, .level = {{100, 2, 2}, {0}}};
	xport_prepared *set = NULL;
	struct region r = {0};
	size_t index;

	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s))
		sc_share(s, &r, false);
	if (r.key != NULL &&
	    sc_served(s, "xport_prepared_create",
	              xport_prepared_create(s->x[1], s->ep[1], r.key, buffer[1], REGION, NULL, &set), ON_SERVICE)) {
		for (int i = 0; i < 3; i++)
			sc_served(s, "xport_prepared_add", xport_prepared_add(set, &run, sizeof(run), 1, &index),
			          ON_SERVICE);
		xport_prepared_destroy(set);
	}
	xport_rkey_destroy(r.key);
	for (int side = 1; side >= 0; side--) {
		sc_close_endpoint(s, side);
		sc_breathe(s, 4);
	}
	sc_unshare(s, &r);
	sc_close_all(s);
}

/* What a step of a peer's read or write is given; both sides poll meanwhile. */
static bool finish(struct scene *s, xport_versioned_peer *p, const char *what)
{
	int64_t began = sc_now_ms(), end = began + MEMORY_LIMIT_MS + OPS_LIMIT_MS;
	int rc = 1;

	while (rc == 1 && sc_now_ms() < end) {
		rc = xport_versioned_peer_wait(p, NULL, NULL, 0);
		if (rc == XPORT_ERR_TIMEOUT)
			rc = 1;
		xport_poll(s->x[0], NULL, 0);
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	if (rc == 1)
		scene_bad(s, "hang: %s", what);
	return rc == 1 || sc_served(s, what, rc, ON_DONE | BIT(XPORT_ERR_AGAIN));
}

void versioned(struct scene *s)
{
	struct xport_versioned_attr attr = {.size = sizeof(attr), .length = 1000};
	uint8_t data[1000], got[1000];
	struct region r = {0};

	memset(data, 7, sizeof(data));
	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s))
		sc_share(s, &r, true);
	for (attr.form = XPORT_VERSIONED_CHECKED; attr.form <= XPORT_VERSIONED_COPIES && r.key != NULL; attr.form++) {
		xport_versioned *o = NULL;
		xport_versioned_peer *p = NULL;

		memset(got, 0, sizeof(got));
		if (sc_served(s, "xport_versioned_create", xport_versioned_create(r.mr, 0, &attr, &o), ON_SERVICE) &&
		    sc_served(s, "xport_versioned_write", xport_versioned_write(o, data), 0) &&
		    sc_served(s, "xport_versioned_peer_create",
		              xport_versioned_peer_create(s->x[1], s->ep[1], r.key, 0, &attr, &p),
		              ON_SERVICE | ENDED) &&
		    sc_served(s, "xport_versioned_peer_read", xport_versioned_peer_read(p, got), ON_POST) &&
		    finish(s, p, "a read of a versioned object") && !sc_failing(s) &&
		    memcmp(got, data, sizeof(got)) != 0)
			scene_bad(s, "a read of a versioned object succeeded, and is wrong");
		if (p != NULL && attr.form != XPORT_VERSIONED_COPIES &&
		    sc_served(s, "xport_versioned_peer_write", xport_versioned_peer_write(p, data),
		              ON_POST | BIT(XPORT_ERR_BUSY)))
			finish(s, p, "a write of a versioned object");
		xport_versioned_peer_destroy(p);
		xport_versioned_destroy(o);
	}
	xport_rkey_destroy(r.key);
	sc_close_endpoint(s, 1);
	sc_close_endpoint(s, 0);
	sc_unshare(s, &r);
	sc_close_all(s);
}

/* Nothing is left in the directory, whatever fails. */
static void publish(struct scene *s)
{
	char dir[] = "/tmp/xport-metrics-XXXXXX";
	struct xport_metrics_attr attr = {.size = sizeof(attr), .dir = dir, .interval_ms = 100};
	xport_metrics *m;

	if (mkdtemp(dir) == NULL)
		return;
	if (sc_served(s, "xport_metrics_create", xport_metrics_create(s->x[0], &attr, &m),
	              ON_SERVICE | BIT(XPORT_ERR_CONFIG))) {
		poll(NULL, 0, 120);
		sc_served(s, "xport_metrics_publish", xport_metrics_publish(m, NULL, 0), ON_SERVICE);
		xport_metrics_destroy(m);
	}
	if (rmdir(dir) != 0)
		scene_bad(s, "xport_metrics has left a file in %s", dir);
}

void metrics(struct scene *s)
{
	static char text[65536];
	size_t len = sizeof(text);

	if (sc_open_side(s, 0)) {
		sc_served(s, "xport_stats_text", xport_stats_text(s->x[0], NULL, 0, text, &len),
		          BIT(XPORT_ERR_NO_MEMORY));
		publish(s);
	}
	s->ending = true;
	sc_close_all(s);
}
