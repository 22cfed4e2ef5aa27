/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/user.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { OVERFLOW_UID = 65534, ANSWER_MS = 1000 };

/* As the kernel numbers the states of a TCP socket (net/tcp_states.h); netinet/tcp.h has other names for them. */
enum { STATE_ESTABLISHED = 1, STATE_FIN_WAIT1 = 4, STATE_FIN_WAIT2 = 5, STATE_CLOSE_WAIT = 8 };

/* Read once: administrators set it, if at all, when the system starts. */
static uid_t overflow_uid(void)
{
	static atomic_uint known;
	FILE *f;
	unsigned uid = atomic_load_explicit(&known, memory_order_relaxed);

	if (uid != 0)
		return uid;
	f = xpi_fd_stream("/proc/sys/kernel/overflowuid");
	if (f == NULL || fscanf(f, "%u", &uid) != 1)
		uid = OVERFLOW_UID;
	else
		atomic_store_explicit(&known, uid, memory_order_relaxed);
	if (f != NULL)
		fclose(f);
	return uid;
}

/* Whether this user namespace has a number for every user. */
static bool maps_all_users(void)
{
	FILE *f = xpi_fd_stream("/proc/self/uid_map");
	unsigned inside, outside, n;
	bool all = f != NULL && fscanf(f, "%u %u %u", &inside, &outside, &n) == 3 && inside == 0 && outside == 0 &&
	           n == UINT32_MAX;

	if (f != NULL)
		fclose(f);
	return all;
}

bool xpi_user_is_ours(uid_t uid)
{
	return uid == geteuid() && (uid != overflow_uid() || maps_all_users());
}

/* ---- the other end of a connection ---- */

static const struct sockaddr_in *v4(const struct sockaddr_storage *sa)
{
	return (const struct sockaddr_in *)sa;
}

static const struct sockaddr_in6 *v6(const struct sockaddr_storage *sa)
{
	return (const struct sockaddr_in6 *)sa;
}

/* A socket of IPv6 that carries IPv4 is asked for as one of IPv4. */
static void unmap(struct sockaddr_storage *sa)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	if (sa->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6(sa)->sin6_addr))
		return;
	memcpy(&in.sin_addr, &v6(sa)->sin6_addr.s6_addr[12], sizeof(in.sin_addr));
	in.sin_port = v6(sa)->sin6_port;
	memset(sa, 0, sizeof(*sa));
	memcpy(sa, &in, sizeof(in));
}

static void put_address(const struct sockaddr_storage *sa, uint32_t words[4], uint16_t *port)
{
	if (sa->ss_family == AF_INET) {
		words[0] = v4(sa)->sin_addr.s_addr;
		*port = v4(sa)->sin_port;
		return;
	}
	memcpy(words, &v6(sa)->sin6_addr, sizeof(v6(sa)->sin6_addr));
	*port = v6(sa)->sin6_port;
}

/* A listening socket, or what TCP keeps of a closed one, is no end of a connection. */
static bool is_connected(unsigned state)
{
	return state == STATE_ESTABLISHED || state == STATE_FIN_WAIT1 || state == STATE_FIN_WAIT2 ||
	       state == STATE_CLOSE_WAIT;
}

struct question {
	struct nlmsghdr nl;
	struct inet_diag_req_v2 q;
};

static bool ask(int fd, const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
	struct question q = {
		.nl = {.nlmsg_len = sizeof(q), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
		.q = {.sdiag_family = (uint8_t)local->ss_family,
	              .sdiag_protocol = IPPROTO_TCP,
	              .idiag_states = UINT32_MAX},
	};
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	put_address(local, q.q.id.idiag_src, &q.q.id.idiag_sport);
	put_address(remote, q.q.id.idiag_dst, &q.q.id.idiag_dport);
	if (local->ss_family == AF_INET6)
		q.q.id.idiag_if = v6(local)->sin6_scope_id;
	q.q.id.idiag_cookie[0] = q.q.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	return sendto(fd, &q, sizeof(q), 0, (const struct sockaddr *)&kernel, sizeof(kernel)) == sizeof(q);
}

/* 1: found, 0: no such socket, -1: no answer that can be understood. */
static int answer(int fd, struct xpi_socket_owner *owner)
{
	union {
		struct nlmsghdr nl;
		uint8_t bytes[1024];
	} buf;
	struct sockaddr_nl from = {0};
	socklen_t len = sizeof(from);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct inet_diag_msg msg;
	struct nlmsgerr err;
	ssize_t n;

	if (poll(&p, 1, ANSWER_MS) != 1)
		return -1;
	n = recvfrom(fd, &buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &len);
	if (n < (ssize_t)NLMSG_LENGTH(0) || from.nl_pid != 0)
		return -1;
	if (buf.nl.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_LENGTH(sizeof(err))) {
		memcpy(&err, NLMSG_DATA(&buf.nl), sizeof(err));
		return err.error == -ENOENT ? 0 : -1;
	}
	if (buf.nl.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < (ssize_t)NLMSG_LENGTH(sizeof(msg)))
		return -1;
	memcpy(&msg, NLMSG_DATA(&buf.nl), sizeof(msg));
	owner->uid = msg.idiag_uid;
	owner->inode = msg.idiag_inode;
	return is_connected(msg.idiag_state);
}

int xpi_user_by_diag(const struct sockaddr_storage *local, const struct sockaddr_storage *remote,
                     struct xpi_socket_owner *owner)
{
	int fd = xpi_fd_up(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)), found = -1;

	if (fd < 0)
		return -1;
	if (ask(fd, local, remote))
		found = answer(fd, owner);
	close(fd);
	return found;
}

/* An address of /proc/net/tcp: 32-bit words in hexadecimal, in the order of the host, one or four. */
static bool same_address(const char *text, const struct sockaddr_storage *sa)
{
	uint32_t have[4] = {0}, words[4] = {0};
	unsigned port, digits = (unsigned)strcspn(text, ":"), n = digits / 8;
	uint16_t their_port;

	if (digits % 8 != 0 || (n != 1 && n != 4) || sscanf(text + digits, ":%x", &port) != 1)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (sscanf(text + 8 * (size_t)i, "%8x", &have[i]) != 1)
			return false;
	put_address(sa, words, &their_port);
	if (sa->ss_family == AF_INET && n == 4) { /* ::ffff:a.b.c.d */
		words[3] = words[0];
		words[0] = words[1] = 0;
		words[2] = htonl(0xffff);
	} else if (sa->ss_family == AF_INET6 && n == 1) {
		return false;
	}
	return memcmp(have, words, sizeof(have)) == 0 && port == ntohs(their_port);
}

/* -1: there is no such file. */
static int search(const char *path, const struct sockaddr_storage *local, const struct sockaddr_storage *remote,
                  struct xpi_socket_owner *owner)
{
	FILE *f = xpi_fd_stream(path);
	char line[512], a[64], b[64];
	unsigned state, uid;
	unsigned long inode;
	int found = 0;

	if (f == NULL)
		return -1;
	while (found == 0 && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%*s %63s %63s %x %*s %*s %*s %u %*s %lu", a, b, &state, &uid, &inode) != 5 ||
		    !is_connected(state) || !same_address(a, local) || !same_address(b, remote))
			continue;
		owner->uid = uid;
		owner->inode = inode;
		found = 1;
	}
	fclose(f);
	return found;
}

int xpi_user_by_proc(const struct sockaddr_storage *local, const struct sockaddr_storage *remote,
                     struct xpi_socket_owner *owner)
{
	int four = search("/proc/net/tcp", local, remote, owner), six = 0;

	if (four != 1) /* sockets of IPv6 may carry IPv4 */
		six = search("/proc/net/tcp6", local, remote, owner);
	return four == 1 || six == 1 ? 1 : four < 0 && six < 0 ? -1 : 0;
}

/* One of the two ways of asking. */
typedef int user_way(const struct sockaddr_storage *local, const struct sockaddr_storage *remote,
                     struct xpi_socket_owner *owner);

/* Whether a process holds the socket of these addresses open; then who made it. */
static bool find(user_way *way, const struct sockaddr_storage *local, const struct sockaddr_storage *remote,
                 struct xpi_socket_owner *owner)
{
	return way(local, remote, owner) == 1 && owner->inode != 0;
}

/*
 * The way that knows our own end, which is the socket `inode`; NULL: none does.  Without the module tcp_diag the kernel
 * answers ENOENT, as for a socket that does not exist.  Where neither knows it, the socket is of another network namespace.
 */
static user_way *way_of(const struct sockaddr_storage *ours, const struct sockaddr_storage *theirs, ino_t inode)
{
	static user_way *const ways[] = {xpi_user_by_diag, xpi_user_by_proc};
	struct xpi_socket_owner owner;

	for (int i = 0; i < 2; i++)
		if (find(ways[i], ours, theirs, &owner) && owner.inode == inode)
			return ways[i];
	return NULL;
}

enum xpi_peer_user xpi_peer_user(int fd, uid_t *uid)
{
	struct sockaddr_storage ours = {0}, theirs = {0};
	socklen_t our_len = sizeof(ours), their_len = sizeof(theirs);
	struct xpi_socket_owner owner;
	user_way *way;
	struct stat st;

	if (getsockname(fd, (struct sockaddr *)&ours, &our_len) != 0 ||
	    getpeername(fd, (struct sockaddr *)&theirs, &their_len) != 0 || fstat(fd, &st) != 0 ||
	    (ours.ss_family != AF_INET && ours.ss_family != AF_INET6))
		return XPI_PEER_UNKNOWN;
	unmap(&ours);
	unmap(&theirs);
	way = way_of(&ours, &theirs, st.st_ino);
	if (way == NULL || !find(way, &theirs, &ours, &owner))
		return XPI_PEER_UNKNOWN;
	*uid = owner.uid;
	return xpi_user_is_ours(owner.uid) ? XPI_PEER_OURS : XPI_PEER_OTHERS;
}
