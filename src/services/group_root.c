/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The source root:HOST:PORT: a client of the server in group_server.h. Rank 0 serves by itself, unless somebody else has the
 * address: then that is the server.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "services/clock.h"
#include "services/group_fd.h"
#include "services/group_server.h"
#include "services/group_source.h"
#include "services/last_error.h"
#include "services/wire.h"

enum { PAUSE_MS = 50, PAUSE_MAX_MS = 200 };

struct root_source {
	struct svc_group_source head;
	char address[256];
	struct addrinfo *list;
	const struct addrinfo *next; /* the address that is tried next */
	struct svc_server *server;   /* of rank 0 */
	int fd;                      /* -1: not connected */
	int pause_ms;                /* between two rounds of the addresses */
	int64_t retry_at;
	bool connected, said, complete;
	char why[128];     /* why it could not connect */
	char waiting[256]; /* what the server waits for */
	uint8_t *in;       /* a frame, as far as it arrived */
	size_t in_len, in_size;
	struct svc_group_card *cards;
};

static void root_disconnect(struct root_source *s, const char *why)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->connected = s->said = false;
	s->in_len = 0;
	snprintf(s->why, sizeof(s->why), "%s", why);
}

/* The next address is tried; after the last one there is a pause. */
static void root_retry(struct root_source *s, const char *why)
{
	root_disconnect(s, why);
	s->next = s->next->ai_next;
	if (s->next != NULL)
		return;
	s->pause_ms = s->pause_ms == 0 ? PAUSE_MS : s->pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : s->pause_ms * 2;
	s->retry_at = svc_now_ms() + s->pause_ms;
}

/* Whether the socket is connected to itself: TCP does that if it happens to choose the port that it connects to. */
static bool root_is_self(int fd)
{
	struct sockaddr_storage own = {0}, peer = {0};
	socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

	return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
	       getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
	       memcmp(&own, &peer, own_len) == 0;
}

/* Goes on connecting. True: connected. Otherwise it is to be tried again. */
static bool root_connect(struct root_source *s, int slice_ms)
{
	socklen_t len = sizeof(int);
	int e = 0;

	if (s->connected)
		return true;
	if (s->fd < 0) {
		if (svc_now_ms() < s->retry_at) {
			poll(NULL, 0, slice_ms);
			return false;
		}
		if (s->next == NULL)
			s->next = s->list;
		s->fd = svc_fd_up(socket(s->next->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
		if (s->fd >= 0 && connect(s->fd, s->next->ai_addr, s->next->ai_addrlen) != 0 && errno != EINPROGRESS) {
			root_retry(s, strerror(errno));
			return false;
		}
		if (s->fd < 0) {
			root_retry(s, strerror(errno));
			return false;
		}
	}
	if (!svc_fd_writable(s->fd, slice_ms))
		return false;
	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0 || e != 0) {
		root_retry(s, strerror(e));
		return false;
	}
	if (root_is_self(s->fd)) {
		root_retry(s, "nobody listens");
		return false;
	}
	s->connected = true;
	return true;
}

static int root_stranger(const struct root_source *s)
{
	return svc_fail(XPORT_ERR_PROTOCOL, s->head.operation, "choose another port, the same for all members",
	                "what answers at %.200s is no root of a group", s->address);
}

/* Moves the server of this process. */
static int root_serve(struct root_source *s)
{
	return s->server == NULL ? XPORT_OK : svc_server_turn(s->server, 0, s->head.operation);
}

static int root_offer(struct svc_group_source *head, const struct svc_group_card *card, int slice_ms)
{
	struct root_source *s = (struct root_source *)head;
	uint8_t frame[SVC_ROOT_SMALL_MAX], bytes[SVC_CARD_MAX];
	struct xpi_wr w = xpi_wr(frame, sizeof(frame)), first;
	size_t len = svc_card_encode(card, bytes), total;
	int r = root_serve(s);

	if (r != XPORT_OK && r != XPORT_ERR_AGAIN)
		return r;
	if (!root_connect(s, slice_ms))
		return XPORT_ERR_AGAIN;
	xpi_wr_u32(&w, 0);
	xpi_wr_u32(&w, SVC_ROOT_MAGIC);
	xpi_wr_u8(&w, SVC_ROOT_HELLO);
	xpi_wr_str(&w, head->name);
	xpi_wr_u16(&w, (uint16_t)len);
	xpi_wr_bytes(&w, bytes, len);
	total = (size_t)(w.p - frame);
	first = xpi_wr(frame, 4);
	xpi_wr_u32(&first, (uint32_t)(total - 4));
	/* It is short: a new connection takes it at once. */
	if (send(s->fd, frame, total, MSG_NOSIGNAL) != (ssize_t)total) {
		root_disconnect(s, strerror(errno));
		return XPORT_ERR_AGAIN;
	}
	s->said = true;
	return XPORT_OK;
}

/* Takes the cards. */
static int root_cards(struct root_source *s, struct xpi_rd *r)
{
	uint32_t n = xpi_rd_u32(r);

	if (r->bad || n != (uint32_t)s->head.members)
		return root_stranger(s);
	for (uint32_t i = 0; i < n; i++) {
		size_t len = xpi_rd_u16(r);
		const uint8_t *bytes = xpi_rd_bytes(r, len);

		if (bytes == NULL || !svc_card_decode(&s->cards[i], bytes, len) || s->cards[i].rank != (int)i ||
		    s->cards[i].members != s->head.members)
			return root_stranger(s);
	}
	s->complete = true;
	return r->left == 0 ? XPORT_OK : root_stranger(s);
}

/* Takes a frame that arrived whole. OK: the cards came. */
static int root_frame(struct root_source *s)
{
	struct xpi_rd r = xpi_rd(s->in + 4, s->in_len - 4);
	uint32_t magic = xpi_rd_u32(&r), status;
	uint8_t type = xpi_rd_u8(&r);
	char text[400];

	if (magic != SVC_ROOT_MAGIC)
		return root_stranger(s);
	switch (type) {
	case SVC_ROOT_WAIT:
		xpi_rd_str(&r, s->waiting, sizeof(s->waiting));
		return r.bad ? root_stranger(s) : XPORT_ERR_AGAIN;
	case SVC_ROOT_REFUSED:
		status = xpi_rd_u32(&r);
		xpi_rd_str(&r, text, sizeof(text));
		if (r.bad || !svc_status_valid((int32_t)status) || status == 0)
			return root_stranger(s);
		return svc_fail((int32_t)status, s->head.operation,
		                status == (uint32_t)XPORT_ERR_TIMEOUT
		                        ? "start these processes, or wait longer"
		                        : "all members need the same name and number, and each a rank of its own",
		                "%s", text);
	case SVC_ROOT_CARDS:
		return root_cards(s, &r);
	default:
		return root_stranger(s);
	}
}

/* Reads what has arrived. AGAIN: not all; OK: a whole frame is in `in`. */
static int root_read(struct root_source *s)
{
	size_t most = SVC_ROOT_HEAD + 4 + (size_t)s->head.members * (2 + SVC_CARD_MAX);

	for (;;) {
		size_t want = 4;
		ssize_t n;

		if (s->in_len >= 4) {
			struct xpi_rd r = xpi_rd(s->in, 4);

			want = 4 + (size_t)xpi_rd_u32(&r);
			if (want < SVC_ROOT_HEAD || want > (most < SVC_ROOT_SMALL_MAX ? SVC_ROOT_SMALL_MAX : most))
				return root_stranger(s);
			if (s->in_len == want)
				return XPORT_OK;
		}
		if (want > s->in_size) {
			uint8_t *in = realloc(s->in, want);

			if (in == NULL)
				return svc_fail(XPORT_ERR_NO_MEMORY, s->head.operation, NULL, "out of memory");
			s->in = in;
			s->in_size = want;
		}
		n = recv(s->fd, s->in + s->in_len, want - s->in_len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return XPORT_ERR_AGAIN;
		if (n <= 0)
			return svc_fail(XPORT_ERR_SYSTEM, s->head.operation, "start the job again",
			                "the root at %.200s ended before all members had come", s->address);
		s->in_len += (size_t)n;
	}
}

static int root_wait(struct svc_group_source *head, int slice_ms)
{
	struct root_source *s = (struct root_source *)head;
	int served = root_serve(s), r;

	if (served != XPORT_OK && served != XPORT_ERR_AGAIN)
		return served;
	if (s->complete) { /* others wait for their cards */
		if (served == XPORT_ERR_AGAIN)
			poll(NULL, 0, slice_ms);
		return served;
	}
	/* A server of this process is to be moved soon. */
	svc_fd_readable(s->fd, s->server != NULL && slice_ms > 1 ? 1 : slice_ms);
	r = root_read(s);
	if (r != XPORT_OK)
		return r;
	r = root_frame(s);
	s->in_len = 0;
	return r == XPORT_OK ? served : r;
}

static int root_ready(struct svc_group_source *head, int slice_ms)
{
	struct root_source *s = (struct root_source *)head;
	int r = root_wait(head, slice_ms);

	/* All members have all cards: the address is free for another group. */
	if (r == XPORT_OK) {
		root_disconnect(s, "");
		svc_server_close(s->server);
		s->server = NULL;
	}
	return r;
}

static int root_card(struct svc_group_source *head, int rank, struct svc_group_card *card, int slice_ms)
{
	const struct root_source *s = (struct root_source *)head;

	(void)slice_ms;
	*card = s->cards[rank];
	return XPORT_OK;
}

static void root_missing(struct svc_group_source *head, char *text, size_t size)
{
	struct root_source *s = (struct root_source *)head;

	if (s->server != NULL)
		svc_server_missing(s->server, text, size);
	else if (!s->said)
		snprintf(text, size, "the root at %s (%s)", s->address, s->why[0] == '\0' ? "no answer" : s->why);
	else if (s->waiting[0] != '\0')
		snprintf(text, size, "%s", s->waiting);
	else
		snprintf(text, size, "an answer of the root at %s", s->address);
}

static void root_close(struct svc_group_source *head)
{
	struct root_source *s = (struct root_source *)head;

	root_disconnect(s, "");
	svc_server_close(s->server);
	if (s->list != NULL)
		freeaddrinfo(s->list);
	free(s->in);
	free(s->cards);
	free(s);
}

static const struct svc_group_source_ops root_ops = {
	.name = "root",
	.offer = root_offer,
	.ready = root_ready,
	.card = root_card,
	.missing = root_missing,
	.close = root_close,
};

static bool loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

int svc_group_root_open(const struct svc_group_choice *c, const char *address, struct svc_group_source **source,
                        const char *operation)
{
	struct root_source *s = calloc(1, sizeof(*s));
	bool taken = false;
	int r;

	if (s != NULL)
		s->cards = calloc((size_t)c->members, sizeof(*s->cards));
	if (s == NULL || s->cards == NULL) {
		free(s);
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	s->fd = -1;
	s->head.ops = &root_ops;
	s->head.rank = c->rank;
	s->head.members = c->members;
	snprintf(s->address, sizeof(s->address), "%s", address);
	r = svc_address_find(address, false, &s->list, operation);
	if (r == XPORT_OK && c->rank == 0) {
		r = svc_server_open(address, c->members, c->name, &s->server, &taken, operation);
		if (taken)
			r = XPORT_OK;
	}
	if (r != XPORT_OK) {
		root_close(&s->head);
		return r;
	}
	s->head.local = loopback(s->list->ai_addr);
	*source = &s->head;
	return XPORT_OK;
}

int xport_group_serve(const char *address, int members, const char *name, int timeout_ms)
{
	static const char op[] = "xport_group_serve";
	struct svc_server *server;
	char missing[256];
	bool taken;
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	int r = svc_time_valid(timeout_ms, op);

	if (r != XPORT_OK)
		return r;
	if (address == NULL || members < 1 || members > SVC_GROUP_MEMBERS_MAX ||
	    (name != NULL && !svc_group_name_valid(name)))
		return svc_fail(XPORT_ERR_INVALID, op,
		                "an address, 1 to 1048576 members, and a name of A-Z a-z 0-9 . _ -", "%s",
		                address == NULL ? "address is NULL"
		                : members < 1   ? "there are no members"
		                                : "the name is not allowed");
	r = svc_server_open(address, members, name == NULL ? "group" : name, &server, &taken, op);
	if (r != XPORT_OK)
		return r;
	do {
		int64_t left = until < 0 ? 100 : until - svc_now_ms();

		r = svc_server_turn(server, left < 0 ? 0 : left > 100 ? 100 : (int)left, op);
		if (r == XPORT_ERR_AGAIN && until >= 0 && svc_now_ms() >= until) {
			svc_server_missing(server, missing, sizeof(missing));
			r = svc_fail(XPORT_ERR_TIMEOUT, op, "start these members, or wait longer",
			             "%s did not come within %d ms",
			             missing[0] == '\0' ? "the end of a member" : missing, timeout_ms);
		}
	} while (r == XPORT_ERR_AGAIN);
	svc_server_close(server);
	return r;
}
