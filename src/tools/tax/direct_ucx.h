/* SPDX-License-Identifier: BSD-3-Clause */
/* direct_ucx.h - the direct calls of UCX, see baseline.h. */
#ifndef XPORT_TOOLS_TAX_DIRECT_UCX_H
#define XPORT_TOOLS_TAX_DIRECT_UCX_H

#include "tools/tax/pair.h"

#include <poll.h>
#include <ucp/api/ucp.h>

struct direct {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucp_mem_h mr;
	ucp_rkey_h rkey;
	uint64_t at; /* the other's memory there */
	uint64_t last;
	int fd; /* what to sleep on */
	/* long messages by tag, long puts and gets, by UCX's own choice of how, in a context of their own */
	ucp_context_h long_context;
	ucp_worker_h long_worker;
	ucp_ep_h long_ep;
	ucp_mem_h long_mr; /* p->mem[1] */
	ucp_rkey_h long_rkey;
	uint64_t long_at;
	uint64_t long_pending;
};

#define DIRECT_LONG
void direct_long(struct pair *p, bool sending, void *buf, size_t len);
void direct_long_wait(struct pair *p);
void direct_default_put(struct pair *p, const void *buf, size_t len, uint64_t offset);
void direct_default_get(struct pair *p, void *buf, size_t len, uint64_t offset);
void direct_default_flush(struct pair *p);
void direct_default_serve(struct pair *p);

extern ucp_request_param_t direct_am, direct_rma;

static inline void direct_progress(struct pair *p)
{
	ucp_worker_progress(p->direct->worker);
}

static inline void direct_wait(struct pair *p)
{
	while (p->pending > 0)
		direct_progress(p);
}

static inline void direct_track(struct pair *p, ucs_status_ptr_t r)
{
	if (r == NULL)
		return;
	CHECK(UCS_PTR_IS_PTR(r));
	p->pending++;
}

static inline bool direct_can_sleep(const struct pair *p)
{
	(void)p;
	return true;
}

static inline void direct_sleep(struct pair *p)
{
	struct pollfd f = {.fd = p->direct->fd, .events = POLLIN};

	if (ucp_worker_arm(p->direct->worker) == UCS_OK)
		poll(&f, 1, -1);
}

static inline void direct_send(struct pair *p, const void *buf, size_t len)
{
	direct_track(p, ucp_am_send_nbx(p->direct->ep, 0, NULL, 0, buf, len, &direct_am));
}

static inline void direct_put(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	const struct direct *d = p->direct;

	direct_track(p, ucp_put_nbx(d->ep, buf, len, d->at + offset, d->rkey, &direct_rma));
}

static inline void direct_get(struct pair *p, void *buf, size_t len, uint64_t offset)
{
	const struct direct *d = p->direct;

	direct_track(p, ucp_get_nbx(d->ep, buf, len, d->at + offset, d->rkey, &direct_rma));
}

static inline void direct_flush_begin(struct pair *p)
{
	direct_track(p, ucp_ep_flush_nbx(p->direct->ep, &direct_rma));
}

static inline void direct_flush(struct pair *p)
{
	direct_flush_begin(p);
	direct_wait(p);
}

#define DIRECT_ADD
static inline void direct_add(struct pair *p, uint64_t *old, uint64_t offset)
{
	static const uint64_t one = 1;
	const struct direct *d = p->direct;
	ucp_request_param_t param = direct_rma;

	param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
	param.datatype = ucp_dt_make_contig(sizeof(one));
	param.reply_buffer = old;
	direct_track(p, ucp_atomic_op_nbx(d->ep, UCP_ATOMIC_OP_ADD, &one, 1, d->at + offset, d->rkey, &param));
}

static inline void direct_put_placed(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	direct_put(p, buf, len, offset);
	direct_flush(p);
}

#endif
