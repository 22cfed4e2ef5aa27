/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transfer is kept as the lists that xport_putv and xport_getv take. Its pieces are merged on each side by itself, since
 * the two lists of a call need not be cut at the same places. A list ends where either side has as many pieces as a call
 * takes; both sides then have the same number of bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "services/grow.h"
#include "services/last_error.h"

enum { PIECES_MAX = 1 << 20 };

static const char ADD[] = "xport_prepared_add", CREATE[] = "xport_prepared_create";

/* One call. */
struct list {
	size_t local, nlocal, remote, nremote; /* pieces: the first, and how many */
};

struct transfer {
	uint64_t bytes;
	size_t nlocal, nremote, nlists;
	size_t local_room, remote_room, list_room;
	struct xport_iov *local;
	struct xport_riov *remote;
	struct list *list;
};

struct xport_prepared {
	xport *x;
	xport_ep *ep;
	xport_rkey *rkey;
	uint8_t *base;
	uint64_t length, remote_length;
	xport_mr *mr;
	size_t iov_max;
	size_t n, room;
	struct transfer *transfer;
};

/* ---- runs ---- */

/* A run without levels that do nothing: pieces that touch each other on both sides are one. */
static struct xport_prepared_run run_reduced(const struct xport_prepared_run *run)
{
	struct xport_prepared_run r = *run;

	for (int i = 0; i < 2; i++)
		r.level[i].count += r.level[i].count == 0;
	for (int i = 0; i < 2; i++) {
		struct xport_prepared_level *l = &r.level[0];

		if (l->count > 1 && (l->local_stride != r.length || l->remote_stride != r.length))
			break;
		r.length *= l->count;
		r.level[0] = r.level[1];
		r.level[1] = (struct xport_prepared_level){.count = 1};
	}
	return r;
}

/* Where the last piece ends on one side; false: beyond 2^64. */
static bool run_end(uint64_t start, uint64_t length, const struct xport_prepared_level *level, bool remote,
                    uint64_t *end)
{
	*end = start;
	for (int i = 0; i < 2; i++) {
		uint64_t stride = remote ? level[i].remote_stride : level[i].local_stride, all;
		uint64_t count = level[i].count > 0 ? level[i].count : 1;

		if (__builtin_mul_overflow(count - 1, stride, &all) || __builtin_add_overflow(*end, all, end))
			return false;
	}
	return !__builtin_add_overflow(*end, length, end);
}

static int run_check(const xport_prepared *set, const struct xport_prepared_run *run, size_t i)
{
	uint64_t local, remote;

	if (run->length == 0)
		return svc_fail(XPORT_ERR_INVALID, ADD, NULL, "run %zu: the length of a piece is 0", i);
	if (!run_end(run->local, run->length, run->level, false, &local) || local > set->length)
		return svc_fail(XPORT_ERR_BOUNDS, ADD, NULL, "run %zu ends outside the %llu bytes of local memory", i,
		                (unsigned long long)set->length);
	if (!run_end(run->remote, run->length, run->level, true, &remote) || remote > set->remote_length)
		return svc_fail(XPORT_ERR_BOUNDS, ADD, NULL, "run %zu ends outside the %llu bytes of the remote region",
		                i, (unsigned long long)set->remote_length);
	return XPORT_OK;
}

/* ---- building ---- */

/* Makes space for one more element. */
static bool space(void *array, size_t *room, size_t n, size_t element)
{
	size_t more = *room > 0 ? 2 * *room : 8;
	void *bigger;

	if (n < *room)
		return true;
	bigger = realloc(*(void **)array, more * element);
	if (bigger == NULL)
		return false;
	*(void **)array = bigger;
	*room = more;
	return true;
}

static bool spaces(struct transfer *t)
{
	return space(&t->local, &t->local_room, t->nlocal, sizeof(*t->local)) &&
	       space(&t->remote, &t->remote_room, t->nremote, sizeof(*t->remote)) &&
	       space(&t->list, &t->list_room, t->nlists, sizeof(*t->list));
}

static void list_begin(struct transfer *t)
{
	t->list[t->nlists++] = (struct list){.local = t->nlocal, .remote = t->nremote};
}

/* The piece goes on where the last one of the list ends. */
static bool local_touches(const struct transfer *t, const struct list *l, const uint8_t *addr)
{
	const struct xport_iov *last = &t->local[t->nlocal - 1];

	return l->nlocal > 0 && (const uint8_t *)last->addr + last->len == addr;
}

static bool remote_touches(const struct transfer *t, const struct list *l, uint64_t offset)
{
	const struct xport_riov *last = &t->remote[t->nremote - 1];

	return l->nremote > 0 && last->offset + last->len == offset;
}

/* Adds a piece to the last list, or to a new one. False: out of memory. */
static bool piece_add(const xport_prepared *set, struct transfer *t, uint8_t *addr, uint64_t offset, uint64_t len)
{
	bool there = t->nlists > 0, local, remote;
	struct list *l;

	if (!spaces(t))
		return false;
	l = there ? &t->list[t->nlists - 1] : NULL;
	local = there && local_touches(t, l, addr);
	remote = there && remote_touches(t, l, offset);
	if (!there || (!local && l->nlocal == set->iov_max) || (!remote && l->nremote == set->iov_max)) {
		list_begin(t);
		l = &t->list[t->nlists - 1];
		local = remote = false;
	}
	if (local) {
		t->local[t->nlocal - 1].len += (size_t)len;
	} else {
		t->local[t->nlocal++] = (struct xport_iov){.addr = addr, .len = (size_t)len, .mr = set->mr};
		l->nlocal++;
	}
	if (remote) {
		t->remote[t->nremote - 1].len += len;
	} else {
		t->remote[t->nremote++] = (struct xport_riov){.offset = offset, .len = len};
		l->nremote++;
	}
	t->bytes += len;
	return true;
}

/* Adds all pieces of a reduced run. */
static int run_add(const xport_prepared *set, struct transfer *t, const struct xport_prepared_run *run)
{
	const struct xport_prepared_level *in = &run->level[0], *out = &run->level[1];

	for (uint64_t i = 0; i < out->count; i++) {
		for (uint64_t k = 0; k < in->count; k++) {
			uint64_t local = run->local + i * out->local_stride + k * in->local_stride;
			uint64_t remote = run->remote + i * out->remote_stride + k * in->remote_stride;

			if (!piece_add(set, t, set->base + local, remote, run->length))
				return svc_fail(XPORT_ERR_NO_MEMORY, ADD, NULL, "no memory for the pieces");
			if (t->nlocal > PIECES_MAX || t->nremote > PIECES_MAX)
				return svc_fail(XPORT_ERR_INVALID, ADD, "prepare several transfers",
				                "the transfer has more than %d pieces", PIECES_MAX);
		}
	}
	return XPORT_OK;
}

static void transfer_free(struct transfer *t)
{
	free(t->local);
	free(t->remote);
	free(t->list);
}

/* Whether it sets what is behind the members that are known here: a newer program's entries may be longer. */
static bool run_unknown(const struct xport_prepared_run *run, size_t entry_size)
{
	for (size_t i = sizeof(*run); i < entry_size; i++)
		if (((const char *)run)[i] != 0)
			return true;
	return false;
}

static int transfer_build(const xport_prepared *set, struct transfer *t, const struct xport_prepared_run *runs,
                          size_t entry_size, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct xport_prepared_run *run = (const void *)((const char *)runs + i * entry_size);
		struct xport_prepared_run reduced;
		int r;

		if (run_unknown(run, entry_size))
			return svc_fail(XPORT_ERR_NOT_SUPPORTED, ADD, NULL,
			                "run %zu sets a field unknown to this version", i);
		r = run_check(set, run, i);
		if (r != XPORT_OK)
			return r;
		reduced = run_reduced(run);
		r = run_add(set, t, &reduced);
		if (r != XPORT_OK)
			return r;
	}
	return XPORT_OK;
}

/* ---- the set ---- */

/* Whether the region holds the memory: its owner says so now, not only at each post. */
static int create_check(xport *x, uint8_t *base, size_t length, xport_mr *mr)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	uint8_t *start;
	int r;

	if (mr == NULL)
		return XPORT_OK;
	r = xport_mr_query(mr, &info);
	if (r != XPORT_OK)
		return svc_pass(x, r, CREATE);
	start = info.base;
	if (base < start || length > info.length || (size_t)(base - start) > info.length - length)
		return svc_fail(XPORT_ERR_INVALID, CREATE, NULL, "the %zu bytes at %p are not inside mr", length,
		                (void *)base);
	return XPORT_OK;
}

int xport_prepared_create(xport *x, xport_ep *ep, xport_rkey *rkey, void *base, size_t length, xport_mr *mr,
                          xport_prepared **set)
{
	struct xport_rkey_info key = {.size = sizeof(key)};
	struct xport_info info = {.size = sizeof(info)};
	xport_prepared *s;
	int r;

	if (x == NULL || ep == NULL || rkey == NULL || base == NULL || set == NULL || length == 0)
		return svc_fail(XPORT_ERR_INVALID, CREATE, NULL, "an argument is NULL, or length is 0");
	r = xport_query(x, &info);
	if (r == XPORT_OK)
		r = xport_rkey_query(rkey, &key);
	if (r != XPORT_OK)
		return svc_pass(x, r, CREATE);
	r = create_check(x, base, length, mr);
	if (r != XPORT_OK)
		return r;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, CREATE, NULL, "no memory for the set");
	*s = (xport_prepared){.x = x,
	                      .ep = ep,
	                      .rkey = rkey,
	                      .base = base,
	                      .length = length,
	                      .remote_length = key.length,
	                      .mr = mr,
	                      .iov_max = info.iov_max};
	*set = s;
	return XPORT_OK;
}

int xport_prepared_add(xport_prepared *set, const struct xport_prepared_run *runs, size_t entry_size, size_t count,
                       size_t *index)
{
	struct transfer t = {0};
	int r;

	if (set == NULL || runs == NULL || index == NULL || count == 0 || entry_size < sizeof(*runs))
		return svc_fail(XPORT_ERR_INVALID, ADD, NULL,
		                "an argument is NULL, count is 0, or entry_size is smaller than the struct");
	if (!space(&set->transfer, &set->room, set->n, sizeof(*set->transfer)))
		return svc_fail(XPORT_ERR_NO_MEMORY, ADD, NULL, "no memory for a transfer");
	r = transfer_build(set, &t, runs, entry_size, count);
	if (r != XPORT_OK) {
		transfer_free(&t);
		return r;
	}
	set->transfer[set->n] = t;
	*index = set->n++;
	return XPORT_OK;
}

int xport_prepared_query(const xport_prepared *set, size_t index, struct xport_prepared_info *info)
{
	struct xport_prepared_info all = {.size = info != NULL ? info->size : 0};
	const struct transfer *t;

	if (set == NULL || info == NULL || index >= set->n || !svc_grow_size(info->size, SVC_FIRST_PREPARED_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_prepared_query", NULL,
		                "an argument is NULL, info->size is wrong, or no transfer has this index");
	t = &set->transfer[index];
	all.bytes = t->bytes;
	all.local_pieces = t->nlocal;
	all.remote_pieces = t->nremote;
	all.lists = t->nlists;
	svc_grow_out(info, &all, sizeof(all));
	return XPORT_OK;
}

void xport_prepared_destroy(xport_prepared *set)
{
	if (set == NULL)
		return;
	for (size_t i = 0; i < set->n; i++)
		transfer_free(&set->transfer[i]);
	free(set->transfer);
	free(set);
}

/* ---- posting ---- */

typedef int (*post_fn)(const xport_prepared *set, const struct transfer *t, const struct list *l,
                       const struct xport_opt *opt);

static int list_put(const xport_prepared *set, const struct transfer *t, const struct list *l,
                    const struct xport_opt *opt)
{
	return xport_putv(set->ep, t->local + l->local, l->nlocal, set->rkey, t->remote + l->remote, l->nremote, opt);
}

static int list_get(const xport_prepared *set, const struct transfer *t, const struct list *l,
                    const struct xport_opt *opt)
{
	return xport_getv(set->ep, t->local + l->local, l->nlocal, set->rkey, t->remote + l->remote, l->nremote, opt);
}

static int post_failed(const xport_prepared *set, int status, const char *operation)
{
	if (status == XPORT_ERR_AGAIN)
		return svc_fail(status, operation, "reap completions, then call again with the same `posted`",
		                "the queue is full");
	return svc_pass(set->x, status, operation);
}

/* Several lists: quiet ones, and a flush that stands for all. */
static int post_many(const xport_prepared *set, const struct transfer *t, const struct xport_opt *opt, size_t *posted,
                     post_fn post, const char *operation)
{
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET, .deadline_ms = opt->deadline_ms};
	struct xport_opt flush = {.size = sizeof(flush), .context = opt->context, .deadline_ms = opt->deadline_ms};
	int r;

	if (posted == NULL || *posted > t->nlists)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "posted is %s, and the transfer has %zu lists",
		                posted == NULL ? "NULL" : "wrong", t->nlists);
	for (; *posted < t->nlists; ++*posted) {
		r = post(set, t, &t->list[*posted], &quiet);
		if (r != XPORT_OK)
			return post_failed(set, r, operation);
	}
	r = (opt->flags & XPORT_QUIET) != 0 ? XPORT_OK : xport_flush(set->ep, &flush);
	if (r != XPORT_OK)
		return post_failed(set, r, operation);
	*posted = 0; /* with the number of all lists, the next call would post nothing but a flush */
	return XPORT_OK;
}

static int prepared_post(const xport_prepared *set, size_t index, const struct xport_opt *opt, size_t *posted,
                         post_fn post, uint32_t flags, const char *operation)
{
	struct xport_opt known = {.size = sizeof(known)}, use = {.size = sizeof(use)};
	const struct transfer *t;
	int r;

	if (set == NULL || index >= set->n)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "the set is NULL, or no transfer has this index");
	r = opt != NULL ? svc_grow_in(&known, sizeof(known), SVC_FIRST_OPT, opt, operation, "opt") : XPORT_OK;
	if (r != XPORT_OK)
		return r;
	if ((known.flags & ~flags) != 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "opt->flags has flags that do not apply");
	use.flags = known.flags;
	use.context = known.context;
	use.deadline_ms = known.deadline_ms;
	t = &set->transfer[index];
	if (t->nlists > 1)
		return post_many(set, t, &use, posted, post, operation);
	if (posted != NULL && *posted > 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "posted is wrong: the transfer has one list");
	r = post(set, t, &t->list[0], &use);
	return r == XPORT_OK ? r : post_failed(set, r, operation);
}

int xport_prepared_put(xport_prepared *set, size_t index, const struct xport_opt *opt, size_t *posted)
{
	return prepared_post(set, index, opt, posted, list_put, XPORT_LOCAL | XPORT_QUIET, "xport_prepared_put");
}

int xport_prepared_get(xport_prepared *set, size_t index, const struct xport_opt *opt, size_t *posted)
{
	return prepared_post(set, index, opt, posted, list_get, XPORT_QUIET, "xport_prepared_get");
}
