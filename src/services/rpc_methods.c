/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of methods, and the methods of the library: xport.ping, xport.methods, xport.stats. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/rpc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LINE = 128 };

/* ---- names ---- */

static bool name_char_valid(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
	       c == '/' || c == '-';
}

uint64_t svc_rpc_hash(const char *name)
{
	uint64_t hash;
	size_t len = 0;

	while (len <= XPORT_RPC_NAME_MAX && name_char_valid(name[len]))
		len++;
	if (len == 0 || len > XPORT_RPC_NAME_MAX || name[len] != '\0')
		return 0;
	hash = XXH3_64bits(name, len);
	return hash == 0 ? 1 : hash;
}

/* ---- the table ---- */

struct svc_rpc_method *svc_rpc_methods_find(const struct svc_rpc_methods *t, uint64_t hash)
{
	struct svc_rpc_method *m = t->bucket[hash % SVC_RPC_BUCKETS];

	while (m != NULL && m->hash != hash)
		m = m->next;
	return m;
}

int svc_rpc_methods_add(struct svc_rpc_methods *t, struct svc_rpc_method *m)
{
	struct svc_rpc_method **list;

	if (svc_rpc_methods_find(t, m->hash) != NULL)
		return XPORT_ERR_BUSY;
	list = realloc(t->list, (t->n + 1) * sizeof(struct svc_rpc_method *));
	if (list == NULL)
		return XPORT_ERR_NO_MEMORY;
	t->list = list;
	t->list[t->n++] = m;
	m->next = t->bucket[m->hash % SVC_RPC_BUCKETS];
	t->bucket[m->hash % SVC_RPC_BUCKETS] = m;
	return XPORT_OK;
}

void svc_rpc_methods_fini(struct svc_rpc_methods *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->list[i]);
	free(t->list);
	*t = (struct svc_rpc_methods){0};
}

/* ---- the methods of the library ---- */

/* Writes the line of the method with this index to `line`, and returns its length. */
typedef int (*line_fn)(const struct xport_rpcs *r, size_t i, char *line);

static int name_line(const struct xport_rpcs *r, size_t i, char *line)
{
	return snprintf(line, LINE, "%s\n", r->methods.list[i]->name);
}

static int counters_line(const struct xport_rpcs *r, size_t i, char *line)
{
	const struct svc_rpc_method *m = r->methods.list[i];

	return snprintf(line, LINE, "%s %" PRIu64 " %" PRIu64 "\n", m->name, m->calls, m->errors);
}

/* Whole lines for the methods from `skip` on, as many as there is space for. */
static size_t lines_put(const struct xport_rpcs *r, size_t skip, line_fn put, uint8_t *out, size_t max)
{
	char line[LINE];
	size_t len = 0;

	for (size_t i = skip; i < r->methods.n; i++) {
		size_t n = (size_t)put(r, i, line);

		if (n > max - len)
			break;
		memcpy(out + len, line, n);
		len += n;
	}
	return len;
}

static size_t totals_put(const struct xport_rpcs *r, uint8_t *out, size_t max)
{
	const struct xport_rpcs_info *i = &r->info;
	uint64_t memory = r->request_bytes + r->engine.msgq.replies_bytes;
	char line[2 * LINE];
	size_t n;

	n = (size_t)snprintf(line, sizeof(line),
	                     "requests=%" PRIu64 " busy=%" PRIu64 " dropped=%" PRIu64 " active=%u memory=%" PRIu64
	                     " memory_max=%" PRIu64 "\n",
	                     i->requests, i->busy, i->dropped, i->active, memory, svc_rpc_memory_max(r));
	if (n > max)
		return 0;
	memcpy(out, line, n);
	return n;
}

/* A payload that is not a number skips nothing. */
static size_t lines_skipped(const uint8_t *payload, size_t len)
{
	size_t skip = 0;

	for (size_t i = 0; i < len; i++) {
		if (payload[i] < '0' || payload[i] > '9' || skip > SIZE_MAX / 16)
			return 0;
		skip = skip * 10 + (size_t)(payload[i] - '0');
	}
	return skip;
}

size_t svc_rpc_builtin(const struct xport_rpcs *r, const struct svc_rpc_method *method, const uint8_t *payload,
                       size_t len, uint8_t *out, size_t max)
{
	size_t skip = lines_skipped(payload, len), n = 0;

	if (strcmp(method->name, "xport.ping") == 0) {
		n = len < max ? len : max;
		if (n > 0)
			memcpy(out, payload, n);
		return n;
	}
	if (strcmp(method->name, "xport.methods") == 0)
		return lines_put(r, skip, name_line, out, max);
	if (skip == 0)
		n = totals_put(r, out, max);
	return n + lines_put(r, skip, counters_line, out + n, max - n);
}

int svc_rpc_builtins_add(struct svc_rpc_methods *t)
{
	static const char *const names[] = {"xport.methods", "xport.ping", "xport.stats"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct svc_rpc_method *m = calloc(1, sizeof(*m));

		if (m == NULL)
			return XPORT_ERR_NO_MEMORY;
		snprintf(m->name, sizeof(m->name), "%s", names[i]);
		m->hash = svc_rpc_hash(names[i]);
		if (svc_rpc_methods_add(t, m) != XPORT_OK) {
			free(m);
			return XPORT_ERR_NO_MEMORY;
		}
	}
	return XPORT_OK;
}
