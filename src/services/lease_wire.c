/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/lease_wire.h"

#include "services/wire.h"
#include "services/xport_services.h"

static const uint64_t MAGIC = 0x024c5058; /* "XPL", 2 */

size_t svc_lease_encode(const struct svc_lease_message *m, uint8_t *bytes)
{
	struct xpi_wr w = xpi_wr(bytes, SVC_LEASE_MAX);

	xpi_wr_le(&w, MAGIC, 4);
	xpi_wr_le(&w, (uint64_t)m->type, 4);
	xpi_wr_le(&w, m->to, 8);
	xpi_wr_le(&w, m->from, 8);
	xpi_wr_le(&w, (uint32_t)m->status, 4);
	xpi_wr_le(&w, m->rights, 4);
	xpi_wr_le(&w, m->length, 8);
	xpi_wr_bytes(&w, m->key, m->key_len);
	return (size_t)(w.p - bytes);
}

bool svc_lease_decode(const uint8_t *bytes, size_t len, struct svc_lease_message *m)
{
	struct xpi_rd r = xpi_rd(bytes, len);
	uint64_t magic = xpi_rd_le(&r, 4), type = xpi_rd_le(&r, 4);
	bool has_key;

	m->to = xpi_rd_le(&r, 8);
	m->from = xpi_rd_le(&r, 8);
	m->status = (int32_t)xpi_rd_le(&r, 4);
	m->rights = (uint32_t)xpi_rd_le(&r, 4);
	m->length = xpi_rd_le(&r, 8);
	m->key_len = r.left;
	m->key = xpi_rd_bytes(&r, r.left);
	if (magic != MAGIC || type < SVC_LEASE_ASK || type > SVC_LEASE_HANDED || r.bad || r.left > 0 ||
	    !svc_status_valid(m->status) || m->rights > SVC_RIGHTS)
		return false;
	m->type = (int)type;
	has_key = m->type == SVC_LEASE_GIVE || (m->type == SVC_LEASE_GRANT && m->status == XPORT_OK);
	return m->key_len <= SVC_LEASE_KEY_MAX && (m->key_len > 0) == has_key;
}
