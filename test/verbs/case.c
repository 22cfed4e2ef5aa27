/* SPDX-License-Identifier: BSD-3-Clause */
#include "case.h"

#include <stdio.h>
#include <string.h>

int failures;

void wrong(int line, const char *what, const char *more)
{
	printf("line %d: %s: %s\n", line, what, more);
	failures++;
}

static void am_recv(struct xpi_core *c, struct xpi_core_ep *from, const void *hdr, size_t hlen, const void *data,
                    size_t dlen)
{
	(void)data;
	c->from = from;
	c->frames++;
	c->last_len = hlen + dlen;
	c->last = *(const uint8_t *)hdr;
}

static void done(struct xpi_core *c, struct xpi_req *req, int status)
{
	c->done += status == XPORT_OK;
	c->last_done = req;
}

static void ep_failed(struct xpi_core *c, struct xpi_core_ep *which, int64_t code, const char *why)
{
	(void)which;
	(void)code;
	c->failed++;
	snprintf(c->why, sizeof(c->why), "%s", why);
}

static const struct xpi_core_ops up = {.am_recv = am_recv, .done = done, .ep_failed = ep_failed};
struct xpi_core core;
struct xpi_core_ep core_ep;
struct xport_error err = {.size = sizeof(err)};
struct xpi_log quiet = {.level = -1, .fd = -1};
struct xpi_be *be;
struct xpi_be_caps caps;
struct vrb_ep ep;
uint8_t address[2048];
size_t address_len;

int open_be(const char *provider)
{
	struct xpi_be_open_args args = {
		.provider = provider, .core = &core, .up = &up, .log = &quiet, .err = &err, .peer_timeout_ms = 5000};
	int rc = ops->open(&args, &be);

	if (rc == XPORT_OK)
		ops->query(be, &caps);
	return rc;
}

void prepare(void)
{
	address_len = sizeof(address);
	IS(ops->address(be, &ep, &core_ep, address, &address_len) == XPORT_OK);
}

int connect_step(enum xpi_role role)
{
	ops->poll(be);
	return ops->ep_connect(be, &ep, role, address, address_len);
}

void make_call(const uint8_t *cookie)
{
	uint8_t data[4 + VRB_COOKIE];

	memcpy(data, VRB_MAGIC, 4);
	memcpy(data + 4, cookie, VRB_COOKIE);
	fake_call(data, sizeof(data));
}

void be_up(void)
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

void end(void)
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

int send_frame(const void *buf, size_t len)
{
	struct xpi_req req;

	return ops->am_send(be, &ep, buf, len, &req);
}

uint8_t memory[1 << 16];
struct vrb_mr mr;
struct vrb_rkey key;

void share(void)
{
	uint8_t packed[VRB_KEY];
	size_t len = sizeof(packed);
	void *direct;

	IS(ops->mr_reg(be, &mr, memory, sizeof(memory), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE) == XPORT_OK);
	IS(ops->rkey_pack(be, NULL, &mr, packed, &len) == XPORT_OK && len <= caps.rkey_native_max);
	for (size_t n = 0; n < len; n++)
		IS(ops->rkey_unpack(be, &ep, &key, packed, n, 0, sizeof(memory), 3, &direct) == XPORT_ERR_BAD_KEY);
	IS(ops->rkey_unpack(be, &ep, &key, packed, len, 0, sizeof(memory), 3, &direct) == XPORT_OK && direct == NULL);
}
