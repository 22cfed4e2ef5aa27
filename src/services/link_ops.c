/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that are posted through a link, and posted again if their caller allows that. */
#include "services/link.h"

#include <stdlib.h>
#include <string.h>

#include "services/grow.h"
#include "services/last_error.h"

/* ---- life ---- */

int svc_link_ops_make(struct xport_link *link, uint32_t n)
{
	link->ops = calloc(n, sizeof(*link->ops));
	if (link->ops == NULL)
		return XPORT_ERR_NO_MEMORY;
	link->nops = n;
	for (uint32_t i = n; i > 0; i--) {
		link->ops[i - 1].node.link = link;
		link->ops[i - 1].next = link->free_ops;
		link->free_ops = &link->ops[i - 1];
	}
	return XPORT_OK;
}

struct svc_link_op *svc_link_op_of(const struct xport_link *link, const void *context)
{
	uintptr_t at = (uintptr_t)context, begin = (uintptr_t)link->ops;
	struct svc_link_op *op;

	if (at < begin || at >= (uintptr_t)(link->ops + link->nops))
		return NULL;
	op = &link->ops[(at - begin) / sizeof(*link->ops)];
	return op->state == SVC_LINK_OP_POSTED ? op : NULL;
}

void svc_link_op_free(struct svc_link_op *op)
{
	struct xport_link *link = op->node.link;

	op->state = SVC_LINK_OP_FREE;
	op->next = link->free_ops;
	link->free_ops = op;
	link->used_ops--;
}

static void op_done(struct svc_link_op *op, int status)
{
	op->state = SVC_LINK_OP_DONE;
	op->status = status;
	if (op->key != NULL && (op->flags & XPORT_LINK_REPEATABLE) != 0)
		op->key->users--;
	svc_link_event(op->node.link, &op->node, XPORT_LINK_DONE);
}

static void op_keep(struct svc_link_op *op)
{
	struct xport_link *link = op->node.link;
	struct svc_link_op **at = &link->kept;

	if (link->kept != NULL && link->kept_last->serial < op->serial)
		at = &link->kept_last->next;
	while (*at != NULL && (*at)->serial < op->serial)
		at = &(*at)->next;
	op->state = SVC_LINK_OP_KEPT;
	op->next = *at;
	*at = op;
	if (op->next == NULL)
		link->kept_last = op;
	link->nkept++;
}

static struct svc_link_op *kept_shift(struct xport_link *link)
{
	struct svc_link_op *op = link->kept;

	link->kept = op->next;
	link->nkept--;
	return op;
}

static void kept_end_first(struct xport_link *link, int status)
{
	struct svc_link_op *op = kept_shift(link);
	int own = op->key == NULL && status == XPORT_ERR_STALE_KEY ? XPORT_ERR_PEER_LOST : status;

	op_done(op, op->attempts > 0 ? op->status : own);
}

void svc_link_ops_end(struct xport_link *link, int status)
{
	while (link->kept != NULL)
		kept_end_first(link, status);
}

/* They are the first ones, because serials grow with each instance that the application takes. */
void svc_link_ops_end_strange(struct xport_link *link)
{
	while (link->kept != NULL && link->kept->meant != 0 && link->kept->meant != link->incarnation)
		kept_end_first(link, XPORT_ERR_STALE_KEY);
}

/* ---- posting ---- */

static int op_post(struct svc_link_op *op)
{
	struct xport_link *link = op->node.link;
	xport_ep *ep = link->ep->ep;
	int r = op->key != NULL ? svc_link_key_unpack(op->key) : XPORT_OK;
	xport_rkey *rkey = op->key != NULL ? op->key->rkey : NULL;

	if (r != XPORT_OK)
		return r;
	if (op->key != NULL && op->attempts > 0 && op->sets != op->key->sets)
		return XPORT_ERR_STALE_KEY; /* it may have had its effect on another region */
	op->state = SVC_LINK_OP_POSTED; /* before: another thread may reap it before this call returns */
	op->on = link->ep;
	op->sets = op->key != NULL ? op->key->sets : 0;
	if (op->type == XPORT_OP_PUT)
		r = xport_put(ep, op->buf, op->len, rkey, op->offset, &op->opt);
	else if (op->type == XPORT_OP_GET)
		r = xport_get(ep, op->buf, op->len, rkey, op->offset, &op->opt);
	else if (op->type == XPORT_OP_PUT_NOTIFY)
		r = xport_put_notify(ep, op->buf, op->len, rkey, op->offset, &op->opt);
	else
		r = xport_send(ep, op->buf, op->len, op->offset, &op->opt);
	if (r == XPORT_OK) {
		op->attempts++;
		op->on->ops++;
	}
	return r;
}

static bool is_end(int status)
{
	return status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED || status == XPORT_ERR_TIMEOUT ||
	       status == XPORT_ERR_NO_MEMORY || status == XPORT_ERR_PROTOCOL;
}

/* Whether an operation failed because its endpoint has ended, or is closed by the application. */
static bool ep_has_ended(const struct svc_link_ep *e, int status)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	return status == XPORT_ERR_CLOSED ||
	       (is_end(status) && xport_ep_query(e->ep, &info) == XPORT_OK && info.reason != XPORT_OK);
}

/* Whether posting failed because the key could not be unpacked for now. */
static bool key_waits(const struct svc_link_op *op, int status)
{
	return op->key != NULL && op->key->rkey == NULL && status != XPORT_ERR_STALE_KEY;
}

/* Whether to keep an operation that ended with this error. */
static bool op_repeats(const struct svc_link_op *op, int status)
{
	const struct xport_link *link = op->node.link;

	return (op->flags & XPORT_LINK_REPEATABLE) != 0 && op->attempts <= link->repeats &&
	       link->state != XPORT_LINK_ENDING && link->state != XPORT_LINK_OVER && ep_has_ended(op->on, status);
}

void svc_link_op_completed(struct svc_link_op *op, const struct xport_completion *c)
{
	op->on->ops--;
	op->status = c->status;
	if (c->status != XPORT_OK && op_repeats(op, c->status))
		op_keep(op);
	else
		op_done(op, c->status);
}

void svc_link_ops_post(struct xport_link *link)
{
	svc_link_ops_end_strange(link);
	while (link->state == XPORT_LINK_OPEN && link->kept != NULL) {
		struct svc_link_op *op = link->kept;
		int r = op_post(op);

		if (r == XPORT_OK) {
			(void)kept_shift(link);
			continue;
		}
		op->state = SVC_LINK_OP_KEPT;
		if (r == XPORT_ERR_AGAIN || key_waits(op, r) || ep_has_ended(link->ep, r))
			return; /* the event of the endpoint follows */
		(void)kept_shift(link);
		op_done(op, r);
	}
}

/* ---- the interface ---- */

/* Posts, or keeps, an operation that has a slot. */
static int op_start(struct svc_link_op *op, const char *operation)
{
	struct xport_link *link = op->node.link;
	bool repeatable = (op->flags & XPORT_LINK_REPEATABLE) != 0;
	bool open = link->state == XPORT_LINK_OPEN && link->announced;
	int r;

	if (!open && (!repeatable || link->state == XPORT_LINK_STOPPED || link->state == XPORT_LINK_ENDING ||
	              link->state == XPORT_LINK_OVER || (link->state == XPORT_LINK_OPEN && link->renewed)))
		return svc_link_not_up(link, operation);
	if (open && op->key != NULL) {
		r = svc_link_key_check(op->key, operation);
		if (r != XPORT_OK && (!repeatable || !ep_has_ended(link->ep, r)))
			return r;
	}
	if (open)
		svc_link_ops_post(link);
	if (open && link->kept == NULL) {
		r = op_post(op);
		if (r == XPORT_OK || !repeatable || !ep_has_ended(link->ep, r))
			return r == XPORT_OK ? r : svc_pass(link->links->x, r, operation);
	} else if (!repeatable) {
		return svc_fail(XPORT_ERR_AGAIN, operation, "poll, and call xport_links_step",
		                "%u kept operations must be posted first", link->nkept);
	}
	op->status = XPORT_OK;
	op_keep(op);
	link->links->stirred = true;
	return XPORT_OK;
}

static int op_begin(struct xport_link *link, struct svc_link_op *from, const char *operation)
{
	struct svc_link_op *op = link->free_ops;
	struct svc_link_op *next;
	int r;

	if (op == NULL)
		return svc_fail(XPORT_ERR_AGAIN, operation, "take the events by xport_links_next, or raise max_ops",
		                "the link has %u operations that have not ended (xport_link_attr.max_ops)", link->nops);
	next = op->next;
	from->node = op->node;
	*op = *from;
	op->serial = ++link->serial;
	op->meant = link->known;
	op->context = op->opt.context;
	op->opt.context = op;
	link->free_ops = next;
	link->used_ops++;
	if (op->key != NULL && (op->flags & XPORT_LINK_REPEATABLE) != 0)
		op->key->users++;
	r = op_start(op, operation);
	if (r == XPORT_OK)
		return r;
	if (op->key != NULL && (op->flags & XPORT_LINK_REPEATABLE) != 0)
		op->key->users--;
	svc_link_op_free(op);
	return r;
}

static int link_operate(struct xport_link *link, struct svc_link_op *from, const struct xport_opt *opt, bool keyed,
                        const char *operation)
{
	uint64_t local = keyed && from->type != XPORT_OP_GET ? XPORT_LOCAL : 0;
	int r = svc_grow_in(&from->opt, sizeof(from->opt), SVC_FIRST_OPT, opt, operation, "xport_opt");

	if (r != XPORT_OK)
		return r;
	if (link == NULL || (keyed && from->key == NULL) || (from->buf == NULL && from->len > 0))
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "an argument is NULL");
	if (keyed && from->key->link != link)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "the key belongs to another link");
	if ((from->flags & ~(uint32_t)XPORT_LINK_REPEATABLE) != 0 || (from->opt.flags & ~local) != 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL,
		                "a flag is unknown or does not apply: each operation of a link has a completion");
	if (from->opt.flags != 0 && from->flags != 0)
		return svc_fail(XPORT_ERR_INVALID, operation, "use one of both",
		                "XPORT_LOCAL with XPORT_LINK_REPEATABLE: a put that completed early is not repeated");
	pthread_mutex_lock(&link->links->lock);
	r = op_begin(link, from, operation);
	pthread_mutex_unlock(&link->links->lock);
	return r;
}

int xport_link_put(xport_link *link, const void *buf, size_t len, xport_link_rkey *key, uint64_t offset,
                   const struct xport_opt *opt, uint32_t flags)
{
	struct svc_link_op op = {.type = XPORT_OP_PUT,
	                         .buf = (void *)(uintptr_t)buf,
	                         .len = len,
	                         .key = key,
	                         .offset = offset,
	                         .flags = flags};

	return link_operate(link, &op, opt, true, "xport_link_put");
}

int xport_link_get(xport_link *link, void *buf, size_t len, xport_link_rkey *key, uint64_t offset,
                   const struct xport_opt *opt, uint32_t flags)
{
	struct svc_link_op op = {
		.type = XPORT_OP_GET, .buf = buf, .len = len, .key = key, .offset = offset, .flags = flags};

	return link_operate(link, &op, opt, true, "xport_link_get");
}

int xport_link_put_notify(xport_link *link, const void *buf, size_t len, xport_link_rkey *key, uint64_t offset,
                          const struct xport_opt *opt, uint32_t flags)
{
	struct svc_link_op op = {.type = XPORT_OP_PUT_NOTIFY,
	                         .buf = (void *)(uintptr_t)buf,
	                         .len = len,
	                         .key = key,
	                         .offset = offset,
	                         .flags = flags};

	return link_operate(link, &op, opt, true, "xport_link_put_notify");
}

int xport_link_send(xport_link *link, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt,
                    uint32_t flags)
{
	struct svc_link_op op = {
		.type = XPORT_OP_SEND, .buf = (void *)(uintptr_t)buf, .len = len, .offset = tag, .flags = flags};

	return link_operate(link, &op, opt, false, "xport_link_send");
}
