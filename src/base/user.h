/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * user.h - which user owns a file, or the process at the other end of a local TCP connection, as the kernel says.
 *
 * Users are compared by the effective user ID of this process.  In a user namespace the kernel shows all users that are
 * not mapped there under one number, the overflow user (65534).  That number proves nothing there.
 */
#ifndef XPI_BASE_USER_H
#define XPI_BASE_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether a user ID that the kernel returned is that of our effective user, and is not ambiguous. */
bool xpi_user_is_ours(uid_t uid);

enum xpi_peer_user {
	XPI_PEER_OURS,   /* a process of our effective user */
	XPI_PEER_OTHERS, /* another user's; or a number that is ambiguous here */
	XPI_PEER_UNKNOWN /* the other end is not a socket that a process of this network namespace holds open */
};

/*
 * xpi_peer_user - find the user who made the socket at the other end of the connected TCP socket `fd`.
 *
 * Asks the kernel by sock_diag(7); where that does not know our own end, reads /proc/net/tcp.  A connection that its listener has not
 * accepted yet belongs to nobody: XPI_PEER_UNKNOWN.  *uid is set with XPI_PEER_OURS and XPI_PEER_OTHERS.
 */
enum xpi_peer_user xpi_peer_user(int fd, uid_t *uid);

/* The two ways of asking, for tests.  1: found, 0: there is no such socket, -1: this system has no such way. */
struct xpi_socket_owner {
	uid_t uid;
	unsigned long inode; /* 0: no process holds it */
};
/* `local`, `remote`: as the socket asked for sees them, IPv4 addresses as such. */
struct sockaddr_storage;
int xpi_user_by_diag(const struct sockaddr_storage *local, const struct sockaddr_storage *remote,
                     struct xpi_socket_owner *owner);
int xpi_user_by_proc(const struct sockaddr_storage *local, const struct sockaddr_storage *remote,
                     struct xpi_socket_owner *owner);

#endif
