/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p05_more.c - P5, bounded loss: stopped, cut-off and busy peers, and life after a loss. */
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>

#include "harness_net.h"

/* A stop and a cut cable are only noticed by silence: within 1.5 times the peer timeout. */
enum { TIMEOUT_MS = 1000, SILENCE_MS = TIMEOUT_MS * 3 / 2 + 500, LEN = 65536 };

static void open_short(struct h *h)
{
	struct xport_attr a = h_attr(h);

	a.peer_timeout_ms = h_ms(TIMEOUT_MS);
	h_mesh(h, &a);
	H_EQ(h_ms(TIMEOUT_MS), h->info.peer_timeout_ms);
}

static void stopped(struct h *h)
{
	struct h_mem m;
	struct xport_completion c;

	open_short(h);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	h_hear_u64(h, 1);
	/* back to life: this side finds its peer gone as well */
	c = H_EVENT(XPORT_EVENT_LOST);
	H_TRUE(c.ep == h->ep[1]);
}

static void stop_peer(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *send = NULL, *recv = NULL;
	int64_t t, took;

	open_short(h);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_sync(h);
	h_stop(h, 0);
	t = h_now_us();
	if (h->param) {
		send = h_send(h, h->ep[0], l.p, LEN, 1);
		recv = h_recv(h, h->ep[0], l.p, LEN, 1, UINT64_MAX);
		h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0);
		h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0);
		h_flush(h, h->ep[0]);
	}
	took = h_lost_within(h, h->ep[0], t, SILENCE_MS);
	h_record(h, "lost_us", (uint64_t)took);
	H_CHECK(took > 500000, "after %" PRId64 " us already: a stop that short must be survived", took);
	if (h->param) {
		H_DONE_AS(XPORT_ERR_PEER_LOST, send);
		H_DONE_AS(XPORT_ERR_PEER_LOST, recv);
	}
	h_settle(h);
	h_cont(h, 0);
	h_tell_u64(h, 0, 1);
	h_run_for(h, 100);
	H_EQ(0, h->nqueue);
}

static const struct h_param idle_or_busy[] = {{"idle", 0}, {"with_operations", 1}, {NULL, 0}};

/* A stop much shorter than the limit is not a loss. */
static void short_stop(struct h *h)
{
	struct xport_completion c;

	open_short(h);
	h_sync(h);
	if (h->role == 1) {
		h_stop(h, 0);
		h_run_for(h, h_ms(TIMEOUT_MS) / 3);
		h_cont(h, 0);
	}
	h_run_for(h, h_ms(TIMEOUT_MS) / 2);
	H_CHECK(!h_event_now(h, XPORT_EVENT_LOST, &c), "lost");
	H_EQ(0, h->nqueue);
	h_sync(h);
}

/* A peer that computes and never calls the library is alive, however long it takes. */
static void busy(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_completion c;
	int64_t end;
	volatile unsigned n = 0;

	a.peer_timeout_ms = h_ms(600);
	h_mesh(h, &a);
	if (h->role == 0) {
		for (end = h_now_us() + (int64_t)h_ms(1800) * 1000; h_now_us() < end;)
			n++;
		h_progress(h);
	} else {
		h_run_for(h, h_ms(1800));
	}
	H_CHECK(!h_event_now(h, XPORT_EVENT_LOST, &c), "lost");
	h_sync(h);
	if (h->role == 1)
		H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

/* The connection leads through a proxy, which stops passing anything on, or closes. */
static void behind_cable(struct h *h)
{
	struct xport_attr a = h_attr(h);

	a.peer_timeout_ms = h_ms(TIMEOUT_MS);
	h_open(h, &a);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h->ep[1] = h_accept(h);
	h_sync(h);
	h_hear_u64(h, 1);
	h_lost_within(h, h->ep[1], h_now_us(), SILENCE_MS);
	h_sync(h);
}

static void cut_cable(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_proxy p;
	char address[80];
	struct h_op *recv;
	uint64_t word;
	int64_t t;

	a.peer_timeout_ms = h_ms(TIMEOUT_MS);
	h_open(h, &a);
	h_hear(h, 0, address, sizeof(address));
	h_proxy_start(h, &p, address);
	h->ep[0] = h_connect(h, p.address);
	h_sync(h);
	recv = h_recv(h, h->ep[0], &word, 8, 1, UINT64_MAX);
	h_run_for(h, 20);
	atomic_store(&p.mode, h->param ? H_CUT : H_SWALLOW);
	t = h_now_us();
	h_tell_u64(h, 0, 1);
	h_record(h, "lost_us", (uint64_t)h_lost_within(h, h->ep[0], t, SILENCE_MS));
	H_DONE_AS(XPORT_ERR_PEER_LOST, recv);
	h_sync(h);
	h_proxy_stop(&p);
}

static const struct h_param cuts[] = {{"silently", 0}, {"by_closing", 1}, {NULL, 0}};

/* The death of a peer wakes whoever sleeps on the fd alone. */
static void sleep_on_fd(struct h *h)
{
	struct pollfd p = {.events = POLLIN};
	struct xport_completion c;
	int64_t t;

	h_mesh(h, NULL);
	h_sync(h);
	h_run_for(h, 50);
	p.fd = xport_fd(h->x);
	h_kill(h, 0, SIGKILL);
	t = h_now_us();
	while (!h_event_now(h, XPORT_EVENT_LOST, &c)) {
		H_CHECK(poll(&p, 1, h_ms(1100)) == 1, "the fd slept through it");
		h_progress(h);
	}
	H_TRUE(h_now_us() - t < (int64_t)h_ms(1100) * 1000);
	h_record(h, "lost_us", (uint64_t)(h_now_us() - t));
}

static void wait_for_end(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	h->idle = true;
	h_hear_u64(h, 1);
}

/* A restarted peer is a new one: connect again and work; the old endpoint stays lost. */
static void restarted(struct h *h)
{
	struct h_mem m;
	uint64_t word = 0;

	h_open(h, NULL);
	h_pair(h, 1);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	H_DONE(h_recv(h, NULL, &word, 8, 1, UINT64_MAX));
	H_EQ(100 + h->incarnation, word);
	h_sync_with(h, 1);
	if (h->incarnation < 3) {
		h->idle = true;
		h_hear_u64(h, 1);
	}
}

static void survivor(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct xport_ep_info info = {.size = sizeof(info)};
	xport_ep *old = NULL;
	uint64_t word;

	h_open(h, NULL);
	l = h_mem_local(h, LEN, 0);
	for (uint64_t i = 0; i <= 3; i++) {
		h_pair(h, 0);
		r = h_import(h, 0);
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
		word = 100 + i;
		H_DONE(h_send(h, h->ep[0], &word, 8, 1));
		h_sync_with(h, 0);
		if (i == 3)
			break;
		if (old)
			xport_ep_destroy(old);
		old = h->ep[0];
		h_kill(h, 0, SIGKILL);
		H_EQ(XPORT_ERR_PEER_LOST, H_EVENT(XPORT_EVENT_LOST).status);
		H_OK(xport_ep_query(old, &info));
		H_EQ(XPORT_EP_LOST, info.state);
		h_restart(h, 0);
	}
}

static void accept_dies(struct h *h)
{
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h->idle = true;
	h_hear_u64(h, 1);
}

/* The server dies while a connection to it is being made. */
static void connect_to_dying(struct h *h)
{
	char address[80];
	xport_ep *ep = NULL;
	struct xport_completion c;
	int64_t t;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	H_OK(xport_connect(h->x, address, NULL, 0, &ep));
	h_run_for(h, 50);
	h_kill(h, 0, SIGKILL);
	t = h_now_us();
	c = H_EVENT(XPORT_EVENT_LOST);
	H_TRUE(c.ep == ep);
	H_TRUE(c.status < 0);
	H_TRUE(h_now_us() - t < (int64_t)h_ms(2000) * 1000);
	xport_ep_destroy(ep);
}

/* The next socket that is asked how its connecting went says that it was reset: its listener ended meanwhile.  By
 * standing in front of the C library, since that moment is too short to be met. */
static atomic_int reset_next;

H_INTERPOSE int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
	int (*real)(int, int, int, void *, socklen_t *) =
		(int (*)(int, int, int, void *, socklen_t *))dlsym(RTLD_NEXT, "getsockopt");

	if (level == SOL_SOCKET && name == SO_ERROR && atomic_exchange(&reset_next, 0)) {
		*(int *)value = ECONNRESET;
		return 0;
	}
	return real(fd, level, name, value, len);
}

static void reset_while_connecting(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep = NULL;

	h_open(h, NULL);
	h_listen(h);
	atomic_store(&reset_next, 1);
	H_STATUS(XPORT_ERR_REFUSED, xport_connect(h->x, h->address, NULL, h_ms(1000), &ep));
	H_EQ(0, atomic_load(&reset_next));
	H_OK(xport_last_error(h->x, &e));
	H_EQ(ECONNRESET, e.native_code);
	H_CHECK(strstr(e.text, h->address) != NULL, "'%s' does not name %s", e.text, h->address);
}

/* The client dies before its connection is accepted: the server goes on with the next. */
static void client_dies(struct h *h)
{
	char address[80];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h->ep[0] = h_connect(h, address);
	h_sync_with(h, 0);
	if (h->incarnation == 0) {
		h->idle = true;
		h_hear_u64(h, 0);
	}
	H_DONE(h_flush(h, h->ep[0]));
	h_sync_with(h, 0);
}

static void serve_after_death(struct h *h)
{
	xport_ep *ep = NULL;
	int s;

	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_sync_with(h, 1);
	h_kill(h, 1, SIGKILL);
	h_run_for(h, 300);
	h_restart(h, 1);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_sync_with(h, 1);
	for (int i = 0; i < 2 && h->ep[1] == NULL; i++) {
		struct xport_ep_info info = {.size = sizeof(info)};

		s = xport_accept(h->listener, h_ms(h->limit_ms), &ep);
		if (s == XPORT_ERR_TIMEOUT)
			break;
		H_STATUS(XPORT_OK, s);
		H_OK(xport_ep_query(ep, &info));
		if (info.peer_pid == h_pid(h, 1))
			h->ep[1] = ep;
		else
			xport_ep_destroy(ep);
	}
	H_CHECK(h->ep[1] != NULL, "the restarted client was not accepted");
	h_sync_with(h, 1);
}

const struct h_scenario cases_p05_more[] = {
	{.name = "P5_stopped", .role = {stopped, stop_peer}, .params = idle_or_busy, .flags = H_TARGET | H_KILLS},
	{.name = "P5_short_stop_is_survived", .role = {short_stop, short_stop}, .flags = H_KILLS},
	{.name = "P5_busy_peer_is_alive", .role = {busy, busy}},
	{.name = "P5_cable_cut", .role = {behind_cable, cut_cable}, .params = cuts},
	{.name = "P5_loss_wakes_the_fd", .role = {wait_for_end, sleep_on_fd}, .flags = H_KILLS},
	{.name = "P5_reconnect_to_restarted", .role = {restarted, survivor}, .flags = H_KILLS},
	{.name = "P5_server_dies_while_connecting", .role = {accept_dies, connect_to_dying}, .flags = H_KILLS},
	{.name = "P5_reset_while_connecting", .role = {reset_while_connecting}, .flags = H_ONCE},
	{.name = "P5_client_dies_before_accept", .role = {serve_after_death, client_dies}, .flags = H_KILLS},
	{.name = NULL},
};
