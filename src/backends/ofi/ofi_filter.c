/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_filter.c - protecting providers that accept any datagram as a peer's.
 *
 * rxd (1.17) uses bytes of a datagram as indices before it knows who sent it: one foreign datagram ends the process.
 * libfabric does not expose its socket, but the socket is in this process and is found by the address that it is
 * bound to. A kernel filter lets nothing in until the peer is known, and then only packets with the peer's source
 * address.
 *
 * tcp and net (1.17) read a peer's connection request from a blocking socket. Their listening socket is found in the
 * same way, and given a receive timeout. So is the socket of a connection, whose packets get a traffic class.
 *
 *   ASSUMPTIONS  An endpoint talks to one peer only. Nobody knows its address before `address` has returned it.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"
#include "ofi.h"

enum { V4_SOURCE = 12, V6_SOURCE = 8 }; /* in the header of IP */

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *x = (const struct sockaddr_in *)a, *y = (const struct sockaddr_in *)b;

		return x->sin_port == y->sin_port && x->sin_addr.s_addr == y->sin_addr.s_addr;
	}
	const struct sockaddr_in6 *x = (const struct sockaddr_in6 *)a, *y = (const struct sockaddr_in6 *)b;

	return a->sa_family == AF_INET6 && x->sin6_port == y->sin6_port &&
	       memcmp(&x->sin6_addr, &y->sin6_addr, sizeof(x->sin6_addr)) == 0;
}

/* What a socket must be. Without a peer a TCP socket must be listening: accepted ones may be bound to the same address. */
struct wanted {
	const struct ofi_addr *name, *peer; /* peer NULL: not connected */
	int type;
};

static bool is_wanted(int fd, const struct wanted *w)
{
	struct ofi_addr at;
	socklen_t len = sizeof(at.storage);
	int type = 0, listens = 0;
	socklen_t type_len = sizeof(type), listens_len = sizeof(listens);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) != 0 || type != w->type ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_len) != 0 ||
	    (listens != 0) != (type == SOCK_STREAM && w->peer == NULL) || getsockname(fd, &at.sa, &len) != 0 ||
	    !same_address(&at.sa, &w->name->sa))
		return false;
	len = sizeof(at.storage);
	return w->peer == NULL || (getpeername(fd, &at.sa, &len) == 0 && same_address(&at.sa, &w->peer->sa));
}

/* The socket of this process that is wanted, or -1. */
static int find_socket(const struct wanted *w)
{
	DIR *dir = xpi_fd_dir("/proc/self/fd");
	struct dirent *e;
	int found = -1;

	while (dir != NULL && found < 0 && (e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.' && is_wanted(atoi(e->d_name), w))
			found = atoi(e->d_name);
	if (dir != NULL)
		closedir(dir);
	return found;
}

/*
 * The socket of a connection. Of many, the next one mostly has the next number, since the kernel gives the lowest free one:
 * some are tried before all descriptors are. A socket is taken by its two addresses, never by its number.
 */
int ofi_filter_connected(struct ofi_ep *ep)
{
	enum { NEAR = 8 };
	struct ofi_addr name = {.len = sizeof(name.bytes)}, peer = {.len = sizeof(peer.bytes)};
	struct wanted w = {.name = &name, .peer = &peer, .type = SOCK_STREAM};
	int last = ep->be->last_socket, fd = last + 1;

	if (fi_getname(&ep->fid->fid, name.bytes, &name.len) != 0 || fi_getpeer(ep->fid, peer.bytes, &peer.len) != 0)
		return -1;
	while (fd <= last + NEAR && !is_wanted(fd, &w))
		fd++;
	if (fd > last + NEAR)
		fd = find_socket(&w);
	if (fd >= 0)
		ep->be->last_socket = fd;
	return fd;
}

static int attach(int fd, struct sock_filter *code, size_t n)
{
	struct sock_fprog prog = {.len = (unsigned short)n, .filter = code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) == 0 ? 0 : -errno;
}

/* Blocks all senders, once the endpoint has its name. */
int ofi_filter_build(struct ofi_ep *ep)
{
	struct sock_filter nobody[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	struct wanted w = {.name = &ep->name, .type = SOCK_DGRAM};
	uint8_t byte;
	int rc;

	ep->socket = find_socket(&w);
	if (ep->socket < 0)
		return -FI_EOPNOTSUPP;
	rc = attach(ep->socket, nobody, 1);
	while (rc == 0 && recv(ep->socket, &byte, 1, MSG_DONTWAIT) >= 0)
		; /* data from before the filter does not come from a peer */
	return rc;
}

/* Drops the packet unless the next word is this one. */
static void must_be(struct sock_filter *code, size_t *n, uint16_t size, uint32_t at, uint32_t value)
{
	code[(*n)++] = (struct sock_filter)BPF_STMT(BPF_LD | size | BPF_ABS, at);
	code[(*n)++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
	code[(*n)++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
}

/* Admits the peer only, once it is known. A filter sees the UDP header, which begins with the source port. */
int ofi_filter_open(struct ofi_ep *ep)
{
	const struct sockaddr *sa = &ep->peer[0].sa;
	struct sock_filter code[16];
	size_t n = 0;

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		must_be(code, &n, BPF_H, 0, ntohs(in->sin_port));
		must_be(code, &n, BPF_W, (uint32_t)SKF_NET_OFF + V4_SOURCE, ntohl(in->sin_addr.s_addr));
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		must_be(code, &n, BPF_H, 0, ntohs(in6->sin6_port));
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t word;

			memcpy(&word, in6->sin6_addr.s6_addr + 4 * i, sizeof(word));
			must_be(code, &n, BPF_W, (uint32_t)SKF_NET_OFF + V6_SOURCE + 4 * i, ntohl(word));
		}
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
	return attach(ep->socket, code, n);
}

/*
 * Limits waiting for a connection request. A peer sends its whole request with one call. A sender of only the head
 * would block everybody. Accepted sockets inherit this timeout from the listening socket. They are accepted only once
 * data arrives: libfabric never closes silent ones, and is woken for ever if it cannot accept more.
 */
void ofi_filter_listener(const struct xpi_be *be)
{
	static const struct timeval limit = {.tv_usec = 1000};
	const int silence = 30; /* seconds */
	struct ofi_addr at = {.len = sizeof(at.bytes)};
	struct wanted w = {.name = &at, .type = SOCK_STREAM};
	int fd = fi_getname(&be->pep->fid, at.bytes, &at.len) == 0 ? find_socket(&w) : -1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silence, sizeof(silence)) != 0)
		xpi_log(be->log, XPORT_LOG_DEBUG, "3018",
		        "ofi: cannot find or configure libfabric's socket: a connection that sends nothing can delay "
		        "others");
}
