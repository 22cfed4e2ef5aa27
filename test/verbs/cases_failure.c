/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_failure.c - what breaks a connection. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "case.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

void t_receiver_not_ready(void)
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

static void no_frame_comes(enum ibv_wc_opcode opcode, uint32_t len)
{
	fake_reset();
	core.failed = 0;
	be_up();
	share();
	fake_received_elsewhere(opcode, len);
	is_broken("not a frame");
	IS(core.frames == 0);
	ops->mr_dereg(be, &mr);
	end();
}

/* A peer's WRITE takes a receive, and its length is that of what it wrote. */
void t_immediate_data(void)
{
	no_frame_comes(IBV_WC_RECV_RDMA_WITH_IMM, 1 << 20);
	no_frame_comes(IBV_WC_RECV_RDMA_WITH_IMM, 8);
	no_frame_comes(IBV_WC_RECV_RDMA_WITH_IMM, 0); /* nor is it a greeting */
}

void t_longer_than_a_receive(void)
{
	no_frame_comes(IBV_WC_RECV, VRB_FRAME_MAX + 1);
}

static void device_says(enum ibv_event_type type, void *element, const char *why)
{
	be_up();
	fake_async(type, element != NULL ? element : fake.qp);
	be->look = true;
	is_broken(why);
	IS(fake.nacked == 1);
	end();
}

void t_queue_pair_fatal(void)
{
	device_says(IBV_EVENT_QP_FATAL, NULL, "an event");
}

void t_completion_queue_overrun(void)
{
	be_up();
	share();
	fake_async(IBV_EVENT_CQ_ERR, ep.cq->cq);
	be->look = true;
	is_broken("CQ error");
	IS(fake.nacked == 1 && fake.cqs == 1);
	ops->mr_dereg(be, &mr);
	IS(ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN);
	fake_flush();
	while (ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN)
		ops->poll(be);
	ops->ep_destroy(be, &ep);
	prepare(); /* nothing would ever come of the broken one */
	make_call(ep.cookie);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_AGAIN && ep.state == VRB_ACCEPTING && fake.cqs == 2);
	end();
}

/* It cannot be read any more: who shares it ends, and the instance goes on. */
void t_completion_queue_unreadable(void)
{
	be_up();
	share();
	fake.poll_cq_fails = -EINVAL;
	is_broken("CQ error");
	IS(ops->poll(be) == 0 && core.failed == 1);
	fake.poll_cq_fails = 0;
	ops->mr_dereg(be, &mr);
	end();
}

/* Who has one of its own goes on. */
void t_another_completion_queue(void)
{
	uint8_t frame[8] = {0};
	struct ibv_cq another = {0};

	be_up();
	fake_async(IBV_EVENT_CQ_ERR, &another);
	be->look = true;
	ops->poll(be);
	ops->poll(be);
	IS(core.failed == 0 && fake.nacked == 1 && send_frame(frame, 8) == XPORT_OK);
	end();
}

void t_device_fatal(void)
{
	device_says(IBV_EVENT_DEVICE_FATAL, NULL, "an event");
}

static void port(enum ibv_event_type type)
{
	fake_async(type, (void *)1);
	be->look = true;
	ops->poll(be);
	IS(core.failed == 0);
}

/* For longer than a silent peer is waited for. */
void t_port_goes_down(void)
{
	be_up();
	be->peer_timeout_ms = 50;
	port(IBV_EVENT_PORT_ERR);
	usleep(100000);
	be->look = true;
	is_broken("the port went down");
	end();
}

void t_port_comes_back(void)
{
	be_up();
	be->peer_timeout_ms = 50;
	port(IBV_EVENT_PORT_ERR);
	port(IBV_EVENT_PORT_ACTIVE);
	usleep(100000);
	be->look = true;
	ops->poll(be);
	IS(core.failed == 0 && fake.nacked == 2);
	end();
}

void t_another_port_goes_down(void)
{
	be_up();
	fake_async(IBV_EVENT_PORT_ERR, (void *)2);
	be->look = true;
	ops->poll(be);
	IS(core.failed == 0 && fake.nacked == 1);
	end();
}

void t_device_removed(void)
{
	struct timespec moment = {.tv_nsec = 20000000};
	struct pollfd p[8] = {{0}};
	int n, fds[8];

	be_up();
	n = ops->fds(be, fds, 8);
	for (int i = 0; i < n; i++)
		p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	/* From now on its descriptors tell of an error. */
	close(fake.comp[1]);
	close(fake.async[1]);
	fake.comp[1] = fake.async[1] = 0;
	IS(n == 4 && ppoll(p, (nfds_t)n, &moment, NULL) > 0);
	fake_event(RDMA_CM_EVENT_DEVICE_REMOVAL, fake.listener, 0, NULL, 0);
	be->look = true;
	is_broken("removed");
	IS(ops->arm(be) == XPORT_OK && ppoll(p, (nfds_t)n, &moment, NULL) == 0);
	end();
}

void t_peer_disconnects(void)
{
	uint8_t frame[8] = {7};

	be_up();
	/* What it sent before is not lost. */
	fake_event(RDMA_CM_EVENT_DISCONNECTED, ep.id, 0, NULL, 0);
	fake_received(frame, 8, IBV_WC_SUCCESS);
	be->look = true;
	ops->poll(be);
	IS(core.frames == 1 && core.failed == 0);
	be->look = true;
	is_broken("closed");
	end();
}

static bool moved(const struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec != since->tv_sec || now.tv_nsec != since->tv_nsec;
}

/* To look for them is a system call, which must not be made again and again while the clock stands. */
void t_events_are_looked_for_seldom(void)
{
	struct timespec tick;
	unsigned n;

	be_up();
	do {
		n = fake.nacked;
		fake_async(IBV_EVENT_PORT_ERR, (void *)2);
		while (fake.nacked == n)
			ops->poll(be);
		clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
		n = fake.nacked;
		fake_async(IBV_EVENT_PORT_ERR, (void *)2);
		for (int i = 0; i < 1000; i++)
			ops->poll(be);
	} while (moved(&tick));
	IS(fake.nacked == n);
	usleep(20000);
	for (int i = 0; i < 64; i++)
		ops->poll(be);
	IS(fake.nacked == n + 1);
	end();
}
