/* SPDX-License-Identifier: BSD-3-Clause */
/* mail.h - short datagrams of a Unix socket, and the descriptors that they carry. No call blocks. */
#ifndef XPI_BASE_MAIL_H
#define XPI_BASE_MAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum { XPI_MAIL_BODY = 32, XPI_MAIL_FDS = 4 };

struct xpi_mail {
	struct sockaddr_un from;
	socklen_t from_len;
	ssize_t len;
	unsigned char body[XPI_MAIL_BODY];
	int fds[XPI_MAIL_FDS];
	int nfds;
	bool cut; /* parts are missing */
	bool has_user;
	uid_t user; /* of the sender, as the kernel says; with SO_PASSCRED */
};

/* xpi_mail_take_fds - let senders pass descriptors, or not (Linux 6.16; before they always may). False: errno says why. */
bool xpi_mail_take_fds(int sock, bool on);

/*
 * xpi_mail_send - send a body and a descriptor over a connected socket.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN      the queue is full, too many descriptors are under way, or the peer takes none yet
 *   XPORT_ERR_PEER_LOST  the peer's socket is closed
 *   XPORT_ERR_SYSTEM     other errors; errno says which
 */
int xpi_mail_send(int sock, const void *body, size_t len, int fd);

/* xpi_mail_take - receive the next one. The descriptors are the caller's. False: errno says why. */
bool xpi_mail_take(int sock, struct xpi_mail *mail);
/* xpi_mail_drop - close its descriptors. */
void xpi_mail_drop(struct xpi_mail *mail);

#endif
