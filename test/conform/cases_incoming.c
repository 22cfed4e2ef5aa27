/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_incoming.c - connections that come in: what they deliver first (P4), and many of them at once (P14). */
#include <sys/resource.h>

#include "harness_net.h"

/*
 * The handshake travels by TCP, data may travel faster.  A proxy holds back the READY of one side: the other side still
 * waits for it when the first message and the first notification arrive.
 */
enum { REQUEST = 1, REPLY = 2, VALUE = 77, LEN = 64 };

/* The side that is OPEN: sends, and receives the reply to its message. */
static void early_speaks(struct h *h, int other, struct h_proxy *p, xport_ep *ep, const struct h_key *key)
{
	struct h_mem from = h_mem_local(h, LEN, 0);
	struct h_rkey to = h_unpack(h, ep, key);
	uint64_t request = 5, reply = 0;
	struct h_op *received = h_recv(h, NULL, &reply, 8, REPLY, UINT64_MAX), *notified;

	H_DONE(h_send(h, ep, &request, 8, REQUEST));
	h_fill(from.p, LEN, 3);
	notified = h_notify(h, ep, H_AT(from, 0, LEN), &to, 0, VALUE, 0);
	h_run_for(h, h_ms(50));
	h_tell_u64(h, other, 1);
	if (p != NULL) {
		h_hear_u64(h, other);
		atomic_store(&p->hold, H_HOLD_NONE);
	}
	H_DONE(received);
	H_EQ(6, reply);
	H_DONE(notified);
	h_sync(h);
	xport_rkey_destroy(to.k);
	h_mem_free(h, &from);
}

/* The side that still waits: hears nothing before it is OPEN, and may answer whatever it hears then. */
static void early_hears(struct h *h, int other, struct h_proxy *p, uint32_t first, const struct h_mem *m)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	int64_t end;
	uint64_t request = 0, reply = 6;
	xport_ep *ep;

	H_OK(xport_recv(h->x, &request, 8, REQUEST, UINT64_MAX, NULL));
	h_hear_u64(h, other);
	H_CHECK(h->nqueue == 0, "completion of type %u before the connection was ready", h->queue[0].type);
	if (p != NULL)
		atomic_store(&p->hold, H_HOLD_NONE);
	else
		h_tell_u64(h, other, 1);
	for (end = h_now_us() + (int64_t)h_ms(h->limit_ms) * 1000; h->nqueue < 3 && h_now_us() < end;)
		h_breathe(h);
	H_EQ(3, h->nqueue);
	H_EQ(first, h->queue[0].type);
	H_EQ(XPORT_OP_RECV, h->queue[1].type);
	H_STATUS(XPORT_OK, h->queue[1].status);
	H_EQ(5, request);
	H_EQ(XPORT_EVENT_NOTIFY, h->queue[2].type);
	H_EQ(VALUE, h->queue[2].tag);
	H_FILLED(m->p, LEN, 3);
	ep = h->queue[1].ep;
	H_TRUE(ep == h->queue[2].ep);
	H_OK(xport_ep_query(ep, &info));
	H_EQ(XPORT_EP_OPEN, info.state);
	H_DONE(h_send(h, ep, &reply, 8, REPLY)); /* a listener has not accepted it yet */
}

static void early_server(struct h *h)
{
	struct h_mem m;
	struct h_key key;
	xport_ep *ep;

	h->incoming = true;
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	if (h->param == 0) {
		m = h_mem_target(h, LEN, 0, H_ALL);
		h_share(h, 1, &m);
		early_hears(h, 1, NULL, XPORT_EVENT_INCOMING, &m);
		ep = h_accept(h);
		H_TRUE(ep == h->queue[1].ep);
		h_sync(h);
		h_mem_free(h, &m);
	} else {
		H_EQ(sizeof(key), h_hear(h, 1, &key, sizeof(key)));
		early_speaks(h, 1, NULL, h_accept(h), &key);
	}
}

static void early_client(struct h *h)
{
	char address[80];
	struct h_proxy p;
	struct h_mem m;
	struct h_key key;
	xport_ep *ep = NULL;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h_proxy_start(h, &p, address);
	atomic_store(&p.hold, h->param == 0 ? H_HOLD_UP : H_HOLD_DOWN);
	if (h->param == 0) {
		H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
		early_speaks(h, 0, &p, h_connect(h, p.address), &key);
	} else {
		m = h_mem_target(h, LEN, 0, H_ALL);
		h_share(h, 0, &m);
		H_OK(xport_connect(h->x, p.address, NULL, 0, &ep));
		early_hears(h, 0, &p, XPORT_EVENT_CONNECTED, &m);
		H_TRUE(ep == h->queue[1].ep);
		h_sync(h);
		h_mem_free(h, &m);
	}
	h_proxy_stop(&p);
}

/* ---- a full backlog ---- */

enum { BACKLOG = 2, CROWD = 12 };

/* It accepts all the time, but has places for two. */
static void narrow_server(struct h *h)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .backlog = BACKLOG};

	h_expect_log(h, "backlog");
	h_open(h, NULL);
	H_OK(xport_listen(h->x, "127.0.0.1:0", &attr, &h->listener));
	H_OK(xport_listener_name(h->listener, h->address, sizeof(h->address)));
	h_tell(h, 1, h->address, sizeof(h->address));
	h_run_for(h, h_ms(300)); /* all that can be ready is */
	for (int i = 0; i < CROWD; i++)
		h_accept(h);
	h_sync(h);
	h_sync(h);
}

/* Nobody of a crowd is refused as long as the server accepts; once it does not, there is an end to waiting. */
static void crowd_client(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep[CROWD], *more = NULL;
	char address[80];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	for (int i = 0; i < CROWD; i++)
		H_OK(xport_connect(h->x, address, NULL, 0, &ep[i]));
	for (int i = 0; i < CROWD; i++)
		H_EVENT(XPORT_EVENT_CONNECTED);
	h_sync(h);
	for (int i = 0; i < BACKLOG; i++)
		h_connect(h, address);
	H_STATUS(XPORT_ERR_REFUSED, xport_connect(h->x, address, NULL, h_ms(20000), &more));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(strstr(e.text, "backlog of 2 is full"), "%s", e.text);
	h_sync(h);
}

/* ---- connections that say nothing ---- */

enum { SILENT = 1500, GOOD = 5, IN_TIME_US = 1500000 };

static void besieged_server(struct h *h)
{
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	for (int i = 0; i < GOOD; i++)
		h_accept(h);
	h_sync(h);
}

/* They stay, and a good client gets in beside them: as one who speaks it does not wait for their time to be up. */
static void besieger(struct h *h)
{
	struct rlimit limit;
	char address[80];
	int *fd = h_buf(h, SILENT * sizeof(*fd));

	H_TRUE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max < 2 * SILENT ? limit.rlim_max : 2 * SILENT;
	H_TRUE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur < 2 * SILENT)
		h_skip(h, "%d descriptors are more than the limit allows", 2 * SILENT);
	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	for (int i = 0; i < SILENT; i++)
		fd[i] = h_raw_connect(h, address);
	for (int i = 0; i < GOOD; i++) {
		int64_t starved = h_starved_us(), t = h_now_us();

		h_connect(h, address);
		t = h_now_us() - t - (h_starved_us() - starved);
		H_CHECK(t < (int64_t)h_ms(1) * IN_TIME_US, "client %d took %" PRId64 " us", i, t);
		h_record(h, "connect_us", (uint64_t)t);
	}
	h_sync(h);
	for (int i = 0; i < SILENT; i++)
		close(fd[i]);
}

static const struct h_param sides[] = {{"server", 0}, {"client", 1}, {NULL, 0}};

const struct h_scenario cases_incoming[] = {
	{.name = "P4_nothing_comes_before_the_connection", .role = {early_server, early_client}, .params = sides},
	{.name = "P14_a_crowd_waits_for_the_backlog", .role = {narrow_server, crowd_client}, .flags = H_ONCE},
	{.name = "P14_silent_connections_take_no_place", .role = {besieged_server, besieger}, .flags = H_ONCE},
	{.name = NULL},
};
