/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/group_server.h"

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
#include "services/group_source.h"
#include "services/last_error.h"
#include "services/wire.h"

enum { STRANGERS = 64, HELLO_MS = 5000, NOTICE_MS = 500, CARD_BYTES = 2 + SVC_CARD_MAX };

struct server_client {
	int fd;
	int rank;  /* -1: it has not said it */
	bool ends; /* closed when what is queued was sent */
	int64_t since, noticed;
	size_t in, out, out_len; /* bytes received; sent, and to be sent, of `frame` */
	size_t cards;            /* sent of the cards */
	uint8_t hello[SVC_ROOT_SMALL_MAX], frame[SVC_ROOT_SMALL_MAX];
};

struct svc_server {
	int fd, members;
	char name[SVC_GROUP_NAME_MAX + 1];
	int present, served; /* members that are there; that have all cards */
	struct server_client **clients;
	size_t clients_n, clients_max;
	struct pollfd *polls; /* the listener, and each client */
	struct svc_group_card *cards;
	uint8_t *has;
	uint8_t *all; /* the frame CARDS; NULL: some are missing */
	size_t all_len;
};

/* ---- frames ---- */

static void frame_begin(struct xpi_wr *w, uint8_t type)
{
	xpi_wr_u32(w, 0);
	xpi_wr_u32(w, SVC_ROOT_MAGIC);
	xpi_wr_u8(w, type);
}

static size_t frame_end(const struct xpi_wr *w, uint8_t *frame)
{
	size_t len = (size_t)(w->p - frame);
	struct xpi_wr head = xpi_wr(frame, 4);

	xpi_wr_u32(&head, (uint32_t)(len - 4));
	return len;
}

static void client_refuse(struct server_client *c, int status, const char *text)
{
	struct xpi_wr w = xpi_wr(c->frame, sizeof(c->frame));

	frame_begin(&w, SVC_ROOT_REFUSED);
	xpi_wr_u32(&w, (uint32_t)status);
	xpi_wr_str(&w, text);
	c->out = 0;
	c->out_len = frame_end(&w, c->frame);
	c->ends = true;
}

static bool server_collect(struct svc_server *s)
{
	struct xpi_wr w;
	size_t max = SVC_ROOT_HEAD + 4 + (size_t)s->members * CARD_BYTES;

	s->all = malloc(max);
	if (s->all == NULL)
		return false;
	w = xpi_wr(s->all, max);
	frame_begin(&w, SVC_ROOT_CARDS);
	xpi_wr_u32(&w, (uint32_t)s->members);
	for (int i = 0; i < s->members; i++) {
		uint8_t bytes[SVC_CARD_MAX];
		size_t len = svc_card_encode(&s->cards[i], bytes);

		xpi_wr_u16(&w, (uint16_t)len);
		xpi_wr_bytes(&w, bytes, len);
	}
	s->all_len = frame_end(&w, s->all);
	return true;
}

/* ---- clients ---- */

static void client_drop(struct svc_server *s, size_t i)
{
	struct server_client *c = s->clients[i];

	/* A member that died before the start may be started again. */
	if (c->rank >= 0 && s->all == NULL) {
		s->has[c->rank] = 0;
		s->present--;
	}
	close(c->fd);
	free(c);
	s->clients[i] = s->clients[--s->clients_n];
}

/* Takes the HELLO that has arrived whole. */
static void client_hello(struct svc_server *s, struct server_client *c)
{
	struct xpi_rd r = xpi_rd(c->hello + 4, c->in - 4);
	uint32_t magic = xpi_rd_u32(&r);
	uint8_t type = xpi_rd_u8(&r);
	char name[SVC_GROUP_NAME_MAX + 1], text[400];
	struct svc_group_card card;
	size_t len;
	const uint8_t *bytes;

	xpi_rd_str(&r, name, sizeof(name));
	len = xpi_rd_u16(&r);
	bytes = xpi_rd_bytes(&r, len);
	if (r.bad || r.left != 0 || magic != SVC_ROOT_MAGIC || type != SVC_ROOT_HELLO ||
	    !svc_card_decode(&card, bytes, len)) {
		c->ends = true; /* a stranger */
		return;
	}
	if (strcmp(name, s->name) != 0) {
		snprintf(text, sizeof(text), "the root serves the group \"%s\", not \"%s\"", s->name, name);
		client_refuse(c, XPORT_ERR_CONFIG, text);
	} else if (card.members != s->members) {
		snprintf(text, sizeof(text), "the root says that the group has %d members, and rank %d says %d",
		         s->members, card.rank, card.members);
		client_refuse(c, XPORT_ERR_CONFIG, text);
	} else if (s->has[card.rank]) {
		snprintf(text, sizeof(text), "two processes have rank %d: process %lld on %s, and process %lld on %s",
		         card.rank, (long long)s->cards[card.rank].pid, s->cards[card.rank].host, (long long)card.pid,
		         card.host);
		client_refuse(c, XPORT_ERR_BUSY, text);
	} else {
		c->rank = card.rank;
		s->cards[card.rank] = card;
		s->has[card.rank] = 1;
		s->present++;
	}
}

/* Returns false when the client is to be dropped. */
static bool client_read(struct svc_server *s, struct server_client *c)
{
	size_t want = 4;
	ssize_t n;

	if (c->rank >= 0 || c->ends) { /* nothing more is expected: only its end */
		n = recv(c->fd, c->hello, sizeof(c->hello), MSG_DONTWAIT);
		return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
	}
	for (;;) {
		if (c->in >= 4) {
			struct xpi_rd r = xpi_rd(c->hello, 4);

			want = 4 + (size_t)xpi_rd_u32(&r);
			if (want > sizeof(c->hello))
				return false;
		}
		if (c->in >= 4 && c->in == want) {
			client_hello(s, c);
			return true;
		}
		n = recv(c->fd, c->hello + c->in, want - c->in, MSG_DONTWAIT);
		if (n == 0)
			return false;
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		c->in += (size_t)n;
	}
}

/* Sends bytes from `at` on; returns false if the connection is broken. */
static bool client_send(const struct server_client *c, const uint8_t *bytes, size_t len, size_t *at)
{
	while (*at < len) {
		ssize_t n = send(c->fd, bytes + *at, len - *at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		*at += (size_t)n;
	}
	return true;
}

static bool client_write(struct svc_server *s, struct server_client *c, int64_t now)
{
	if (s->all == NULL && c->rank >= 0 && c->out == c->out_len && now - c->noticed >= NOTICE_MS) {
		struct xpi_wr w = xpi_wr(c->frame, sizeof(c->frame));
		char text[200];

		svc_server_missing(s, text, sizeof(text));
		frame_begin(&w, SVC_ROOT_WAIT);
		xpi_wr_str(&w, text);
		c->out = 0;
		c->out_len = frame_end(&w, c->frame);
		c->noticed = now;
	}
	if (!client_send(c, c->frame, c->out_len, &c->out))
		return false;
	if (s->all != NULL && c->rank >= 0 && c->out == c->out_len) {
		bool before = c->cards < s->all_len;

		if (!client_send(c, s->all, s->all_len, &c->cards))
			return false;
		s->served += before && c->cards == s->all_len;
	}
	return !(c->ends && c->out == c->out_len);
}

/* ---- the server ---- */

static int server_accept(struct svc_server *s, const char *operation)
{
	while (s->clients_n < s->clients_max) {
		int fd = svc_fd_up(accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
		struct server_client *c;

		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			return svc_fail(XPORT_ERR_SYSTEM, operation, "raise the limit: ulimit -n",
			                "the root has no descriptor left for %d members", s->members);
		if (fd < 0)
			return XPORT_OK;
		c = calloc(1, sizeof(*c));
		if (c == NULL) {
			close(fd);
			return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
		}
		c->fd = fd;
		c->rank = -1;
		c->since = c->noticed = svc_now_ms();
		s->clients[s->clients_n++] = c;
	}
	return XPORT_OK;
}

int svc_server_turn(struct svc_server *s, int ms, const char *operation)
{
	size_t n = s->clients_n;
	int64_t now;
	int r;

	s->polls[0] = (struct pollfd){.fd = s->clients_n < s->clients_max ? s->fd : -1, .events = POLLIN};
	for (size_t i = 0; i < n; i++) {
		const struct server_client *c = s->clients[i];
		bool more = c->out < c->out_len || (s->all != NULL && c->rank >= 0 && c->cards < s->all_len);

		s->polls[i + 1] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (more ? POLLOUT : 0))};
	}
	poll(s->polls, n + 1, ms);
	now = svc_now_ms();
	for (size_t i = n; i-- > 0;) { /* from the end: a client that is dropped is replaced by the last one */
		struct server_client *c = s->clients[i];

		if ((s->polls[i + 1].revents != 0 && !client_read(s, c)) || (c->rank < 0 && now - c->since > HELLO_MS))
			client_drop(s, i);
	}
	if (s->polls[0].revents != 0) {
		r = server_accept(s, operation);
		if (r != XPORT_OK)
			return r;
	}
	if (s->present == s->members && s->all == NULL && !server_collect(s))
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	for (size_t i = s->clients_n; i-- > 0;)
		if (!client_write(s, s->clients[i], now))
			client_drop(s, i);
	if (s->all == NULL)
		return XPORT_ERR_AGAIN;
	/* A member that died meanwhile takes no cards any more: the others will notice. */
	for (size_t i = 0; i < s->clients_n; i++)
		if (s->clients[i]->rank >= 0 && s->clients[i]->cards < s->all_len)
			return XPORT_ERR_AGAIN;
	return XPORT_OK;
}

void svc_server_missing(const struct svc_server *s, char *text, size_t size)
{
	svc_group_list_ranks(s->has, s->members, text, size);
}

void svc_server_close(struct svc_server *s)
{
	if (s == NULL)
		return;
	if (s->all == NULL && s->clients_n > 0) {
		char text[300] = "the group is not complete: waited for ";
		size_t len = strlen(text);

		svc_server_missing(s, text + len, sizeof(text) - len);
		for (size_t i = 0; i < s->clients_n; i++) {
			if (s->clients[i]->rank >= 0 && s->clients[i]->out == s->clients[i]->out_len)
				client_refuse(s->clients[i], XPORT_ERR_TIMEOUT, text);
			(void)client_send(s->clients[i], s->clients[i]->frame, s->clients[i]->out_len,
			                  &s->clients[i]->out);
		}
	}
	while (s->clients_n > 0)
		client_drop(s, s->clients_n - 1);
	if (s->fd >= 0)
		close(s->fd);
	free(s->clients);
	free(s->polls);
	free(s->cards);
	free(s->has);
	free(s->all);
	free(s);
}

/* A socket that listens at the first address of the list that can be bound. */
static int server_listen(const struct addrinfo *list)
{
	int fd = -1, e = EADDRNOTAVAIL;

	for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
		int one = 1;

		fd = svc_fd_up(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
		if (fd < 0) {
			e = errno;
			continue;
		}
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
			e = errno;
			close(fd);
			fd = -1;
		}
	}
	errno = e;
	return fd;
}

int svc_server_open(const char *address, int members, const char *name, struct svc_server **server, bool *taken,
                    const char *operation)
{
	struct addrinfo *list;
	struct svc_server *s;
	int r;

	*taken = false;
	r = svc_address_find(address, true, &list, operation);
	if (r != XPORT_OK)
		return r;
	s = calloc(1, sizeof(*s));
	if (s != NULL) {
		s->members = members;
		s->clients_max = (size_t)members + STRANGERS;
		snprintf(s->name, sizeof(s->name), "%s", name);
		s->clients = calloc(s->clients_max, sizeof(struct server_client *));
		s->polls = calloc(s->clients_max + 1, sizeof(*s->polls));
		s->cards = calloc((size_t)members, sizeof(*s->cards));
		s->has = calloc((size_t)members, 1);
		s->fd = -1;
	}
	if (s == NULL || s->clients == NULL || s->polls == NULL || s->cards == NULL || s->has == NULL) {
		freeaddrinfo(list);
		svc_server_close(s);
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	s->fd = server_listen(list);
	*taken = s->fd < 0 && (errno == EADDRINUSE || errno == EADDRNOTAVAIL);
	if (s->fd < 0)
		r = svc_fail(XPORT_ERR_ADDRESS, operation, "choose a free port of this host",
		             "cannot listen at %.200s: %s", address, strerror(errno));
	freeaddrinfo(list);
	if (r != XPORT_OK)
		svc_server_close(s);
	else
		*server = s;
	return r;
}
