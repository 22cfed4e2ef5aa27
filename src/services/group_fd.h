/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_fd.h - descriptors of the sources of a group. Each is above 2 and close-on-exec: a daemon's closed standard streams
 * do not become sockets. Sockets are non-blocking.
 */
#ifndef SVC_GROUP_FD_H
#define SVC_GROUP_FD_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Moves a new descriptor above 2. Passes -1 through. -1: errno says why. */
int svc_fd_up(int fd);
/* open(2). */
int svc_fd_open(const char *path, int flags, mode_t mode);
/* Whether something can be read (or written) within `ms`. */
bool svc_fd_readable(int fd, int ms);
bool svc_fd_writable(int fd, int ms);

/*
 * Resolves "host:port", with an IPv6 address in brackets. Returns XPORT_OK, ADDRESS or UNREACHABLE, described for
 * `operation`; freeaddrinfo frees the list.
 */
int svc_address_find(const char *address, bool listener, struct addrinfo **list, const char *operation);

#endif
