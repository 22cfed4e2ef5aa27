/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_data.c - frames, put and get. */
#include "case.h"

#include <errno.h>

/* ---- frames ---- */

void t_frames_come(void)
{
	uint8_t frame[300];

	be_up();
	for (unsigned i = 0; i < 500; i++) {
		frame[0] = (uint8_t)i;
		fake_received(frame, 1 + i % 300, IBV_WC_SUCCESS);
		ops->poll(be);
		IS(core.frames == i + 1 && core.last == (uint8_t)i && core.last_len == 1 + i % 300);
		IS(core.from == &core_ep);
		IS(fake.nreceives >= 2 * VRB_CREDITS + 8);
	}
	end();
}

/* Sends until it is full; what was signalled must be enough to go on. */
void t_full_and_free_again(void)
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
void t_long_frames_of_siw(void)
{
	static uint8_t frame[VRB_FRAME_MAX];
	static const size_t sizes[] = {16, 4095, 4096, VRB_FRAME_MAX};
	bool signalled;

	for (int siw = 0; siw < 2; siw++) {
		fake.vendor = siw ? FAKE_SIW : 0;
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

void t_frame_in_two_pieces(void)
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
void t_stack_is_full(void)
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

void t_stack_refuses(void)
{
	uint8_t frame[8] = {0};

	be_up();
	fake.post_send_fails = -EINVAL;
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST && core.failed == 0);
	fake.post_send_fails = 0;
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST);
	end();
}

void t_receives_cannot_be_posted(void)
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

/* Each is posted once, or two frames would land in one place. */
void t_receives_half_posted(void)
{
	uint8_t frame[8] = {0};
	uint32_t posted;
	unsigned n;

	be_up();
	posted = ep.rx_posted;
	n = fake.nreceives;
	fake.post_recv_fails = ENOMEM;
	fake.post_recv_after = 3;
	for (int i = 0; i < VRB_REPOST; i++)
		fake_received(frame, 8, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.failed == 1 && ep.rx_posted == posted - VRB_REPOST + 3 && fake.nreceives == n - VRB_REPOST + 3);
	fake.post_recv_fails = 0;
	for (int i = 0; i < VRB_REPOST; i++)
		fake_received(frame, 8, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(ep.rx_posted == fake.nreceives);
	for (unsigned i = 0; i < fake.nreceives; i++)
		for (unsigned k = 0; k < i; k++)
			IS(fake.places[(fake.receives_head + i) % FAKE_QUEUE] !=
			   fake.places[(fake.receives_head + k) % FAKE_QUEUE]);
	end();
}

/* ---- put and get ---- */

void t_put_and_get(void)
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

/* A READ of the page that the peer named, behind the puts that wait; no more of them than READs may be under way. */
void t_drain_reads_the_page(void)
{
	struct xpi_req req[VRB_READS + 1], put;
	unsigned n, i;

	be_up();
	share();
	IS(caps.drain_places && caps.passive_target && be->proof_mr != NULL);
	IS(ep.proof.base == (uintptr_t)be->proof && ep.proof.rkey == be->proof_mr->rkey); /* it is its own peer here */
	n = fake.nsent;
	IS(ops->put(be, &ep, memory, 8, NULL, &key, 0, NULL) == XPORT_OK);
	IS(ops->put(be, &ep, memory, 8, NULL, &key, 8, NULL) == XPORT_OK && fake.nsent == n + 1);
	IS(ops->drain(be, &ep, &req[0]) == XPI_PENDING && fake.nsent == n + 3);
	IS(fake.sent[n + 1].opcode == IBV_WR_RDMA_WRITE && fake.sent[n + 2].opcode == IBV_WR_RDMA_READ);
	IS(fake.sent[n + 2].wr.rdma.remote_addr == ep.proof.base && fake.sent[n + 2].wr.rdma.rkey == ep.proof.rkey);
	IS(fake.sent[n + 2].send_flags & IBV_SEND_SIGNALED);
	for (i = 1; ops->drain(be, &ep, &req[i]) == XPI_PENDING; i++)
		IS(i < VRB_READS);
	IS(i == ep.gets_max && ops->drain(be, &ep, &req[i]) == XPORT_ERR_AGAIN);
	fake_sent(n + 2, IBV_WC_SUCCESS);
	ops->poll(be);
	IS(core.done == 1 && core.last_done == &req[0]);
	fake.post_send_fails = -EINVAL;
	IS(ops->drain(be, &ep, &put) == XPORT_ERR_PEER_LOST);
	fake.post_send_fails = 0;
	ops->mr_dereg(be, &mr);
	end();
}

/* Short puts of 8 bytes, each with its number as its first byte and its place. */
static void put_numbered(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		memory[0] = (uint8_t)i;
		IS(ops->put(be, &ep, memory, 8, NULL, &key, i * 8, NULL) == XPORT_OK);
	}
	memory[0] = 0xff; /* the source is ours again */
}

/* Those that left, from the nth on, are numbers from .. to - 1, once each and in order. */
static void left_numbered(unsigned n, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++, n++)
		IS(fake.sent[n].opcode == IBV_WR_RDMA_WRITE && fake.bytes[n][0] == i &&
		   fake.sent[n].wr.rdma.remote_addr == (uintptr_t)memory + i * 8);
}

/* The first since a poll leaves at once; the others with the poll, when there are many, or with the next frame. */
void t_puts_share_a_doorbell(void)
{
	uint8_t frame[8] = {0};
	unsigned n, calls;

	be_up();
	share();
	n = fake.nsent;
	calls = fake.doorbells;
	put_numbered(0, 10);
	IS(fake.nsent == n + 1 && fake.doorbells == calls + 1);
	ops->poll(be);
	IS(fake.nsent == n + 10 && fake.doorbells == calls + 2);
	left_numbered(n, 0, 10);

	put_numbered(10, 14);
	IS(fake.nsent == n + 11);
	IS(send_frame(frame, 8) == XPORT_OK && fake.nsent == n + 15 && fake.doorbells == calls + 4);
	left_numbered(n + 10, 10, 14);
	IS(fake.sent[n + 14].opcode == IBV_WR_SEND);
	ops->poll(be);
	IS(fake.doorbells == calls + 4);

	put_numbered(15, 17);
	IS(fake.nsent == n + 16 && ops->arm(be) == XPORT_ERR_AGAIN); /* one waits: nobody may sleep on it */
	ops->poll(be);
	IS(fake.nsent == n + 17 && ops->arm(be) == XPORT_OK);
	ops->poll(be);
	put_numbered(17, 17 + 1 + VRB_BATCH + 1);
	IS(fake.nsent == n + 17 + 1 + VRB_BATCH);
	ops->poll(be);
	left_numbered(n + 17, 17, 17 + VRB_BATCH + 2);

	/* Longer than what lies in a request. */
	n = fake.nsent;
	for (unsigned i = 0; i < 3; i++) {
		memory[0] = (uint8_t)(100 + i);
		IS(ops->put(be, &ep, memory, VRB_BATCH_SHORT + 1, NULL, &key, 0, NULL) == XPORT_OK);
	}
	memory[0] = 0;
	IS(fake.nsent == n + 1);
	ops->poll(be);
	IS(fake.nsent == n + 3 && fake.bytes[n + 1][0] == 101 && fake.bytes[n + 2][0] == 102);
	ops->mr_dereg(be, &mr);
	end();
}

/* The stack takes some of them. */
void t_doorbell_half_answered(void)
{
	uint8_t frame[8] = {0};
	unsigned n;

	be_up();
	share();
	n = fake.nsent;
	put_numbered(0, 6);
	fake.post_send_fails = ENOMEM;
	fake.post_send_after = 2;
	ops->poll(be);
	IS(fake.nsent == n + 3 && core.failed == 0 && ops->arm(be) == XPORT_ERR_AGAIN);
	/* What comes then is not taken before those that wait. */
	IS(ops->put(be, &ep, memory, 8, NULL, &key, 0, NULL) == XPORT_ERR_AGAIN);
	IS(send_frame(frame, 8) == XPORT_ERR_AGAIN && fake.nsent == n + 3);
	fake.post_send_fails = 0;
	ops->poll(be);
	left_numbered(n, 0, 6);
	IS(fake.nsent == n + 6);

	put_numbered(6, 10);
	fake.post_send_fails = -ENOMEM;
	fake.post_send_after = 3;
	IS(send_frame(frame, 8) == XPORT_ERR_AGAIN && fake.nsent == n + 10);
	fake.post_send_fails = 0;
	IS(send_frame(frame, 8) == XPORT_OK && fake.nsent == n + 11);
	left_numbered(n + 6, 6, 10);

	ops->poll(be);
	put_numbered(11, 13);
	fake.post_send_fails = EINVAL;
	fake.post_send_after = 0;
	ops->poll(be);
	IS(core.failed == 1 && ops->put(be, &ep, memory, 8, NULL, &key, 0, NULL) == XPORT_ERR_PEER_LOST);
	fake.post_send_fails = 0;
	ops->mr_dereg(be, &mr);
	end();
}

/* As many as there can be wait when the stack takes only some of them, or says so by 0, as siw may. */
void t_batch_is_full(void)
{
	unsigned n, to = 1 + VRB_BATCH;

	be_up();
	share();
	n = fake.nsent;
	put_numbered(0, to);
	fake.post_send_fails = ENOMEM;
	for (unsigned taken = 0; taken < VRB_BATCH; taken += 5) {
		uint32_t head = ep.ring_head;

		fake.post_send_after = taken == 0 ? 0 : 5;
		IS(ops->put(be, &ep, memory, 8, NULL, &key, 0, NULL) == XPORT_ERR_AGAIN);
		fake.post_send_after = 0;
		IS(ops->put(be, &ep, memory, 1000, NULL, &key, 0, NULL) == XPORT_ERR_AGAIN && ep.ring_head == head);
		IS(fake.nsent == n + 1 + taken);
	}
	fake.post_send_zero = true;
	fake.post_send_after = 1;
	ops->poll(be);
	fake.post_send_zero = false;
	IS(core.failed == 0 && ep.waiting > 0);
	fake.post_send_fails = 0;
	ops->poll(be);
	IS(fake.nsent == n + to && ep.waiting == 0);
	left_numbered(n, 0, to);
	ops->mr_dereg(be, &mr);
	end();
}

/* The doorbell fails behind requests that were taken: nobody knows which left, and none may be posted again. */
void t_doorbell_fails(void)
{
	uint8_t frame[8] = {0};
	unsigned n;

	for (int with_frame = 0; with_frame < 2; with_frame++) {
		be_up();
		share();
		n = fake.nsent;
		put_numbered(0, 4);
		fake.doorbell_fails = with_frame ? -1 : EIO;
		if (with_frame)
			IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST && core.failed == 0);
		else
			IS(ops->poll(be) == 0 && core.failed == 1);
		n = fake.nsent;
		IS(ep.waiting == 0 && xpi_list_empty(&be->batched));
		ops->poll(be);
		IS(fake.nsent == n && send_frame(frame, 8) == XPORT_ERR_PEER_LOST);
		fake.doorbell_fails = 0;
		ops->mr_dereg(be, &mr);
		end();
		fake_reset();
		core.failed = 0;
	}
}

/* So does that of one alone, by what else says that there is no room now: the device has it, and it must not leave again. */
void t_doorbell_fails_for_memory(void)
{
	uint8_t frame[8] = {0};
	unsigned n;

	be_up();
	share();
	IS(send_frame(frame, 8) == XPORT_OK);
	n = fake.nsent;
	fake.doorbell_fails = ENOMEM;
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST && fake.nsent == n + 1);
	fake.doorbell_fails = 0;
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST && fake.nsent == n + 1);
	ops->mr_dereg(be, &mr);
	end();
}

/* One in the middle is refused for good, with a frame behind it. */
void t_batch_breaks(void)
{
	uint8_t frame[8] = {0};

	be_up();
	share();
	put_numbered(0, 6);
	fake.post_send_fails = EINVAL;
	fake.post_send_after = 2;
	IS(send_frame(frame, 8) == XPORT_ERR_PEER_LOST);
	IS(ops->put(be, &ep, memory, 8, NULL, &key, 0, NULL) == XPORT_ERR_PEER_LOST);
	ops->poll(be);
	IS(xpi_list_empty(&be->batched) && core.failed == 0); /* the answer to the frame has said it */
	fake.post_send_fails = 0;
	ops->mr_dereg(be, &mr);
	end();
}

/* The endpoint ends before they leave. */
void t_puts_that_never_leave(void)
{
	unsigned n;

	be_up();
	share();
	put_numbered(0, 5);
	n = fake.nsent;
	IS(ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN && xpi_list_empty(&be->batched));
	fake_sent(n - 1, IBV_WC_WR_FLUSH_ERR);
	fake_flush();
	ops->mr_dereg(be, &mr);
	end();
	IS(fake.nsent == n);
}

/* siw may answer a short READ with the bytes of another process, so that such a get is the core's. */
void t_short_gets(void)
{
	struct xpi_req req[2];

	fake.vendor = FAKE_SIW;
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
void t_completions_out_of_order(void)
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

/* Some pages of files are such. */
void t_region_that_no_adapter_has(void)
{
	uint8_t packed[VRB_KEY];
	size_t len = sizeof(packed);

	be_up();
	fake.reg_fails = EFAULT;
	IS(ops->mr_reg(be, &mr, memory, sizeof(memory), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE) == XPORT_OK);
	IS(ops->rkey_pack(be, NULL, &mr, packed, &len) == XPORT_OK && len == 0);
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, NULL) == XPORT_ERR_NOT_SUPPORTED);
	ops->mr_dereg(be, &mr);
	IS(ops->mr_reg(be, &mr, memory, sizeof(memory), XPORT_ATOMIC_NIC) == XPORT_ERR_NO_MEMORY);
	fake.reg_fails = ENOMEM;
	IS(ops->mr_reg(be, &mr, memory, sizeof(memory), XPORT_REMOTE_READ) == XPORT_ERR_NO_MEMORY);
	end();
}

void t_region_too_long(void)
{
	uint8_t packed[VRB_KEY];
	size_t len = sizeof(packed);

	be_up();
	be->attr.max_mr_size = 4096;
	IS(ops->mr_reg(be, &mr, memory, sizeof(memory), XPORT_REMOTE_READ) == XPORT_OK);
	IS(ops->rkey_pack(be, NULL, &mr, packed, &len) == XPORT_OK && len == 0);
	IS(ops->put(be, &ep, memory, 4096, &mr, &key, 0, NULL) == XPORT_ERR_NOT_SUPPORTED);
	ops->mr_dereg(be, &mr);
	end();
}
