/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.c - the verbs back end: providers (the RDMA devices), opening and closing.
 *
 * What the network does itself, what it does not do, and why:
 *
 *   frames       SEND into receives that are always posted: the core's credits guarantee it. So no RNR happens. On iWARP,
 *                where a missing receive ends the connection, the connection stays.
 *   put, get     RDMA WRITE and READ. The hardware checks bounds and rights, and the target need not call anything.
 *                A READ behind a put proves that it is placed; on iWARP a frame does (verbs_rma.c).
 *   atomics      the device's, only if the application asked for them (XPORT_ATOMIC_NIC) and the device has them. iWARP
 *                has none. Those of other devices are not atomic to the CPU.
 *   connections  rdma_cm, the one interface that all three transports have, with addresses from the core's control channel.
 *   not used     immediate data, memory windows, solicited events, SRQ limits, several elements in a READ: siw lacks
 *                them, or implements them differently.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/nearest.h"
#include "verbs.h"

enum { VENDOR_SIW = 0x626d74, MESSAGE_MAX = 1 << 30, MESSAGE_UNSAID = 1 << 20, TIMEOUT_MIN = 8, TIMEOUT_MAX = 20 };

enum { SIW_GET_MIN = 64 };    /* the header of a READ holds less; see verbs_rma.c */
enum { SIW_LENT_MIN = 4096 }; /* at least a page; see verbs_am.c */

/*
 * libsiw cannot map what the kernel puts at page 144 of a device's file: to it that is the number of nothing.  The first
 * completion queue is there for as long as the instance; with this many entries of 32 bytes it covers that page.
 */
enum { CQ_ENTRIES = 4096, SIW_CQ_ENTRIES = 32768 };

/* ---- choosing ---- */

static int dev_unknown(const struct vrb_devs *d, const char *name, struct xport_error *err)
{
	struct xpi_nearest near = xpi_nearest(name);
	char all[256] = "";
	size_t n = 0;

	for (int i = 0; i < d->n; i++) {
		xpi_nearest_look(&near, d->dev[i].name);
		if (n < sizeof(all))
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n > 0 ? ", " : "", d->dev[i].name);
	}
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, "with XPORT_BACKEND=verbs the first usable device is taken",
	                "verbs has no device '%s'; the devices are %s%s%s", name, all,
	                near.name != NULL ? "; the nearest is verbs:" : "", near.name != NULL ? near.name : "");
}

/* Describes why none of several devices is usable. */
static int no_dev_usable(const struct vrb_devs *d, int status, struct xport_error *err)
{
	char text[400] = "";
	size_t n = 0;

	for (int i = 0; i < d->n && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s: %s", i > 0 ? "; " : "", d->dev[i].name,
		                      d->dev[i].reason);
	return xpi_fail(err, status, 0, NULL, d->dev[0].hint, "%s", text);
}

/*
 * Registered memory survives fork only if that is arranged before the first registration. Newer kernels do it by
 * themselves.
 */
static void fork_first(const struct xpi_log *log)
{
	int rc;

	if (ibv_is_fork_initialized() != IBV_FORK_DISABLED)
		return;
	rc = ibv_fork_init();
	if (rc != 0)
		xpi_log(log, XPORT_LOG_INFO, "2003",
		        "verbs: ibv_fork_init failed: %s: do not fork while memory is registered", strerror(rc));
}

/* ---- opening ---- */

static int nonblocking(struct xpi_be *be, int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return vrb_fail(be, XPORT_ERR_SYSTEM, errno, NULL, "making a descriptor non-blocking");
	return XPORT_OK;
}

/* Spreads instances over the device's interrupts. Otherwise one processor would wake all of them. */
static int comp_vector(const struct ibv_context *ctx)
{
	static atomic_uint opened;
	unsigned n = atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed) + (unsigned)getpid();

	return ctx->num_comp_vectors > 1 ? (int)(n % (unsigned)ctx->num_comp_vectors) : 0;
}

static int open_device(struct xpi_be *be, const struct vrb_dev *dev)
{
	int rc;

	snprintf(be->name, sizeof(be->name), "%s", dev->name);
	be->port = dev->port;
	be->kind = dev->kind;
	be->ip = dev->ip;
	be->ctx = ibv_open_device(dev->ibv);
	if (be->ctx == NULL)
		return vrb_fail(be, XPORT_ERR_NO_BACKEND, errno, NULL, "opening the device");
	be->comp_vector = comp_vector(be->ctx);
	rc = ibv_query_device(be->ctx, &be->attr);
	if (rc == 0)
		rc = ibv_query_port(be->ctx, be->port, &be->port_attr);
	if (rc != 0)
		return vrb_fail(be, XPORT_ERR_NO_BACKEND, rc, NULL, "querying the device");
	be->pd = ibv_alloc_pd(be->ctx);
	if (be->pd == NULL)
		return vrb_fail(be, XPORT_ERR_NO_BACKEND, errno, NULL, "allocating a protection domain");
	be->comp = ibv_create_comp_channel(be->ctx);
	if (be->comp == NULL)
		return vrb_fail(be, XPORT_ERR_SYSTEM, errno, NULL, "creating a completion channel");
	be->port_timer = xpi_fd_up(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (be->port_timer < 0)
		return vrb_fail(be, XPORT_ERR_SYSTEM, errno, NULL, "creating a timer");
	rc = nonblocking(be, be->comp->fd);
	return rc == XPORT_OK ? nonblocking(be, be->ctx->async_fd) : rc;
}

static uint32_t u32_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/*
 * The timeout with which a request and all its retries last as long as the peer may be silent: 4.096 us * 2^timeout
 * each.
 */
static uint8_t ack_timeout(int peer_timeout_ms)
{
	uint8_t t = TIMEOUT_MIN;

	while (t < TIMEOUT_MAX && (1 + VRB_RETRIES) * (4.096e-3 * (1u << t)) < peer_timeout_ms)
		t++;
	return t;
}

static int limits_read(struct xpi_be *be, int peer_timeout_ms)
{
	if (be->attr.max_qp_wr < VRB_SQ + 1 || be->attr.max_cqe < VRB_CQ_SHARE)
		return xpi_fail(be->err, XPORT_ERR_NO_BACKEND, 0, NULL, NULL,
		                "%s: its queues are too short (%d requests, %d completions)", be->name,
		                be->attr.max_qp_wr, be->attr.max_cqe);
	/* mana's kernel driver does not report it. */
	be->rma_max = be->port_attr.max_msg_sz != 0 ? u32_min(be->port_attr.max_msg_sz, MESSAGE_MAX) : MESSAGE_UNSAID;
	be->reads_max = u32_min(VRB_READS, (uint32_t)be->attr.max_qp_rd_atom);
	be->reads_max = u32_min(be->reads_max, (uint32_t)be->attr.max_qp_init_rd_atom);
	be->nic_atomic = be->attr.atomic_cap != IBV_ATOMIC_NONE && be->kind != VRB_IWARP && be->reads_max > 0;
	/* The target of an iWARP READ must be remotely writable. siw does not check this. */
	be->sink_needs_write = be->kind == VRB_IWARP && be->attr.vendor_id != VENDOR_SIW;
	/* siw executes a READ of a region without read access. */
	be->target_bounds = be->attr.vendor_id != VENDOR_SIW;
	be->no_sentinel = be->attr.vendor_id == VENDOR_SIW;
	be->stops_first = be->kind == VRB_IWARP && be->attr.vendor_id != VENDOR_SIW;
	be->blocks = be->attr.vendor_id == VENDOR_SIW;
	be->strangers_close = be->attr.vendor_id == VENDOR_SIW;
	be->get_min = be->attr.vendor_id == VENDOR_SIW ? SIW_GET_MIN : 1;
	be->cq_entries = be->attr.vendor_id == VENDOR_SIW ? SIW_CQ_ENTRIES : CQ_ENTRIES;
	be->lent_min = be->attr.vendor_id == VENDOR_SIW ? SIW_LENT_MIN : UINT32_MAX;
	be->ack_timeout = ack_timeout(peer_timeout_ms);
	be->peer_timeout_ms = peer_timeout_ms;
	return XPORT_OK;
}

/* Checks that memory for a connection can be registered. */
static int try_register(struct xpi_be *be)
{
	void *p = mmap(NULL, VRB_BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	int rc = XPORT_OK;

	if (p == MAP_FAILED)
		return xpi_fail_errno(be->err, XPORT_ERR_NO_MEMORY, NULL, "no memory for an instance");
	mr = ibv_reg_mr(be->pd, p, VRB_BUFFER, IBV_ACCESS_LOCAL_WRITE);
	if (mr == NULL)
		rc = vrb_fail_locked(be, errno, VRB_BUFFER);
	else
		ibv_dereg_mr(mr);
	munmap(p, VRB_BUFFER);
	return rc;
}

static void vrb_close(struct xpi_be *be)
{
	vrb_cm_close(be);
	vrb_cqs_free(be);
	vrb_proof_free(be);
	if (be->comp != NULL)
		ibv_destroy_comp_channel(be->comp);
	if (be->pd != NULL && ibv_dealloc_pd(be->pd) != 0)
		xpi_log(be->log, XPORT_LOG_WARN, "2004",
		        "verbs: %s: ibv_dealloc_pd failed, protection domain leaked: %m", be->name);
	if (be->ctx != NULL)
		ibv_close_device(be->ctx);
	if (be->port_timer >= 0)
		close(be->port_timer);
	free(be->table);
	free(be);
}

static int open_on(const struct xpi_be_open_args *args, const struct vrb_dev *dev, struct xpi_be **out)
{
	struct xpi_be *be = calloc(1, sizeof(*be));
	int rc;

	if (be == NULL)
		return xpi_fail(args->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance");
	be->core = args->core;
	be->up = args->up;
	be->log = args->log;
	be->err = args->err;
	be->port_timer = -1;
	xpi_list_init(&be->cqs);
	xpi_list_init(&be->batched);
	xpi_list_init(&be->eps);
	rc = open_device(be, dev);
	if (rc == XPORT_OK)
		rc = limits_read(be, args->peer_timeout_ms);
	if (rc == XPORT_OK)
		rc = try_register(be);
	if (rc == XPORT_OK)
		rc = vrb_proof_new(be);
	if (rc == XPORT_OK)
		rc = vrb_qp_probe(be);
	if (rc == XPORT_OK)
		rc = vrb_cm_open(be);
	if (rc != XPORT_OK) {
		vrb_close(be);
		return rc;
	}
	*out = be;
	return XPORT_OK;
}

static int dev_open_named(const struct xpi_be_open_args *args, const struct vrb_devs *d, struct xpi_be **out)
{
	for (int i = 0; i < d->n; i++) {
		const struct vrb_dev *dev = &d->dev[i];

		if (strcmp(dev->name, args->provider) != 0)
			continue;
		if (dev->state == XPORT_READY)
			return open_on(args, dev, out);
		return xpi_fail(args->err, XPORT_ERR_NO_BACKEND, 0, NULL, dev->hint, "%s: %s", dev->name, dev->reason);
	}
	return dev_unknown(d, args->provider, args->err);
}

/* Opens the first usable device. If there is none, describes the reason of each. */
static int open_first(const struct xpi_be_open_args *args, struct vrb_devs *d, struct xpi_be **out)
{
	int rc = XPORT_ERR_NO_BACKEND;

	for (int i = 0; i < d->n; i++) {
		struct vrb_dev *dev = &d->dev[i];

		if (dev->state != XPORT_READY)
			continue;
		rc = open_on(args, dev, out);
		if (rc == XPORT_OK)
			return rc;
		snprintf(dev->reason, sizeof(dev->reason), "%.191s", args->err->text);
		snprintf(dev->hint, sizeof(dev->hint), "%.191s", args->err->hint);
		xpi_log(args->log, XPORT_LOG_INFO, "2005", "verbs:%s is not usable: %s", dev->name, dev->reason);
	}
	return no_dev_usable(d, rc, args->err);
}

static int vrb_open(const struct xpi_be_open_args *args, struct xpi_be **out)
{
	struct vrb_devs devs;
	int rc;

	fork_first(args->log);
	vrb_devs_look(&devs);
	if (devs.n == 0)
		rc = xpi_fail(args->err, XPORT_ERR_NO_BACKEND, 0, NULL, devs.hint, "%s", devs.reason);
	else if (args->provider != NULL)
		rc = dev_open_named(args, &devs, out);
	else
		rc = open_first(args, &devs, out);
	vrb_devs_forget(&devs);
	return rc;
}

/* ---- telling ---- */

static void vrb_query(struct xpi_be *be, struct xpi_be_caps *caps)
{
	memset(caps, 0, sizeof(*caps));
	snprintf(caps->provider, sizeof(caps->provider), "%.47s", be->name);
	snprintf(caps->device, sizeof(caps->device), "%.50s port %u", be->name, be->port);
	snprintf(caps->stack, sizeof(caps->stack), "libibverbs, librdmacm: %s", vrb_kind_name(be->kind));
	snprintf(caps->protocol, sizeof(caps->protocol), "verbs-am 2 / %s", vrb_kind_name(be->kind));
	caps->am_max = VRB_FRAME_MAX;
	caps->am_credits = VRB_CREDITS;
	caps->ep_size = sizeof(struct vrb_ep);
	caps->mr_size = sizeof(struct vrb_mr);
	caps->rkey_size = sizeof(struct vrb_rkey);
	caps->rkey_native_max = VRB_KEY;
	caps->rma_reg = true;
	caps->lends = true;
	caps->put_placed = false; /* only a later operation proves that */
	caps->am_after_put = true;
	caps->drain_places = be->proof_mr != NULL;
	caps->put_short = VRB_COPY_MAX;
	caps->target_bounds = be->target_bounds;
	caps->passive_target = caps->drain_places && be->get_min == 1;
	caps->rma_max = be->rma_max;
	caps->nic_atomic = be->nic_atomic;
	caps->local_provider = true;
	/* On InfiniBand rdma_cm only asks the subnet manager for a service level, and siw's sockets take nothing. */
	caps->traffic = be->kind == VRB_ROCE ? XPI_TRAFFIC_EACH : XPI_TRAFFIC_NONE;
}

/* Checks that the device can be opened. Only this finds, for example, a limit of locked memory. */
static void dev_probe(const struct xpi_log *log, const struct vrb_dev *dev, struct xport_candidate *c)
{
	struct xport_error err = {.size = sizeof(err)};
	struct xpi_be_open_args args = {.provider = dev->name, .log = log, .err = &err, .peer_timeout_ms = 5000};
	struct xpi_be *be;

	if (open_on(&args, dev, &be) == XPORT_OK) {
		vrb_close(be);
		return;
	}
	c->state = XPORT_MISCONFIGURED;
	snprintf(c->reason, sizeof(c->reason), "%.*s", (int)sizeof(c->reason) - 1, err.text);
	snprintf(c->hint, sizeof(c->hint), "%.*s", (int)sizeof(c->hint) - 1, err.hint);
}

static int vrb_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg)
{
	struct xport_candidate c = {.name = "verbs", .state = XPORT_ABSENT};
	struct vrb_devs devs;

	fork_first(log);
	vrb_devs_look(&devs);
	if (devs.n == 0) {
		snprintf(c.reason, sizeof(c.reason), "%s", devs.reason);
		snprintf(c.hint, sizeof(c.hint), "%s", devs.hint);
		emit(arg, &c);
	}
	for (int i = 0; i < devs.n; i++) {
		const struct vrb_dev *dev = &devs.dev[i];

		snprintf(c.name, sizeof(c.name), "verbs:%.50s", dev->name);
		c.state = dev->state;
		snprintf(c.reason, sizeof(c.reason), "%s", dev->reason);
		snprintf(c.hint, sizeof(c.hint), "%s", dev->hint);
		if (dev->state == XPORT_READY)
			dev_probe(log, dev, &c);
		emit(arg, &c);
	}
	vrb_devs_forget(&devs);
	return XPORT_OK;
}

XPI_EXPORT_BACKEND(verbs) = {
	.abi = XPI_BACKEND_ABI,
	.name = "verbs",
	.list = vrb_list,
	.open = vrb_open,
	.close = vrb_close,
	.query = vrb_query,
	.mr_reg = vrb_mr_reg,
	.mr_dereg = vrb_mr_dereg,
	.rkey_pack = vrb_rkey_pack,
	.rkey_unpack = vrb_rkey_unpack,
	.address = vrb_address,
	.ep_connect = vrb_ep_connect,
	.ep_mark = vrb_ep_mark,
	.ep_quiesce = vrb_ep_quiesce,
	.ep_destroy = vrb_ep_destroy,
	.am_send = vrb_am_send,
	.am_send_two = vrb_am_send_two,
	.put = vrb_put,
	.get = vrb_get,
	.atomic = vrb_atomic,
	.drain = vrb_drain,
	.poll = vrb_poll,
	.fds = vrb_fds,
	.arm = vrb_arm,
};
