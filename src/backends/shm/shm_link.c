/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_link.c - the socket of an endpoint: it carries the two files, the bell, and descriptors of regions.
 *
 * A datagram socket with a random name (base/meet.h). Once it is connected, the kernel rejects other senders with EPERM.
 * Earlier datagrams are checked by their sender's name. It takes descriptors only from then until the peer's file has
 * come (Linux 6.16), or for ever if regions are lent: to close another one could block.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "shm.h"

enum { BELLS_MAX = 4, STRANGERS_MAX = 64, MAILS_MAX = 64 };

int shm_link_open(struct xpi_be *be, struct shm_ep *ep)
{
	ep->sock = xpi_fd_up(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (ep->sock < 0)
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot create a socket for an endpoint");
	if (xpi_mail_take_fds(ep->sock, false) && xpi_meet_bind(&be->meet, ep->sock, ep->file.name))
		return XPORT_OK;
	(void)xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot name the socket of an endpoint");
	close(ep->sock);
	ep->sock = -1;
	return XPORT_ERR_SYSTEM;
}

int shm_link_connect(struct xpi_be *be, struct shm_ep *ep)
{
	static const char hint[] = "shm connects processes of one network namespace, or those with one XPORT_SHM_DIR";

	if (!xpi_meet_connect(&be->meet, ep->sock, ep->to.name))
		return xpi_fail_errno(be->err, errno == EACCES ? XPORT_ERR_AUTH : XPORT_ERR_UNREACHABLE,
		                      errno == ECONNREFUSED ? hint : NULL, "cannot find the peer's socket");
	if (!xpi_mail_take_fds(ep->sock, true))
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot take descriptors from the peer");
	return XPORT_OK;
}

int shm_link_send(struct xpi_be *be, struct shm_ep *ep)
{
	uint64_t magic = SHM_MAGIC;
	int rc = xpi_mail_send(ep->sock, &magic, sizeof(magic), ep->file.fd);

	if (rc != XPORT_OK && rc != XPORT_ERR_AGAIN)
		return xpi_fail_errno(be->err, rc, NULL, "cannot send shared memory to the peer");
	return rc;
}

/* ---- receiving ---- */

static int mail_check(struct xpi_be *be, const struct xpi_mail *mail)
{
	uint64_t magic;

	memcpy(&magic, mail->body, sizeof(magic));
	if (mail->cut && mail->nfds == 0)
		return xpi_fail(be->err, XPORT_ERR_SYSTEM, 0, NULL, "raise `ulimit -n`",
		                "no descriptor is left for the peer's shared memory");
	if (mail->cut || mail->nfds != 1 || mail->len != sizeof(magic) || magic != SHM_MAGIC)
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
		                "the peer sent %d descriptors and %zd bytes in place of its shared memory", mail->nfds,
		                mail->len);
	return XPORT_OK;
}

int shm_link_recv(struct xpi_be *be, struct shm_ep *ep, int *fd)
{
	struct xpi_mail mail;
	int rc;

	for (int i = 0; i < STRANGERS_MAX; i++) {
		if (!xpi_mail_take(ep->sock, &mail)) {
			if (errno == EAGAIN || errno == EINTR)
				return XPORT_ERR_AGAIN;
			return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL,
			                      "cannot receive the peer's shared memory");
		}
		if (!xpi_meet_is_from(&be->meet, &mail, ep->to.name)) {
			xpi_mail_drop(&mail);
			continue;
		}
		rc = mail_check(be, &mail);
		if (rc == XPORT_OK && !shm_lends(be) && !xpi_mail_take_fds(ep->sock, false))
			rc = xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot refuse more descriptors");
		if (rc != XPORT_OK) {
			xpi_mail_drop(&mail);
			return rc;
		}
		*fd = xpi_fd_up(mail.fds[0]);
		return *fd >= 0 ? XPORT_OK
		                : xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL,
		                                 "cannot keep the descriptor of the peer's shared memory");
	}
	return XPORT_ERR_AGAIN;
}

/* ---- the bell ---- */

void shm_bell_ring(struct xpi_be *be, struct shm_ep *ep, uint32_t asleep)
{
	ssize_t n;

	do
		n = send(ep->sock, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	ep->rung = asleep;
	/* EAGAIN: a bell is already queued. The other errors: the peer's socket is closed, or refuses ours. */
	if (n >= 0 || (errno != ENOBUFS && errno != ENOMEM) || ep->bell_due)
		return;
	ep->bell_due = true;
	be->bells_due++;
}

/* A process that has no descriptor left loses the region, not the peer: it goes on by messages. */
static bool region_lost(struct xpi_be *be, const struct xpi_mail *mail)
{
	if (!xpi_lent_is_lost(mail))
		return false;
	xpi_log(be->log, XPORT_LOG_WARN, "5002",
	        "no descriptor is left for a region of the peer, which is reached by messages: raise `ulimit -n`");
	return true;
}

/* The peer rings once for each value of `sleep`; two may have come. The strangers' datagrams came before the connection. */
bool shm_bell_take(struct xpi_be *be, struct shm_ep *ep, const uint8_t *key, int *fd)
{
	struct xpi_mail mail;
	int bells = 0;

	for (int i = 0; i < MAILS_MAX && bells < BELLS_MAX; i++) {
		bool is_theirs, is_bell;

		if (key != NULL && (*fd = xpi_lent_take(ep->lent, key)) >= 0)
			break;
		/* The keys of those that were kept come first. */
		if (key == NULL && xpi_lent_is_full(ep->lent) && shm_rx_head(ep->rx.next) != 0)
			break;
		if (!xpi_mail_take(ep->sock, &mail))
			break;
		is_theirs = xpi_meet_is_from(&be->meet, &mail, ep->to.name);
		if (is_theirs && mail.len > 1)
			__atomic_fetch_add(&ep->tx.own->mails, 1, __ATOMIC_RELEASE);
		is_bell = mail.len == 1 && mail.nfds == 0 && !mail.cut;

		if (is_theirs && (!shm_lends(be) || (!xpi_lent_keep(&ep->lent, &mail) && !region_lost(be, &mail))))
			bells += is_bell ? 1 : BELLS_MAX;
		xpi_mail_drop(&mail);
	}
	return bells < BELLS_MAX;
}
