/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_connect.c - connecting, ending, waiting. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "case.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- connecting ---- */

void t_called(void)
{
	be_up();
	IS(fake.rnr_timer != 0 &&
	   fake.timeout == 18); /* 7 * 1.07 s: not before the peer timeout of 5 s, as 7 * 0.54 s were */
	IS(fake.retries == VRB_RETRIES && VRB_RETRIES < 7); /* to rxe 7 is for ever */
	IS(fake.nreceives >= 2 * VRB_CREDITS + 8);
	end();
}

void t_calling(void)
{
	int n = 0;

	IS(open_be("fake0") == XPORT_OK);
	prepare();
	while (connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN && fake.nsent == 0 && n < 10)
		n++;
	IS(fake.nsent == 1 && fake.lengths[0] == 0 && connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	IS(fake.retries == VRB_RETRIES);
	fake_received(NULL, 0, IBV_WC_SUCCESS);
	IS(connect_step(XPI_ACTIVE) == XPORT_OK);
	end();
}

/* Both sides, as the one that is called does not learn it from rdma_cm. */
void t_traffic_class(void)
{
	be_up();
	IS(caps.traffic == XPI_TRAFFIC_EACH && fake.tos == 0 && fake.route_tos == 0);
	end();

	fake_reset();
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	IS(ops->ep_mark(be, &ep, XPORT_TRAFFIC_BULK) == XPORT_OK);
	make_call(ep.cookie);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_AGAIN && fake.tos == 0x04 && fake.route_tos == 0);
	end();

	fake_reset();
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	IS(ops->ep_mark(be, &ep, XPORT_TRAFFIC_URGENT) == XPORT_OK);
	for (int n = 0; n < 10 && fake.nsent == 0; n++)
		IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	IS(fake.nsent == 1 && fake.tos == 0xb8 && fake.route_tos == 0xb8);
	end();
}

void t_strangers_are_rejected(void)
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
void t_called_by_the_wrong_side(void)
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

void t_other_transport(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	address[1] = VRB_IWARP;
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_INCOMPATIBLE);
	IS(strstr(err.text, "RoCE") != NULL && strstr(err.text, "iWARP") != NULL);
	end();
}

/* One of the devices has no RDMA READ: its address is without the page that proves puts. */
void t_reads_at_one_end(void)
{
	struct ibv_mr *page;

	IS(open_be("fake0") == XPORT_OK);
	prepare();
	memset(address + address_len - 12, 0, 12);
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_INCOMPATIBLE && strstr(err.text, "fake0 does not") != NULL);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_INCOMPATIBLE);
	page = be->proof_mr;
	be->proof_mr = NULL; /* now both */
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	address[address_len - 1] = 1;
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_INCOMPATIBLE && strstr(err.text, "fake0 has it") != NULL);
	be->proof_mr = page;
	end();
}

/* InfiniBand's subnet manager is asked again; and not for ever. */
void t_route_late(void)
{
	int n = 0;

	IS(open_be("fake0") == XPORT_OK);
	prepare();
	fake.routes_late = VRB_ROUTES - 1;
	while (connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN && fake.nsent == 0 && n < 20)
		n++;
	IS(fake.nsent == 1 && fake.routes_late == 0);
	end();

	fake_reset();
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	fake.routes_late = 100;
	for (n = 0; n < 20 && connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN; n++)
		;
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_UNREACHABLE && fake.routes_late == 100 - VRB_ROUTES);
	end();
}

void t_malformed_address(void)
{
	static const uint8_t bad[] = {0x1b, '\n', 0x7f};
	uint8_t *name;

	IS(open_be("fake0") == XPORT_OK);
	prepare();
	for (size_t n = 0; n < address_len; n++)
		IS(ops->ep_connect(be, &ep, XPI_ACTIVE, address, n) == XPORT_ERR_PROTOCOL);
	IS(ops->ep_connect(be, &ep, XPI_ACTIVE, address, address_len + 1) == XPORT_ERR_PROTOCOL);
	/* The device's name, which errors quote. */
	name = memmem(address, address_len, "fake0", 5);
	IS(name != NULL);
	for (size_t i = 0; name != NULL && i < sizeof(bad); i++) {
		name[i] = bad[i];
		IS(ops->ep_connect(be, &ep, XPI_ACTIVE, address, address_len) == XPORT_ERR_PROTOCOL);
		name[i] = 'x';
	}
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	end();
}

void t_connecting_fails(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	fake_event(RDMA_CM_EVENT_REJECTED, ep.id, 28, NULL, 0);
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_UNREACHABLE && strstr(err.text, "RDMA_CM_EVENT_REJECTED") != NULL);
	IS(core.failed == 0);
	end();
}

void t_reached_by_another_device(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	fake.elsewhere = true;
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	IS(connect_step(XPI_ACTIVE) == XPORT_ERR_UNREACHABLE && strstr(err.text, "uses fake1") != NULL);
	IS(core.failed == 0);
	end();
}

/* ---- siw: rdma_connect would wait for an answer ---- */

/* An instance whose peer is at a port of loopback; returns the listener there. */
static int siw_and_listener(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(in);

	IS(bind(l, (struct sockaddr *)&in, len) == 0 && getsockname(l, (struct sockaddr *)&in, &len) == 0);
	fake.transport = IBV_TRANSPORT_IWARP;
	fake.vendor = FAKE_SIW;
	fake.max_cqe = 1 << 20;
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	memcpy(address + 3, &in.sin_port, 2);
	memcpy(address + 5, &in.sin_addr, 4);
	return l;
}

static int lowest_fd(void)
{
	int fd = dup(STDIN_FILENO);

	close(fd);
	return fd;
}

/* rdma_cm may choose a port that TCP has given to somebody else. */
void t_ports_that_tcp_has(void)
{
	int n = 0, ids, l;

	fake.ports_taken = VRB_PORTS - 1;
	l = siw_and_listener();
	IS(fake.ports_taken == 0 && listen(l, 8) == 0);
	ids = fake.ids;
	fake.ports_taken = VRB_PORTS;
	while (connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN && fake.nsent == 0 && n < 200)
		n++;
	IS(fake.ncalls == 1 && fake.nsent == 1 && fake.ids == ids + 1 && fake.qps == 1);
	IS(fake.nreceives == VRB_RX && ep.rx_posted == VRB_RX);
	fake_received(NULL, 0, IBV_WC_SUCCESS);
	IS(connect_step(XPI_ACTIVE) == XPORT_OK);
	end();
	close(l);
}

void t_no_port_that_tcp_has_not(void)
{
	int rc, n = 0;

	fake.ports_taken = VRB_PORTS;
	IS(open_be("fake0") == XPORT_ERR_NO_BACKEND && strstr(err.text, "listening at") != NULL && fake_left() == 0);
	IS(fake.ports_taken == 0 && open_be("fake0") == XPORT_OK);
	prepare();
	fake.ports_taken = VRB_PORTS + 1;
	while ((rc = connect_step(XPI_ACTIVE)) == XPORT_ERR_AGAIN && n < 200)
		n++;
	IS(rc == XPORT_ERR_UNREACHABLE && strstr(err.text, "rdma_connect") != NULL && fake.ports_taken == 0);
	end();
}

void t_siw_answers(void)
{
	int n = 0, l = siw_and_listener(), before = lowest_fd();

	IS(listen(l, 8) == 0);
	for (; connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN && fake.nsent == 0 && n < 100; n++)
		IS(fake.ncalls == 0 || ep.state == VRB_CONNECTING);
	IS(fake.ncalls == 1 && fake.nsent == 1 && lowest_fd() == before);
	fake_received(NULL, 0, IBV_WC_SUCCESS);
	IS(connect_step(XPI_ACTIVE) == XPORT_OK);
	end();
	close(l);
}

/* Its queue is full, and it answers nobody any more. */
void t_siw_is_silent(void)
{
	int l = siw_and_listener(), filler[4], fd;
	struct sockaddr_in in;
	socklen_t len = sizeof(in), size = sizeof(int);
	int on = 0;

	IS(listen(l, 0) == 0 && getsockname(l, (struct sockaddr *)&in, &len) == 0);
	for (int i = 0; i < 4; i++) {
		filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		IS(connect(filler[i], (struct sockaddr *)&in, len) == 0 || errno == EINPROGRESS);
		usleep(1000);
	}
	for (int i = 0; i < 100; i++) {
		IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
		usleep(1000);
	}
	fd = ep.probe;
	IS(fake.ncalls == 0 && ep.state == VRB_PROBING && fcntl(fd, F_GETFD) >= 0);
	/* siw may listen at this port while it is held. */
	IS(getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, &size) == 0 && on != 0);
	end();
	IS(fake.ndisconnected == 0 && fcntl(fd, F_GETFD) < 0);
	for (int i = 0; i < 4; i++)
		close(filler[i]);
	close(l);
}

void t_siw_refuses(void)
{
	int n = 0, rc, l = siw_and_listener();

	while ((rc = connect_step(XPI_ACTIVE)) == XPORT_ERR_AGAIN && n < 1000)
		n++;
	IS(rc == XPORT_ERR_UNREACHABLE && strstr(err.text, strerror(ECONNREFUSED)) != NULL && fake.ncalls == 0);
	end();
	close(l);
}

/* siw would close its listener if a connection ended before it was looked at: where there is no queue pair, none is made. */
void t_siw_no_queue_pair(void)
{
	int n = 0, rc, l = siw_and_listener();

	IS(listen(l, 8) == 0);
	fake.qp_fails = ENOMEM;
	while ((rc = connect_step(XPI_ACTIVE)) == XPORT_ERR_AGAIN && n < 1000)
		n++;
	IS(rc == XPORT_ERR_NO_MEMORY && fake.ncalls == 0);
	end();
	IS(accept(l, NULL, NULL) < 0 && errno == EAGAIN);
	close(l);
}

/* Where one was made in vain, it stays until it was looked at, or for a while. */
void t_siw_call_fails(void)
{
	for (int closes = 0; closes < 2; closes++) {
		int n = 0, rc, c, l;
		int64_t due;
		char byte;

		fake_reset();
		l = siw_and_listener();
		IS(listen(l, 8) == 0);
		fake.connect_fails = ENOMEM;
		while ((rc = connect_step(XPI_ACTIVE)) == XPORT_ERR_AGAIN && n < 1000)
			n++;
		IS(rc == XPORT_ERR_UNREACHABLE && strstr(err.text, "rdma_connect") != NULL);
		c = accept(l, NULL, NULL);
		IS(ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN);
		IS(recv(c, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
		due = ep.due_ms;
		if (closes) {
			ep.due_ms += 3600000; /* nothing else ends it */
			close(c);
		}
		end();
		IS(closes || xpi_now_ms() >= due);
		if (!closes)
			close(c);
		close(l);
	}
}

/* A socket with this port of loopback, or any; siw's listener may share its port, too. */
static int bound(struct sockaddr_in *in)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*in);
	const int on = 1;

	IS(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	IS(bind(s, (struct sockaddr *)in, len) == 0 && getsockname(s, (struct sockaddr *)in, &len) == 0);
	return s;
}

static void prepare_at(const struct sockaddr_in *in)
{
	be->ip.in = *in;
	IS(ops->ep_quiesce(be, &ep) == XPORT_OK);
	ops->ep_destroy(be, &ep);
	prepare();
}

/* The kernel closed siw's listener, while connections to its port go on: the next peer is told another port. */
void t_siw_listens_anew(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int l = bound(&in), caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), called;
	struct rdma_cm_id *first;
	uint16_t port;

	IS(listen(l, 8) == 0 && connect(caller, (struct sockaddr *)&in, sizeof(in)) == 0);
	called = accept(l, NULL, NULL);
	fake.vendor = FAKE_SIW;
	fake.max_cqe = 1 << 20;
	IS(called >= 0 && open_be("fake0") == XPORT_OK);
	first = fake.listener;
	prepare();
	prepare_at(&in);
	IS(be->listener == first && fake.ids == 1 && memcmp(address + 3, &in.sin_port, 2) == 0);
	close(l);
	l = bound(&in); /* so that it is nobody else's */
	fake.listen_fails = ENOMEM;
	prepare_at(&in);
	IS(be->listener == first && fake.ids == 1 && memcmp(address + 3, &in.sin_port, 2) == 0);
	fake.listen_fails = 0;
	prepare_at(&in);
	port = rdma_get_src_port(fake.listener);
	IS(fake.listener != first && be->listener == fake.listener && fake.ids == 2);
	IS(memcmp(address + 3, &port, 2) == 0);
	/* Not for ever. */
	for (int i = 0; i < VRB_DEAD_LISTENERS + 2; i++)
		prepare_at(&in);
	IS(fake.ids == 1 + VRB_DEAD_LISTENERS);
	fake_event(RDMA_CM_EVENT_DEVICE_REMOVAL, first, 0, NULL, 0);
	ops->poll(be);
	IS(be->gone);
	end();
	close(caller);
	close(called);
	close(l);
}

void t_no_queue_pair(void)
{
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	fake.qp_fails = ENOMEM;
	make_call(ep.cookie);
	IS(connect_step(XPI_PASSIVE) == XPORT_ERR_NO_MEMORY);
	end();
}

/* ---- ending, waiting ---- */

/* An adapter with TCP on board holds a queue pair that is to disconnect until the peer answers. */
void t_stops_before_it_disconnects(void)
{
	for (int i = 0; i < 3; i++) {
		fake_reset();
		fake.transport = i > 0 ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		fake.vendor = i > 1 ? FAKE_SIW : 0x1425;
		fake.max_cqe = 1 << 20;
		be_up();
		fake_event(RDMA_CM_EVENT_ESTABLISHED, ep.id, 0, NULL, 0);
		end();
		IS(fake.ndisconnected == 1 && (fake.disconnected_in == IBV_QPS_ERR) == (i == 1));
	}
}

/* iWARP: whoever disconnects before the kernel knows how connecting ended waits there for that. */
void t_giving_a_call_up(void)
{
	fake.transport = IBV_TRANSPORT_IWARP;
	fake.silent = true;
	IS(open_be("fake0") == XPORT_OK);
	prepare();
	while (ep.state != VRB_CONNECTING)
		IS(connect_step(XPI_ACTIVE) == XPORT_ERR_AGAIN);
	for (int i = 0; i < 3; i++) {
		ops->poll(be);
		IS(ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN && fake.ndisconnected == 0 && fake.ids == 2);
	}
	fake_event(RDMA_CM_EVENT_UNREACHABLE, ep.id, -ETIMEDOUT, NULL, 0);
	end();
	IS(fake.ndisconnected == 1);
}

/* The same of a call that was accepted, and on RoCE, which does not wait. */
void t_giving_an_accepted_call_up(void)
{
	for (int iwarp = 0; iwarp < 2; iwarp++) {
		fake_reset();
		fake.transport = iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		IS(open_be("fake0") == XPORT_OK);
		prepare();
		make_call(ep.cookie);
		IS(connect_step(XPI_PASSIVE) == XPORT_ERR_AGAIN && ep.state == VRB_ACCEPTING);
		IS(ops->ep_quiesce(be, &ep) == XPORT_ERR_AGAIN && fake.ndisconnected == !iwarp);
		fake_event(RDMA_CM_EVENT_ESTABLISHED, ep.id, 0, NULL, 0);
		end();
		IS(fake.ndisconnected == 1);
	}
}

/* It does not drain: after a while the queue pair is destroyed, and what comes afterwards is of nobody. */
void t_does_not_drain(void)
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

void t_arm(void)
{
	uint8_t frame[8] = {7};

	be_up();
	IS(ops->arm(be) == XPORT_OK);
	fake_received(frame, 8, IBV_WC_SUCCESS);
	IS(ops->arm(be) == XPORT_ERR_AGAIN && core.frames == 0);
	IS(ops->arm(be) == XPORT_ERR_AGAIN && core.frames == 0); /* and what the first one took is still there */
	IS(ops->poll(be) == 1 && core.frames == 1);
	IS(ops->arm(be) == XPORT_OK);
	end();
}
