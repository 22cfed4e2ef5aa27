/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/directory_wire.h"

#include "services/wire.h"
#include "services/xport_services.h"

static const uint64_t MAGIC = 0x01445058; /* "XPD", 1 */

size_t svc_dir_encode(const struct svc_dir_message *m, uint8_t *bytes)
{
	struct xpi_wr w = xpi_wr(bytes, SVC_DIR_MAX);

	xpi_wr_le(&w, MAGIC, 4);
	xpi_wr_le(&w, (uint64_t)m->type, 4);
	xpi_wr_le(&w, m->request, 8);
	xpi_wr_le(&w, (uint32_t)m->status, 4);
	xpi_wr_le(&w, m->flags, 4);
	xpi_wr_le(&w, m->rights, 4);
	xpi_wr_le(&w, m->node_len, 1);
	xpi_wr_le(&w, m->name_len, 1);
	xpi_wr_le(&w, m->key_len, 2);
	xpi_wr_le(&w, m->version, 8);
	xpi_wr_le(&w, m->length, 8);
	xpi_wr_le(&w, m->offset, 8);
	xpi_wr_bytes(&w, m->node, m->node_len);
	xpi_wr_bytes(&w, m->name, m->name_len);
	xpi_wr_bytes(&w, m->key, m->key_len);
	return (size_t)(w.p - bytes);
}

/* A name where one is spoken of, a key where there is an entry. */
static bool directory_wire_fits(const struct svc_dir_message *m)
{
	bool entry = m->type == SVC_DIR_PUT || m->type == SVC_DIR_CHANGED;
	bool named = entry || m->type == SVC_DIR_FIND || m->type == SVC_DIR_REMOVE || m->type == SVC_DIR_GONE;

	if (m->node_len > SVC_DIR_NODE_MAX || m->key_len > SVC_DIR_KEY_MAX || m->rights > SVC_RIGHTS ||
	    m->flags > XPORT_DIRECTORY_BROADCAST || !svc_status_valid(m->status))
		return false;
	if (m->type == SVC_DIR_ANSWER)
		return true;
	return (m->name_len > 0) == named && (m->key_len > 0) == entry;
}

bool svc_dir_decode(const uint8_t *bytes, size_t len, struct svc_dir_message *m)
{
	struct xpi_rd r = xpi_rd(bytes, len);
	uint64_t magic = xpi_rd_le(&r, 4), type = xpi_rd_le(&r, 4);

	m->request = xpi_rd_le(&r, 8);
	m->status = (int32_t)xpi_rd_le(&r, 4);
	m->flags = (uint32_t)xpi_rd_le(&r, 4);
	m->rights = (uint32_t)xpi_rd_le(&r, 4);
	m->node_len = xpi_rd_le(&r, 1);
	m->name_len = xpi_rd_le(&r, 1);
	m->key_len = xpi_rd_le(&r, 2);
	m->version = xpi_rd_le(&r, 8);
	m->length = xpi_rd_le(&r, 8);
	m->offset = xpi_rd_le(&r, 8);
	m->node = xpi_rd_bytes(&r, m->node_len);
	m->name = xpi_rd_bytes(&r, m->name_len);
	m->key = xpi_rd_bytes(&r, m->key_len);
	if (magic != MAGIC || type < SVC_DIR_PUT || type > SVC_DIR_BYE || r.bad || r.left > 0)
		return false;
	m->type = (int)type;
	return directory_wire_fits(m);
}
