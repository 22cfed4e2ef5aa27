/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The source pmi1: the PMI-1 protocol, as mpiexec.hydra speaks it over the descriptor PMI_FD. A request is a line of words
 * KEY=VALUE that begins with cmd=; so is the answer. What is put can be got after the barrier.
 *
 * A card is put as hexadecimal digits, in as many pieces as the longest value of the server needs. The first piece begins
 * with the number of pieces and a dot.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "services/clock.h"
#include "services/group_fd.h"
#include "services/group_source.h"
#include "services/last_error.h"

enum { LINE_MAX_BYTES = 16384, REPLY_MS = 10000, PIECES_MAX = 99, KEY_BYTES = 32, DOT = 4 };

struct pmi_source {
	struct svc_group_source head;
	int fd;
	bool initialised, in_barrier;
	bool broken;  /* an answer was wrong */
	bool claimed; /* it is that of PMI_FD */
	int owed;     /* answers that did not come in time: each is dropped before the next request */
	int value_max;
	char kvs[512];
	size_t len; /* bytes in `line` */
	char line[LINE_MAX_BYTES];
};

/* The PMI of the launcher: a process can join it only once. */
enum { PMI_FREE, PMI_USED, PMI_LEFT };
static atomic_int launcher;

static int pmi_broken(struct pmi_source *p, const char *what)
{
	return svc_fail(XPORT_ERR_SYSTEM, p->head.operation, "look for the launcher's own error", "the PMI server %s",
	                what);
}

/* Reports an answer that the protocol does not allow. Bytes that cannot be printed become question marks. */
static int pmi_wrong(struct pmi_source *p, const char *expected, const char *line)
{
	char text[81];
	size_t i;

	for (i = 0; i < sizeof(text) - 1 && line[i] != '\0'; i++)
		text[i] = line[i] >= ' ' && line[i] <= '~' ? line[i] : '?';
	text[i] = '\0';
	return svc_fail(XPORT_ERR_PROTOCOL, p->head.operation, "the launcher must speak PMI-1, as mpiexec.hydra does",
	                "the PMI server sent \"%s\", not %s", text, expected);
}

static int pmi_say(struct pmi_source *p, const char *line)
{
	size_t len = strlen(line), at = 0;

	while (at < len) {
		ssize_t n = send(p->fd, line + at, len - at, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && svc_fd_writable(p->fd, REPLY_MS))
			continue;
		if (n < 0 && errno == ENOTSOCK)
			return svc_fail(XPORT_ERR_CONFIG, p->head.operation,
			                "start by mpiexec.hydra, or set XPORT_GROUP",
			                "PMI_FD=%d is not a socket of a launcher", p->fd);
		if (n < 0)
			return pmi_broken(p, errno == EAGAIN ? "takes no requests" : "closed the connection");
		at += (size_t)n;
	}
	return XPORT_OK;
}

/* Takes the next line, without its end. AGAIN: `ms` passed. The line is valid until the next call. */
static int pmi_hear(struct pmi_source *p, char *line, int ms)
{
	int64_t until = svc_now_ms() + ms;

	for (;;) {
		char *end = memchr(p->line, '\n', p->len);
		int64_t left = until - svc_now_ms();
		ssize_t n;

		if (end != NULL) {
			size_t used = (size_t)(end - p->line) + 1;

			memcpy(line, p->line, used - 1);
			line[used - 1] = '\0';
			p->len -= used;
			memmove(p->line, p->line + used, p->len);
			return XPORT_OK;
		}
		if (p->len == sizeof(p->line)) {
			memcpy(line, p->line, 100);
			line[100] = '\0';
			return pmi_wrong(p, "a line", line);
		}
		if (!svc_fd_readable(p->fd, left < 0 ? 0 : (int)left))
			return XPORT_ERR_AGAIN;
		n = recv(p->fd, p->line + p->len, sizeof(p->line) - p->len, MSG_DONTWAIT);
		if (n == 0)
			return pmi_broken(p, "closed the connection");
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return pmi_broken(p, strerror(errno));
		if (n > 0)
			p->len += (size_t)n;
	}
}

/* The value of a word of the line; false: there is none, or it is too long. */
static bool pmi_word(const char *line, const char *key, char *value, size_t size)
{
	size_t len = strlen(key), n;

	for (const char *at = line; at != NULL; at = strchr(at, ' ')) {
		at += strspn(at, " ");
		if (strncmp(at, key, len) != 0 || at[len] != '=')
			continue;
		n = strcspn(at + len + 1, " ");
		if (n >= size)
			return false;
		memcpy(value, at + len + 1, n);
		value[n] = '\0';
		return true;
	}
	return false;
}

/* Takes the answers that came too late. AGAIN: one is still missing. */
static int pmi_drop(struct pmi_source *p, int64_t until)
{
	char line[LINE_MAX_BYTES];

	while (p->owed > 0) {
		int64_t left = until - svc_now_ms();
		int r = pmi_hear(p, line, left < 0 ? 0 : (int)left);

		if (r != XPORT_OK)
			return r;
		p->owed--;
	}
	return XPORT_OK;
}

/* Sends a request, and takes the answer, which must have cmd=`expected`, and rc=0 if it has rc. */
static int pmi_ask(struct pmi_source *p, const char *request, const char *expected, char *line)
{
	int limit = p->head.left_ms >= 0 && p->head.left_ms < REPLY_MS ? p->head.left_ms : REPLY_MS, r;
	int64_t until = svc_now_ms() + limit;
	char word[64];

	if (p->broken)
		return pmi_broken(p, "failed before");
	r = pmi_drop(p, until);
	if (r == XPORT_OK) {
		p->broken = true;
		r = pmi_say(p, request);
		if (r == XPORT_OK)
			r = pmi_hear(p, line, svc_now_ms() < until ? (int)(until - svc_now_ms()) : 0);
		p->owed += r == XPORT_ERR_AGAIN;
	}
	if (r == XPORT_ERR_AGAIN) {
		p->broken = false;
		return svc_fail(XPORT_ERR_TIMEOUT, p->head.operation, "look for the launcher's own error",
		                "the PMI server did not answer within %d ms; expected: %s", limit, expected);
	}
	if (r != XPORT_OK)
		return r;
	if (!pmi_word(line, "cmd", word, sizeof(word)) || strcmp(word, expected) != 0 ||
	    (pmi_word(line, "rc", word, sizeof(word)) && strcmp(word, "0") != 0))
		return pmi_wrong(p, expected, line);
	p->broken = false;
	return XPORT_OK;
}

static int pmi_number(const char *line, const char *key, int least, int most)
{
	char word[16], *end;
	long n;

	if (!pmi_word(line, key, word, sizeof(word)))
		return -1;
	n = strtol(word, &end, 10);
	return end == word || *end != '\0' || n < least || n > most ? -1 : (int)n;
}

static int pmi_init(struct pmi_source *p)
{
	char line[LINE_MAX_BYTES];
	int r = pmi_ask(p, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", line);

	if (r == XPORT_OK && pmi_number(line, "pmi_version", 1, 1) != 1)
		r = pmi_wrong(p, "pmi_version=1", line);
	if (r != XPORT_OK)
		return r;
	p->initialised = true;
	r = pmi_ask(p, "cmd=get_maxes\n", "maxes", line);
	if (r == XPORT_OK && pmi_number(line, "keylen_max", KEY_BYTES, 1 << 20) < 0)
		r = pmi_wrong(p, "keylen_max of at least 32", line);
	if (r != XPORT_OK)
		return r;
	p->value_max = pmi_number(line, "vallen_max", 16, 1 << 20);
	if (p->value_max < 0)
		return pmi_wrong(p, "vallen_max of at least 16", line);
	r = pmi_ask(p, "cmd=get_my_kvsname\n", "my_kvsname", line);
	if (r == XPORT_OK && (!pmi_word(line, "kvsname", p->kvs, sizeof(p->kvs)) || p->kvs[0] == '\0'))
		r = pmi_wrong(p, "kvsname", line);
	return r;
}

static int pmi_put_piece(struct pmi_source *p, int piece, const char *value)
{
	char request[LINE_MAX_BYTES], line[LINE_MAX_BYTES];

	snprintf(request, sizeof(request), "cmd=put kvsname=%s key=xpg-%d-%d value=%s\n", p->kvs, p->head.rank, piece,
	         value);
	return pmi_ask(p, request, "put_result", line);
}

static int pmi_put_card(struct pmi_source *p, const struct svc_group_card *card)
{
	static const char digits[] = "0123456789abcdef";
	/* The server's limit may count the NUL. */
	size_t room = p->value_max - 1 - DOT > 1024 ? 1024 : (size_t)(p->value_max - 1 - DOT), len, pieces;
	char hex[2 * SVC_CARD_MAX + 1], value[1100];
	uint8_t bytes[SVC_CARD_MAX];
	int r = XPORT_OK;

	len = svc_card_encode(card, bytes);
	for (size_t i = 0; i < len; i++) {
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	len *= 2;
	pieces = (len + room - 1) / room;
	for (size_t i = 0; i < pieces && r == XPORT_OK; i++) {
		size_t n = len - i * room < room ? len - i * room : room;
		int head = i == 0 ? snprintf(value, sizeof(value), "%zu.", pieces) : 0;

		memcpy(value + head, hex + i * room, n);
		value[(size_t)head + n] = '\0';
		r = pmi_put_piece(p, (int)i, value);
	}
	return r;
}

static int pmi_offer(struct svc_group_source *s, const struct svc_group_card *card, int slice_ms)
{
	struct pmi_source *p = (struct pmi_source *)s;
	int r = pmi_init(p);

	(void)slice_ms;
	return r == XPORT_OK ? pmi_put_card(p, card) : r;
}

static int pmi_ready(struct svc_group_source *s, int slice_ms)
{
	struct pmi_source *p = (struct pmi_source *)s;
	char line[LINE_MAX_BYTES], word[64];
	int r = XPORT_OK;

	if (!p->in_barrier)
		r = pmi_say(p, "cmd=barrier_in\n");
	p->in_barrier = true;
	if (r == XPORT_OK)
		r = pmi_hear(p, line, slice_ms);
	if (r != XPORT_OK)
		return r;
	p->in_barrier = false;
	return pmi_word(line, "cmd", word, sizeof(word)) && strcmp(word, "barrier_out") == 0
	               ? XPORT_OK
	               : pmi_wrong(p, "barrier_out", line);
}

static int pmi_get_piece(struct pmi_source *p, int rank, int piece, char *value, size_t size)
{
	char request[1024], line[LINE_MAX_BYTES];
	int r;

	snprintf(request, sizeof(request), "cmd=get kvsname=%s key=xpg-%d-%d\n", p->kvs, rank, piece);
	r = pmi_ask(p, request, "get_result", line);
	if (r == XPORT_OK && !pmi_word(line, "value", value, size))
		r = pmi_wrong(p, "a value of a rank", line);
	return r;
}

/* Hexadecimal digits to bytes; -1: they are none. */
static int pmi_from_hex(const char *hex, uint8_t *bytes, size_t size)
{
	size_t len = strlen(hex);

	if (len % 2 != 0 || len / 2 > size || strspn(hex, "0123456789abcdef") != len)
		return -1;
	for (size_t i = 0; i < len / 2; i++) {
		char two[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

		bytes[i] = (uint8_t)strtoul(two, NULL, 16);
	}
	return (int)(len / 2);
}

static int pmi_card(struct svc_group_source *s, int rank, struct svc_group_card *card, int slice_ms)
{
	struct pmi_source *p = (struct pmi_source *)s;
	char hex[2 * SVC_CARD_MAX + 1] = "", value[1100], *end;
	uint8_t bytes[SVC_CARD_MAX];
	unsigned long pieces;
	size_t at = 0;
	int r, len;

	(void)slice_ms;
	r = pmi_get_piece(p, rank, 0, value, sizeof(value));
	if (r != XPORT_OK)
		return r;
	pieces = strtoul(value, &end, 10);
	if (end == value || *end != '.' || pieces < 1 || pieces > PIECES_MAX)
		return pmi_wrong(p, "the card of a rank", value);
	memmove(value, end + 1, strlen(end + 1) + 1);
	for (unsigned long i = 0; i < pieces; i++) {
		if (i > 0)
			r = pmi_get_piece(p, rank, (int)i, value, sizeof(value));
		if (r != XPORT_OK)
			return r;
		if (at + strlen(value) >= sizeof(hex))
			return pmi_wrong(p, "the card of a rank", value);
		memcpy(hex + at, value, strlen(value) + 1);
		at += strlen(value);
	}
	len = pmi_from_hex(hex, bytes, sizeof(bytes));
	if (len < 0 || !svc_card_decode(card, bytes, (size_t)len) || card->rank != rank || card->members != s->members)
		return pmi_wrong(p, "the card of a rank", hex);
	return XPORT_OK;
}

static void pmi_missing(struct svc_group_source *s, char *text, size_t size)
{
	(void)s;
	snprintf(text, size, "a process that has not called xport_group_create; the PMI server does not say which");
}

static void pmi_close(struct svc_group_source *s)
{
	struct pmi_source *p = (struct pmi_source *)s;
	char line[LINE_MAX_BYTES];

	/* Without it the launcher takes the end of the process for a crash. */
	s->left_ms = 1000;
	if (p->initialised && !p->in_barrier)
		(void)pmi_ask(p, "cmd=finalize\n", "finalize_ack", line);
	if (p->claimed)
		atomic_store(&launcher, p->initialised ? PMI_LEFT : PMI_FREE);
	free(p);
}

static const struct svc_group_source_ops pmi_ops = {
	.name = "pmi1",
	.offer = pmi_offer,
	.ready = pmi_ready,
	.card = pmi_card,
	.missing = pmi_missing,
	.close = pmi_close,
};

int svc_group_pmi_open_fd(int fd, int rank, int members, struct svc_group_source **source, const char *operation)
{
	struct pmi_source *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	p->fd = fd;
	p->head.ops = &pmi_ops;
	p->head.rank = rank;
	p->head.members = members;
	p->head.operation = operation;
	p->head.left_ms = -1;
	*source = &p->head;
	return XPORT_OK;
}

static int pmi_variable(const char *name, int *number, const char *operation)
{
	const char *text = secure_getenv(name);
	char *end = NULL;
	long n = text == NULL ? -1 : strtol(text, &end, 10);

	if (text == NULL || end == text || *end != '\0' || n < 0 || n > SVC_GROUP_MEMBERS_MAX)
		return svc_fail(XPORT_ERR_CONFIG, operation, "start by mpiexec.hydra, or set XPORT_GROUP",
		                "the source pmi1 needs PMI_FD, PMI_RANK and PMI_SIZE: %s is \"%.60s\"", name,
		                text == NULL ? "" : text);
	*number = (int)n;
	return XPORT_OK;
}

int svc_group_pmi_open(const struct svc_group_choice *c, struct svc_group_source **source, const char *operation)
{
	int fd, rank, members, r, before = PMI_FREE;

	(void)c;
	r = pmi_variable("PMI_FD", &fd, operation);
	if (r == XPORT_OK)
		r = pmi_variable("PMI_RANK", &rank, operation);
	if (r == XPORT_OK)
		r = pmi_variable("PMI_SIZE", &members, operation);
	if (r != XPORT_OK)
		return r;
	if (rank >= members)
		return svc_fail(XPORT_ERR_CONFIG, operation, NULL, "PMI_RANK=%d is not below PMI_SIZE=%d", rank,
		                members);
	if (!atomic_compare_exchange_strong(&launcher, &before, PMI_USED))
		return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation,
		                "keep the first group, or use XPORT_GROUP=root:HOST:PORT",
		                "this process %s the launcher's PMI: that can be joined only once",
		                before == PMI_USED ? "has a group that uses" : "has left");
	r = svc_group_pmi_open_fd(fd, rank, members, source, operation);
	if (r == XPORT_OK)
		((struct pmi_source *)*source)->claimed = true;
	else
		atomic_store(&launcher, PMI_FREE);
	return r;
}
