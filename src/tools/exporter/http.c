/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/exporter/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 32, REQUEST_MAX = 8192, REQUEST_MS = 10000, ANSWER_MS = 30000, PAUSE_MS = 100, LINGER_MS = 2000 };

struct conn {
	int fd; /* -1: free */
	int64_t since_ms, until_ms;
	bool answering, answered;
	size_t got, sent;
	struct ex_buffer head, body;
	char request[REQUEST_MAX + 1];
};

struct server {
	int listener;
	ex_page_fn write;
	void *arg;
	struct conn conn[CONNECTIONS];
};

static volatile sig_atomic_t http_ended;

static void http_end(int signal_number)
{
	(void)signal_number;
	http_ended = 1;
}

static int64_t http_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- listening ---- */

/* The host of HOST:PORT without brackets; NULL: it is none. */
static const char *address_split(const char *address, char host[256])
{
	const char *colon = strrchr(address, ':');
	size_t len = colon == NULL ? 0 : (size_t)(colon - address), digits = colon == NULL ? 0 : strlen(colon + 1);

	if (len == 0 || len > 255 || digits == 0 || digits > 5 || strspn(colon + 1, "0123456789") != digits ||
	    atoi(colon + 1) > 65535)
		return NULL;
	if (address[0] == '[' && colon[-1] == ']')
		snprintf(host, 256, "%.*s", (int)len - 2, address + 1);
	else if (memchr(address, ':', len) == NULL)
		snprintf(host, 256, "%.*s", (int)len, address);
	else
		return NULL;
	return colon + 1;
}

/* A socket for all addresses takes both families. */
static int listener_open(const struct addrinfo *a, bool any)
{
	int on = 1, only = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), e;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (any && a->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, CONNECTIONS) == 0)
		return fd;
	e = errno;
	close(fd);
	errno = e;
	return -1;
}

static void listener_name(int fd, char where[128])
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	char host[80], port[8];

	if (getsockname(fd, (struct sockaddr *)&a, &len) != 0 ||
	    getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
	                NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(where, 128, "?");
	else
		snprintf(where, 128, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

int ex_http_listen(const char *address, char where[128], const char **why)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
	char host[256];
	const char *port = address_split(address, host);
	bool any = port != NULL && strcmp(host, "*") == 0;
	int r, fd = -1;

	*why = "it is not HOST:PORT";
	if (port == NULL)
		return -1;
	errno = 0;
	r = getaddrinfo(any ? NULL : host, port, &hints, &list);
	if (r != 0) {
		*why = gai_strerror(r);
		return -1;
	}
	/* On all addresses first by IPv6, whose socket takes IPv4, too; then by the other, where the system has no IPv6. */
	for (const struct addrinfo *a = list; any && a != NULL && fd < 0; a = a->ai_next)
		if (a->ai_family == AF_INET6)
			fd = listener_open(a, true);
	for (const struct addrinfo *a = list; a != NULL && fd < 0 && !(any && errno == EADDRINUSE); a = a->ai_next)
		fd = listener_open(a, any);
	if (fd < 0)
		*why = strerror(errno);
	else
		listener_name(fd, where);
	freeaddrinfo(list);
	return fd;
}

/* ---- a connection ---- */

static void conn_close(struct conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	ex_buffer_free(&c->head);
	ex_buffer_free(&c->body);
	c->fd = -1;
}

/* Sends as much as goes.  False: the client has gone. */
static bool conn_send(struct conn *c)
{
	while (c->sent < c->head.len + c->body.len) {
		bool head = c->sent < c->head.len;
		const struct ex_buffer *b = head ? &c->head : &c->body;
		size_t at = head ? c->sent : c->sent - c->head.len;
		ssize_t n = send(c->fd, b->text + at, b->len - at, MSG_NOSIGNAL | (head ? MSG_MORE : 0));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		c->sent += (size_t)n;
	}
	/* A close with bytes unread would reset the connection, and the client might lose the answer. */
	shutdown(c->fd, SHUT_WR);
	c->answered = true;
	c->until_ms = http_now_ms() + LINGER_MS;
	return true;
}

/* Drops what the client still sends.  False: it has closed. */
static bool conn_linger(struct conn *c)
{
	ssize_t n = recv(c->fd, c->request, REQUEST_MAX, 0);

	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void conn_answer(struct conn *c, const char *status, const char *type, bool body)
{
	ex_buffer_print(&c->head,
	                "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n", status,
	                type, c->body.len, strncmp(status, "405", 3) == 0 ? "Allow: GET, HEAD\r\n" : "");
	if (!body)
		c->body.len = 0;
	c->answering = true;
	c->until_ms = http_now_ms() + ANSWER_MS;
}

/* The page itself. */
static void conn_page(struct conn *c, const struct server *s, bool body)
{
	bool whole = s->write(s->arg, &c->body) && !c->body.failed;

	if (c->body.failed) {
		ex_buffer_free(&c->body);
		ex_buffer_print(&c->body, "out of memory\n");
	}
	conn_answer(c, whole ? "200 OK" : "503 Service Unavailable",
	            whole ? "application/openmetrics-text; version=1.0.0; charset=utf-8" : "text/plain; charset=utf-8",
	            body);
}

static void conn_refuse(struct conn *c, const char *status)
{
	ex_buffer_print(&c->body, "%s\n", status);
	conn_answer(c, status, "text/plain; charset=utf-8", true);
}

/* The request is whole. */
static void conn_request(struct conn *c, const struct server *s)
{
	char method[8], target[256], version[10];
	size_t path;
	bool get;

	if (sscanf(c->request, "%7s %255s %9s", method, target, version) != 3 || strncmp(version, "HTTP/1.", 7) != 0) {
		conn_refuse(c, "400 Bad Request");
		return;
	}
	get = strcmp(method, "GET") == 0;
	path = strcspn(target, "?");
	if (!get && strcmp(method, "HEAD") != 0)
		conn_refuse(c, "405 Method Not Allowed");
	else if (path == strlen("/metrics") && strncmp(target, "/metrics", path) == 0)
		conn_page(c, s, get);
	else
		conn_refuse(c, "404 Not Found");
}

/* Reads more of the request.  False: the client has gone. */
static bool conn_read(struct conn *c, const struct server *s)
{
	ssize_t n = recv(c->fd, c->request + c->got, REQUEST_MAX - c->got, 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	c->got += (size_t)n;
	c->request[c->got] = '\0';
	if (memmem(c->request, c->got, "\r\n\r\n", 4) != NULL || memmem(c->request, c->got, "\n\n", 2) != NULL)
		conn_request(c, s);
	else if (c->got == REQUEST_MAX)
		conn_refuse(c, "431 Request Header Fields Too Large");
	return !c->answering || conn_send(c);
}

/* ---- all connections ---- */

static struct conn *conn_oldest(struct server *s)
{
	struct conn *oldest = &s->conn[0];

	for (int i = 0; i < CONNECTIONS; i++) {
		if (s->conn[i].fd < 0)
			return &s->conn[i];
		if (s->conn[i].since_ms < oldest->since_ms)
			oldest = &s->conn[i];
	}
	return oldest;
}

static void server_accept(struct server *s)
{
	struct conn *c = conn_oldest(s);
	int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			conn_close(c);
			poll(NULL, 0, PAUSE_MS);
		}
		return;
	}
	conn_close(c);
	c->fd = fd;
	c->since_ms = http_now_ms();
	c->until_ms = c->since_ms + REQUEST_MS;
	c->answering = c->answered = false;
	c->got = c->sent = 0;
}

/* What to wait for; returns for how long at most, in milliseconds, -1: without a limit. */
static int server_wait(const struct server *s, struct pollfd p[CONNECTIONS + 1])
{
	int64_t now = http_now_ms(), least = INT64_MAX;

	p[CONNECTIONS] = (struct pollfd){.fd = s->listener, .events = POLLIN};
	for (int i = 0; i < CONNECTIONS; i++) {
		const struct conn *c = &s->conn[i];

		p[i] = (struct pollfd){.fd = c->fd, .events = c->answering && !c->answered ? POLLOUT : POLLIN};
		if (c->fd >= 0 && c->until_ms < least)
			least = c->until_ms;
	}
	return least == INT64_MAX ? -1 : least <= now ? 0 : (int)(least - now);
}

static void server_step(struct server *s, const struct pollfd p[CONNECTIONS + 1])
{
	int64_t now = http_now_ms();

	for (int i = 0; i < CONNECTIONS; i++) {
		struct conn *c = &s->conn[i];
		bool stays = true;

		if (c->fd < 0)
			continue;
		if (p[i].revents != 0)
			stays = c->answered ? conn_linger(c) : c->answering ? conn_send(c) : conn_read(c, s);
		if (!stays || now >= c->until_ms)
			conn_close(c);
	}
	if (p[CONNECTIONS].revents != 0)
		server_accept(s);
}

void ex_http_serve(int listener, ex_page_fn write, void *arg)
{
	struct sigaction action = {.sa_handler = http_end};
	struct server *s = calloc(1, sizeof(*s));
	struct pollfd p[CONNECTIONS + 1];
	sigset_t ends, before;

	if (s == NULL)
		return;
	s->listener = listener;
	s->write = write;
	s->arg = arg;
	for (int i = 0; i < CONNECTIONS; i++)
		s->conn[i].fd = -1;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, &before);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	while (!http_ended) {
		int ms = server_wait(s, p);
		struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

		if (ppoll(p, CONNECTIONS + 1, ms < 0 ? NULL : &limit, &before) < 0)
			for (int i = 0; i <= CONNECTIONS; i++)
				p[i].revents = 0;
		server_step(s, p);
	}
	for (int i = 0; i < CONNECTIONS; i++)
		conn_close(&s->conn[i]);
	free(s);
}
