/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "tools/tax/baseline.h"

/* What the other process needs to know. */
struct told {
	char name[128]; /* of its endpoint; with connected ones, of the target, which listens */
	size_t len;
	uint64_t at, key;
};

static void ofi_direct_post(struct pair *p, struct direct_receive *r)
{
	CHECK(fi_recv(p->direct->ep, &r->word, sizeof(r->word), NULL, FI_ADDR_UNSPEC, &r->context) == 0);
}

void direct_came(struct pair *p, const struct fi_cq_msg_entry *e, ssize_t n)
{
	CHECK(n > 0);
	for (ssize_t i = 0; i < n; i++) {
		if ((e[i].flags & FI_RECV) == 0) {
			p->pending--;
			continue;
		}
		CHECK(e[i].len == sizeof(uint64_t));
		p->arrived++;
		ofi_direct_post(p, e[i].op_context);
	}
}

static void *context(struct direct *d)
{
	return &d->waited[d->turn++ % DIRECT_WAITED];
}

void direct_put_long(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	struct direct *d = p->direct;
	void *c = context(d);
	ssize_t r;

	while ((r = fi_write(d->ep, buf, len, fi_mr_desc(d->mr), d->to, d->at + offset, d->key, c)) == -FI_EAGAIN)
		direct_progress(p);
	CHECK(r == 0);
	p->pending++;
}

void direct_get(struct pair *p, void *buf, size_t len, uint64_t offset)
{
	struct direct *d = p->direct;
	void *c = context(d);
	ssize_t r;

	while ((r = fi_read(d->ep, buf, len, fi_mr_desc(d->mr), d->to, d->at + offset, d->key, c)) == -FI_EAGAIN)
		direct_progress(p);
	CHECK(r == 0);
	p->pending++;
}

void direct_put_placed(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	const struct direct *d = p->direct;
	void *desc = fi_mr_desc(d->mr);
	struct iovec from = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
	struct fi_rma_iov to = {.addr = d->at + offset, .len = len, .key = d->key};
	struct fi_msg_rma msg = {.msg_iov = &from,
	                         .desc = &desc,
	                         .iov_count = 1,
	                         .addr = d->to,
	                         .rma_iov = &to,
	                         .rma_iov_count = 1,
	                         .context = context(p->direct)};
	ssize_t r;

	while ((r = fi_writemsg(d->ep, &msg, FI_COMPLETION | d->placed)) == -FI_EAGAIN)
		direct_progress(p);
	CHECK(r == 0);
	p->pending++;
	direct_wait(p);
	if (d->placed == 0)
		direct_flush(p);
}

void direct_flush_begin(struct pair *p)
{
	direct_get(p, p->direct_mem + 2048, 8, 2048);
}

void direct_flush(struct pair *p)
{
	direct_flush_begin(p);
	direct_wait(p);
}

/*
 * As src/backends/ofi/ does it: a thread of sockets' own would share the core with who polls.  And for shm what its puts by
 * direct calls need to be fast: for ordered writes it does not call the kernel.
 */
static int ofi_direct_find(struct direct *d, const char *name, enum fi_ep_type type)
{
	bool shm = strcmp(name, "shm") == 0;
	struct fi_info *hints = fi_allocinfo();
	int rc;

	CHECK(hints != NULL);
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = type;
	hints->addr_format = shm ? FI_FORMAT_UNSPEC : FI_SOCKADDR_IN;
	hints->tx_attr->msg_order = shm ? FI_ORDER_SAW | FI_ORDER_RAW : FI_ORDER_NONE;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	if (strcmp(name, "sockets") == 0)
		hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->fabric_attr->prov_name = strdup(name);
	rc = fi_getinfo(FI_VERSION(1, 17), shm ? NULL : "127.0.0.1", NULL, shm ? 0 : FI_SOURCE, hints, &d->info);
	fi_freeinfo(hints);
	return rc;
}

static void open_domain(struct pair *p)
{
	struct direct *d = p->direct;
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD, .size = 4 * DIRECT_RECEIVES};
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
	const char *name = strchr(p->beside, ':') + 1;
	bool connected = ofi_direct_find(d, name, FI_EP_MSG) == 0;

	CHECK(connected || ofi_direct_find(d, name, FI_EP_RDM) == 0);
	d->placed = strcmp(name, "shm") == 0 ? 0 : FI_DELIVERY_COMPLETE;
	CHECK(fi_fabric(d->info->fabric_attr, &d->fabric, NULL) == 0);
	CHECK(fi_domain(d->fabric, d->info, &d->domain, NULL) == 0);
	if (!connected)
		cq.wait_obj = FI_WAIT_NONE;
	CHECK(fi_cq_open(d->domain, &cq, &d->cq, NULL) == 0);
	d->fd = -1;
	/* Nobody makes progress for sockets while one sleeps on its descriptor, and net's is always readable. */
	if (connected && strcmp(name, "sockets") != 0 && strcmp(name, "net") != 0)
		CHECK(fi_control(&d->cq->fid, FI_GETWAIT, &d->fd) == 0);
	if (connected)
		CHECK(fi_eq_open(d->fabric, &eq, &d->eq, NULL) == 0);
}

static void endpoint(struct pair *p, struct fi_info *info)
{
	struct direct *d = p->direct;

	CHECK(fi_endpoint(d->domain, info, &d->ep, NULL) == 0);
	CHECK(d->eq == NULL || fi_ep_bind(d->ep, &d->eq->fid, 0) == 0);
	CHECK(d->av == NULL || fi_ep_bind(d->ep, &d->av->fid, 0) == 0);
	CHECK(fi_ep_bind(d->ep, &d->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_enable(d->ep) == 0);
	for (int i = 0; i < DIRECT_RECEIVES; i++)
		ofi_direct_post(p, &d->receive[i]);
}

/* What the other connects to. */
static void listen_at(struct pair *p, struct told *told)
{
	struct fi_av_attr av = {.type = FI_AV_TABLE, .count = 1};
	struct direct *d = p->direct;

	told->len = sizeof(told->name);
	if (d->eq == NULL) {
		CHECK(fi_av_open(d->domain, &av, &d->av, NULL) == 0);
		endpoint(p, d->info);
		CHECK(fi_getname(&d->ep->fid, told->name, &told->len) == 0);
	} else if (p->id == 1) {
		CHECK(fi_passive_ep(d->fabric, d->info, &d->pep, NULL) == 0);
		CHECK(fi_pep_bind(d->pep, &d->eq->fid, 0) == 0);
		CHECK(fi_listen(d->pep) == 0);
		CHECK(fi_getname(&d->pep->fid, told->name, &told->len) == 0);
	}
}

static void ofi_direct_publish(struct pair *p)
{
	struct direct *d = p->direct;
	struct told *told = (struct told *)p->sh->direct[p->id];
	bool virtual = (d->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;

	p->direct_mem = aligned_alloc(4096, MEM);
	CHECK(p->direct_mem != NULL);
	memset(p->direct_mem, 0, MEM);
	CHECK(fi_mr_reg(d->domain, p->direct_mem, MEM, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0,
	                &d->mr, NULL) == 0);
	told->at = virtual ? (uint64_t)(uintptr_t)p->direct_mem : 0;
	told->key = fi_mr_key(d->mr);
	listen_at(p, told);
}

void direct_open(struct pair *p)
{
	struct direct *d = calloc(1, sizeof(*d));

	CHECK(d != NULL);
	p->direct = d;
	open_domain(p);
	ofi_direct_publish(p);
}

static void ofi_direct_await(struct pair *p, uint32_t want, struct fi_eq_cm_entry *entry)
{
	uint32_t event = 0;
	ssize_t n;

	while ((n = fi_eq_read(p->direct->eq, &event, entry, sizeof(*entry), 0)) == -FI_EAGAIN)
		p->poll(p);
	CHECK(n == sizeof(*entry) && event == want);
}

static void ofi_direct_connect_to(struct pair *p, const struct told *told)
{
	struct direct *d = p->direct;
	struct fi_eq_cm_entry entry;

	if (p->id == 0) {
		endpoint(p, d->info);
		CHECK(fi_connect(d->ep, told->name, NULL, 0) == 0);
	} else {
		ofi_direct_await(p, FI_CONNREQ, &entry);
		endpoint(p, entry.info);
		CHECK(fi_accept(d->ep, NULL, 0) == 0);
		fi_freeinfo(entry.info);
	}
	ofi_direct_await(p, FI_CONNECTED, &entry);
}

void direct_connect(struct pair *p)
{
	struct direct *d = p->direct;
	struct told *told = (struct told *)p->sh->direct[!p->id];

	d->at = told->at;
	d->key = told->key;
	d->to = FI_ADDR_UNSPEC;
	if (d->av == NULL)
		ofi_direct_connect_to(p, told);
	else
		CHECK(fi_av_insert(d->av, told->name, 1, &d->to, 0, NULL) == 1);
}

void direct_close(struct pair *p)
{
	struct direct *d = p->direct;

	p->barrier(p);
	p->direct = NULL;
	fi_close(&d->ep->fid);
	if (d->pep != NULL)
		fi_close(&d->pep->fid);
	fi_close(&d->mr->fid);
	fi_close(&d->cq->fid);
	if (d->av != NULL)
		fi_close(&d->av->fid);
	if (d->eq != NULL)
		fi_close(&d->eq->fid);
	fi_close(&d->domain->fid);
	fi_close(&d->fabric->fid);
	fi_freeinfo(d->info);
	free(p->direct_mem);
	free(d);
}
