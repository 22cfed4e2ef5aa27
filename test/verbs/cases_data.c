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

/* siw may answer a short READ with the bytes of another process, so that such a get is the core's. */
void t_short_gets(void)
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

void t_region_too_long(void)
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
