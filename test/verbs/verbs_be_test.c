/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_be_test.c - the verbs back end alone, on a device of memory (fake.h): what no device does when it is asked to.
 * Each case prints "ok: NAME" or "FAILED: NAME" and why.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "fake.h"

extern const struct xpi_backend xpi_backend_verbs;
static const struct xpi_backend *const ops = &xpi_backend_verbs;

static int failures;

/* Says what is not so, and goes on: a case has ended badly if `failures` grew. */
static void wrong(int line, const char *what, const char *more)
{
	printf("line %d: %s: %s\n", line, what, more);
	failures++;
}

#define IS(cond) ((cond) ? (void)0 : wrong(__LINE__, #cond, err.text))

/* ---- a core of a few lines ---- */

struct xpi_core {
	unsigned frames, done, failed;
	size_t last_len;
	uint8_t last;
	struct xpi_req *last_done;
	char why[128];
};

struct xpi_core_ep {
	int unused;
};

static void am_recv(struct xpi_core *c, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	(void)data;
	c->frames++;
	c->last_len = hlen + dlen;
	c->last = *(const uint8_t *)hdr;
}

static void done(struct xpi_core *c, struct xpi_req *req, int status)
{
	c->done += status == XPORT_OK;
	c->last_done = req;
}

static void ep_failed(struct xpi_core *c, struct xpi_core_ep *ep, int64_t code, const char *why)
{
	(void)ep;
	(void)code;
	c->failed++;
	snprintf(c->why, sizeof(c->why), "%s", why);
}

static const struct xpi_core_ops up = {am_recv, done, ep_failed};
static struct xpi_core core;
static struct xpi_core_ep core_ep;
static struct xport_error err = {.size = sizeof(err)};
static struct xpi_log quiet = {.level = -1, .fd = -1};
static struct xpi_be *be;
static struct xpi_be_caps caps;
static struct vrb_ep ep;
static uint8_t address[2048];
static size_t address_len;

static int open_be(const char *provider)
{
	struct xpi_be_open_args args = {
		.provider = provider, .core = &core, .up = &up, .log = &quiet, .err = &err, .peer_timeout_ms = 5000};
	int rc = ops->open(&args, &be);

	if (rc == XPORT_OK)
		ops->query(be, &caps);
	return rc;
}

/* The endpoint's own address serves as the peer's: they differ in nothing that is looked at. */
static void prepare(void)
{
	address_len = sizeof(address);
	IS(ops->address(be, &ep, &core_ep, address, &address_len) == XPORT_OK);
}

static int connect_step(enum xpi_role role)
{
	ops->poll(be);
	return ops->ep_connect(be, &ep, role, address, address_len);
}

static void make_call(const uint8_t *cookie)
{
	uint8_t data[4 + VRB_COOKIE];

	memcpy(data, VRB_MAGIC, 4);
	memcpy(data + 4, cookie, VRB_COOKIE);
	fake_call(data, sizeof(data));
}

/* An endpoint that was called and is up. */
static void be_up(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_AGAIN);
	make_call(ep.cookie);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_AGAIN && ep.state == VRB_ACCEPTING);
	fake_received(NULL, 0, IBV_WC_SUCCESS);
	IS(connect_step(XPI_PASSIVE) == XPORT_OK);
	IS(fake.nsent == 1 && fake.lengths[0] == 0);
	fake_sent(0, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(ep.room == VRB_SQ);
}

static void end(void)
{
	int rc = XPORT_ERR_AGAIN;

	for (int i = 0; i < 10000000 && rc != XPORT_OK; i++) {
		ops->poll(be);
		rc = ops->ep_quiesce(be, &ep);
	}
	IS(rc == XPORT_OK);
	ops->ep_destroy(be, &ep);
	ops->close(be);
	IS(fake_left() == 0);
}

static int send_frame(const void *buf, size_t len)
{
	struct xpi_req req;

	return ops->am_send(be, &ep, buf, len, &req);
}

/* ---- opening ---- */

static struct xport_candidate seen;

static void see(void *arg, const struct xport_candidate *c)
{
	(*(int *)arg)++;
	seen = *c;
}

static int list(void)
{
	int n = 0;

	IS(ops->list(&quiet, see, &n) == XPORT_OK && fake_left() == 0);
	return n;
}

static void t_open_and_close(void)
{
	IS(list() == 1 && seen.state == XPORT_READY && strcmp(seen.name, "verbs:fake0") == 0);
	IS(open_be(NULL) == XPORT_OK && strcmp(caps.provider, "fake0") == 0);
	IS(strcmp(caps.protocol, "verbs-am 1 / RoCE") == 0);
	ops->close(be);
	IS(fake_left() == 0);
}

static void t_no_device(void)
{
	fake.no_device = true;
	IS(list() == 1 && seen.state == XPORT_ABSENT && seen.reason[0] != '\0' && seen.hint[0] != '\0');
	IS(open_be(NULL) == XPORT_ERR_NO_BACKEND && err.hint[0] != '\0');
}

static void t_port_down(void)
{
	fake.port = IBV_PORT_DOWN;
	IS(list() == 1 && seen.state == XPORT_MISCONFIGURED && strstr(seen.reason, "PORT_DOWN") != NULL);
	IS(open_be("fake0") == XPORT_ERR_NO_BACKEND && strstr(err.text, "PORT_DOWN") != NULL);
}

static void t_no_address(void)
{
	fake.no_address = true;
	IS(list() == 1 && seen.state == XPORT_MISCONFIGURED && strstr(seen.reason, "no IP address") != NULL);
}

static void t_no_rdma_cm(void)
{
	fake.no_rdma_cm = true;
	IS(list() == 1 && seen.state == XPORT_MISCONFIGURED && strstr(seen.reason, "rdma_cm") != NULL);
}

static void t_unknown_name(void)
{
	IS(open_be("fake1") == XPORT_ERR_NO_BACKEND);
	IS(strstr(err.text, "there are fake0") != NULL && strstr(err.text, "nearest is verbs:fake0") != NULL);
}

static void t_locked_memory(void)
{
	struct rlimit old, low = {.rlim_cur = 64 << 10};

	getrlimit(RLIMIT_MEMLOCK, &old);
	low.rlim_max = old.rlim_max;
	IS(setrlimit(RLIMIT_MEMLOCK, &low) == 0);
	fake.reg_fails = ENOMEM;
	IS(open_be("fake0") == XPORT_ERR_NO_MEMORY && fake_left() == 0);
	IS(strstr(err.text, "64 KiB") != NULL && strstr(err.hint, "ulimit -l") != NULL);
	IS(list() == 1 && seen.state == XPORT_MISCONFIGURED && strstr(seen.reason, "64 KiB") != NULL);
	setrlimit(RLIMIT_MEMLOCK, &old);
}

static void t_every_part_may_fail(void)
{
	int *const parts[] = {&fake.reg_fails, &fake.qp_fails, &fake.cq_fails, &fake.listen_fails};

	for (size_t i = 0; i < 4; i++) {
		*parts[i] = ENOMEM;
		IS(open_be("fake0") < 0 && fake_left() == 0);
		*parts[i] = 0;
	}
}

static void t_inline_is_found(void)
{
	IS(open_be("fake0") == XPORT_OK && be->inline_max == 80);
	ops->close(be);
	fake.inline_max = 0;
	IS(open_be("fake0") == XPORT_OK && be->inline_max == 0);
	ops->close(be);
}

/* ---- connecting ---- */

static void t_called(void)
{
	be_up();
	IS(fake.rnr_timer != 0 && fake.timeout == 17); /* 8 * 0.54 s: within the peer timeout of 5 s */
	IS(fake.nreceives >= 2 * VRB_CREDITS + 8);
	end();
}

static void t_calling(void)
{
	int n = 0;

	IS(open_be("fake0") == XPORT_OK);
	prepare();
	while (connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN && fake.nsent == 0 && n < 10)
		n++;
	IS(fake.nsent == 1 && fake.lengths[0] == 0 && connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	fake_received(NULL, 0, IBV_WC_SUCCESS);
	IS(connect_step(XPI_ACTIVE) == XPORT_OK);
	end();
}

static void t_strangers_are_rejected(void)
{
	uint8_t cookie[VRB_COOKIE] = {1};
	int before;

	IS(open_be("fake0") == XPORT_OK);
	prepare();
	before = fake.ids;
	make_call(cookie);
	fake_call(NULL, 0);
	fake_call("xpv1", 4);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_AGAIN && fake.nrejected == 3 && fake.ids == before);
	make_call(ep.cookie);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_AGAIN && ep.state == VRB_ACCEPTING);
	make_call(ep.cookie); /* by now it is taken */
	ops->poll(be);
	IS(fake.nrejected == 4);
	end();
}

/* The passive side calls, although it is to be called. */
static void t_called_by_the_wrong_side(void)
{
	int n = 0;

	IS(open_be("fake0") == XPORT_OK);
	prepare();
	make_call(ep.cookie);
	ops->poll(be);
	while (connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN && fake.nsent == 0 && n < 10)
		n++;
	IS(fake.nsent == 1 && fake.nrejected == 1);
	end();
}

static void t_other_transport(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	address[1] = VRB_IWARP;
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_INCOMPATIBLE);
	IS(strstr(err.text, "RoCE") != NULL && strstr(err.text, "iWARP") != NULL);
	end();
}

static void t_malformed_address(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	for (size_t n = 0; n < address_len; n++)
		IS(ops->ep_connect(be, &ep, XPI_ACTIVE, address, n) == XPORT_ERR_PROTOCOL);
	IS(ops->ep_connect(be, &ep, XPI_ACTIVE, address, address_len + 1) == XPORT_ERR_PROTOCOL);
	end();
}

static void t_connecting_fails(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	fake_event(RDMA_CM_EVENT_REJECTED, ep.id, 28, NULL, 0);
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_UNREACHABLE && strstr(err.text, "RDMA_CM_EVENT_REJECTED") != NULL);
	IS(core.failed == 0);
	end();
}

static void t_reached_by_another_device(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	fake.elsewhere = true;
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_UNREACHABLE && strstr(err.text, "is reached by fake1") != NULL);
	IS(core.failed == 0);
	end();
}

static void t_no_queue_pair(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	fake.qp_fails = ENOMEM;
	make_call(ep.cookie);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_NO_MEMORY);
	end();
}

/* ---- frames ---- */

static void t_frames_come(void)
{
	uint8_t frame[300];

	be_up();
	for (unsigned i = 0; i < 500; i++) {
		frame[0] = (uint8_t)i;
		fake_received(frame, 1 + i % 300, IBV_WC_SUCCESS);
		ops->poll(be);
		IS(core.frames == i + 1 && core.last == (uint8_t)i && core.last_len == 1 + i % 300);
		IS(fake.nreceives >= 2 * VRB_CREDITS + 8);
	}
	end();
}

/* Sends until it is full; what was signalled must be enough to go on. */
static void t_full_and_free_again(void)
{
	static uint8_t frame[VRB_FRAME_MAX];
	static const size_t sizes[] = {16, 81, 5000, VRB_FRAME_MAX};
	unsigned from, n;

	be_up();
	for (unsigned round = 0; round < 200; round++) {
		from = fake.nsent;
		n = 0;
		while (send_frame(frame, sizes[round % 4]) == XPORT_OK)
			n++;
		IS(send_frame(frame, sizes[round % 4]) == XPORT_ERR_AGAIN && n > 0 && n <= VRB_SQ);
		IS(n * sizes[round % 4] <= VRB_RING || sizes[round % 4] <= be->inline_max);
		for (unsigned i = from; i < fake.nsent; i++)
			if (fake.sent[i % FAKE_QUEUE].send_flags & IBV_SEND_SIGNALED)
				fake_sent(i, IBV_WC_SUCCESS);
		IS(fake.wc_head != fake.wc_tail);
		ops->poll(be);
	}
	end();
}

/* siw must copy what lies in the ring, which it does of what is signalled. */
static void t_long_frames_of_siw(void)
{
	static uint8_t frame[VRB_FRAME_MAX];
	static const size_t sizes[] = {16, 4095, 4096, VRB_FRAME_MAX};
	bool signalled;

	for (int siw = 0; siw < 2; siw++) {
		fake.vendor = siw ? 0x626d74 : 0;
		be_up();
		for (int i = 0; i < 4; i++) {
			IS(send_frame(frame, sizes[i]) == XPORT_OK);
			signalled = (fake.sent[fake.nsent - 1].send_flags & IBV_SEND_SIGNALED) != 0;
			IS(signalled == (siw && sizes[i] >= 4096));
		}
		end();
		fake_reset();
	}
}

static void t_frame_in_two_pieces(void)
{
	static const uint8_t hdr[20] = {1}, data[100] = {2};

	be_up();
	IS(ops->am_send_two(be, &ep, hdr, sizeof(hdr), data, 8, NULL) == XPORT_OK);
	IS(fake.sent[1].send_flags & IBV_SEND_INLINE && fake.lengths[1] == 28 && fake.bytes[1][20] == 2);
	IS(ops->am_send_two(be, &ep, hdr, sizeof(hdr), data, sizeof(data), NULL) == XPORT_OK);
	IS(!(fake.sent[2].send_flags & IBV_SEND_INLINE) && fake.lengths[2] == 120 && fake.bytes[2][20] == 2);
	end();
}

/* The stack's own queue is full: nothing was taken, and later it is. */
static void t_stack_is_full(void)
{
	uint8_t frame[200] = {0};

	be_up();
	IS(send_frame(frame, 8) == XPORT_OK); /* with nothing under way it would never be free again */
	for (int sign = -1; sign <= 1; sign += 2) {
		uint32_t head = ep.ring_head;

		fake.post_send_fails = sign * ENOMEM;
		IS(send_frame(frame, 8) == XPORT_ERR_AGAIN && send_frame(frame, 200) == XPORT_ERR_AGAIN);
		IS(ep.ring_head == head);
		fake.post_send_fails = 0;
		IS(send_frame(frame, 200) == XPORT_OK);
	}
	IS(core.failed == 0);
	end();
}

static void t_stack_refuses(void)
{
	uint8_t frame[8] = {0};

	be_up();
	fake.post_send_fails = -EINVAL;
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST && core.failed == 0);
	fake.post_send_fails = 0;
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST);
	end();
}

static void t_receives_cannot_be_posted(void)
{
	uint8_t frame[8] = {0};

	be_up();
	fake.post_recv_fails = ENOMEM;
	for (int i = 0; i < VRB_REPOST; i++)
		fake_received(frame, 8, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.frames == VRB_REPOST && core.failed == 1);
	end();
}

/* ---- put and get ---- */

static uint8_t memory[1 << 16];
static struct vrb_mr mr;
static struct vrb_rkey key;

static void share(void)
{
	uint8_t packed[VRB_KEY];
	size_t len = sizeof(packed);
	void *direct;

	IS(ops->mr_reg(be, &mr, memory, sizeof(memory), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE) == XPORT_OK);
	IS(ops->rkey_pack(be, &mr, packed, &len) == XPORT_OK && len <= caps.rkey_native_max);
	for (size_t n = 0; n < len; n++)
		IS(ops->rkey_unpack(be, &ep, &key, packed, n, &direct) == XPORT_ERR_BAD_KEY);
	IS(ops->rkey_unpack(be, &ep, &key, packed, len, &direct) == XPORT_OK && direct == NULL);
}

static void t_put_and_get(void)
{
	struct xpi_req req[3];

	be_up();
	share();
	IS(ops->put(be, &ep, memory, 8, NULL, &key, 24, &req[0]) == XPORT_OK);
	IS(fake.sent[1].opcode == IBV_WR_RDMA_WRITE && fake.sent[1].wr.rdma.remote_addr == (uintptr_t)memory + 24);
	IS(ops->put(be, &ep, memory, 1000, NULL, &key, 0, &req[0]) == XPORT_OK);
	IS(ops->put(be, &ep, memory, 4096, NULL, &key, 0, &req[0]) == XPORT_ERR_NOT_SUPPORTED);
	IS(ops->get(be, &ep, memory, 8, NULL, &key, 0, &req[0]) == XPORT_ERR_NOT_SUPPORTED);
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, &req[0]) == XPI_PENDING);
	IS(ops->get(be, &ep, memory, 4096, &mr, &key, 0, &req[1]) == XPI_PENDING);
	fake_sent(fake.nsent - 2, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.done == 1 && core.last_done == &req[0]);
	fake_sent(fake.nsent - 1, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.done == 2 && core.last_done == &req[1]);
	ops->mr_dereg(be, &mr);
	end();
}

/* siw may answer a short READ with the bytes of another process, so that such a get is the core's. */
static void t_short_gets(void)
{
	struct xpi_req req[2];

	fake.vendor = 0x626d74;
	be_up();
	share();
	IS(!caps.passive_target);
	IS(ops->get(be, &ep, memory, 63, &mr, &key, 0, &req[0]) == XPORT_ERR_NOT_SUPPORTED);
	IS(ops->get(be, &ep, memory, 64, &mr, &key, 0, &req[0]) == XPI_PENDING);
	ops->mr_dereg(be, &mr);
	end();
	fake_reset();
	be_up();
	share();
	IS(caps.passive_target && ops->get(be, &ep, memory, 1, &mr, &key, 0, &req[1]) == XPI_PENDING);
	ops->mr_dereg(be, &mr);
	end();
}

/* siw completes what is behind a READ before the READ. */
static void t_completions_out_of_order(void)
{
	struct xpi_req req[VRB_READS];
	unsigned first;

	be_up();
	share();
	first = fake.nsent;
	for (int i = 0; i < VRB_READS; i++)
		IS(ops->get(be, &ep, memory, 4096, &mr, &key, 0, &req[i]) == XPI_PENDING);
	IS(ops->get(be, &ep, memory, 4096, &mr, &key, 0, &req[0]) == XPORT_ERR_AGAIN);
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, &req[0]) == XPI_PENDING);
	fake_sent(fake.nsent - 1, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.done == 1 && ep.sq_head != ep.sq_tail);
	for (unsigned i = VRB_READS; i-- > 0;) {
		fake_sent(first + i, IBV_WC_SUCCESS);
		ops->poll(be);
		IS(core.done == 1 + VRB_READS - i && core.last_done == &req[i]);
	}
	IS(ep.sq_head == ep.sq_tail && ep.gets == 0 && ep.room == VRB_SQ);
	ops->mr_dereg(be, &mr);
	end();
}

static void t_region_too_long(void)
{
	uint8_t packed[VRB_KEY];
	size_t len = sizeof(packed);

	be_up();
	be->attr.max_mr_size = 4096;
	IS(ops->mr_reg(be, &mr, memory, sizeof(memory), XPORT_REMOTE_READ) == XPORT_OK);
	IS(ops->rkey_pack(be, &mr, packed, &len) == XPORT_OK && len == 0);
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, NULL) == XPORT_ERR_NOT_SUPPORTED);
	ops->mr_dereg(be, &mr);
	end();
}

/* ---- failure ---- */

/* One hint, no completion of what waits, and nothing more is taken. */
static void is_broken(const char *why)
{
	uint8_t frame[8] = {0};

	ops->poll(be);
	ops->poll(be);
	IS(core.failed == 1 && core.done == 0 && strstr(core.why, why) != NULL);
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST);
	IS(ops->put(be, &ep, memory, 8, NULL, &key, 0, NULL) == XPORT_ERR_PEER_LOST);
}

static void t_receiver_not_ready(void)
{
	struct xpi_req req[2];

	be_up();
	share();
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, &req[0]) == XPI_PENDING);
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, &req[1]) == XPI_PENDING);
	fake_sent(fake.nsent - 2, IBV_WC_RNR_RETRY_EXC_ERR);
	fake_sent(fake.nsent - 1, IBV_WC_WR_FLUSH_ERR);
	fake_flush();
	is_broken("RNR");
	ops->mr_dereg(be, &mr);
	end();
	IS(core.done == 0);
}

static void device_says(enum ibv_event_type type, void *element, const char *why)
{
	be_up();
	fake_async(type, element != NULL ? element : fake.qp);
	be->quiet = 1000;
	is_broken(why);
	IS(fake.nacked == 1);
	end();
}

static void t_queue_pair_fatal(void)
{
	device_says(IBV_EVENT_QP_FATAL, NULL, "an event");
}

static void t_completion_queue_overrun(void)
{
	device_says(IBV_EVENT_CQ_ERR, NULL, "CQ error");
}

static void t_device_fatal(void)
{
	device_says(IBV_EVENT_DEVICE_FATAL, NULL, "an event");
}

static void t_port_goes_down(void)
{
	device_says(IBV_EVENT_PORT_ERR, (void *)1, "the port went down");
}

static void t_another_port_goes_down(void)
{
	be_up();
	fake_async(IBV_EVENT_PORT_ERR, (void *)2);
	be->quiet = 1000;
	ops->poll(be);
	IS(core.failed == 0 && fake.nacked == 1);
	end();
}

static void t_device_removed(void)
{
	be_up();
	fake_event(RDMA_CM_EVENT_DEVICE_REMOVAL, fake.listener, 0, NULL, 0);
	be->quiet = 1000;
	is_broken("removed");
	end();
}

static void t_peer_disconnects(void)
{
	uint8_t frame[8] = {7};

	be_up();
	/* What it sent before is not lost. */
	fake_event(RDMA_CM_EVENT_DISCONNECTED, ep.id, 0, NULL, 0);
	fake_received(frame, 8, IBV_WC_SUCCESS);
	be->quiet = 1000;
	ops->poll(be);
	IS(core.frames == 1 && core.failed == 0);
	be->quiet = 1000;
	is_broken("closed");
	end();
}

/* ---- ending, waiting ---- */

/* It does not drain: after a while the queue pair is destroyed, and what comes afterwards is of nobody. */
static void t_does_not_drain(void)
{
	struct xpi_req req;
	struct vrb_ep *slot;

	be_up();
	share();
	fake.stop_fails = true;
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, &req) == XPI_PENDING);
	IS(ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN);
	while (ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN)
		ops->poll(be);
	IS(fake.qps == 0);
	slot = be->table[0];
	IS(slot == NULL);
	fake_sent(fake.nsent - 1, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.done == 0);
	ops->ep_destroy(be, &ep);
	prepare(); /* in the same place of the table */
	fake_sent(fake.nsent - 1, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.done == 0);
	ops->mr_dereg(be, &mr);
	end();
}

static void t_arm(void)
{
	uint8_t frame[8] = {7};

	be_up();
	IS(ops->arm(be) == XPORT_OK);
	fake_received(frame, 8, IBV_WC_SUCCESS);
	IS(ops->arm(be) == XPORT_ERR_AGAIN && core.frames == 0);
	IS(ops->poll(be) == 1 && core.frames == 1);
	IS(ops->arm(be) == XPORT_OK);
	end();
}

/* ---- all ---- */

struct test {
	const char *name;
	void (*run)(void);
};

/* clang-format off */
#define T(name) {#name, t_##name}
/* clang-format on */

static const struct test tests[] = {
	T(open_and_close),
	T(no_device),
	T(port_down),
	T(no_address),
	T(no_rdma_cm),
	T(unknown_name),
	T(locked_memory),
	T(every_part_may_fail),
	T(inline_is_found),
	T(called),
	T(calling),
	T(strangers_are_rejected),
	T(called_by_the_wrong_side),
	T(other_transport),
	T(malformed_address),
	T(connecting_fails),
	T(reached_by_another_device),
	T(no_queue_pair),
	T(frames_come),
	T(full_and_free_again),
	T(long_frames_of_siw),
	T(frame_in_two_pieces),
	T(stack_is_full),
	T(stack_refuses),
	T(receives_cannot_be_posted),
	T(put_and_get),
	T(short_gets),
	T(completions_out_of_order),
	T(region_too_long),
	T(receiver_not_ready),
	T(queue_pair_fatal),
	T(completion_queue_overrun),
	T(device_fatal),
	T(port_goes_down),
	T(another_port_goes_down),
	T(device_removed),
	T(peer_disconnects),
	T(does_not_drain),
	T(arm),
};

int main(void)
{
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		int before = failures;

		fake_reset();
		memset(&core, 0, sizeof(core));
		memset(&err, 0, sizeof(err));
		err.size = sizeof(err);
		tests[i].run();
		printf("%s: %s\n", failures == before ? "ok" : "FAILED", tests[i].name);
	}
	return failures != 0;
}
