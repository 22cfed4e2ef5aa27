/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_link.c - the socket of an endpoint: it carries the two files, and then the bell.
 *
 * A datagram socket with a random abstract name. Once it is connected, the kernel rejects other senders with EPERM.
 * Earlier datagrams are checked by their sender's name. It takes descriptors only from then until the peer's file has
 * come (Linux 6.16): to close another one could block. Every call passes MSG_DONTWAIT.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "shm.h"

enum { NAME_LEN = 1 + 6 + 32, FDS_MAX = 4, BELLS_MAX = 4, STRANGERS_MAX = 64 };

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* where it has another number, this one is refused */
#endif

static socklen_t link_name(const uint64_t bits[2], struct sockaddr_un *a)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "xport-%016llx%016llx", (unsigned long long)bits[0],
	         (unsigned long long)bits[1]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + NAME_LEN);
}

/* Lets senders pass descriptors, or not. False: errno says why. */
static bool link_take_fds(int sock, int on)
{
	return setsockopt(sock, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof(on)) == 0 || errno == ENOPROTOOPT ||
	       errno == EOPNOTSUPP;
}

int shm_link_open(struct xpi_be *be, struct shm_ep *ep)
{
	struct sockaddr_un a;
	socklen_t len = link_name(ep->file.name, &a);

	ep->sock = xpi_fd_up(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (ep->sock < 0)
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot create a socket for an endpoint");
	if (link_take_fds(ep->sock, 0) && bind(ep->sock, (struct sockaddr *)&a, len) == 0)
		return XPORT_OK;
	(void)xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot name the socket of an endpoint");
	close(ep->sock);
	ep->sock = -1;
	return XPORT_ERR_SYSTEM;
}

int shm_link_connect(struct xpi_be *be, struct shm_ep *ep)
{
	struct sockaddr_un a;
	socklen_t len = link_name(ep->to.name, &a);

	if (connect(ep->sock, (struct sockaddr *)&a, len) != 0)
		return xpi_fail_errno(be->err, XPORT_ERR_UNREACHABLE,
		                      errno == ECONNREFUSED ? "shm connects processes of one network namespace" : NULL,
		                      "cannot find the peer's socket");
	if (!link_take_fds(ep->sock, 1))
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot take descriptors from the peer");
	return XPORT_OK;
}

int shm_link_send(struct xpi_be *be, struct shm_ep *ep)
{
	uint64_t magic = SHM_MAGIC;
	struct iovec body = {&magic, sizeof(magic)};
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr m = {
		.msg_iov = &body, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &ep->file.fd, sizeof(int));
	if (sendmsg(ep->sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return XPORT_OK;
	/* The queue is full, too many descriptors of this user are under way, or (EPERM) the peer takes none yet. */
	if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS || errno == EPERM)
		return XPORT_ERR_AGAIN;
	return xpi_fail_errno(be->err, errno == ECONNREFUSED ? XPORT_ERR_PEER_LOST : XPORT_ERR_SYSTEM, NULL,
	                      "cannot send shared memory to the peer");
}

/* ---- receiving ---- */

struct mail {
	struct sockaddr_un from;
	socklen_t from_len;
	ssize_t len;
	uint64_t magic;
	int fds[FDS_MAX];
	int nfds;
	bool cut; /* parts are missing */
};

/* False: errno says why. */
static bool mail_take(int sock, struct mail *mail)
{
	struct iovec body = {&mail->magic, sizeof(mail->magic)};
	alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_MAX * sizeof(int))];
	struct msghdr m = {.msg_name = &mail->from,
	                   .msg_namelen = sizeof(mail->from),
	                   .msg_iov = &body,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};

	memset(mail, 0, sizeof(*mail));
	mail->len = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (mail->len < 0)
		return false;
	mail->from_len = m.msg_namelen;
	mail->cut = (m.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		mail->nfds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(mail->fds, CMSG_DATA(c), (size_t)mail->nfds * sizeof(int));
	}
	return true;
}

static void mail_drop(struct mail *mail)
{
	for (int i = 0; i < mail->nfds; i++)
		close(mail->fds[i]);
	mail->nfds = 0;
}

static bool mail_is_from(const struct mail *mail, const struct shm_address *peer)
{
	struct sockaddr_un a;
	socklen_t len = link_name(peer->name, &a);

	return mail->from_len == len && memcmp(&mail->from, &a, len) == 0;
}

static int mail_check(struct xpi_be *be, const struct mail *mail)
{
	if (mail->cut && mail->nfds == 0)
		return xpi_fail(be->err, XPORT_ERR_SYSTEM, 0, NULL, "raise `ulimit -n`",
		                "no descriptor is left for the peer's shared memory");
	if (mail->cut || mail->nfds != 1 || mail->len != sizeof(mail->magic) || mail->magic != SHM_MAGIC)
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
		                "the peer sent %d descriptors and %zd bytes in place of its shared memory", mail->nfds,
		                mail->len);
	return XPORT_OK;
}

int shm_link_recv(struct xpi_be *be, struct shm_ep *ep, int *fd)
{
	struct mail mail;
	int rc;

	for (int i = 0; i < STRANGERS_MAX; i++) {
		if (!mail_take(ep->sock, &mail)) {
			if (errno == EAGAIN || errno == EINTR)
				return XPORT_ERR_AGAIN;
			return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL,
			                      "cannot receive the peer's shared memory");
		}
		if (!mail_is_from(&mail, &ep->to)) {
			mail_drop(&mail);
			continue;
		}
		rc = mail_check(be, &mail);
		if (rc == XPORT_OK && !link_take_fds(ep->sock, 0))
			rc = xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot refuse more descriptors");
		if (rc != XPORT_OK) {
			mail_drop(&mail);
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

/* The peer rings once for each value of `sleep`; two may have come. The strangers' datagrams came before the connection. */
bool shm_bell_take(struct shm_ep *ep)
{
	struct mail mail;
	int bells = 0;

	while (bells < BELLS_MAX && mail_take(ep->sock, &mail)) {
		bool is_bell = mail.len == 1 && mail.nfds == 0 && !mail.cut;

		mail_drop(&mail);
		if (mail_is_from(&mail, &ep->to))
			bells += is_bell ? 1 : BELLS_MAX;
	}
	return bells < BELLS_MAX;
}
