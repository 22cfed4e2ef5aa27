/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_services.c - messages of leases and of the directory: a message that decodes encodes to the same bytes, and its
 * parts are inside them. Each input is tried as it is, and with the beginning of each of the two.
 */
#include "fuzz/fuzz.h"
#include "services/directory_wire.h"
#include "services/lease_wire.h"

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

int FUZZ_ENTRY(services)(const uint8_t *data, size_t size)
{
	static const struct svc_lease_message lease = {.type = SVC_LEASE_ASK};
	static const struct svc_dir_message directory = {.type = SVC_DIR_JOIN};
	struct fuzz_in in = {data, size};
	uint8_t lease_head[SVC_LEASE_MAX], directory_head[SVC_DIR_MAX];
	size_t len;
	uint8_t *block = fuzz_block(&in, size, &len);

	try_lease(block, len);
	try_directory(block, len);
	if (len >= MAGIC) {
		svc_lease_encode(&lease, lease_head);
		memcpy(block, lease_head, MAGIC);
		try_lease(block, len);
		svc_dir_encode(&directory, directory_head);
		memcpy(block, directory_head, MAGIC);
		try_directory(block, len);
	}
	free(block);
	return 0;
}
