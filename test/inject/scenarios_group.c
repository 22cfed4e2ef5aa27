/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_group.c - see scenarios.h: groups of one member, by each source that needs no other process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scene.h"
#include "services/xport_services.h"

enum {
	GROUP_LIMIT_MS = 3000,
	ON_GROUP = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_CONFIG) |
	           BIT(XPORT_ERR_ADDRESS) | BIT(XPORT_ERR_UNREACHABLE) | BIT(XPORT_ERR_AUTH),
};

void group(struct scene *s);

/* A value that the application's own functions keep. */
static uint8_t kept[512];
static size_t kept_len;

static int keep(void *arg, const char *key, const void *value, size_t len)
{
	(void)arg, (void)key;
	memcpy(kept, value, len);
	kept_len = len;
	return XPORT_OK;
}

static int give(void *arg, const char *key, void *value, size_t *len)
{
	(void)arg, (void)key;
	memcpy(value, kept, kept_len);
	*len = kept_len;
	return XPORT_OK;
}

static void use_group(struct scene *s, xport_group *g)
{
	char value[8];
	size_t len = sizeof(value);
	double d = 1, all = 0;

	if (sc_served(s, "xport_group_put", xport_group_put(g, "key", "value", 6), ON_GROUP) &&
	    sc_served(s, "xport_group_fence", xport_group_fence(g, GROUP_LIMIT_MS), ON_GROUP) &&
	    (xport_group_get(g, "key", value, &len) != XPORT_OK || strcmp(value, "value") != 0))
		scene_bad(s, "the value of a group is wrong");
	if (sc_served(s, "xport_group_allreduce",
	              xport_group_allreduce(g, &d, &all, 1, XPORT_GROUP_DOUBLE, XPORT_GROUP_SUM, GROUP_LIMIT_MS),
	              ON_GROUP) &&
	    all != 1)
		scene_bad(s, "a sum of a group is wrong");
	sc_served(s, "xport_group_allgather", xport_group_allgather(g, &d, sizeof(d), &all, GROUP_LIMIT_MS), ON_GROUP);
	sc_served(s, "xport_group_barrier", xport_group_barrier(g, GROUP_LIMIT_MS), ON_GROUP);
}

static void group_by(struct scene *s, const struct xport_group_attr *attr)
{
	xport_group *g = NULL;

	if (!sc_served(s, "xport_group_create", xport_group_create(s->x[0], attr, GROUP_LIMIT_MS, &g), ON_GROUP))
		return;
	use_group(s, g);
	sc_served(s, "xport_group_destroy", xport_group_destroy(g, GROUP_LIMIT_MS), ON_GROUP);
}

void group(struct scene *s)
{
	struct xport_group_exchange own = {.members = 1, .put = keep, .get = give};
	struct xport_group_attr attr = {.size = sizeof(attr), .members = 1, .address = "127.0.0.1:0"};
	char path[] = "/tmp/xport-inject-XXXXXX", source[64];

	if (!sc_open_side(s, 0))
		return;
	if (mkdtemp(path) == NULL) {
		scene_bad(s, "no directory");
		return;
	}
	snprintf(source, sizeof(source), "dir:%s", path);
	attr.source = source;
	group_by(s, &attr);
	snprintf(source, sizeof(source), "root:127.0.0.1:%d", 10000 + (int)getpid() % 20000);
	group_by(s, &attr);
	attr.exchange = &own;
	group_by(s, &attr);
	s->ending = true;
	inject_relent();
	if (rmdir(path) != 0)
		scene_bad(s, "a group left files in its directory");
	sc_close_all(s);
}
