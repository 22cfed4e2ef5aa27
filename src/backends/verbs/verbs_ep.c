/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_ep.c - endpoints: one reliable connection and one queue pair for each peer.
 *
 * The core's control channel brings each side the other's address. The active side connects to the passive one. Once
 * connected it sends an empty frame, the greeting, and the passive side answers with another. Then both know that
 * the connection works in both directions. The active side must send first: iWARP requires it. It repeats the
 * greeting until the answer arrives: siw does not notice data that arrives while it accepts, until more arrives.
 *
 *   address: u8 version, u8 transport, u8 family (4, 6), u16 port in network order, 16 bytes IP, 16 bytes cookie,
 *            string device, u64 address and u32 rkey of the page that proves puts, or zeros
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/printable.h"
#include "base/traffic.h"
#include "verbs.h"

enum { ADDRESS_VERSION = 2, RESOLVE_MS = 3000, GREET_MS = 20, DRAIN_MS = 250, TABLE_MAX = 1 << 16, RNR_FOREVER = 7 };
enum { BEGUN_MS = 30000 }; /* siw's timer expires after 10 s */

struct address {
	uint8_t kind;
	union vrb_ip ip;
	uint8_t cookie[VRB_COOKIE];
	char device[64];
	struct vrb_rkey proof;
};

/* ---- the table, by which completions find their endpoint ---- */

/*
 * The upper half of its wr_ids: its index in the table, and a number that differs from that of the previous endpoint
 * there.
 */
static uint64_t key_new(struct xpi_be *be, uint32_t slot)
{
	return (uint64_t)slot << 48 | (uint64_t)++be->generation << 32;
}

static int table_add(struct xpi_be *be, struct vrb_ep *ep)
{
	uint32_t slot = 0, size = be->table_size ? be->table_size * 2 : 16;
	struct vrb_ep **bigger;

	while (slot < be->table_size && be->table[slot] != NULL)
		slot++;
	if (slot == be->table_size) {
		bigger = size <= TABLE_MAX ? realloc(be->table, size * sizeof(struct vrb_ep *)) : NULL;
		if (bigger == NULL)
			return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for another endpoint");
		memset(bigger + slot, 0, (size - slot) * sizeof(struct vrb_ep *));
		be->table = bigger;
		be->table_size = size;
	}
	be->table[slot] = ep;
	ep->key = key_new(be, slot);
	xpi_list_push(&be->eps, &ep->link);
	ep->listed = true;
	return XPORT_OK;
}

static void table_remove(struct xpi_be *be, struct vrb_ep *ep)
{
	if (!ep->listed)
		return;
	be->table[ep->key >> 48] = NULL;
	xpi_list_del(&ep->link);
	ep->listed = false;
}

void vrb_ep_waits(struct vrb_ep *ep, bool waits)
{
	if (waits && !ep->waits)
		ep->be->attentive++;
	if (!waits && ep->waits)
		ep->be->attentive--;
	ep->waits = waits;
}

/* ---- address ---- */

/* Allocates the ring and the receives, and registers them as one region. */
static int buffer_new(struct vrb_ep *ep)
{
	struct xpi_be *be = ep->be;
	void *p = mmap(NULL, VRB_BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return xpi_fail_errno(be->err, XPORT_ERR_NO_MEMORY, NULL, "no memory for a connection");
	ep->buffer = p;
	ep->ring = ep->buffer;
	ep->rx = ep->buffer + VRB_RING;
	ep->buffer_mr = ibv_reg_mr(be->pd, p, VRB_BUFFER, IBV_ACCESS_LOCAL_WRITE);
	if (ep->buffer_mr == NULL)
		return vrb_fail_locked(be, errno, VRB_BUFFER);
	ep->lkey = ep->buffer_mr->lkey;
	ep->q = calloc(1, sizeof(*ep->q));
	if (ep->q == NULL)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a connection");
	return XPORT_OK;
}

static size_t address_write(const struct vrb_ep *ep, void *buf, size_t room)
{
	const struct xpi_be *be = ep->be;
	const union vrb_ip *ip = &be->ip;
	struct xpi_wr w = xpi_wr(buf, room);
	uint8_t bytes[16] = {0};

	if (ip->sa.sa_family == AF_INET)
		memcpy(bytes, &ip->in.sin_addr, 4);
	else
		memcpy(bytes, &ip->in6.sin6_addr, 16);
	xpi_wr_u8(&w, ADDRESS_VERSION);
	xpi_wr_u8(&w, (uint8_t)be->kind);
	xpi_wr_u8(&w, ip->sa.sa_family == AF_INET ? 4 : 6);
	xpi_wr_u16(&w, ip->in.sin_port);
	xpi_wr_bytes(&w, bytes, sizeof(bytes));
	xpi_wr_bytes(&w, ep->cookie, VRB_COOKIE);
	xpi_wr_str(&w, be->name);
	xpi_wr_u64(&w, (uint64_t)(uintptr_t)be->proof);
	xpi_wr_u32(&w, be->proof_mr != NULL ? be->proof_mr->rkey : 0);
	return w.bad ? 0 : room - w.left;
}

static bool address_read(const void *buf, size_t len, struct address *a)
{
	struct xpi_rd r = xpi_rd(buf, len);
	unsigned version = xpi_rd_u8(&r), family;
	const uint8_t *ip, *cookie;
	uint16_t port;

	memset(a, 0, sizeof(*a));
	a->kind = xpi_rd_u8(&r);
	family = xpi_rd_u8(&r);
	port = xpi_rd_u16(&r);
	ip = xpi_rd_bytes(&r, 16);
	cookie = xpi_rd_bytes(&r, VRB_COOKIE);
	xpi_rd_str(&r, a->device, sizeof(a->device));
	a->proof.base = xpi_rd_u64(&r);
	a->proof.rkey = xpi_rd_u32(&r);
	if (r.bad || r.left != 0 || version != ADDRESS_VERSION || a->kind > VRB_OTHER || (family != 4 && family != 6) ||
	    !xpi_text_printable(a->device))
		return false;
	memcpy(a->cookie, cookie, VRB_COOKIE);
	a->ip.in.sin_port = port;
	if (family == 4) {
		a->ip.sa.sa_family = AF_INET;
		memcpy(&a->ip.in.sin_addr, ip, 4);
	} else {
		a->ip.sa.sa_family = AF_INET6;
		memcpy(&a->ip.in6.sin6_addr, ip, 16);
	}
	return true;
}

static void ep_release(struct vrb_ep *ep)
{
	if (ep->buffer_mr != NULL)
		ibv_dereg_mr(ep->buffer_mr);
	if (ep->buffer != NULL)
		munmap(ep->buffer, VRB_BUFFER);
	free(ep->q);
	ep->buffer_mr = NULL;
	ep->buffer = NULL;
	ep->q = NULL;
}

int vrb_address(struct xpi_be *be, void *ep_, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	struct vrb_ep *ep = ep_;
	int rc;

	memset(ep, 0, sizeof(*ep));
	ep->be = be;
	ep->core_ep = core_ep;
	ep->repost_end = &ep->repost;
	ep->probe = -1;
	if (be->gone)
		return xpi_fail(be->err, XPORT_ERR_NO_BACKEND, 0, NULL, "close the instance and open another one",
		                "%s was removed", be->name);
	if (getrandom(ep->cookie, VRB_COOKIE, 0) != VRB_COOKIE)
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "getrandom failed");
	rc = buffer_new(ep);
	if (rc == XPORT_OK)
		rc = table_add(be, ep);
	if (rc != XPORT_OK) {
		ep_release(ep);
		return rc;
	}
	if (be->strangers_close)
		vrb_cm_hear(be);
	*len = address_write(ep, buf, *len);
	vrb_ep_waits(ep, true);
	return XPORT_OK;
}

/* ---- connecting ---- */

static int vrb_connect_fail(struct vrb_ep *ep, const struct address *a)
{
	char ip[INET6_ADDRSTRLEN];

	return xpi_fail(ep->be->err, XPORT_ERR_UNREACHABLE, 0, NULL,
	                "check with ping and rping that the two addresses reach each other",
	                "%s at %s cannot reach %s at %s: %s", ep->be->name,
	                vrb_ip_text(&ep->be->ip, (char[INET6_ADDRSTRLEN]){0}, INET6_ADDRSTRLEN), a->device,
	                vrb_ip_text(&a->ip, ip, sizeof(ip)), ep->failure);
}

static int cm_fail(struct vrb_ep *ep, const struct address *a, const char *what)
{
	snprintf(ep->failure, sizeof(ep->failure), "%s: %s", what, strerror(errno));
	ep->broken = true;
	return vrb_connect_fail(ep, a);
}

static int call_begin(struct vrb_ep *ep, const struct address *a)
{
	struct xpi_be *be = ep->be;
	union vrb_ip from = be->ip, to = a->ip;

	if (ep->id != NULL) { /* the peer that this side must connect to has connected to us */
		rdma_reject(ep->id, NULL, 0);
		rdma_destroy_id(ep->id);
	}
	ep->active = true;
	ep->event_new = false;
	ep->state = VRB_ADDRESS;
	from.in.sin_port = 0;
	if (rdma_create_id(be->cm, &ep->id, ep, RDMA_PS_TCP) != 0) {
		ep->id = NULL;
		return cm_fail(ep, a, "rdma_create_id");
	}
	/* On RoCE the service level of the route, and with it the priority on a VLAN, comes from here. */
	if (ep->marked && rdma_set_option(ep->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &ep->tos, sizeof(ep->tos)) != 0)
		return cm_fail(ep, a, "setting the traffic class");
	if (rdma_resolve_addr(ep->id, &from.sa, &to.sa, RESOLVE_MS) != 0)
		return cm_fail(ep, a, "resolving the address");
	return XPORT_ERR_AGAIN;
}

static int resolve_route(struct vrb_ep *ep, const struct address *a)
{
	ep->routes++;
	ep->state = VRB_ROUTE;
	if (rdma_resolve_route(ep->id, RESOLVE_MS) != 0)
		return cm_fail(ep, a, "resolving the route");
	return XPORT_ERR_AGAIN;
}

static int call_route(struct vrb_ep *ep, const struct address *a)
{
	const char *name = ep->id->verbs != NULL ? ibv_get_device_name(ep->id->verbs->device) : "no device";

	if (strcmp(name, ep->be->name) != 0) {
		snprintf(ep->failure, sizeof(ep->failure), "the route to that address uses %s", name);
		return vrb_connect_fail(ep, a);
	}
	return resolve_route(ep, a);
}

static void begun(struct vrb_ep *ep)
{
	ep->awaited = ep->be->kind == VRB_IWARP;
	ep->due_ms = xpi_now_ms() + BEGUN_MS;
}

/*
 * Our port belongs to another socket of this process, see listen_somewhere(), perhaps to that of peer_probe(). siw
 * returns the receives of the old queue pair: ignore them.
 */
static int call_again(struct vrb_ep *ep, const struct address *a)
{
	ep->ports++;
	ep->connected = false;
	vrb_qp_free(ep);
	ep->key = key_new(ep->be, (uint32_t)(ep->key >> 48));
	rdma_destroy_id(ep->id);
	ep->id = NULL;
	return call_begin(ep, a);
}

static int qp_make(struct vrb_ep *ep)
{
	int rc = vrb_qp_new(ep);

	return rc == XPORT_OK ? vrb_qp_init(ep) : rc;
}

static int peer_connect(struct vrb_ep *ep, const struct address *a)
{
	struct xpi_be *be = ep->be;
	uint8_t data[4 + VRB_COOKIE];
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.responder_resources = (uint8_t)be->reads_max,
		.initiator_depth = (uint8_t)be->reads_max,
		.retry_count = VRB_RETRIES,
		.rnr_retry_count = RNR_FOREVER,
	};

	memcpy(data, VRB_MAGIC, 4);
	memcpy(data + 4, a->cookie, VRB_COOKIE);
	param.qp_num = ep->qp->qp_num;
	ep->state = VRB_CONNECTING;
	ep->connected = true;
	if (rdma_connect(ep->id, &param) != 0)
		return (errno == EADDRINUSE || errno == EADDRNOTAVAIL) && ep->ports < VRB_PORTS
		               ? call_again(ep, a)
		               : cm_fail(ep, a, "rdma_connect");
	begun(ep);
	return XPORT_ERR_AGAIN;
}

/*
 * Checks the address first. siw connects within rdma_connect, which blocks the instance for minutes if nobody
 * answers. So a non-blocking TCP connection comes first: an address that accepts it will soon accept the next one. It
 * is closed after the real connection is made. siw before Linux 6.6 closes its listener if a connection ends before
 * it was examined. So nothing that may fail is done between the two, and if the real one fails, the first is kept for
 * a while: see peer_probe_held(). Its port may be that of another instance of this process, which rdma_cm chooses
 * without TCP: hence SO_REUSEADDR.
 */
static int peer_probe(struct vrb_ep *ep, const struct address *a)
{
	socklen_t len = a->ip.sa.sa_family == AF_INET ? sizeof(a->ip.in) : sizeof(a->ip.in6);
	const int on = 1;

	ep->state = VRB_PROBING;
	if (ep->probe < 0) {
		ep->probe = xpi_fd_up(socket(a->ip.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
		if (ep->probe >= 0)
			setsockopt(ep->probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	}
	if (ep->probe >= 0 && (connect(ep->probe, &a->ip.sa, len) == 0 || errno == EISCONN))
		return peer_connect(ep, a);
	return errno == EINPROGRESS || errno == EALREADY ? XPORT_ERR_AGAIN : cm_fail(ep, a, "connecting");
}

static void peer_probe_end(struct vrb_ep *ep)
{
	if (ep->probe >= 0)
		close(ep->probe);
	ep->probe = -1;
}

/*
 * Whether the probe is connected, and the peer may not have examined it yet. If the peer closed it or sent data, it
 * has.
 */
static bool peer_probe_held(const struct vrb_ep *ep)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	char c;

	return ep->probe >= 0 && xpi_now_ms() < ep->due_ms &&
	       getpeername(ep->probe, (struct sockaddr *)&peer, &len) == 0 &&
	       recv(ep->probe, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static int up(struct vrb_ep *ep)
{
	ep->state = VRB_UP;
	vrb_ep_waits(ep, false);
	return XPORT_OK;
}

static int greet(struct vrb_ep *ep, const struct address *a)
{
	if (vrb_greet(ep) != XPORT_OK)
		return cm_fail(ep, a, "sending the first frame");
	ep->due_ms = xpi_now_ms() + ((int64_t)GREET_MS << ep->greetings);
	ep->greetings++;
	return XPORT_ERR_AGAIN;
}

static int greet_step(struct vrb_ep *ep, const struct address *a)
{
	if (ep->greeted)
		return up(ep);
	if (ep->greetings < VRB_GREETINGS && xpi_now_ms() >= ep->due_ms)
		return greet(ep, a);
	return XPORT_ERR_AGAIN;
}

/* The peer has answered. On InfiniBand and RoCE this side moves the queue pair and sends the last handshake message. */
static int call_answered(struct vrb_ep *ep, const struct address *a)
{
	int rc;

	peer_probe_end(ep);
	if (ep->event == RDMA_CM_EVENT_CONNECT_RESPONSE) {
		rc = vrb_qp_connect(ep);
		if (rc != XPORT_OK)
			return rc;
		if (rdma_establish(ep->id) != 0)
			return cm_fail(ep, a, "rdma_establish");
	}
	ep->room = VRB_SQ;
	ep->state = VRB_GREETING;
	return greet(ep, a);
}

static int call_resolved(struct vrb_ep *ep, const struct address *a)
{
	int rc = qp_make(ep);

	if (rc != XPORT_OK)
		return rc;
	return ep->be->blocks ? peer_probe(ep, a) : peer_connect(ep, a);
}

static int call_step(struct vrb_ep *ep, const struct address *a)
{
	if (ep->state == VRB_NEW)
		return call_begin(ep, a);
	if (ep->state == VRB_GREETING)
		return greet_step(ep, a);
	if (ep->state == VRB_PROBING)
		return peer_probe(ep, a);
	if (!ep->event_new)
		return XPORT_ERR_AGAIN;
	ep->event_new = false;
	if (ep->state == VRB_ADDRESS && ep->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		return call_route(ep, a);
	if (ep->state == VRB_ROUTE && ep->event == RDMA_CM_EVENT_ROUTE_RESOLVED)
		return call_resolved(ep, a);
	if (ep->state == VRB_ROUTE && ep->event == RDMA_CM_EVENT_ROUTE_ERROR)
		return resolve_route(ep, a);
	if (ep->state == VRB_CONNECTING &&
	    (ep->event == RDMA_CM_EVENT_CONNECT_RESPONSE || ep->event == RDMA_CM_EVENT_ESTABLISHED))
		return call_answered(ep, a);
	return XPORT_ERR_AGAIN;
}

static int take_call(struct vrb_ep *ep, const struct address *a)
{
	struct rdma_conn_param param = {
		.responder_resources = (uint8_t)ep->gets_max, /* librdmacm has swapped them; the minimum of both */
		.initiator_depth = (uint8_t)ep->gets_max,
		.retry_count = VRB_RETRIES,
		.rnr_retry_count = RNR_FOREVER,
	};
	int rc;

	if (ep->id == NULL)
		return XPORT_ERR_AGAIN;
	rc = qp_make(ep);
	if (rc == XPORT_OK && ep->be->kind != VRB_IWARP)
		rc = vrb_qp_connect(ep);
	if (rc != XPORT_OK)
		return rc;
	param.qp_num = ep->qp->qp_num;
	ep->state = VRB_ACCEPTING;
	ep->connected = true;
	if (rdma_accept(ep->id, &param) != 0)
		return cm_fail(ep, a, "rdma_accept");
	begun(ep);
	return XPORT_ERR_AGAIN;
}

static int accept_step(struct vrb_ep *ep, const struct address *a)
{
	if (ep->state == VRB_NEW)
		return take_call(ep, a);
	if (!ep->greeted)
		return XPORT_ERR_AGAIN;
	vrb_cm_overtaken(ep);
	ep->room = VRB_SQ;
	if (vrb_greet(ep) != XPORT_OK)
		return cm_fail(ep, a, "sending the first frame");
	return up(ep);
}

int vrb_ep_connect(struct xpi_be *be, void *ep_, enum xpi_role role, const void *addr, size_t len)
{
	struct vrb_ep *ep = ep_;
	struct address a;

	if (!address_read(addr, len, &a))
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
		                "the peer's address of %zu bytes is malformed", len);
	if (a.kind != (uint8_t)be->kind)
		return xpi_fail(be->err, XPORT_ERR_INCOMPATIBLE, 0, NULL, "use the same kind of device on both sides",
		                "%s is %s, and the peer's %s is %s: they cannot connect", be->name,
		                vrb_kind_name(be->kind), a.device, vrb_kind_name(a.kind));
	if ((a.proof.rkey == 0) != (be->proof_mr == NULL))
		return xpi_fail(be->err, XPORT_ERR_INCOMPATIBLE, 0, NULL, "use the same kind of device on both sides",
		                "%s %s RDMA READ, and the peer's %s %s: they cannot connect", be->name,
		                be->proof_mr != NULL ? "has" : "does not use", a.device,
		                be->proof_mr != NULL ? "does not" : "has it");
	ep->proof = a.proof;
	if (ep->broken)
		return vrb_connect_fail(ep, &a);
	if (ep->state == VRB_UP)
		return XPORT_OK;
	return role == XPI_ACTIVE ? call_step(ep, &a) : accept_step(ep, &a);
}

int vrb_ep_mark(struct xpi_be *be, void *ep_, int traffic_class)
{
	struct vrb_ep *ep = ep_;

	(void)be;
	ep->tos = xpi_traffic_tos(traffic_class);
	ep->marked = true;
	return XPORT_OK;
}

/* ---- ending ---- */

/*
 * Disconnects, and releases all buffers. An iWARP adapter that has TCP on board closes the TCP connection in order if
 * it disconnects. Until the peer has answered, it neither stops nor releases the queue pair, and a dead peer does not
 * answer for a minute (cxgb4: c4iw_destroy_qp). If the queue pair was stopped before, the adapter resets the
 * connection instead. The control channel carries what the last frames say as well.
 */
static void close_begin(struct vrb_ep *ep)
{
	bool disconnects = ep->id != NULL && ep->connected;

	vrb_ep_waits(ep, false);
	vrb_batch_forget(ep);
	ep->room = 0;
	ep->state = VRB_CLOSING;
	ep->due_ms = xpi_now_ms() + DRAIN_MS;
	if (disconnects && !ep->be->stops_first)
		(void)rdma_disconnect(ep->id);
	if (ep->qp != NULL)
		vrb_qp_stop(ep);
	if (disconnects && ep->be->stops_first)
		(void)rdma_disconnect(ep->id);
}

/* Whether the queue pair has released every buffer: all its requests have completed. If they do not, for example
 * because the device is gone, destroying the queue pair must be enough. Later completions are ignored. */
static bool qp_drained(struct vrb_ep *ep)
{
	if (ep->qp == NULL || (ep->drained && ep->rx_posted == 0))
		return true;
	if (!ep->be->gone && xpi_now_ms() < ep->due_ms)
		return false;
	xpi_log(ep->be->log, XPORT_LOG_DEBUG, "2020", "verbs: %s: a queue pair did not drain: %u receives left, %s",
	        ep->be->name, ep->rx_posted, ep->drained ? "no sends left" : "sends");
	return true;
}

int vrb_ep_quiesce(struct xpi_be *be, void *ep_)
{
	struct vrb_ep *ep = ep_;

	if (ep->state == VRB_CLOSED)
		return XPORT_OK;
	/* Closing it earlier would block in the kernel until siw's timer expires, after seconds. */
	if (ep->awaited && !be->gone && xpi_now_ms() < ep->due_ms)
		return XPORT_ERR_AGAIN;
	if (ep->state < VRB_CLOSING)
		close_begin(ep);
	if (!qp_drained(ep) || peer_probe_held(ep))
		return XPORT_ERR_AGAIN;
	vrb_qp_free(ep);
	if (ep->id != NULL)
		rdma_destroy_id(ep->id);
	ep->id = NULL;
	peer_probe_end(ep);
	table_remove(be, ep);
	ep->state = VRB_CLOSED;
	return XPORT_OK;
}

void vrb_ep_destroy(struct xpi_be *be, void *ep_)
{
	(void)be;
	ep_release(ep_);
}
