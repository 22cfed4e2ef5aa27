/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * auth.h - proving to each other that both know the key of XPORT_AUTH_KEY_FILE, and sealing what is said afterwards.
 *
 * Messages, in this order (auth_exchange.c sends them):
 *
 *   START  client  "XPKY", version (16 bits big-endian), role 'C', 0, 32 random bytes
 *   START  server  the same with role 'S'
 *   PROOF  client  'P', 32 bytes
 *   PROOF  server  'P', 32 bytes
 *
 * From the key and both STARTs come four secrets, each for one use and one direction: the two proofs, and the keys
 * that seal what client and server say then.  So a message that is reflected, or repeated from another connection, is
 * wrong.  A seal is 16 bytes behind the message, over the message and its number in its direction.  That of HELLO and
 * READY covers in addition both STARTs and each HELLO that went before it: READY vouches for all of the handshake.
 *
 * auth.c does it with libsodium; auth_none.c stands in its place where that is not built in, and has no key ever.
 */
#ifndef XPI_CORE_AUTH_AUTH_H
#define XPI_CORE_AUTH_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xport.h"

enum { XPI_START_LEN = 40, XPI_PROOF_LEN = 33, XPI_SEAL_LEN = 16 };

/* What a key file may have, without the line's end. */
enum { XPI_SECRET_MIN = 16, XPI_SECRET_MAX = 4096 };

/* The key, as far as it is kept: a hash of the file, in memory that is locked if the system permits. */
struct xpi_secret;

/* A connection's state: which secrets are its own. */
struct xpi_session;

/* What a seal covers besides its message. */
enum xpi_seal_kind {
	XPI_SEAL_LATER,    /* its number alone: what comes after the handshake, and what ends it */
	XPI_SEAL_HANDSHAKE /* all STARTs and HELLOs so far, too */
};

bool xpi_auth_built(void);

/* CONFIG: the file cannot be read, is not a private regular file, too short or too long; the sentence begins with
 * XPORT_AUTH_KEY_FILE=... and the hint is a command.  NOT_SUPPORTED: a build without libsodium. */
int xpi_secret_read(const char *path, struct xpi_secret **secret, struct xport_error *err);
void xpi_secret_free(struct xpi_secret *secret);

/* NULL: out of memory.  Makes the own START as well. */
struct xpi_session *xpi_session_new(bool client);
/* Wipes it.  NULL: nothing to do. */
void xpi_session_free(struct xpi_session *s);
const uint8_t *xpi_session_start(const struct xpi_session *s);
/* Whether these 8 bytes begin a START of the other role. */
bool xpi_session_is_start(const struct xpi_session *s, const uint8_t *start8);
/* The peer's START is here: all secrets are known. */
void xpi_session_derive(struct xpi_session *s, const struct xpi_secret *secret, const uint8_t *peer_start);
/* The own PROOF, once. */
void xpi_session_prove(struct xpi_session *s, uint8_t *proof);
/* False: its sender does not know the key. */
bool xpi_session_proven(struct xpi_session *s, const uint8_t *proof);

/* Writes the seal of the next message. */
void xpi_session_seal(struct xpi_session *s, enum xpi_seal_kind kind, const void *msg, size_t len, uint8_t *seal);
/* The last message sealed was not sent, not even in part: its number is free again. */
void xpi_session_unseal(struct xpi_session *s);
/* Whether the seal is that of the next message. */
bool xpi_session_open(struct xpi_session *s, enum xpi_seal_kind kind, const void *msg, size_t len, const uint8_t *seal);
/* A HELLO was sealed, or opened: what XPI_SEAL_HANDSHAKE covers from now on. */
void xpi_session_note(struct xpi_session *s, const void *hello, size_t len);

#endif
