/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_services.c - messages of leases, of the directory and of calls, and bulk descriptors: one that decodes encodes to the
 * same bytes (a descriptor after its runs were joined), and its parts are inside them. Each input is tried as it is, and with the beginning of each of these; as a
 * descriptor also with the right checksum.
 */
#include <endian.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz/fuzz.h"
#include "services/bulk.h"
#include "services/directory_wire.h"
#include "services/lease_wire.h"
#include "services/rpc_wire.h"

enum { MAGIC = 4, BULK_CHECK = 8, BULK_HEAD = 6 };

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

/* Every place of the first and last pieces is inside of its region. */
static void bulk_walk(const struct svc_bulk_desc *d)
{
	struct svc_bulk_at at = svc_bulk_seek(d, 0);
	uint64_t from, n, done = 0;

	for (int i = 0; i < 200 && done < d->length; i++) {
		uint16_t key = d->run[at.run].key;

		n = svc_bulk_go(d, &at, d->length - done, &from);
		FUZZ_CHECK(n > 0 && from <= d->key[key].length && n <= d->key[key].length - from);
		done += n;
	}
	at = svc_bulk_seek(d, d->length - 1);
	FUZZ_CHECK(at.run == d->nruns - 1u && at.piece == d->run[at.run].count - 1);
	FUZZ_CHECK(at.byte == d->run[at.run].length - 1);
}

static void try_bulk(const uint8_t *block, size_t len)
{
	struct svc_bulk_desc d, twice;
	uint8_t *again, *third;
	const char *why;
	size_t n;

	if (svc_bulk_decode(block, len, &d, &why) != XPORT_OK)
		return;
	bulk_walk(&d);
	n = svc_bulk_packed(&d);
	FUZZ_CHECK(n == len);
	again = malloc(n);
	third = malloc(n);
	if (again != NULL && third != NULL) { /* runs may have been joined: the next round is the same */
		svc_bulk_encode(&d, again);
		FUZZ_CHECK(svc_bulk_decode(again, n, &twice, &why) == XPORT_OK);
		FUZZ_CHECK(twice.length == d.length && twice.pieces == d.pieces);
		svc_bulk_encode(&twice, third);
		FUZZ_CHECK(memcmp(again, third, n) == 0);
		svc_bulk_desc_fini(&twice);
	}
	free(again);
	free(third);
	svc_bulk_desc_fini(&d);
}

/* With the beginning and the end that a descriptor has. */
static void try_bulk_sealed(uint8_t *block, size_t len)
{
	static const uint8_t head[BULK_HEAD] = {'X', 'P', 'B', '1', 1, 0};
	uint64_t check;

	if (len < BULK_HEAD + BULK_CHECK)
		return;
	memcpy(block, head, sizeof(head));
	check = htole64(XXH64(block, len - BULK_CHECK, 0x31425058));
	memcpy(block + len - BULK_CHECK, &check, sizeof(check));
	try_bulk(block, len);
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
	try_bulk(block, len);
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
	try_bulk_sealed(block, len);
	free(block);
	return 0;
}
