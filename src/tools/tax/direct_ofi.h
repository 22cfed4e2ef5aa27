/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct_ofi.h - the direct calls of libfabric, see baseline.h: connected endpoints if a provider has them; small data
 * is injected.
 */
#ifndef XPORT_TOOLS_TAX_DIRECT_OFI_H
#define XPORT_TOOLS_TAX_DIRECT_OFI_H

#include "tools/tax/pair.h"

#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

enum { DIRECT_RECEIVES = 256, DIRECT_BATCH = 16, DIRECT_WAITED = 2 * WINDOW };

struct direct_receive {
	struct fi_context2 context; /* first */
	uint64_t word;
};

struct direct {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep; /* of the target, with connected endpoints */
	struct fid_av *av;   /* with unconnected ones */
	struct fid_ep *ep;
	fi_addr_t to;        /* FI_ADDR_UNSPEC: connected */
	struct fid_mr *mr;
	uint64_t at, key; /* the other's memory */
	uint64_t placed;  /* asks for completions that mean so; 0: shm hangs for ever after a refused one */
	struct direct_receive receive[DIRECT_RECEIVES];
	struct fi_context2 waited[DIRECT_WAITED]; /* of what is waited for, in turn */
	unsigned turn;
	int fd; /* what to sleep on; -1: nothing */
};

void direct_came(struct pair *p, const struct fi_cq_msg_entry *e, ssize_t n);

static inline void direct_progress(struct pair *p)
{
	struct fi_cq_msg_entry e[DIRECT_BATCH];
	ssize_t n = fi_cq_read(p->direct->cq, e, DIRECT_BATCH);

	if (n != -FI_EAGAIN)
		direct_came(p, e, n);
}

static inline void direct_wait(struct pair *p)
{
	while (p->pending > 0)
		direct_progress(p);
}

static inline bool direct_can_sleep(const struct pair *p)
{
	return p->direct->fd >= 0;
}

static inline void direct_sleep(struct pair *p)
{
	struct pollfd f = {.fd = p->direct->fd, .events = POLLIN};
	struct fid *fids[] = {&p->direct->cq->fid};

	if (fi_trywait(p->direct->fabric, fids, 1) == FI_SUCCESS)
		poll(&f, 1, -1);
}

static inline void direct_send(struct pair *p, const void *buf, size_t len)
{
	ssize_t r;

	while ((r = fi_inject(p->direct->ep, buf, len, p->direct->to)) == -FI_EAGAIN)
		direct_progress(p);
	CHECK(r == 0);
}

/* Out of p->direct_mem. */
void direct_put_long(struct pair *p, const void *buf, size_t len, uint64_t offset);

static inline void direct_put(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	const struct direct *d = p->direct;
	ssize_t r;

	if (len > d->info->tx_attr->inject_size) {
		direct_put_long(p, buf, len, offset);
		return;
	}
	while ((r = fi_inject_write(d->ep, buf, len, d->to, d->at + offset, d->key)) == -FI_EAGAIN)
		direct_progress(p);
	CHECK(r == 0);
}

/* Into p->direct_mem. */
void direct_get(struct pair *p, void *buf, size_t len, uint64_t offset);

/* Out of p->direct_mem.  What fi_write makes of the flag differs; fi_writemsg keeps it. */
void direct_put_placed(struct pair *p, const void *buf, size_t len, uint64_t offset);

/* Writes complete before they are placed: a read behind them comes back when they are. */
void direct_flush_begin(struct pair *p);
void direct_flush(struct pair *p);

#endif
