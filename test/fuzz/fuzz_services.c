/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_services.c - messages of leases, of the directory and of calls: a message that decodes encodes to the same bytes,
 * and its parts are inside them. Each input is tried as it is, and with the beginning of each of the three.
 */
#include "fuzz/fuzz.h"
#include "services/directory_wire.h"
#include "services/lease_wire.h"
#include "services/rpc_wire.h"

enum { MAGIC = 4 };

static bool inside(const uint8_t *part, size_t part_len, const uint8_t *block, size_t len)
{
	return part_len == 0 || (part >= block && part + part_len <= block + len);
}

static void try_lease(const uint8_t *block, size_t len)
{
	uint8_t again[SVC_LEASE_MAX];
	struct svc_lease_message m;

	if (!svc_lease_decode(block, len, &m))
		return;
	FUZZ_CHECK(inside(m.key, m.key_len, block, len));
	FUZZ_CHECK(svc_lease_encode(&m, again) == len);
	FUZZ_CHECK(memcmp(again, block, len) == 0);
}

static void try_directory(const uint8_t *block, size_t len)
{
	uint8_t again[SVC_DIR_MAX];
	struct svc_dir_message m;

	if (!svc_dir_decode(block, len, &m))
		return;
	FUZZ_CHECK(inside(m.node, m.node_len, block, len));
	FUZZ_CHECK(inside(m.name, m.name_len, block, len));
	FUZZ_CHECK(inside(m.key, m.key_len, block, len));
	FUZZ_CHECK(svc_dir_encode(&m, again) == len);
	FUZZ_CHECK(memcmp(again, block, len) == 0);
}

static void try_rpc(const uint8_t *block, size_t len)
{
	uint8_t again[SVC_RPC_HEAD];
	struct svc_rpc_message m;

	if (!svc_rpc_decode(block, len, &m))
		return;
	FUZZ_CHECK(inside(m.payload, m.len, block, len));
	FUZZ_CHECK(sizeof(again) + m.len == len);
	svc_rpc_encode(&m, again);
	FUZZ_CHECK(memcmp(again, block, sizeof(again)) == 0);
}

int FUZZ_ENTRY(services)(const uint8_t *data, size_t size)
{
	static const struct svc_lease_message lease = {.type = SVC_LEASE_ASK};
	static const struct svc_dir_message directory = {.type = SVC_DIR_JOIN};
	static const struct svc_rpc_message rpc = {.version = SVC_RPC_VERSION};
	struct fuzz_in in = {data, size};
	uint8_t lease_head[SVC_LEASE_MAX], directory_head[SVC_DIR_MAX], rpc_head[SVC_RPC_HEAD];
	size_t len;
	uint8_t *block = fuzz_block(&in, size, &len);

	try_lease(block, len);
	try_directory(block, len);
	try_rpc(block, len);
	if (len >= MAGIC) {
		svc_lease_encode(&lease, lease_head);
		memcpy(block, lease_head, MAGIC);
		try_lease(block, len);
		svc_dir_encode(&directory, directory_head);
		memcpy(block, directory_head, MAGIC);
		try_directory(block, len);
		svc_rpc_encode(&rpc, rpc_head);
		memcpy(block, rpc_head, MAGIC);
		try_rpc(block, len);
	}
	free(block);
	return 0;
}
