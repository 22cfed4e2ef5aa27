/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lent.h - descriptors of regions (base/shm.h), passed over a socket.
 *
 * Processes in different containers do not find each other below /proc. The owner of a region sends its descriptor
 * before each key. The peer keeps a few, until their keys are used. Of more the oldest one is closed.
 */
#ifndef XPI_BASE_LENT_H
#define XPI_BASE_LENT_H

#include "base/mail.h"
#include "base/shm.h"

enum {
	XPI_LENT_AHEAD = 16,                /* sent before their keys, or not taken out of the socket yet, at most */
	XPI_LENT_KEPT = 2 * XPI_LENT_AHEAD
};

struct xpi_lent;

/* xpi_lent_send - send the descriptor of a region. Returns as xpi_mail_send. */
int xpi_lent_send(int sock, const struct xpi_shm *shm);
/* xpi_lent_keep - keep the descriptor that a mail carries; *lent is NULL at first. False: it is no such mail. */
bool xpi_lent_keep(struct xpi_lent **lent, struct xpi_mail *mail);
/* xpi_lent_is_lost - true if it is such a mail, but this process had no descriptor left to receive it. */
bool xpi_lent_is_lost(const struct xpi_mail *mail);
/* xpi_lent_is_full - true if the next one that is kept closes an older one. */
bool xpi_lent_is_full(const struct xpi_lent *lent);
/* xpi_lent_take - take the descriptor of a key; the caller owns it. Returns -1 if it has not come. */
int xpi_lent_take(struct xpi_lent *lent, const uint8_t key[XPI_SHM_KEY]);
void xpi_lent_free(struct xpi_lent *lent);

#endif
