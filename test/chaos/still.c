/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * still.c - an instance at which no more frames arrive, while all heartbeats continue.
 *
 * Role 0 stands still after its first frame. Both healthy peers lose it in time, it loses both, and the connection
 * between the two continues.
 */
#include <inttypes.h>

#include "chaos/sweep.h"

#include "conform/harness.h"
#include "conform/shared.h"

enum { ANSWERS = 5, TAG = 3, TIMEOUT_MS = 800 };

static void mesh(struct h *h)
{
	struct xport_attr a = h_attr(h);

	a.peer_timeout_ms = h_ms(TIMEOUT_MS);
	h_expect_log(h, "");
	h_mesh(h, &a);
	h_sync(h);
}

/* P5, with much time for a loaded machine: only while both sides poll and find nothing is time counted. */
static void in_time(struct h *h, int64_t since_us)
{
	int64_t us = h_now_us() - since_us;

	h_record(h, "lost_after_us", (uint64_t)us);
	H_CHECK(us < (int64_t)h_ms(10 * TIMEOUT_MS) * 1000, "lost after %" PRId64 " us", us);
}

static void silenced(struct h *h)
{
	uint64_t in[3][ANSWERS], out = 1;
	struct h_op *op[3][ANSWERS];
	int64_t since;

	setenv("XPORT_CHAOS", "seed=1,delay=0,late=0,again=0,still=1", 1);
	mesh(h);
	since = h_now_us();
	for (int p = 1; p < 3; p++) {
		for (int i = 0; i < ANSWERS; i++)
			op[p][i] = h_recv(h, h->ep[p], &in[p][i], sizeof(in[p][i]), TAG, UINT64_MAX);
		h_send(h, h->ep[p], &out, sizeof(out), TAG);
	}
	for (int p = 1; p < 3; p++) /* in either order */
		H_TRUE(H_EVENT(XPORT_EVENT_LOST).ep != NULL);
	in_time(h, since);
	for (int p = 1; p < 3; p++)
		for (int i = 0; i < ANSWERS; i++)
			H_ENDED(op[p][i]);
	h_sync(h);
}

static void healthy(struct h *h)
{
	int other = 3 - h->role;
	uint64_t in = 0, out[ANSWERS] = {0};
	struct h_op *op;
	int64_t since;

	mesh(h);
	H_DONE(h_recv(h, h->ep[0], &in, sizeof(in), TAG, UINT64_MAX));
	for (int i = 0; i < ANSWERS; i++)
		h_send(h, h->ep[0], &out[i], sizeof(out[i]), TAG);
	since = h_now_us();
	H_TRUE(H_EVENT(XPORT_EVENT_LOST).ep == h->ep[0]);
	in_time(h, since);
	h_sync(h);
	op = h_recv(h, h->ep[other], &in, sizeof(in), TAG, UINT64_MAX);
	H_DONE(h_send(h, h->ep[other], &out[0], sizeof(out[0]), TAG));
	H_DONE(op);
}

const struct h_scenario still_scenario = {
	.name = "stands_still", .role = {silenced, healthy, healthy}, .timeout_s = 60};
