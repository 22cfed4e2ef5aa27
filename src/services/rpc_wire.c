/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/rpc_wire.h"

#include <endian.h>

#include "services/wire.h"
#include "services/xport_services.h"

enum { FLAGS = XPORT_RPC_ONE_WAY | XPORT_RPC_LENT };

static const uint32_t MAGIC = 0x525058; /* "XPR" */

void svc_rpc_encode(const struct svc_rpc_message *m, uint8_t *bytes)
{
	const uint32_t ends[4] = {htole32((uint32_t)m->status), htole32(m->ms), htole32(m->size), htole32(m->credits)};
	const uint64_t ids[2] = {htole64(m->id), htole64(m->method)};
	const uint32_t magic = htole32(MAGIC | (uint32_t)m->version << 24);

	memcpy(bytes, &magic, sizeof(magic));
	bytes[4] = m->type;
	bytes[5] = m->flags;
	bytes[6] = m->ran;
	bytes[7] = 0;
	memcpy(bytes + 8, ids, sizeof(ids));
	memcpy(bytes + 24, ends, sizeof(ends));
	memcpy(bytes + 40, m->trace, sizeof(m->trace));
}

static bool trace_empty(const struct svc_rpc_message *m)
{
	static const uint8_t none[SVC_RPC_TRACE];

	return memcmp(m->trace, none, sizeof(none)) == 0;
}

/* Whether the fields that only some types have are 0 in the others. */
static bool rpc_fields_valid(const struct svc_rpc_message *m)
{
	bool greeting = m->type == SVC_RPC_HELLO || m->type == SVC_RPC_WELCOME;
	bool call = m->type == SVC_RPC_CALL, reply = m->type == SVC_RPC_REPLY;

	if ((m->size != 0 && !greeting && !call) || (m->method != 0 && !call) || (!call && !trace_empty(m)))
		return false;
	if ((m->len > 0 || m->ms != 0) && !call && !reply)
		return false;
	return (call || (m->credits != 0) == (m->type == SVC_RPC_WELCOME)) && (m->id != 0) == (m->type != SVC_RPC_BYE);
}

static bool rpc_status_valid(const struct svc_rpc_message *m)
{
	if (m->type == SVC_RPC_WELCOME)
		return m->status == XPORT_OK || m->status == XPORT_ERR_INCOMPATIBLE;
	if (m->type != SVC_RPC_REPLY)
		return m->status == XPORT_OK;
	/* A request that did not run has a reason, and no reply. */
	return svc_status_valid(m->status) && (m->ran != XPORT_RPC_RAN_NO || (m->status != XPORT_OK && m->len == 0));
}

/* Whether so many descriptors are in front of the payload. */
static bool rpc_bulks_valid(const struct svc_rpc_message *m)
{
	struct xpi_rd r = xpi_rd(m->payload, m->size <= m->len ? m->size : 0);

	if (m->credits == 0)
		return m->size == 0;
	if (m->credits > XPORT_RPC_BULKS_MAX || m->flags != XPORT_RPC_LENT)
		return false;
	for (uint32_t i = 0; i < m->credits; i++) {
		uint32_t len = xpi_rd_u32(&r);

		if (len == 0 || xpi_rd_bytes(&r, len) == NULL)
			return false;
	}
	return r.left == 0;
}

static unsigned flags_of(const struct svc_rpc_message *m)
{
	if (m->type == SVC_RPC_CALL)
		return FLAGS;
	return m->type == SVC_RPC_REPLY && m->ran == XPORT_RPC_RAN_YES ? SVC_RPC_DOUBTFUL : 0;
}

static bool rpc_values_valid(const struct svc_rpc_message *m)
{
	bool call = m->type == SVC_RPC_CALL;

	if (!rpc_status_valid(m))
		return false;
	if (m->ran > (m->type == SVC_RPC_REPLY ? XPORT_RPC_RAN_YES : 0) || (m->flags & ~flags_of(m)) != 0 ||
	    m->flags == FLAGS)
		return false;
	return !call || (m->ms > 0 && m->ms <= XPORT_RPC_DEADLINE_MAX && rpc_bulks_valid(m));
}

/* The head is fixed, and is inside of the bytes: its fields are read at once, which takes a tenth of the time. */
static uint32_t le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

bool svc_rpc_decode(const uint8_t *bytes, size_t len, struct svc_rpc_message *m)
{
	struct xpi_rd r = xpi_rd(bytes, len);
	const uint8_t *head = xpi_rd_bytes(&r, SVC_RPC_HEAD);

	if (head == NULL)
		return false;
	m->version = head[3];
	m->type = head[4];
	m->flags = head[5];
	m->ran = head[6];
	m->id = le64(head + 8);
	m->method = le64(head + 16);
	m->status = (int32_t)le32(head + 24);
	m->ms = le32(head + 28);
	m->size = le32(head + 32);
	m->credits = le32(head + 36);
	memcpy(m->trace, head + 40, sizeof(m->trace));
	m->len = r.left;
	m->payload = xpi_rd_bytes(&r, r.left);
	if ((le32(head) & 0xffffff) != MAGIC || head[7] != 0 || m->type < SVC_RPC_HELLO || m->type > SVC_RPC_BYE)
		return false;
	if (m->version != SVC_RPC_VERSION && m->type > SVC_RPC_WELCOME && m->type != SVC_RPC_BYE)
		return false;
	return rpc_fields_valid(m) && rpc_values_valid(m);
}
