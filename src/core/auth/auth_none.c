/* SPDX-License-Identifier: BSD-3-Clause */
/* auth_none.c - in place of auth.c in a build without libsodium: no key is ever taken, so nothing else here is called. */
#include "base/error.h"
#include "core/auth/auth.h"

bool xpi_auth_built(void)
{
	return false;
}

int xpi_secret_read(const char *path, struct xpi_secret **secret, struct xport_error *err)
{
	(void)secret;
	return xpi_fail(
		err, XPORT_ERR_NOT_SUPPORTED, 0, NULL,
		"build libxport with libsodium, or unset it and set XPORT_AUTH=none where the network is trusted",
		"XPORT_AUTH_KEY_FILE=%.100s: this libxport was built without libsodium, and knows no keys", path);
}

void xpi_secret_free(struct xpi_secret *secret)
{
	(void)secret;
}

struct xpi_session *xpi_session_new(bool client)
{
	(void)client;
	return NULL;
}

void xpi_session_free(struct xpi_session *s)
{
	(void)s;
}

const uint8_t *xpi_session_start(const struct xpi_session *s)
{
	(void)s;
	return NULL;
}

bool xpi_session_is_start(const struct xpi_session *s, const uint8_t *start8)
{
	(void)s, (void)start8;
	return false;
}

void xpi_session_derive(struct xpi_session *s, const struct xpi_secret *secret, const uint8_t *peer_start)
{
	(void)s, (void)secret, (void)peer_start;
}

void xpi_session_prove(struct xpi_session *s, uint8_t *proof)
{
	(void)s, (void)proof;
}

bool xpi_session_proven(struct xpi_session *s, const uint8_t *proof)
{
	(void)s, (void)proof;
	return false;
}

void xpi_session_seal(struct xpi_session *s, enum xpi_seal_kind kind, const void *msg, size_t len, uint8_t *seal)
{
	(void)s, (void)kind, (void)msg, (void)len, (void)seal;
}

void xpi_session_unseal(struct xpi_session *s)
{
	(void)s;
}

bool xpi_session_open(struct xpi_session *s, enum xpi_seal_kind kind, const void *msg, size_t len, const uint8_t *seal)
{
	(void)s, (void)kind, (void)msg, (void)len, (void)seal;
	return false;
}

void xpi_session_note(struct xpi_session *s, const void *hello, size_t len)
{
	(void)s, (void)hello, (void)len;
}
