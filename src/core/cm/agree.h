/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * agree.h - which transport two sides use.
 *
 * Both sides have both HELLOs, and compute the same. Nothing here opens, sends or logs anything.
 *
 *   - A pair is an offer of the client and an offer of the server that fit each other.
 *   - Pairs are ordered by the sum of their places in the two lists, the smallest first. If that is equal, the client's
 *     order decides. Pairs whose provider is still open come behind the others.
 *   - The server takes the first pair. If it does not connect, the next one.
 */
#ifndef XPI_CORE_CM_AGREE_H
#define XPI_CORE_CM_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/wire/hello.h"

enum { XPI_PAIRS_MAX = 64 };

struct xpi_pair {
	uint8_t client, server; /* places in their offers */
};

struct xpi_agreement {
	int n;
	struct xpi_pair pairs[XPI_PAIRS_MAX]; /* the best first */
};

/* xpi_agree - all pairs, in order. */
void xpi_agree(const struct xpi_hello *client, const struct xpi_hello *server, struct xpi_agreement *out);

/*
 * xpi_agree_fits - whether offer i of one side fits offer j of the other.
 *
 * Returns XPORT_OK, or, with a sentence in `why`,
 *   XPORT_ERR_INCOMPATIBLE  other back ends, providers or protocols; or one side cannot use it
 *   XPORT_ERR_UNREACHABLE   it shares memory, and the two processes do not
 */
int xpi_agree_fits(const struct xpi_hello *a, unsigned i, const struct xpi_hello *b, unsigned j, char *why, size_t len);

/*
 * xpi_agree_none - why no pair exists. Called only then.
 *
 * Returns XPORT_ERR_UNREACHABLE if sharing memory would have been common, else XPORT_ERR_INCOMPATIBLE; a sentence that lists
 * both sides in `text`, and what to do in *hint.
 */
int xpi_agree_none(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len,
                   const char **hint);

/*
 * xpi_agree_passed - why an offer of ours that we prefer to the chosen one is not used.
 *
 * i       the offer
 * chosen  the offer in use
 *
 * Returns false, and no text, if the peer does not offer it.
 */
bool xpi_agree_passed(const struct xpi_hello *ours, unsigned i, const struct xpi_hello *theirs, unsigned chosen,
                      char *text, size_t len);

#endif
