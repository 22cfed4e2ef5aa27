/* SPDX-License-Identifier: BSD-3-Clause */
/* auth.c - the secrets of a connection, by libsodium; see auth.h. */
#include "core/auth/auth.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/auth/key_file.h"

enum { KEY = 32, KEY_VERSION = 1, HEAD = 8 };

struct xpi_secret {
	uint8_t key[KEY];
};

struct xpi_session {
	bool client;
	uint8_t start[XPI_START_LEN];    /* the own one */
	uint8_t prove[KEY], expect[KEY]; /* what the own PROOF says, and the peer's must */
	uint8_t seal[KEY], open[KEY];
	uint8_t handshake[KEY]; /* hash of what was said so far */
	uint64_t sealed, opened;
};

/* What the secrets of a connection are for; the numbers are a part of the protocol. */
enum use { CLIENT_PROVES = 1, SERVER_PROVES = 2, CLIENT_SEALS = 3, SERVER_SEALS = 4 };

bool xpi_auth_built(void)
{
	return true;
}

/* ---- The key ---- */

/* Both have pages of their own, locked if that is permitted, kept out of core files, and wiped when they are freed. */
static int auth_take_in(struct xpi_secret *secret, uint8_t *bytes, const char *path, struct xport_error *err)
{
	static const uint8_t personal[crypto_generichash_blake2b_PERSONALBYTES] = "libxport key";
	size_t len = 0;
	int rc = xpi_key_file(path, bytes, &len, err);

	if (rc == XPORT_OK)
		crypto_generichash_blake2b_salt_personal(secret->key, KEY, bytes, len, NULL, 0, NULL, personal);
	return rc;
}

int xpi_secret_read(const char *path, struct xpi_secret **out, struct xport_error *err)
{
	struct xpi_secret *secret;
	uint8_t *bytes;
	int rc;

	if (sodium_init() < 0)
		return xpi_fail(err, XPORT_ERR_SYSTEM, 0, NULL, NULL, "libsodium cannot be used on this machine");
	secret = sodium_malloc(sizeof(*secret));
	bytes = sodium_malloc(XPI_KEY_FILE_ROOM);
	if (secret != NULL && bytes != NULL)
		rc = auth_take_in(secret, bytes, path, err);
	else
		rc = xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for the key");
	sodium_free(bytes);
	if (rc == XPORT_OK)
		*out = secret;
	else
		sodium_free(secret);
	return rc;
}

void xpi_secret_free(struct xpi_secret *secret)
{
	sodium_free(secret);
}

/* ---- The proof ---- */

struct xpi_session *xpi_session_new(bool client)
{
	struct xpi_session *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->client = client;
	memcpy(s->start, (uint8_t[HEAD]){'X', 'P', 'K', 'Y', 0, KEY_VERSION, client ? 'C' : 'S', 0}, HEAD);
	randombytes_buf(s->start + HEAD, XPI_START_LEN - HEAD);
	return s;
}

void xpi_session_free(struct xpi_session *s)
{
	if (s == NULL)
		return;
	sodium_memzero(s, sizeof(*s));
	free(s);
}

const uint8_t *xpi_session_start(const struct xpi_session *s)
{
	return s->start;
}

bool xpi_session_is_start(const struct xpi_session *s, const uint8_t *p)
{
	const uint8_t head[HEAD] = {'X', 'P', 'K', 'Y', 0, KEY_VERSION, s->client ? 'S' : 'C', 0};

	return memcmp(p, head, HEAD) == 0;
}

static void derive_one(uint8_t *out, enum use use, const uint8_t *session)
{
	crypto_kdf_derive_from_key(out, KEY, use, "xport-s1", session);
}

void xpi_session_derive(struct xpi_session *s, const struct xpi_secret *secret, const uint8_t *peer_start)
{
	const uint8_t *first = s->client ? s->start : peer_start, *second = s->client ? peer_start : s->start;
	crypto_generichash_blake2b_state state;
	uint8_t session[KEY];

	crypto_generichash_blake2b_init(&state, secret->key, KEY, KEY);
	crypto_generichash_blake2b_update(&state, first, XPI_START_LEN);
	crypto_generichash_blake2b_update(&state, second, XPI_START_LEN);
	crypto_generichash_blake2b_final(&state, session, KEY);
	derive_one(s->prove, s->client ? CLIENT_PROVES : SERVER_PROVES, session);
	derive_one(s->expect, s->client ? SERVER_PROVES : CLIENT_PROVES, session);
	derive_one(s->seal, s->client ? CLIENT_SEALS : SERVER_SEALS, session);
	derive_one(s->open, s->client ? SERVER_SEALS : CLIENT_SEALS, session);
	sodium_memzero(&state, sizeof(state));
	sodium_memzero(session, sizeof(session));
	xpi_session_note(s, first, XPI_START_LEN);
	xpi_session_note(s, second, XPI_START_LEN);
}

void xpi_session_prove(struct xpi_session *s, uint8_t *proof)
{
	proof[0] = 'P';
	memcpy(proof + 1, s->prove, KEY);
	sodium_memzero(s->prove, KEY);
}

bool xpi_session_proven(struct xpi_session *s, const uint8_t *proof)
{
	return proof[0] == 'P' && sodium_memcmp(proof + 1, s->expect, KEY) == 0;
}

/* ---- Seals ---- */

static void compute(const struct xpi_session *s, const uint8_t *key, uint64_t number, enum xpi_seal_kind kind,
                    const void *msg, size_t len, uint8_t *seal)
{
	crypto_generichash_blake2b_state state;
	uint8_t head[9] = {(uint8_t)kind};

	for (int i = 0; i < 8; i++)
		head[1 + i] = (uint8_t)(number >> 8 * i);
	crypto_generichash_blake2b_init(&state, key, KEY, XPI_SEAL_LEN);
	crypto_generichash_blake2b_update(&state, head, sizeof(head));
	if (kind == XPI_SEAL_HANDSHAKE)
		crypto_generichash_blake2b_update(&state, s->handshake, KEY);
	crypto_generichash_blake2b_update(&state, msg, len);
	crypto_generichash_blake2b_final(&state, seal, XPI_SEAL_LEN);
	sodium_memzero(&state, sizeof(state));
}

void xpi_session_seal(struct xpi_session *s, enum xpi_seal_kind kind, const void *msg, size_t len, uint8_t *seal)
{
	compute(s, s->seal, s->sealed++, kind, msg, len, seal);
}

void xpi_session_unseal(struct xpi_session *s)
{
	s->sealed--;
}

bool xpi_session_open(struct xpi_session *s, enum xpi_seal_kind kind, const void *msg, size_t len, const uint8_t *seal)
{
	uint8_t right[XPI_SEAL_LEN];

	compute(s, s->open, s->opened, kind, msg, len, right);
	if (sodium_memcmp(right, seal, XPI_SEAL_LEN) != 0)
		return false;
	s->opened++;
	return true;
}

void xpi_session_note(struct xpi_session *s, const void *hello, size_t len)
{
	crypto_generichash_blake2b_state state;

	crypto_generichash_blake2b_init(&state, NULL, 0, KEY);
	crypto_generichash_blake2b_update(&state, s->handshake, KEY);
	crypto_generichash_blake2b_update(&state, hello, len);
	crypto_generichash_blake2b_final(&state, s->handshake, KEY);
}
