/* SPDX-License-Identifier: BSD-3-Clause */
/* How a link begins: its options and its addresses. */
#include "services/link.h"

#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/grow.h"
#include "services/last_error.h"

enum {
	CONNECT_MS = 5000,
	FIRST_MS = 100,
	LONGEST_MS = 10000,
	OPS = 256,
	OPS_MAX = 65535,
	REPEATS = 8,
	ROUND_TEXT = XPORT_LINK_ADDRESS_MAX + SVC_LINK_WHY + 40 /* of one address */
};

/* ---- memory ---- */

void svc_link_free_memory(struct xport_link *link)
{
	if (link->addresses != NULL)
		for (unsigned i = 0; i < link->naddresses; i++)
			free(link->addresses[i].name);
	free(link->addresses);
	free(link->round_text);
	free((void *)(uintptr_t)link->conn.private_data);
	free((void *)(uintptr_t)link->conn.transports);
	free(link->ops);
	free(link);
}

/* Copies what the options point to. Returns false if memory is short. */
static bool conn_copy(struct xport_conn_attr *to, const struct xport_conn_attr *from)
{
	*to = *from;
	to->private_data = NULL;
	to->transports = NULL;
	if (from->private_len > 0) {
		void *bytes = malloc(from->private_len);

		if (bytes == NULL)
			return false;
		to->private_data = memcpy(bytes, from->private_data, from->private_len);
	}
	if (from->transports != NULL && (to->transports = strdup(from->transports)) == NULL)
		return false;
	if (to->connect_ms == 0)
		to->connect_ms = CONNECT_MS;
	return true;
}

static bool addresses_copy(struct xport_link *link, const char *const *addresses, size_t count)
{
	link->addresses = calloc(count, sizeof(*link->addresses));
	link->round_len = count * ROUND_TEXT;
	link->round_text = calloc(1, link->round_len);
	if (link->addresses == NULL || link->round_text == NULL)
		return false;
	link->naddresses = (unsigned)count;
	for (size_t i = 0; i < count; i++)
		if ((link->addresses[i].name = strdup(addresses[i])) == NULL)
			return false;
	return true;
}

static struct xport_link *link_new(struct xport_links *links, const char *const *addresses, size_t count,
                                   const struct xport_link_attr *a, const struct xport_conn_attr *conn)
{
	struct xport_link *link = calloc(1, sizeof(*link));

	if (link == NULL)
		return NULL;
	link->links = links;
	link->eps[0].link = link->eps[1].link = link;
	if (!conn_copy(&link->conn, conn) || !addresses_copy(link, addresses, count) ||
	    svc_link_ops_make(link, a->max_ops) != XPORT_OK) {
		svc_link_free_memory(link);
		return NULL;
	}
	if (a->label != NULL)
		memcpy(link->label, a->label, strlen(a->label));
	link->context = a->context;
	link->first_ms = a->first_ms;
	link->max_ms = a->max_ms;
	link->give_up_ms = a->give_up_ms;
	link->rounds_max = a->rounds;
	link->repeats = a->repeats;
	link->flags = a->flags;
	link->random = a->seed;
	return link;
}

static uint64_t seed_of(const struct xport_links *links)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return ((uint64_t)t.tv_nsec << 32 ^ (uint64_t)t.tv_sec ^ (uintptr_t)links) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

/* Fills in the defaults. Returns what is wrong; NULL: nothing. */
static const char *attr_complete(const struct xport_links *links, struct xport_link_attr *a)
{
	a->max_ms = a->max_ms == 0 ? (a->first_ms > LONGEST_MS ? a->first_ms : LONGEST_MS) : a->max_ms;
	a->first_ms = a->first_ms == 0 ? (a->max_ms > 0 && a->max_ms < FIRST_MS ? a->max_ms : FIRST_MS) : a->first_ms;
	a->max_ops = a->max_ops == 0 ? OPS : a->max_ops;
	a->repeats = a->repeats == 0 ? REPEATS : a->repeats;
	a->seed = a->seed == 0 ? seed_of(links) : a->seed;
	if (a->first_ms < 0 || a->max_ms < 0 || a->give_up_ms < 0)
		return "first_ms, max_ms or give_up_ms is negative";
	if (a->first_ms > a->max_ms)
		return "first_ms is above max_ms";
	if (a->max_ops > OPS_MAX)
		return "max_ops is above 65535";
	if ((a->flags & ~(uint32_t)XPORT_LINK_ALL_ERRORS) != 0)
		return "a flag is unknown";
	return a->label != NULL && strlen(a->label) > 63 ? "label is longer than 63 bytes" : NULL;
}

static const char *conn_wrong(xport *x, const struct xport_conn_attr *conn)
{
	struct xport_info info = {.size = sizeof(info)};

	if (conn->private_data == NULL && conn->private_len > 0)
		return "the private data is NULL, but private_len is not 0";
	if (xport_query(x, &info) == XPORT_OK && conn->private_len > info.private_max)
		return "the private data is longer than xport_info.private_max";
	if (conn->traffic_class < XPORT_TRAFFIC_DEFAULT || conn->traffic_class > XPORT_TRAFFIC_URGENT)
		return "conn->traffic_class is not one of enum xport_traffic";
	return conn->backlog < 0 || conn->connect_ms < 0 ? "conn->backlog or conn->connect_ms is negative" : NULL;
}

static int addresses_check(const char *const *addresses, size_t count)
{
	if (addresses == NULL || count == 0 || count > XPORT_LINK_ADDRESSES_MAX)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_open", NULL, "a link has 1 to 16 addresses, not %zu",
		                addresses == NULL ? 0 : count);
	for (size_t i = 0; i < count; i++) {
		size_t len = addresses[i] == NULL ? 0 : strlen(addresses[i]);

		if (len == 0 || len > XPORT_LINK_ADDRESS_MAX)
			return svc_fail(XPORT_ERR_INVALID, "xport_link_open", "give \"host:port\"",
			                "address %zu is NULL, empty, or longer than 255 bytes", i);
	}
	return XPORT_OK;
}

static void link_begin(struct xport_link *link)
{
	struct xport_links *links = link->links;

	link->next = links->list;
	link->at = &links->list;
	if (link->next != NULL)
		link->next->at = &link->next;
	links->list = link;
	link->due = svc_now_ms();
	link->deadline = link->give_up_ms > 0 ? link->due + link->give_up_ms : -1;
	links->stirred = true;
	svc_links_move(links);
}

int xport_link_open(xport_links *links, const char *const *addresses, size_t count, const struct xport_link_attr *attr,
                    xport_link **link)
{
	struct xport_conn_attr conn;
	struct xport_link_attr a;
	struct xport_link *made;
	const char *wrong;
	bool destroying;
	int r = svc_grow_in(&a, sizeof(a), SVC_FIRST_LINK_ATTR, attr, "xport_link_open", "xport_link_attr");

	if (r != XPORT_OK)
		return r;
	r = svc_grow_in(&conn, sizeof(conn), SVC_FIRST_CONN_ATTR, a.conn, "xport_link_open", "xport_conn_attr");
	if (r != XPORT_OK)
		return r;
	if (links == NULL || link == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_open", NULL, "an argument is NULL");
	r = addresses_check(addresses, count);
	if (r != XPORT_OK)
		return r;
	wrong = attr_complete(links, &a);
	if (wrong == NULL)
		wrong = conn_wrong(links->x, &conn);
	if (wrong != NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_open", NULL, "%s", wrong);
	made = link_new(links, addresses, count, &a, &conn);
	if (made == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_link_open", NULL, "out of memory");
	pthread_mutex_lock(&links->lock);
	destroying = links->destroying;
	if (!destroying) {
		*link = made;
		link_begin(made);
	}
	pthread_mutex_unlock(&links->lock);
	if (!destroying)
		return XPORT_OK;
	svc_link_free_memory(made);
	return svc_fail(XPORT_ERR_INVALID, "xport_link_open", NULL, "the links are being destroyed");
}
