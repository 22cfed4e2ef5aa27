/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi.c - the libfabric back end: opening and closing, and the list of providers.
 *
 * What libfabric does, what it does not do, and why:
 *
 *   frames        native: fi_inject, fi_send, into receives of one size that are always posted.
 *   connections   native: connected endpoints (FI_EP_MSG). They report that the connection has ended, release their
 *                 buffers when they are closed, and do not block one another. The core's control channel carries the addresses.
 *   put, get      by copying, if the peers share this host's memory (shm) and the region is of xport_mr_alloc: ofi_mr.c.
 *                 libfabric's own are not used. The tcp, net and sockets providers carry them as messages, as the core does.
 *                 A put that the target refuses ends the connection after its success was reported (tcp, net), a restarted
 *                 peer accepts the keys of its predecessor, and a munmap at the target kills the target. The core's protocol
 *                 checks first, answers, and coalesces short operations.
 *   atomics, tags not used, for the same reasons as in ucx.
 *   failures      a hint for the core, whose heartbeat decides: for one killed peer libfabric reports eight different codes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ofi.h"

/* ---- opening ---- */

/* Limits, from what fi_getinfo said. */
static void limits_from_offer(struct xpi_be *be)
{
	const struct fi_info *info = be->info;
	bool managed = info->domain_attr->resource_mgmt == FI_RM_ENABLED, held_back = managed && !be->quirk->unready;
	size_t rx = info->rx_attr->size, tx = info->tx_attr->size;

	be->rdm = info->ep_attr->type == FI_EP_RDM;
	be->frame_max = info->nic == NULL && !be->rdm ? OFI_BULK_MAX : OFI_FRAME_MAX;
	if (be->quirk->inject_only && info->tx_attr->inject_size < be->frame_max)
		be->frame_max = info->tx_attr->inject_size;
	if (info->ep_attr->max_msg_size < be->frame_max)
		be->frame_max = info->ep_attr->max_msg_size;
	if (be->quirk->frame > 0 && be->quirk->frame < be->frame_max)
		be->frame_max = be->quirk->frame;
	be->credits = be->quirk->credits > 0 ? be->quirk->credits : OFI_CREDITS;
	be->nrecv = rx < OFI_RECEIVES ? (unsigned)rx : OFI_RECEIVES;
	if (!held_back) {
		if (2 * be->credits + 8 > rx)
			be->credits = rx > 8 ? (unsigned)(rx - 8) / 2 : 0;
		be->nrecv = 2 * be->credits + 8;
	}
	be->nsend = tx < OFI_PENDING_MAX ? (unsigned)tx : OFI_PENDING_MAX;
	be->inject = info->tx_attr->inject_size < OFI_INJECT_MAX ? info->tx_attr->inject_size : OFI_INJECT_MAX;
	if (!managed) /* nothing reports when an injected frame has left and its space is free again */
		be->inject = 0;
	if (be->quirk->sends > 0 && be->quirk->sends < be->nsend)
		be->nsend = be->quirk->sends;
	be->local_mr = (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
	be->copies = be->local_mr || info->tx_attr->iov_limit < 2;
	be->cq_counts = !held_back;
	be->mixes = (info->rx_attr->comp_order & FI_ORDER_STRICT) == 0;
}

/* Sizes for each endpoint. verbs (1.17) reserves that many completion queue entries for its receives, however many
 * are posted. */
static void ask_less(struct xpi_be *be)
{
	if (be->quirk->rx > 0 && be->quirk->rx < be->info->rx_attr->size)
		be->info->rx_attr->size = be->quirk->rx;
	if (be->quirk->tx > 0 && be->quirk->tx < be->info->tx_attr->size)
		be->info->tx_attr->size = be->quirk->tx;
	if (!be->cq_counts)
		return;
	be->info->rx_attr->size = be->nrecv;
	be->info->tx_attr->size = be->nsend;
}

static int offer_choose(struct xpi_be *be, const char *name)
{
	struct fi_info *offers = NULL, *chosen;
	int rc = ofi_interface(name, be->err);

	if (rc == XPORT_OK)
		rc = ofi_find(name, be->err, &offers);
	if (rc != XPORT_OK)
		return rc;
	chosen = ofi_addr_collect(be, offers);
	be->info = chosen != NULL ? fi_dupinfo(chosen) : NULL;
	fi_freeinfo(offers);
	if (chosen == NULL)
		return xpi_fail(
			be->err, XPORT_ERR_NO_BACKEND, 0, NULL,
			"name an interface in FI_TCP_IFACE (or the provider's own variable), or give one an address",
			"no interface has an address that peers can reach");
	if (be->info == NULL)
		return ofi_fail(be->err, -FI_ENOMEM, NULL, "choosing a provider");
	limits_from_offer(be);
	if (be->frame_max >= 4096 && be->credits >= 4) {
		ask_less(be);
		return XPORT_OK;
	}
	return xpi_fail(be->err, XPORT_ERR_NO_BACKEND, 0, NULL, NULL,
	                "its limits are too low: messages of %zu bytes, and %zu receives", be->frame_max,
	                be->info->rx_attr->size);
}

/* Some settings exist only as environment variables. A value that the user has set is kept. */
static int open_fabric(struct xpi_be *be)
{
	const char *wanted = be->quirk->env;
	struct xpi_env env;
	int rc;

	if (wanted == NULL)
		return fi_fabric(be->info->fabric_attr, &be->fabric, NULL);
	xpi_env_set(&env, wanted);
	rc = fi_fabric(be->info->fabric_attr, &be->fabric, NULL);
	xpi_env_restore(&env);
	return rc;
}

static int be_open_parts(struct xpi_be *be, const char *name)
{
	int rc = offer_choose(be, name);

	if (rc != XPORT_OK)
		return rc;
	rc = open_fabric(be);
	if (rc != 0) {
		be->fabric = NULL;
		return ofi_fail(be->err, rc, NULL, "opening libfabric");
	}
	rc = fi_domain(be->fabric, be->info, &be->domain, NULL);
	if (rc != 0) {
		be->domain = NULL;
		return ofi_fail(be->err, rc, ofi_lack(rc), "opening a domain of libfabric");
	}
	rc = ofi_cq_open(be);
	if (rc == XPORT_OK)
		rc = be->rdm ? ofi_rdm_open(be) : ofi_cm_open(be);
	return rc == XPORT_OK ? ofi_cq_fds(be) : rc;
}

static void ofi_close(struct xpi_be *be)
{
	ofi_cm_close(be);
	ofi_cq_close(be);
	if (be->domain != NULL)
		fi_close(&be->domain->fid);
	if (be->fabric != NULL)
		fi_close(&be->fabric->fid);
	fi_freeinfo(be->info);
	free(be);
}

static int provider_open(const struct xpi_be_open_args *args, const char *name, struct xpi_be **out)
{
	const struct ofi_quirk *quirk = ofi_quirk(name);
	struct ofi_signals signals;
	struct xpi_be *be = calloc(1, sizeof(*be));
	int rc;

	if (be == NULL)
		return xpi_fail(args->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance of ofi");
	be->core = args->core;
	be->up = args->up;
	be->log = args->log;
	be->err = args->err;
	be->quirk = quirk;
	be->may_one_read = quirk->shm_prefix == NULL && !quirk->manual;
	be->fd[0] = be->fd[1] = be->timer = -1;
	xpi_list_init(&be->eps);
	xpi_list_init(&be->hungry);
	xpi_list_init(&be->zombies);
	ofi_host(be->host);
	ofi_signals_save(&signals);
	rc = be_open_parts(be, name);
	ofi_signals_restore(&signals, be->log);
	if (rc != XPORT_OK) {
		ofi_explain(quirk, args->err);
		ofi_close(be);
		return rc;
	}
	*out = be;
	return XPORT_OK;
}

/* ---- telling ---- */

/* Describes the instance, and what a user who waits must know. */
static void be_describe(const struct xpi_be *be, char *text, size_t size)
{
	snprintf(text, size, "%s endpoints over %.60s, %s", be->rdm ? "unconnected" : "connected", be->device,
	         be->timer < 0 ? "event-driven" : "polls every 16 ms while asleep");
	if (be->quirk->caution != NULL)
		snprintf(text + strlen(text), size - strlen(text), "; %s", be->quirk->caution);
}

/* ---- the choice ---- */

struct choice {
	char passed[256]; /* the candidates tried before, each with its reason */
	size_t len;
};

static void provider_pass(struct choice *c, const char *name, const char *reason)
{
	if (c->len < sizeof(c->passed))
		c->len +=
			(size_t)snprintf(c->passed + c->len, sizeof(c->passed) - c->len, "; not %s: %s", name, reason);
}

static int warn(const struct xpi_be *be)
{
	if (be->quirk->caution != NULL)
		xpi_log(be->log, ofi_addr_local(be) ? XPORT_LOG_INFO : XPORT_LOG_WARN, "3015",
		        "ofi: %s: %s; keep its port off untrusted networks, or use ofi:tcp", be->quirk->name,
		        be->quirk->caution);
	return XPORT_OK;
}

/*
 * Without a name, opens the first candidate that can be opened. The log says which, and why the earlier ones could
 * not.
 */
static int ofi_open(const struct xpi_be_open_args *args, struct xpi_be **out)
{
	char names[OFI_NAMES][OFI_NAME_LEN], what[128];
	struct choice choice = {.passed = ""};
	int n, rc = XPORT_ERR_NO_BACKEND;

	if (args->provider != NULL) {
		rc = provider_open(args, args->provider, out);
		return rc == XPORT_OK ? warn(*out) : rc;
	}
	n = ofi_names(names);
	for (int i = 0; i < n; i++) {
		rc = provider_open(args, names[i], out);
		if (rc == XPORT_OK) {
			be_describe(*out, what, sizeof(what));
			xpi_log(args->log, XPORT_LOG_INFO, "3014",
			        "ofi: chose %s, the first usable provider in order of preference (%s)%s", names[i],
			        what, choice.passed);
			return warn(*out);
		}
		if (rc == XPORT_ERR_NO_MEMORY)
			return rc;
		provider_pass(&choice, names[i], args->err != NULL ? args->err->text : "");
	}
	return xpi_fail(args->err, rc, 0, NULL, "run xport_info ofi for the reasons",
	                "libfabric has no usable provider");
}

static void ofi_query(struct xpi_be *be, struct xpi_be_caps *caps)
{
	unsigned version = fi_version();

	memset(caps, 0, sizeof(*caps));
	snprintf(caps->provider, sizeof(caps->provider), "%s", be->info->fabric_attr->prov_name);
	snprintf(caps->device, sizeof(caps->device), "%s", be->device);
	snprintf(caps->stack, sizeof(caps->stack), "libfabric %u.%u", FI_MAJOR(version), FI_MINOR(version));
	snprintf(caps->protocol, sizeof(caps->protocol), "ofi-%s / %u.%u",
	         be->quirk->shm_prefix != NULL ? "shm 3"
	         : be->rdm                     ? "rdm 1"
	                                       : "msg 1",
	         FI_MAJOR(version), FI_MINOR(version));
	caps->am_max = be->frame_max;
	caps->am_credits = be->credits;
	/* Frames wait in the socket until there is a receive. */
	caps->am_credits_max =
		be->frame_max == OFI_BULK_MAX && !be->cq_counts && be->quirk->credits == 0 ? XPI_CREDITS_MAX : 0;
	caps->ep_size = sizeof(struct ofi_ep);
	caps->stack_threads = be->quirk->threads;
	caps->target_bounds = true; /* the core is the target */
	if (be->quirk->shm_prefix != NULL) {
		caps->am_cheap = true;
		caps->cma_min = OFI_SHM_CMA_MIN;
		caps->mr_size = sizeof(struct xpi_shm_mr);
		caps->rkey_size = sizeof(struct xpi_shm_rkey);
		caps->rkey_native_max = XPI_SHM_KEY;
		caps->am_after_put = true; /* a copy is visible before any later message */
		caps->passive_target = true;
		caps->target_bounds = false; /* only the user of a mapping checks bounds */
	}
	caps->by_clock = be->timer >= 0;
	if (be->quirk->shm_prefix != NULL)
		caps->traffic = XPI_TRAFFIC_LOCAL;
	else if (be->quirk->waits || be->quirk->filtered)
		caps->traffic = XPI_TRAFFIC_EACH;
}

static void provider_probe(const char *name, const struct xpi_log *log, struct xport_candidate *c)
{
	struct xport_error err = {.size = sizeof(err)};
	struct xpi_be_open_args args = {.provider = name, .log = log, .err = &err, .peer_timeout_ms = 5000};
	struct xpi_be *be;
	int rc = provider_open(&args, name, &be);

	if (rc != XPORT_OK) {
		c->state = err.native_code == FI_ENODATA ? XPORT_ABSENT : XPORT_MISCONFIGURED;
		snprintf(c->reason, sizeof(c->reason), "%.*s", (int)sizeof(c->reason) - 1, err.text);
		snprintf(c->hint, sizeof(c->hint), "%.*s", (int)sizeof(c->hint) - 1,
		         err.hint[0] != '\0' ? err.hint : "run `fi_info` with FI_LOG_LEVEL=info for details");
		return;
	}
	c->state = XPORT_READY;
	be_describe(be, c->reason, sizeof(c->reason));
	ofi_close(be);
}

static int ofi_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg)
{
	char names[OFI_NAMES][OFI_NAME_LEN];
	int n = ofi_names(names);
	bool chosen = false;

	for (int i = 0; i < n; i++) {
		struct xport_candidate c = {.name = ""};
		size_t len;

		snprintf(c.name, sizeof(c.name), "ofi:%.40s", names[i]);
		provider_probe(names[i], log, &c);
		len = strlen(c.reason);
		if (c.state == XPORT_READY && !chosen)
			snprintf(c.reason + len, sizeof(c.reason) - len, "; XPORT_BACKEND=ofi chooses this");
		chosen = chosen || c.state == XPORT_READY;
		emit(arg, &c);
	}
	return XPORT_OK;
}

XPI_EXPORT_BACKEND(ofi) = {
	.abi = XPI_BACKEND_ABI,
	.name = "ofi",
	.list = ofi_list,
	.open = ofi_open,
	.close = ofi_close,
	.query = ofi_query,
	.mr_alloc = ofi_mr_alloc,
	.mr_dereg = ofi_mr_dereg,
	.rkey_pack = ofi_rkey_pack,
	.rkey_unpack = ofi_rkey_unpack,
	.rkey_destroy = ofi_rkey_destroy,
	.address = ofi_address,
	.ep_connect = ofi_ep_connect,
	.ep_mark = ofi_ep_mark,
	.ep_quiesce = ofi_ep_quiesce,
	.ep_destroy = ofi_ep_destroy,
	.am_send = ofi_am_send,
	.am_send_two = ofi_am_send_two,
	.poll = ofi_poll,
	.fds = ofi_fds,
	.arm = ofi_arm,
};
