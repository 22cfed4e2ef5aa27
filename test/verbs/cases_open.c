/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_open.c - opening. */
#include "case.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

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

void t_open_and_close(void)
{
	IS(list() == 1 && seen.state == XPORT_READY && strcmp(seen.name, "verbs:fake0") == 0);
	IS(open_be(NULL) == XPORT_OK && strcmp(caps.provider, "fake0") == 0);
	IS(strcmp(caps.protocol, "verbs-am 2 / RoCE") == 0);
	ops->close(be);
	IS(fake_left() == 0);
}

void t_no_device(void)
{
	fake.no_device = true;
	IS(list() == 1 && seen.state == XPORT_ABSENT && seen.reason[0] != '\0' && seen.hint[0] != '\0');
	IS(open_be(NULL) == XPORT_ERR_NO_BACKEND && err.hint[0] != '\0');
}

void t_port_down(void)
{
	fake.port = IBV_PORT_DOWN;
	IS(list() == 1 && seen.state == XPORT_MISCONFIGURED && strstr(seen.reason, "PORT_DOWN") != NULL);
	IS(open_be("fake0") == XPORT_ERR_NO_BACKEND && strstr(err.text, "PORT_DOWN") != NULL);
}

void t_no_address(void)
{
	fake.no_address = true;
	IS(list() == 1 && seen.state == XPORT_MISCONFIGURED && strstr(seen.reason, "no IP address") != NULL);
}

void t_carrier_first(void)
{
	for (int i = 0; i < 2; i++) {
		fake.carrier = i == 1;
		IS(open_be("fake0") == XPORT_OK && be->ip.in.sin_addr.s_addr == (i == 1 ? 0x0200000a : 0x0100000a));
		ops->close(be);
	}
}

void t_no_rdma_cm(void)
{
	fake.no_rdma_cm = true;
	IS(list() == 1 && seen.state == XPORT_MISCONFIGURED && strstr(seen.reason, "rdma_cm") != NULL);
}

void t_unknown_name(void)
{
	IS(open_be("fake1") == XPORT_ERR_NO_BACKEND);
	IS(strstr(err.text, "the devices are fake0") != NULL && strstr(err.text, "nearest is verbs:fake0") != NULL);
}

void t_locked_memory(void)
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

/* The C library is told to leave memory to the parent only, which it can do page by page. */
void t_huge_pages(void)
{
	fake.reg_fails = EINVAL;
	IS(open_be("fake0") == XPORT_ERR_NO_MEMORY && err.hint[0] == '\0');
	fake.fork_status = IBV_FORK_ENABLED;
	IS(open_be("fake0") == XPORT_ERR_NO_MEMORY && strstr(err.hint, "RDMAV_HUGEPAGES_SAFE=1") != NULL);
}

/* Instances do not all share one. */
void t_interrupts(void)
{
	unsigned seen_vectors = 0;

	fake.vectors = 4;
	for (int i = 0; i < 4; i++) {
		IS(open_be("fake0") == XPORT_OK);
		seen_vectors |= 1u << fake.vector;
		ops->close(be);
	}
	IS(seen_vectors == 15);
}

/* 0 would mean any length, which no adapter takes. */
void t_longest_message_unsaid(void)
{
	IS(open_be("fake0") == XPORT_OK && caps.rma_max == 1 << 23);
	ops->close(be);
	fake.max_msg = 0;
	IS(open_be("fake0") == XPORT_OK && caps.rma_max == 1 << 20);
	ops->close(be);
}

void t_every_part_may_fail(void)
{
	int *const parts[] = {&fake.reg_fails, &fake.qp_fails, &fake.cq_fails, &fake.listen_fails};

	for (size_t i = 0; i < 4; i++) {
		*parts[i] = ENOMEM;
		IS(open_be("fake0") < 0 && fake_left() == 0);
		*parts[i] = 0;
	}
}

void t_inline_is_found(void)
{
	IS(open_be("fake0") == XPORT_OK && be->inline_max == 80);
	ops->close(be);
	fake.inline_max = 0;
	IS(open_be("fake0") == XPORT_OK && be->inline_max == 0);
	ops->close(be);
}

/* It answers a READ of a region that may not be read. */
void t_target_bounds_but_of_siw(void)
{
	static const enum ibv_transport_type transports[] = {IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};

	for (int siw = 0; siw < 2; siw++)
		for (int i = 0; i < 2; i++) {
			fake.transport = transports[i];
			fake.vendor = siw ? FAKE_SIW : 0x1bad;
			fake.max_cqe = 1 << 20;
			IS(open_be("fake0") == XPORT_OK && caps.target_bounds == !siw);
			ops->close(be);
		}
}

/* libsiw cannot map page 144 of a device's file: the first completion queue covers it. */
void t_first_queue_of_siw(void)
{
	fake.vendor = FAKE_SIW;
	fake.max_cqe = 1 << 20;
	IS(open_be("fake0") == XPORT_OK && fake.cqs == 1);
	IS(32l * fake.cqe > 145 * 4096);
	ops->close(be);
}
