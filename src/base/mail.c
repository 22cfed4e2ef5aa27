/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/mail.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>
#include <unistd.h>

#include "xport.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* where it has another number, this one is refused */
#endif

bool xpi_mail_take_fds(int sock, bool on)
{
	int value = on;

	return setsockopt(sock, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value)) == 0 || errno == ENOPROTOOPT ||
	       errno == EOPNOTSUPP;
}

int xpi_mail_send(int sock, const void *body, size_t len, int fd)
{
	struct iovec iov = {(void *)(uintptr_t)body, len};
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return XPORT_OK;
	if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS || errno == EPERM)
		return XPORT_ERR_AGAIN;
	return errno == ECONNREFUSED ? XPORT_ERR_PEER_LOST : XPORT_ERR_SYSTEM;
}

/* The control buffer has room for more of them where the kernel gives no user. */
static void take_fd(struct xpi_mail *mail, const unsigned char *at)
{
	int fd;

	memcpy(&fd, at, sizeof(fd));
	if (mail->nfds < XPI_MAIL_FDS) {
		mail->fds[mail->nfds++] = fd;
		return;
	}
	mail->cut = true;
	close(fd);
}

bool xpi_mail_take(int sock, struct xpi_mail *mail)
{
	struct iovec body = {mail->body, sizeof(mail->body)};
	alignas(struct cmsghdr) char control[CMSG_SPACE(XPI_MAIL_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
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
		size_t passed = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		struct ucred who;

		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&who, CMSG_DATA(c), sizeof(who));
			mail->has_user = true;
			mail->user = who.uid;
		}
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < passed; i++)
			take_fd(mail, CMSG_DATA(c) + i * sizeof(int));
	}
	return true;
}

void xpi_mail_drop(struct xpi_mail *mail)
{
	for (int i = 0; i < mail->nfds; i++)
		close(mail->fds[i]);
	mail->nfds = 0;
}
