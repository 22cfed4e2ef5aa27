/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_peer.c - P5: receives with XPORT_PEER outlive the endpoints to their peer, and end when the peer is gone. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include "harness.h"

enum { LEN = 100000, MESSAGES = 100, TAG = 3 };

static struct h_op *recv_peer(struct h *h, xport_ep *ep, void *buf, uint64_t mask)
{
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_PEER, .context = op, .source = ep, .id = &op->id};

	H_OK(xport_recv(h->x, buf, LEN, TAG, mask, &o));
	return op;
}

/* They outlive the endpoint; messages come over two later ones, short and long; the process ends. */
static void receives_from_peer(struct h *h)
{
	uint8_t *buf = h_buf(h, 6 * LEN);
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_PEER};
	struct h_op *op[6], *late;
	uint64_t peer;
	xport_ep *ep[3];

	h_open(h, NULL);
	h_listen(h);
	H_STATUS(XPORT_ERR_INVALID, xport_recv(h->x, buf, LEN, TAG, 0, &o));
	h_tell(h, 1, h->address, sizeof(h->address));
	ep[0] = h_accept(h);
	peer = xport_ep_peer(ep[0]);
	for (int i = 0; i < 6; i++)
		op[i] = recv_peer(h, ep[0], buf + i * LEN, i % 2 ? UINT64_MAX : UINT64_MAX >> 1);
	h_tell_u64(h, 1, 1);
	H_DONE(op[0]);
	H_TRUE(op[0]->c.ep == ep[0] && op[0]->c.peer == peer);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	xport_ep_destroy(ep[0]);
	ep[1] = h_accept(h);
	ep[2] = h_accept(h);
	h_tell_u64(h, 1, 1);
	for (int i = 1; i < 4; i++)
		H_DONE(op[i]);
	/* Nothing orders what comes over different endpoints. */
	H_TRUE(op[1]->c.ep != op[2]->c.ep || op[2]->c.ep != op[3]->c.ep);
	H_TRUE(op[1]->c.peer == peer && op[2]->c.peer == peer && op[3]->c.peer == peer);
	H_OK(xport_cancel(h->x, op[4]->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op[4]);
	H_TRUE(op[4]->c.ep == NULL && op[4]->c.peer == peer);
	/* One that has come already. */
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	late = recv_peer(h, ep[1], buf, 0);
	H_DONE(op[5]);
	H_CHECK(!late->done, "it took the message of an older one");
	h_kill(h, 1, SIGKILL);
	H_DONE_AS(XPORT_ERR_PEER_LOST, late);
	H_TRUE(late->c.ep == NULL && late->c.peer == peer);
	H_EVENT(XPORT_EVENT_LOST);
	H_EVENT(XPORT_EVENT_LOST);
	o.flags = XPORT_PEER;
	o.source = ep[1];
	H_STATUS(XPORT_ERR_PEER_LOST, xport_recv(h->x, buf, LEN, TAG, 0, &o));
}

static void comes_again(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	char address[80];
	xport_ep *ep[3];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	ep[0] = h_connect(h, address);
	h_hear_u64(h, 0);
	H_DONE(h_send(h, ep[0], buf, 8, TAG));
	H_OK(xport_ep_close(ep[0], h_ms(h->limit_ms)));
	ep[1] = h_connect(h, address);
	ep[2] = h_connect(h, address);
	h_hear_u64(h, 0);
	H_DONE(h_send(h, ep[1], buf, LEN, TAG));
	H_DONE(h_send(h, ep[2], buf, 8, TAG));
	H_DONE(h_send(h, ep[1], buf, 8, TAG));
	h_hear_u64(h, 0);
	H_DONE(h_send(h, ep[2], buf, 8, TAG));
	h_tell_u64(h, 0, 1);
	while (true)
		h_breathe(h);
}

/* ---- with a list of pieces, and for many messages ---- */

enum { LISTED = 4, LATER = 5, LINE = 64 };

static struct h_op *recvv_peer(struct h *h, xport_ep *ep, uint8_t *buf)
{
	const struct xport_iov list[] = {{.addr = buf, .len = 4}, {.addr = buf + LINE, .len = LEN - 4}};
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_PEER, .context = op, .source = ep, .id = &op->id};

	H_OK(xport_recvv(h->x, list, 2, LISTED, UINT64_MAX, &o));
	return op;
}

/* The context is no h_op: the completions are queued. */
static struct xport_completion many_next(struct h *h, const uint8_t *buf, int type)
{
	struct xport_completion c = h_event_at(h, __FILE__, __LINE__, type);

	H_TRUE(c.context == buf);
	return c;
}

static void many_wrong(struct h *h, xport_ep *ended)
{
	const struct xport_iov piece = {.addr = NULL, .len = 4};
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_PEER | XPORT_MULTI, .value = 1};
	uint8_t byte;

	H_STATUS(XPORT_ERR_INVALID, xport_recv(h->x, &byte, 1, LATER, UINT64_MAX, &o));
	o.flags = XPORT_PEER;
	H_STATUS(XPORT_ERR_INVALID, xport_recvv(h->x, &piece, 0, LATER, UINT64_MAX, &o));
	o.source = ended;
	H_STATUS(XPORT_ERR_INVALID, xport_recvv(h->x, &piece, 1, LATER, UINT64_MAX, &o));
	o.flags = XPORT_PEER | XPORT_MULTI;
	H_STATUS(XPORT_ERR_PEER_CLOSED, xport_recv(h->x, &byte, 1, LATER, UINT64_MAX, &o));
}

/* Both kinds outlive the endpoint, and end with the peer. */
static void many_from_peer(struct h *h)
{
	uint8_t *buf = h_buf(h, 3 * LEN), *later = h_buf(h, 4 * LINE), *lists = h_buf(h, 8 * LEN);
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_PEER | XPORT_MULTI, .value = LEN, .context = buf};
	struct xport_completion c;
	struct h_op *op[4];
	xport_ep *ep[2];
	uint64_t peer;

	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	ep[0] = h_accept(h);
	peer = xport_ep_peer(ep[0]);
	o.source = ep[0];
	H_OK(xport_recv(h->x, buf, 3 * LEN, TAG, UINT64_MAX, &o));
	for (int i = 0; i < 4; i++)
		op[i] = recvv_peer(h, ep[0], lists + 2 * i * LEN);
	H_OK(xport_cancel(h->x, op[0]->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op[0]);
	h_tell_u64(h, 1, 1);
	c = many_next(h, buf, XPORT_OP_RECV);
	H_TRUE(c.status == XPORT_OK && c.ep == ep[0] && c.peer == peer && c.offset == 0);
	H_FILLED(buf, 8, 1);
	H_DONE(op[1]);
	H_FILLED(lists + 2 * LEN, 4, 1);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	many_wrong(h, ep[0]);
	xport_ep_destroy(ep[0]);
	ep[1] = h_accept(h);
	h_tell_u64(h, 1, 1);
	c = many_next(h, buf, XPORT_OP_RECV);
	H_TRUE(c.status == XPORT_OK && c.ep == ep[1] && c.offset == LINE);
	H_EQ(LEN, c.length);
	H_FILLED(buf + LINE, LEN, 2);
	H_DONE(op[2]);
	H_TRUE(op[2]->c.ep == ep[1] && op[2]->c.length == LEN);
	h_hear_u64(h, 1); /* two messages have come before their receive */
	o.source = ep[1];
	o.context = later;
	o.value = 8;
	H_OK(xport_recv(h->x, later, 4 * LINE, LATER, UINT64_MAX, &o));
	for (int i = 0; i < 2; i++)
		H_EQ((uint64_t)i * LINE, many_next(h, later, XPORT_OP_RECV).offset);
	h_kill(h, 1, SIGKILL);
	H_DONE_AS(XPORT_ERR_PEER_LOST, op[3]);
	for (int i = 0; i < 2; i++) {
		c = h_event_at(h, __FILE__, __LINE__, XPORT_OP_RECV_END);
		H_EQ(XPORT_ERR_PEER_LOST, c.status);
		H_TRUE(c.ep == NULL && c.peer == peer && (c.context == buf || c.context == later));
		H_TRUE(c.length == (c.context == buf ? LINE + (LEN + LINE - 1) / LINE * LINE : 2 * LINE));
	}
	H_EVENT(XPORT_EVENT_LOST);
}

static void sends_to_many(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	char address[80];
	xport_ep *ep;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	ep = h_connect(h, address);
	h_hear_u64(h, 0);
	h_fill(buf, 8, 1);
	H_DONE(h_send(h, ep, buf, 8, TAG));
	H_DONE(h_send(h, ep, buf, 8, LISTED));
	H_OK(xport_ep_close(ep, h_ms(h->limit_ms)));
	ep = h_connect(h, address);
	h_hear_u64(h, 0);
	h_fill(buf, LEN, 2);
	H_DONE(h_send(h, ep, buf, LEN, TAG));
	H_DONE(h_send(h, ep, buf, LEN, LISTED));
	for (int i = 0; i < 2; i++)
		H_DONE(h_send(h, ep, buf, 8, LATER));
	H_DONE(h_flush(h, ep));
	h_tell_u64(h, 0, 1);
	while (true)
		h_breathe(h);
}

/* One that stays is dropped when the instance closes. */
static void leaves_receives(struct h *h)
{
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_PEER | XPORT_MULTI, .value = LINE};
	uint8_t *buf = h_buf(h, 3 * LEN);

	h_mesh(h, NULL);
	o.source = h->ep[1 - h->role];
	H_OK(xport_recv(h->x, buf, LEN, TAG, UINT64_MAX, &o));
	recvv_peer(h, o.source, buf + LEN);
	h_sync(h);
}

/* ---- another instance at the address ---- */

/* Another instance answers at the address: the first one is gone. */
static void finds_another(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	char address[80];
	struct h_op *op;
	uint64_t peer;

	h_open(h, NULL);
	h_hear(h, 1, address, sizeof(address));
	h->ep[1] = h_connect(h, address);
	peer = xport_ep_peer(h->ep[1]);
	op = recv_peer(h, h->ep[1], buf, 0);
	h_tell_u64(h, 1, 1);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	xport_ep_destroy(h->ep[1]);
	h_hear_u64(h, 1);
	h_run_for(h, 20);
	H_CHECK(!op->done, "it ended with its endpoint");
	h->ep[1] = h_connect(h, address);
	H_DONE_AS(XPORT_ERR_PEER_LOST, op);
	H_TRUE(op->c.peer == peer && peer != xport_ep_peer(h->ep[1]));
	h_sync(h);
}

static void is_another(struct h *h)
{
	char address[80];

	h_open(h, NULL);
	h_listen(h);
	memcpy(address, h->address, sizeof(address));
	h_tell(h, 0, address, sizeof(address));
	h_accept(h);
	h_hear_u64(h, 0);
	xport_close(h->x);
	h_forget(h);
	h_open(h, NULL);
	H_OK(xport_listen(h->x, address, NULL, &h->listener));
	h_tell_u64(h, 0, 1);
	h_accept(h);
	h_sync(h);
}

/* Another instance answers at the address while an endpoint to the first one is open: that one is gone when this has ended. */
static void finds_a_second(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	xport_ep *first, *second;
	char address[80];
	struct h_op *op;

	h_open(h, NULL);
	h_hear(h, 1, address, sizeof(address));
	first = h_connect(h, address);
	op = recv_peer(h, first, buf, UINT64_MAX);
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	second = h_connect(h, address);
	H_TRUE(xport_ep_peer(first) != xport_ep_peer(second));
	h_run_for(h, 20);
	H_CHECK(!op->done, "it ended although an endpoint to its peer is open");
	h_tell_u64(h, 1, 1);
	H_DONE(op);
	H_TRUE(op->c.ep == first && op->c.peer == xport_ep_peer(first));
	op = recv_peer(h, first, buf, UINT64_MAX);
	h_tell_u64(h, 1, 1);
	H_DONE_AS(XPORT_ERR_PEER_LOST, op);
	H_EVENT(XPORT_EVENT_CLOSED);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static void makes_a_second(struct h *h)
{
	struct xport_attr a = h_attr(h);
	uint8_t *buf = h_buf(h, 8);
	xport_listener *listener;
	xport_ep *ep = NULL;
	char address[80];
	xport *second;

	h_open(h, NULL);
	h_listen(h);
	memcpy(address, h->address, sizeof(address));
	h_tell(h, 0, address, sizeof(address));
	h->ep[0] = h_accept(h);
	h_hear_u64(h, 0);
	xport_listener_close(h->listener);
	h->listener = NULL;
	H_OK(xport_open(&a, &second));
	H_OK(xport_listen(second, address, NULL, &listener));
	h_tell_u64(h, 0, 1);
	while (!h_heard(h, 0)) {
		H_TRUE(xport_poll(second, NULL, 0) >= 0);
		if (ep == NULL && xport_accept(listener, 0, &ep) != XPORT_OK)
			ep = NULL;
		h_breathe(h);
	}
	h_hear_u64(h, 0);
	H_DONE(h_send(h, h->ep[0], buf, 8, TAG));
	h_hear_u64(h, 0);
	H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	h_hear_u64(h, 0);
	xport_close(second);
	h_sync(h);
}

/* Waits, without progress, until the process of the role has ended. */
static void await_exit(struct h *h, int role)
{
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, h_pid(h, role), 0), .events = POLLIN};

	H_TRUE(p.fd >= 0 || errno == ESRCH);
	if (p.fd < 0)
		return;
	H_TRUE(poll(&p, 1, h_ms(h->limit_ms)) == 1);
	close(p.fd);
}

/* One of two endpoints has ended, and then the process: what it had sent by the other one comes first. */
static void outlives_process(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	struct xport_completion c;
	int done = 0, taken = 0;
	bool ended = false;
	xport_ep *ep[2];

	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	for (int i = 0; i < 2; i++)
		ep[i] = h_accept(h);
	for (int i = 0; i < MESSAGES; i++) {
		struct xport_opt o = {.size = sizeof(o), .flags = XPORT_PEER, .source = ep[0]};

		H_OK(xport_recv(h->x, buf, LEN, TAG, UINT64_MAX, &o));
	}
	h_tell_u64(h, 1, 1);
	H_TRUE(H_EVENT(XPORT_EVENT_CLOSED).ep == ep[0]);
	h_tell_u64(h, 1, 1);
	await_exit(h, 1);
	while (done < MESSAGES || !ended) {
		int got = xport_wait(h->x, &c, 1, h_ms(h->limit_ms));

		H_CHECK(got == 1, "xport_wait gave %d after %d receives", got, done);
		if (c.type != XPORT_OP_RECV) {
			H_TRUE((c.type == XPORT_EVENT_CLOSED || c.type == XPORT_EVENT_LOST) && c.ep == ep[1]);
			ended = true;
			continue;
		}
		H_EQ(ended ? XPORT_ERR_PEER_LOST : XPORT_OK, c.status);
		taken += c.status == XPORT_OK;
		done++;
	}
	h_record(h, "messages", (uint64_t)taken);
}

static void leaves_messages(struct h *h)
{
	uint8_t *buf = h_buf(h, 8);
	xport_ep *ep[2];
	char address[80];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	for (int i = 0; i < 2; i++)
		ep[i] = h_connect(h, address);
	h_hear_u64(h, 0);
	H_OK(xport_ep_close(ep[0], h_ms(h->limit_ms)));
	h_hear_u64(h, 0);
	for (int i = 0; i < MESSAGES / 2; i++)
		H_OK(xport_send(ep[1], buf, 8, TAG, NULL));
	(void)!xport_ep_close(ep[1], 20); /* nobody answers; it is on its way */
	h_exit(h, false);
}

/* ---- descriptors closed by the application ---- */

enum { WATCHED = 8 };

/* The descriptors of this process that watch processes. Returns how many. */
static int watched(struct h *h, int *list)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	char to[64];
	int n = 0;

	H_TRUE(dir != NULL);
	while ((e = readdir(dir)) != NULL) {
		ssize_t len = readlinkat(dirfd(dir), e->d_name, to, sizeof(to) - 1);

		to[len > 0 ? len : 0] = '\0';
		if (strstr(to, "pidfd") != NULL && n < WATCHED)
			list[n++] = atoi(e->d_name);
	}
	closedir(dir);
	return n;
}

/* What the application has opened since at the same number stays open. */
static void closes_watch(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	struct xport_completion c = {0};
	int list[WATCHED], n, null;

	h_open(h, NULL);
	if (h->info.stack_threads > 0 || strcmp(h->info.backend, "ucx") == 0)
		h_skip(h, "threads of the stack do not bear closed descriptors");
	h_pair(h, 1);
	xport_listener_close(h->listener);
	h->listener = NULL;
	recv_peer(h, h->ep[1], buf, UINT64_MAX);
	h_sync(h);
	H_EVENT(XPORT_EVENT_CLOSED);
	n = watched(h, list);
	H_CHECK(n > 0, "no descriptor of the peer's process");
	H_TRUE(close_range(3, ~0U, 0) == 0);
	null = open("/dev/null", O_RDONLY);
	for (int i = 0; i < n; i++)
		H_TRUE(list[i] == null || dup2(null, list[i]) == list[i]);
	for (int64_t end = h_now_us() + h_ms(h->limit_ms) * INT64_C(1000); c.type != XPORT_OP_RECV;) {
		H_CHECK(h_now_us() < end, "the receive does not end");
		if (xport_poll(h->x, &c, 1) != 1)
			usleep(1000);
	}
	H_EQ(XPORT_ERR_PEER_LOST, c.status);
	for (int i = 0; i < n; i++)
		H_CHECK(fcntl(list[i], F_GETFD) >= 0, "the library closed descriptor %d", list[i]);
	h_exit(h, false);
}

static void closes_first(struct h *h)
{
	h_open(h, NULL);
	if (h->info.stack_threads > 0 || strcmp(h->info.backend, "ucx") == 0)
		h_skip(h, "threads of the stack do not bear closed descriptors");
	h_pair(h, 0);
	h_sync(h);
	H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
}

const struct h_scenario cases_peer[] = {
	{.name = "P5_receives_for_a_peer", .role = {receives_from_peer, comes_again}, .flags = H_KILLS},
	{.name = "P5_receives_for_a_peer_many", .role = {many_from_peer, sends_to_many}, .flags = H_KILLS},
	{.name = "P5_receives_for_a_peer_left", .role = {leaves_receives, leaves_receives}, .flags = H_ONCE},
	{.name = "P5_receives_for_a_peer_replaced", .role = {finds_another, is_another}, .flags = H_ONCE},
	{.name = "P5_receives_for_a_peer_second", .role = {finds_a_second, makes_a_second}, .flags = H_ONCE},
	{.name = "P5_receives_for_a_peer_messages_first",
         .role = {outlives_process, leaves_messages},
         .flags = H_KILLS},
	{.name = "P12_descriptors_closed_watched", .role = {closes_watch, closes_first}, .flags = H_KILLS | H_ONCE},
	{.name = NULL},
};
