/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/lease_wire.h"

#include "services/wire.h"
#include "services/xport_services.h"

static const uint64_t MAGIC = 0x014c5058; /* "XPL", 1 */

size_t svc_lease_encode(const struct svc_lease_message *m, uint8_t *bytes)
{
	uint8_t *at = bytes;

	at = svc_write_number(at, MAGIC, 4);
	at = svc_write_number(at, (uint64_t)m->type, 4);
	at = svc_write_number(at, m->to, 8);
	at = svc_write_number(at, m->from, 8);
	at = svc_write_number(at, (uint32_t)m->status, 4);
	at = svc_write_number(at, m->rights, 4);
	at = svc_write_number(at, m->length, 8);
	at = svc_write(at, m->key, m->key_len);
	return (size_t)(at - bytes);
}

/* A status that a peer may name: the application is going to see it. */
static bool is_status(int32_t status)
{
	return status <= XPORT_OK && status >= XPORT_ERR_BUSY;
}

bool svc_lease_decode(const uint8_t *bytes, size_t len, struct svc_lease_message *m)
{
	struct svc_reader r = svc_reader(bytes, len);
	uint64_t magic = svc_read_number(&r, 4), type = svc_read_number(&r, 4);
	bool has_key;

	m->to = svc_read_number(&r, 8);
	m->from = svc_read_number(&r, 8);
	m->status = (int32_t)svc_read_number(&r, 4);
	m->rights = (uint32_t)svc_read_number(&r, 4);
	m->length = svc_read_number(&r, 8);
	m->key_len = r.left;
	m->key = svc_read(&r, r.left);
	if (magic != MAGIC || type < SVC_LEASE_ASK || type > SVC_LEASE_BYE || !svc_read_all(&r) ||
	    !is_status(m->status) || m->rights > SVC_RIGHTS)
		return false;
	m->type = (int)type;
	has_key = m->type == SVC_LEASE_GIVE || (m->type == SVC_LEASE_GRANT && m->status == XPORT_OK);
	return m->key_len <= SVC_LEASE_KEY_MAX && (m->key_len > 0) == has_key;
}
