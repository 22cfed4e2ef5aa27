/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_cluster.c - see scenarios.h: what speaks with a launcher or an etcd, which scenarios_servers.c plays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenarios_servers.h"
#include "scene.h"
#include "services/xport_services.h"

enum {
	CLUSTER_LIMIT_MS = 5000,
	ON_CLUSTER = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_CONFIG) |
	             BIT(XPORT_ERR_ADDRESS) | BIT(XPORT_ERR_UNREACHABLE) | BIT(XPORT_ERR_AUTH) |
	             BIT(XPORT_ERR_PROTOCOL) | BIT(XPORT_ERR_NOT_SUPPORTED) | BIT(XPORT_ERR_PEER_LOST) |
	             BIT(XPORT_ERR_AGAIN),
};

void start_servers(struct scene *s);
void launcher_1(struct scene *s);
void launcher_2(struct scene *s);
void etcd_group(struct scene *s);
void etcd_directory(struct scene *s);

static struct sv_servers servers;

void start_servers(struct scene *s)
{
	if (!sv_start(&servers))
		scene_bad(s, "no server can be started");
}

static void one_member(struct scene *s, const struct xport_group_attr *attr)
{
	xport_group *g = NULL;

	if (!sc_served(s, "xport_group_create", xport_group_create(s->x[0], attr, CLUSTER_LIMIT_MS, &g), ON_CLUSTER))
		return;
	sc_served(s, "xport_group_barrier", xport_group_barrier(g, CLUSTER_LIMIT_MS), ON_CLUSTER);
	sc_served(s, "xport_group_destroy", xport_group_destroy(g, CLUSTER_LIMIT_MS), ON_CLUSTER);
}

static void cluster_end(struct scene *s)
{
	s->ending = true;
	inject_relent();
	sc_close_all(s);
	sv_stop(&servers);
}

/* A process joins its launcher once. */
static void launched(struct scene *s, int version)
{
	struct xport_group_attr attr = {
		.size = sizeof(attr), .address = "127.0.0.1:0", .source = version == 1 ? "pmi1" : "pmi2"};
	char fd[16];

	if (sc_open_side(s, 0)) {
		snprintf(fd, sizeof(fd), "%d", servers.launcher[version - 1]);
		setenv("PMI_RANK", "0", 1);
		setenv("PMI_SIZE", "1", 1);
		setenv("PMI_FD", fd, 1);
		one_member(s, &attr);
	}
	cluster_end(s);
}

void launcher_1(struct scene *s)
{
	launched(s, 1);
}

void launcher_2(struct scene *s)
{
	launched(s, 2);
}

static void with_etcd(struct scene *s)
{
	if (setenv("XPORT_ETCD_USER", "job", 1) != 0 || setenv("XPORT_ETCD_PASSWORD_FILE", servers.password, 1) != 0 ||
	    setenv("XPORT_ETCD_CACERT", servers.password, 1) != 0)
		scene_bad(s, "no variables");
}

void etcd_group(struct scene *s)
{
	struct xport_group_attr attr = {
		.size = sizeof(attr), .members = 1, .source = servers.etcd, .address = "127.0.0.1:0"};

	if (sc_open_side(s, 0)) {
		with_etcd(s);
		one_member(s, &attr);
	}
	cluster_end(s);
}

static void asked(struct scene *s, xport_directory *d, const char *what, int status)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int64_t began = sc_now_ms();

	if (!sc_served(s, what, status, ON_CLUSTER))
		return;
	for (e.type = 0; e.type != XPORT_DIRECTORY_DONE;) {
		int r = xport_directory_wait(d, &e, NULL, NULL, 100);

		if (r != XPORT_OK && r != XPORT_ERR_TIMEOUT && !sc_served(s, "xport_directory_wait", r, ON_CLUSTER))
			return;
		if (sc_now_ms() - began > 3 * CLUSTER_LIMIT_MS) {
			scene_bad(s, "hang: no answer to %s", what);
			return;
		}
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	if (e.status != XPORT_OK)
		sc_note(s, e.status, ON_CLUSTER);
}

/* The changes of a watch come, or MISSED. */
static void watched(struct scene *s, xport_directory *d)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int64_t began = sc_now_ms();

	for (e.type = 0; e.type != XPORT_DIRECTORY_GONE && e.type != XPORT_DIRECTORY_MISSED;) {
		int r = xport_directory_wait(d, &e, NULL, NULL, 100);

		if (r != XPORT_OK && r != XPORT_ERR_TIMEOUT && !sc_served(s, "xport_directory_wait", r, ON_CLUSTER))
			return;
		if (sc_now_ms() - began > 2 * CLUSTER_LIMIT_MS) {
			scene_bad(s, "hang: a watcher hears of no change");
			return;
		}
	}
}

void etcd_directory(struct scene *s)
{
	struct xport_directory_entry entry = {.size = sizeof(entry), .length = 1, .key_len = 1};
	struct xport_directory_attr attr = {.size = sizeof(attr), .node = "here", .source = servers.etcd};
	xport_directory *d = NULL;

	if (sc_open_side(s, 0)) {
		with_etcd(s);
		if (!sc_served(s, "xport_directory_create", xport_directory_create(s->x[0], &attr, &d), ON_CLUSTER))
			d = NULL;
	}
	if (d != NULL) {
		asked(s, d, "xport_directory_put",
		      xport_directory_put(d, "a", 1, &entry, XPORT_DIRECTORY_BROADCAST, NULL));
		asked(s, d, "xport_directory_find", xport_directory_find(d, "a", 1, NULL));
		asked(s, d, "xport_directory_watch", xport_directory_watch(d, NULL));
		if (!sc_failing(s))
			watched(s, d);
		asked(s, d, "xport_directory_put", xport_directory_put(d, "a", 1, &entry, 0, NULL));
		asked(s, d, "xport_directory_remove", xport_directory_remove(d, "a", 1, NULL));
		s->ending = true;
		inject_relent();
		sc_served(s, "xport_directory_destroy", xport_directory_destroy(d, NULL, NULL, OPS_LIMIT_MS), 0);
	}
	cluster_end(s);
}
