/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the sources pmi1 and pmi2 share: see group_pmi.h.
 *
 * A card is put as hexadecimal digits, in as many pieces as the longest value of the server needs. The first piece begins
 * with the number of pieces and a dot.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "services/clock.h"
#include "services/group_fd.h"
#include "services/group_pmi.h"
#include "services/last_error.h"

enum { REPLY_MS = 10000, PIECES_MAX = 99, DOT = 4, PIECE_MAX = 1024 };

/* The PMI of the launcher: a process can join it only once. */
enum { PMI_FREE, PMI_USED, PMI_LEFT };
static atomic_int launcher;

static int pmi_broken(struct svc_pmi *p, const char *what)
{
	return svc_fail(XPORT_ERR_SYSTEM, p->head.operation, "look for the launcher's own error", "the PMI server %s",
	                what);
}

int svc_pmi_wrong(struct svc_pmi *p, const char *expected, const char *bytes)
{
	char text[81], hint[96];
	size_t i;

	/* Bytes that cannot be printed become question marks. */
	for (i = 0; i < sizeof(text) - 1 && bytes[i] != '\0'; i++)
		text[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
	text[i] = '\0';
	snprintf(hint, sizeof(hint), "the launcher must speak %s", p->version->speaks);
	return svc_fail(XPORT_ERR_PROTOCOL, p->head.operation, hint, "the PMI server sent \"%s\", not %s", text,
	                expected);
}

int svc_pmi_say(struct svc_pmi *p, const char *message)
{
	size_t len = strlen(message), at = 0;

	while (at < len) {
		ssize_t n = send(p->fd, message + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && svc_fd_writable(p->fd, REPLY_MS))
			continue;
		if (n < 0 && errno == ENOTSOCK)
			return svc_fail(XPORT_ERR_CONFIG, p->head.operation,
			                "start by mpiexec.hydra or srun --mpi=pmi2, or set XPORT_GROUP",
			                "PMI_FD=%d is not a socket of a launcher", p->fd);
		if (n < 0)
			return pmi_broken(p, errno == EAGAIN ? "takes no requests" : "closed the connection");
		at += (size_t)n;
	}
	return XPORT_OK;
}

int svc_pmi_hear(struct svc_pmi *p, char *text, int ms)
{
	int64_t until = svc_now_ms() + ms;

	for (;;) {
		size_t begin, end, used;
		int whole = p->version->frame(p->in, p->len, &begin, &end, &used);
		int64_t left = until - svc_now_ms();
		ssize_t n;

		if (whole > 0) {
			memcpy(text, p->in + begin, end - begin);
			text[end - begin] = '\0';
			p->len -= used;
			memmove(p->in, p->in + used, p->len);
			return XPORT_OK;
		}
		if (whole < 0) {
			n = p->len < 100 ? (ssize_t)p->len : 100;
			memcpy(text, p->in, (size_t)n);
			text[n] = '\0';
			return svc_pmi_wrong(p, "a message", text);
		}
		if (!svc_fd_readable(p->fd, left < 0 ? 0 : (int)left))
			return XPORT_ERR_AGAIN;
		n = recv(p->fd, p->in + p->len, sizeof(p->in) - p->len, MSG_DONTWAIT);
		if (n == 0)
			return pmi_broken(p, "closed the connection");
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return pmi_broken(p, strerror(errno));
		if (n > 0)
			p->len += (size_t)n;
	}
}

/* Takes the answers that came too late. AGAIN: one is still missing. */
static int pmi_drop(struct svc_pmi *p, char *text, int64_t until)
{
	while (p->owed > 0) {
		int64_t left = until - svc_now_ms();
		int r = svc_pmi_hear(p, text, left < 0 ? 0 : (int)left);

		if (r != XPORT_OK)
			return r;
		p->owed--;
	}
	return XPORT_OK;
}

int svc_pmi_ask(struct svc_pmi *p, const char *request, const char *expected, char *text)
{
	int limit = svc_source_left(&p->head, REPLY_MS), r;
	int64_t until = svc_now_ms() + limit;
	char word[64];

	if (p->broken)
		return pmi_broken(p, "failed before");
	r = pmi_drop(p, text, until);
	if (r == XPORT_OK) {
		p->broken = true;
		p->asked = true;
		r = svc_pmi_say(p, request);
		if (r == XPORT_OK)
			r = svc_pmi_hear(p, text, svc_now_ms() < until ? (int)(until - svc_now_ms()) : 0);
		p->owed += r == XPORT_ERR_AGAIN;
	}
	if (r == XPORT_ERR_AGAIN) {
		p->broken = false;
		return svc_fail(XPORT_ERR_TIMEOUT, p->head.operation, "look for the launcher's own error",
		                "the PMI server did not answer within %d ms; expected: %s", limit, expected);
	}
	if (r != XPORT_OK)
		return r;
	if (!p->version->word(text, "cmd", word, sizeof(word)) || strcmp(word, expected) != 0 ||
	    (p->version->word(text, "rc", word, sizeof(word)) && strcmp(word, "0") != 0))
		return svc_pmi_wrong(p, expected, text);
	p->broken = false;
	return XPORT_OK;
}

int svc_pmi_number(struct svc_pmi *p, const char *text, const char *key, int least, int most)
{
	char word[16], *end;
	long n;

	if (!p->version->word(text, key, word, sizeof(word)))
		return -1;
	n = strtol(word, &end, 10);
	return end == word || *end != '\0' || n < least || n > most ? -1 : (int)n;
}

/* ---- cards ---- */

int svc_pmi_put_card(struct svc_pmi *p, const struct svc_group_card *card)
{
	/* The server's limit may count the NUL. */
	size_t room = p->value_max - 1 - DOT > PIECE_MAX ? PIECE_MAX : (size_t)(p->value_max - 1 - DOT), len, pieces;
	char hex[2 * SVC_CARD_MAX + 1], value[PIECE_MAX + DOT + 1];
	uint8_t bytes[SVC_CARD_MAX];
	int r = XPORT_OK;

	len = svc_card_encode(card, bytes);
	svc_pmi_to_hex(bytes, len, hex);
	len *= 2;
	pieces = (len + room - 1) / room;
	for (size_t i = 0; i < pieces && r == XPORT_OK; i++) {
		size_t n = len - i * room < room ? len - i * room : room;
		int head = i == 0 ? snprintf(value, sizeof(value), "%zu.", pieces) : 0;

		memcpy(value + head, hex + i * room, n);
		value[(size_t)head + n] = '\0';
		r = p->version->put(p, (int)i, value);
	}
	return r;
}

int svc_pmi_get_card(struct svc_pmi *p, int rank, struct svc_group_card *card)
{
	char hex[2 * SVC_CARD_MAX + 1] = "", value[PIECE_MAX + DOT + 1], *end;
	uint8_t bytes[SVC_CARD_MAX];
	unsigned long pieces;
	size_t at = 0;
	int r, len;

	r = p->version->get(p, rank, 0, value, sizeof(value));
	if (r != XPORT_OK)
		return r;
	pieces = strtoul(value, &end, 10);
	if (end == value || *end != '.' || pieces < 1 || pieces > PIECES_MAX)
		return svc_pmi_wrong(p, "the card of a rank", value);
	memmove(value, end + 1, strlen(end + 1) + 1);
	for (unsigned long i = 0; i < pieces; i++) {
		if (i > 0)
			r = p->version->get(p, rank, (int)i, value, sizeof(value));
		if (r != XPORT_OK)
			return r;
		if (at + strlen(value) >= sizeof(hex))
			return svc_pmi_wrong(p, "the card of a rank", value);
		memcpy(hex + at, value, strlen(value) + 1);
		at += strlen(value);
	}
	len = svc_pmi_from_hex(hex, bytes, sizeof(bytes));
	if (len < 0 || !svc_card_decode(card, bytes, (size_t)len) || card->rank != rank ||
	    card->members != p->head.members)
		return svc_pmi_wrong(p, "the card of a rank", hex);
	return XPORT_OK;
}

void svc_pmi_missing(struct svc_group_source *s, char *text, size_t size)
{
	(void)s;
	snprintf(text, size, "a process that has not called xport_group_create; the PMI server does not say which");
}

/* ---- the beginning and the end ---- */

void svc_pmi_free(struct svc_pmi *p)
{
	if (p->claimed)
		atomic_store(&launcher, p->asked ? PMI_LEFT : PMI_FREE);
	free(p);
}

int svc_pmi_open_fd(const struct svc_pmi_version *version, const struct svc_group_source_ops *ops, int fd, int rank,
                    int members, struct svc_group_source **source, const char *operation)
{
	struct svc_pmi *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	p->version = version;
	p->fd = fd;
	p->head.ops = ops;
	p->head.rank = rank;
	p->head.members = members;
	p->head.operation = operation;
	p->head.until = -1;
	*source = &p->head;
	return XPORT_OK;
}

static int pmi_variable(const char *source, const char *name, int *number, const char *operation)
{
	const char *text = secure_getenv(name);
	char *end = NULL;
	long n = text == NULL ? -1 : strtol(text, &end, 10);

	if (text == NULL || end == text || *end != '\0' || n < 0 || n > SVC_GROUP_MEMBERS_MAX)
		return svc_fail(XPORT_ERR_CONFIG, operation,
		                "start by mpiexec.hydra or srun --mpi=pmi2, or set XPORT_GROUP",
		                "the source %s needs PMI_FD, PMI_RANK and PMI_SIZE: %s is \"%.60s\"", source, name,
		                text == NULL ? "" : text);
	*number = (int)n;
	return XPORT_OK;
}

int svc_pmi_open(const struct svc_pmi_version *version, const struct svc_group_source_ops *ops,
                 struct svc_group_source **source, const char *operation)
{
	int fd, rank, members, r, before = PMI_FREE;

	r = pmi_variable(ops->name, "PMI_FD", &fd, operation);
	if (r == XPORT_OK)
		r = pmi_variable(ops->name, "PMI_RANK", &rank, operation);
	if (r == XPORT_OK)
		r = pmi_variable(ops->name, "PMI_SIZE", &members, operation);
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
	r = svc_pmi_open_fd(version, ops, fd, rank, members, source, operation);
	if (r == XPORT_OK)
		((struct svc_pmi *)*source)->claimed = true;
	else
		atomic_store(&launcher, PMI_FREE);
	return r;
}
