/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm.c - shared memory of the library's own, for processes of one user on one host.
 *
 *   frames       by a ring of shared memory in each direction (shm_ring.h). Each process writes to its own file only.
 *                A peer that is killed, stopped or hostile harms its own endpoint only; doc/threat-model.md has the rest
 *   long data    the core reads it out of the peer's memory (cma_min)
 *   puts, gets   to memory from mr_alloc, which the peer maps: the core copies. To registered memory by frames
 *   connections  a socket of each endpoint carries the file, which has no name, and rings the bell of a peer that sleeps
 *   peers lost   the core's control channel notices: this back end has nothing that a kill could leave locked
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "shm.h"

static const char provider[] = "ring";

static int shm_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg)
{
	struct xport_error err = {.size = sizeof(err)};
	struct xport_candidate c = {.reason = "shared memory of this host, in anonymous files"};
	int rc = shm_probe(&err);

	(void)log;
	snprintf(c.name, sizeof(c.name), "shm:%s", provider);
	if (rc == XPORT_ERR_NO_MEMORY && err.native_code == ENOMEM)
		return rc;
	if (rc != XPORT_OK) {
		c.state = XPORT_MISCONFIGURED;
		snprintf(c.reason, sizeof(c.reason), "%.*s", (int)sizeof(c.reason) - 1, err.text);
		snprintf(c.hint, sizeof(c.hint), "%.*s", (int)sizeof(c.hint) - 1, err.hint);
	}
	emit(arg, &c);
	return XPORT_OK;
}

static int shm_open_instance(const struct xpi_be_open_args *args, struct xpi_be **out)
{
	struct xpi_be *be;
	int rc;

	if (args->provider != NULL && strcmp(args->provider, provider) != 0)
		return xpi_fail(args->err, XPORT_ERR_NO_BACKEND, 0, NULL, "use shm",
		                "shm has no provider %s: it has %s; the nearest is shm:%s", args->provider, provider,
		                provider);
	rc = shm_probe(args->err);
	if (rc != XPORT_OK)
		return rc;
	be = aligned_alloc(SHM_SLOT, (sizeof(*be) + SHM_SLOT - 1) / SHM_SLOT * SHM_SLOT);
	if (be == NULL)
		return xpi_fail(args->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance of shm");
	memset(be, 0, sizeof(*be));
	be->core = args->core;
	be->up = args->up;
	be->err = args->err;
	be->log = args->log;
	rc = xpi_meet_open(&be->meet, args->shm_dir, args->err);
	if (rc != XPORT_OK) {
		free(be);
		return rc;
	}
	be->epoll = xpi_fd_up(epoll_create1(EPOLL_CLOEXEC));
	if (be->epoll < 0) {
		rc = xpi_fail_errno(args->err, XPORT_ERR_SYSTEM, NULL, "no descriptor for an instance of shm");
		xpi_meet_close(&be->meet);
		free(be);
		return rc;
	}
	xpi_meet_sweep(&be->meet, args->shm_dir, args->log, "5001");
	*out = be;
	return XPORT_OK;
}

static void shm_close(struct xpi_be *be)
{
	close(be->epoll);
	xpi_meet_close(&be->meet);
	free(be->eps);
	free(be);
}

static void shm_query(struct xpi_be *be, struct xpi_be_caps *c)
{
	*c = (struct xpi_be_caps){
		.device = "memory",
		.stack = "libxport",
		.am_max = SHM_AM_MAX,
		.am_credits = SHM_CREDITS,
		.am_cheap = true,
		.cma_min = SHM_CMA_MIN,
		.ep_size = sizeof(struct shm_ep),
		.mr_size = sizeof(struct xpi_shm_mr),
		.rkey_size = sizeof(struct xpi_shm_rkey),
		.rkey_native_max = XPI_SHM_KEY,
		.am_after_put = true, /* a copy is visible before any later frame */
		.passive_target = true,
		.traffic = XPI_TRAFFIC_LOCAL,
	};
	snprintf(c->provider, sizeof(c->provider), "%s", provider);
	snprintf(c->protocol, sizeof(c->protocol), "shm-ring 2");
	if (shm_lends(be)) /* only processes with the same directory can meet */
		snprintf(c->protocol, sizeof(c->protocol), "shm-ring 2 in %llx:%llx",
		         (unsigned long long)be->meet.device, (unsigned long long)be->meet.inode);
}

/* ---- sending ---- */

static int send_fails(struct xpi_be *be, struct shm_ep *ep)
{
	if (!ep->broken)
		shm_break(ep, "the peer's counter in shared memory says %u slots, of %u written",
		          (unsigned)__atomic_load_n(&ep->peer->taken, __ATOMIC_RELAXED), (unsigned)ep->tx.filled);
	return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "%s", ep->why);
}

/* In a send the frame comes first, then the look at the flag: a peer that goes to sleep does the reverse. */
static inline int shm_am_send_two(struct xpi_be *be, void *ep_, const void *hdr, size_t hlen, const void *data,
                                  size_t dlen, struct xpi_req *req)
{
	struct shm_ep *ep = ep_;
	bool broken = ep->broken;
	uint32_t sleep;

	(void)req;
	if (__builtin_expect(broken, 0) || !shm_ring_push(&ep->tx, hdr, hlen, data, dlen, &broken))
		return broken ? send_fails(be, ep) : XPORT_ERR_AGAIN;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	sleep = __atomic_load_n(&ep->peer->sleep, __ATOMIC_RELAXED);
	if (__builtin_expect((sleep & 1) != 0 && sleep != ep->rung, 0))
		shm_bell_ring(be, ep, sleep);
	shm_ring_clear(&ep->tx);
	return XPORT_OK;
}

static int shm_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req)
{
	return shm_am_send_two(be, ep, buf, len, NULL, 0, req);
}

XPI_EXPORT_BACKEND(shm) = {
	.abi = XPI_BACKEND_ABI,
	.name = "shm",
	.list = shm_list,
	.open = shm_open_instance,
	.close = shm_close,
	.query = shm_query,
	.mr_alloc = shm_mr_alloc,
	.mr_dereg = shm_mr_dereg,
	.rkey_pack = shm_rkey_pack,
	.rkey_unpack = shm_rkey_unpack,
	.rkey_destroy = shm_rkey_destroy,
	.address = shm_address,
	.ep_connect = shm_ep_connect,
	.ep_quiesce = shm_ep_quiesce,
	.ep_destroy = shm_ep_destroy,
	.am_send = shm_am_send,
	.am_send_two = shm_am_send_two,
	.poll = shm_poll,
	.fds = shm_fds,
	.arm = shm_arm,
};
