/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/lent.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define LENT_MAGIC UINT64_C(0x31746e656c78) /* "xlent1" */

struct lent {
	uint64_t name[2];
	int fd;
};

/* In the order of their arrival. The keys to two parts of a region come with a descriptor each. */
struct xpi_lent {
	struct lent of[XPI_LENT_KEPT];
	unsigned n;
};

struct lent_body {
	uint64_t magic;
	uint64_t name[2];
};

_Static_assert(sizeof(struct lent_body) <= XPI_MAIL_BODY, "it fits");

int xpi_lent_send(int sock, const struct xpi_shm *shm)
{
	struct lent_body body = {LENT_MAGIC, {shm->name[0], shm->name[1]}};

	return xpi_mail_send(sock, &body, sizeof(body), shm->fd);
}

static int lent_take(struct xpi_lent *lent, unsigned i)
{
	int fd = lent->of[i].fd;

	lent->n--;
	memmove(&lent->of[i], &lent->of[i + 1], (lent->n - i) * sizeof(lent->of[0]));
	return fd;
}

bool xpi_lent_is_full(const struct xpi_lent *lent)
{
	return lent != NULL && lent->n == XPI_LENT_KEPT;
}

/* Whether the body is that of such a mail. */
static bool lent_body(const struct xpi_mail *mail, struct lent_body *body)
{
	if (mail->len != sizeof(*body))
		return false;
	memcpy(body, mail->body, sizeof(*body));
	return body->magic == LENT_MAGIC;
}

bool xpi_lent_is_lost(const struct xpi_mail *mail)
{
	struct lent_body body;

	return mail->cut && mail->nfds == 0 && lent_body(mail, &body);
}

bool xpi_lent_keep(struct xpi_lent **lent, struct xpi_mail *mail)
{
	struct lent_body body;
	int fd;

	if (mail->cut || mail->nfds != 1 || !lent_body(mail, &body))
		return false;
	fd = xpi_fd_up(mail->fds[0]);
	mail->nfds = 0;
	if (*lent == NULL)
		*lent = calloc(1, sizeof(**lent));
	if (xpi_lent_is_full(*lent))
		close(lent_take(*lent, 0));
	if (*lent != NULL && fd >= 0)
		(*lent)->of[(*lent)->n++] = (struct lent){{body.name[0], body.name[1]}, fd};
	else if (fd >= 0)
		close(fd);
	return true;
}

int xpi_lent_take(struct xpi_lent *lent, const uint8_t key[XPI_SHM_KEY])
{
	uint64_t name[2];

	xpi_shm_name(key, name);
	for (unsigned i = 0; lent != NULL && i < lent->n; i++)
		if (memcmp(lent->of[i].name, name, sizeof(name)) == 0)
			return lent_take(lent, i);
	return -1;
}

void xpi_lent_free(struct xpi_lent *lent)
{
	while (lent != NULL && lent->n > 0)
		close(lent_take(lent, lent->n - 1));
	free(lent);
}
