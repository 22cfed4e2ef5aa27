/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_ep.c - endpoints: interrupted connection set-up, broken connections, and the steps at which faults happen. */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "chaos.h"

enum { MAGIC = 0x4f414843 /* "CHAO" */, HEAD = 8, STORM_MAX = 64 };

/* ---- steps ---- */

void chaos_count(struct xpi_be *be)
{
	static atomic_uint_fast64_t steps;

	if (be->config.kill != 0 && atomic_fetch_add(&steps, 1) + 1 == be->config.kill)
		kill(getpid(), SIGKILL);
}

static void drop(struct xpi_be *be, struct chaos_ep *ep)
{
	char why[64];

	ep->dropped = true;
	snprintf(why, sizeof(why), "chaos broke the connection at its step %" PRIu64, ep->steps);
	chaos_fail(be, ep, XPORT_ERR_PEER_LOST, why);
}

int chaos_step(struct xpi_be *be, struct chaos_ep *ep)
{
	chaos_count(be);
	if (++ep->steps == ep->drop_at)
		drop(be, ep);
	if (ep->dropped)
		return be->config.profile->silent ? XPORT_ERR_AGAIN : XPORT_ERR_PEER_LOST;
	if (ep->storm > 0 && be->now < ep->storm_end) {
		ep->storm--;
		return XPORT_ERR_AGAIN;
	}
	ep->storm = 0;
	if (!chaos_chance(be, &ep->dice, CHAOS_AGAIN))
		return XPORT_OK;
	ep->storm = chaos_upto(&ep->dice, STORM_MAX);
	ep->storm_end = be->now + chaos_upto(&ep->dice, be->config.span);
	return XPORT_ERR_AGAIN;
}

/* Whether something that may take several calls must go on. */
static bool ep_under_way(struct xpi_be *be, struct chaos_ep *ep, bool *begun)
{
	if (!*begun && chaos_chance(be, &ep->dice, CHAOS_DELAY)) {
		ep->patience = chaos_upto(&ep->dice, be->config.span);
		ep->patience_end = be->now + ep->patience;
	}
	*begun = true;
	if (ep->patience == 0 || be->now >= ep->patience_end)
		return false;
	ep->patience--;
	return true;
}

/* ---- connect ---- */

int chaos_address(struct xpi_be *be, void *ep_state, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	struct chaos_ep *ep = ep_state;
	struct xpi_wr w = xpi_wr(buf, *len);
	size_t n = *len - HEAD;
	int r;

	ep->core_ep = core_ep;
	ep->connecting = true;
	ep->dice.state = chaos_roll(&be->dice) + ++be->serial;
	if (be->config.drop != 0)
		ep->drop_at = chaos_upto(&ep->dice, be->config.drop);
	if (*len < HEAD)
		return XPORT_ERR_BOUNDS;
	r = be->ops->address(be->be, ep->inner, (struct xpi_core_ep *)ep, (uint8_t *)buf + HEAD, &n);
	if (r != XPORT_OK)
		return r;
	xpi_wr_u32(&w, MAGIC);
	xpi_wr_u32(&w, (uint32_t)n);
	*len = HEAD + n;
	if (chaos_chance(be, &ep->dice, CHAOS_TRUNCATE))
		*len = chaos_upto(&ep->dice, (unsigned)*len) - 1;
	return XPORT_OK;
}

int chaos_ep_connect(struct xpi_be *be, void *ep_state, enum xpi_role role, const void *addr, size_t len)
{
	struct chaos_ep *ep = ep_state;
	struct xpi_rd r = xpi_rd(addr, len);
	uint32_t magic = xpi_rd_u32(&r), n = xpi_rd_u32(&r);
	bool begun = !ep->connecting;
	int status;

	if (r.bad || magic != MAGIC || n != r.left)
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
		                "the peer's address is truncated: %zu of %zu bytes", len, (size_t)n + HEAD);
	if (!begun && role == XPI_ACTIVE && chaos_chance(be, &ep->dice, CHAOS_TRUNCATE))
		return xpi_fail(be->err, XPORT_ERR_UNREACHABLE, 0, NULL, NULL,
		                "chaos cut the connection during the handshake");
	ep->connecting = false;
	if (ep_under_way(be, ep, &begun))
		return XPORT_ERR_AGAIN;
	status = be->ops->ep_connect(be->be, ep->inner, role, r.p, r.left);
	return status;
}

int chaos_ep_mark(struct xpi_be *be, void *ep_state, int traffic_class)
{
	struct chaos_ep *ep = ep_state;

	return be->ops->ep_mark(be->be, ep->inner, traffic_class);
}

int chaos_ep_quiesce(struct xpi_be *be, void *ep_state)
{
	struct chaos_ep *ep = ep_state;
	int r;

	chaos_contract_outside(be, "ep_quiesce");
	if (!ep->quiescing)
		ep->patience = 0;
	if (ep_under_way(be, ep, &ep->quiescing))
		return XPORT_ERR_AGAIN;
	r = be->ops->ep_quiesce(be->be, ep->inner);
	if (r == XPORT_OK) {
		chaos_forget(be, ep);
		ep->quiesced = true;
	}
	return r;
}

void chaos_ep_destroy(struct xpi_be *be, void *ep_state)
{
	struct chaos_ep *ep = ep_state;

	chaos_contract_outside(be, "ep_destroy");
	if (!ep->quiesced)
		chaos_contract_broken(be, "ep_destroy before ep_quiesce had returned XPORT_OK");
	be->ops->ep_destroy(be->be, ep->inner);
}
