/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.c - see fake.h: what the test says and asks. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_parts.h"

struct fake fake;

struct ibv_device fake_device = {.node_type = IBV_NODE_CA, .name = "fake0"};
struct ibv_device fake_other_device = {.node_type = IBV_NODE_CA, .name = "fake1"};

void *fake_made(int *count, size_t size)
{
	(*count)++;
	return calloc(1, size);
}

int fake_unmade(int *count, void *p)
{
	(*count)--;
	free(p);
	return 0;
}

void fake_reset(void)
{
	for (int i = 0; i < 2; i++) {
		if (fake.async[i] > 0)
			close(fake.async[i]);
		if (fake.comp[i] > 0)
			close(fake.comp[i]);
	}
	memset(&fake, 0, sizeof(fake));
	fake.transport = IBV_TRANSPORT_IB;
	fake.link_layer = IBV_LINK_LAYER_ETHERNET;
	fake.port = IBV_PORT_ACTIVE;
	fake.inline_max = 80;
	fake.max_cqe = 32767;
	fake.vectors = 1;
	fake.max_msg = 1 << 23;
	fake.fork_status = IBV_FORK_UNNEEDED;
	if (pipe2(fake.async, O_NONBLOCK | O_CLOEXEC) != 0 || pipe2(fake.comp, O_NONBLOCK | O_CLOEXEC) != 0)
		abort();
}

int fake_left(void)
{
	return fake.contexts + fake.pds + fake.channels + fake.mrs + fake.cqs + fake.qps + fake.cms + fake.ids +
	       fake.lists;
}

struct ibv_wc *fake_wc(uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc *wc = &fake.wc[fake.wc_tail++ % FAKE_QUEUE];

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = id;
	wc->status = status;
	return wc;
}

void fake_sent(unsigned n, enum ibv_wc_status status)
{
	fake_wc(fake.sent[n % FAKE_QUEUE].wr_id, status);
}

void fake_received(const void *bytes, uint32_t len, enum ibv_wc_status status)
{
	unsigned i = fake.receives_head++ % FAKE_QUEUE;
	struct ibv_wc *wc;

	if (len > 0)
		memcpy(fake.places[i], bytes, len);
	wc = fake_wc(fake.receives[i], status);
	wc->opcode = IBV_WC_RECV;
	wc->byte_len = len;
	fake.nreceives--;
}

void fake_received_elsewhere(enum ibv_wc_opcode opcode, uint32_t len)
{
	struct ibv_wc *wc;

	fake_received(NULL, 0, IBV_WC_SUCCESS);
	wc = &fake.wc[(fake.wc_tail - 1) % FAKE_QUEUE];
	wc->opcode = opcode;
	wc->byte_len = len;
}

void fake_flush(void)
{
	while (fake.nreceives > 0)
		fake_received(NULL, 0, IBV_WC_WR_FLUSH_ERR);
}

void fake_event(enum rdma_cm_event_type type, struct rdma_cm_id *id, int status, const void *data, uint8_t len)
{
	struct rdma_cm_event *e = &fake.events[fake.event_tail++ % FAKE_EVENTS];

	memset(e, 0, sizeof(*e));
	e->event = type;
	e->id = id;
	e->status = status;
	if (len > 0)
		memcpy(fake.private_data, data, len);
	e->param.conn.private_data = fake.private_data;
	e->param.conn.private_data_len = len;
	e->param.conn.initiator_depth = e->param.conn.responder_resources = 16;
}

void fake_call(const void *data, uint8_t len)
{
	struct rdma_cm_id *id = fake_made(&fake.ids, sizeof(*id));

	id->context = fake.listener->context;
	fake.id = id;
	fake_event(RDMA_CM_EVENT_CONNECT_REQUEST, id, 0, data, len);
}

void fake_async(enum ibv_event_type type, void *element)
{
	struct {
		uint64_t element;
		uint32_t type, zero;
	} raw = {(uintptr_t)element, type, 0};

	if (write(fake.async[1], &raw, sizeof(raw)) != (ssize_t)sizeof(raw))
		abort();
}
