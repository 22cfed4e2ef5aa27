/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/directory_wire.h"

#include "services/wire.h"
#include "services/xport_services.h"

static const uint64_t MAGIC = 0x01445058; /* "XPD", 1 */

size_t svc_dir_encode(const struct svc_dir_message *m, uint8_t *bytes)
{
	uint8_t *at = bytes;

	at = svc_write_number(at, MAGIC, 4);
	at = svc_write_number(at, (uint64_t)m->type, 4);
	at = svc_write_number(at, m->request, 8);
	at = svc_write_number(at, (uint32_t)m->status, 4);
	at = svc_write_number(at, m->flags, 4);
	at = svc_write_number(at, m->rights, 4);
	at = svc_write_number(at, m->node_len, 1);
	at = svc_write_number(at, m->name_len, 1);
	at = svc_write_number(at, m->key_len, 2);
	at = svc_write_number(at, m->version, 8);
	at = svc_write_number(at, m->length, 8);
	at = svc_write_number(at, m->offset, 8);
	at = svc_write(at, m->node, m->node_len);
	at = svc_write(at, m->name, m->name_len);
	at = svc_write(at, m->key, m->key_len);
	return (size_t)(at - bytes);
}

/* A name where one is spoken of, a key where there is an entry. */
static bool fits(const struct svc_dir_message *m)
{
	bool entry = m->type == SVC_DIR_PUT || m->type == SVC_DIR_CHANGED;
	bool named = entry || m->type == SVC_DIR_FIND || m->type == SVC_DIR_REMOVE || m->type == SVC_DIR_GONE;

	if (m->node_len > SVC_DIR_NODE_MAX || m->key_len > SVC_DIR_KEY_MAX || m->rights > SVC_RIGHTS ||
	    m->flags > XPORT_DIRECTORY_BROADCAST || m->status > XPORT_OK || m->status < XPORT_ERR_BUSY)
		return false;
	if (m->type == SVC_DIR_ANSWER)
		return true;
	return (m->name_len > 0) == named && (m->key_len > 0) == entry;
}

bool svc_dir_decode(const uint8_t *bytes, size_t len, struct svc_dir_message *m)
{
	struct svc_reader r = svc_reader(bytes, len);
	uint64_t magic = svc_read_number(&r, 4), type = svc_read_number(&r, 4);

	m->request = svc_read_number(&r, 8);
	m->status = (int32_t)svc_read_number(&r, 4);
	m->flags = (uint32_t)svc_read_number(&r, 4);
	m->rights = (uint32_t)svc_read_number(&r, 4);
	m->node_len = svc_read_number(&r, 1);
	m->name_len = svc_read_number(&r, 1);
	m->key_len = svc_read_number(&r, 2);
	m->version = svc_read_number(&r, 8);
	m->length = svc_read_number(&r, 8);
	m->offset = svc_read_number(&r, 8);
	m->node = svc_read(&r, m->node_len);
	m->name = svc_read(&r, m->name_len);
	m->key = svc_read(&r, m->key_len);
	if (magic != MAGIC || type < SVC_DIR_PUT || type > SVC_DIR_BYE || !svc_read_all(&r))
		return false;
	m->type = (int)type;
	return fits(m);
}
