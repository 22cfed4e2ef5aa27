/* SPDX-License-Identifier: BSD-3-Clause */
/* side.c - what a side has open: the instance, the memory, the connection and its keys. */
#include "soak/side.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, RETRIES = 10, NOTE_MAGIC = 0x536f616b };

/* What a note begins with; its keys follow, each with its head. */
struct note {
	uint32_t magic, keys;
	uint64_t round;
};
struct note_key {
	uint32_t region, len;
};

static const char *side_name(const struct soak_side *s)
{
	return s->role == 0 ? "initiator" : "target";
}

void soak_fail(struct soak_side *s, const char *format, ...)
{
	struct xport_error e = {.size = sizeof(e)};
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (s->x == NULL || xport_last_error(s->x, &e) != XPORT_OK)
		e.text[0] = '\0';
	fprintf(stderr,
	        "soak: %s, seed %" PRIu64 ", round %" PRIu64 " (%" PRIu64 " operations were right): %s\n"
	        "soak: the library's last error: %s\n"
	        "soak: again: soak%s%s --seed %" PRIu64 " --first %" PRIu64 " --rounds 1 --window %" PRIu32 "\n",
	        side_name(s), s->o.run.seed, s->round, s->ops, text, e.text[0] != '\0' ? e.text : "none",
	        s->o.backend ? " -B " : "", s->o.backend ? s->o.backend : "", s->o.run.seed, s->round, s->o.run.window);
	exit(1);
}

void soak_must(struct soak_side *s, int status, const char *what)
{
	if (status != XPORT_OK)
		soak_fail(s, "%s: %s", what, xport_status_name(status));
}

/* ---- memory ---- */

static void register_region(struct soak_side *s, struct soak_region *r)
{
	struct xport_mr_info info = {.size = sizeof(info)};

	if (!r->allocated) {
		soak_must(s, xport_mr_reg(s->x, r->p, r->len, r->rights, &r->mr), "xport_mr_reg");
		return;
	}
	soak_must(s, xport_mr_alloc(s->x, r->len, r->rights, &r->mr), "xport_mr_alloc");
	soak_must(s, xport_mr_query(r->mr, &info), "xport_mr_query");
	r->p = info.base;
	soak_blank(r->p, r->len);
}

static uint8_t *memory(struct soak_side *s, size_t len)
{
	uint8_t *p = aligned_alloc(4096, len);

	if (p == NULL)
		soak_fail(s, "no memory for %zu bytes", len);
	soak_blank(p, len);
	return p;
}

static void open_memory(struct soak_side *s)
{
	struct soak_region *r = s->region;

	r[0] = (struct soak_region){.p = memory(s, SOAK_AREA), .len = SOAK_AREA, .rights = XPORT_REMOTE_WRITE};
	r[1] = (struct soak_region){.len = SOAK_AREA, .rights = XPORT_REMOTE_WRITE, .allocated = true};
	r[SOAK_SOURCE] =
		(struct soak_region){.p = memory(s, SOAK_PATTERN), .len = SOAK_PATTERN, .rights = XPORT_REMOTE_READ};
	r[SOAK_COUNTED] = (struct soak_region){.len = 2 * SOAK_WORDS * sizeof(uint64_t),
	                                       .rights = XPORT_REMOTE_ATOMIC | XPORT_REMOTE_READ,
	                                       .allocated = true};
	soak_pattern(r[SOAK_SOURCE].p, s->o.run.seed);
	for (int i = 0; i < SOAK_REGIONS; i++)
		register_region(s, &r[i]);
	s->words = (uint64_t *)(void *)r[SOAK_COUNTED].p;
	memset(s->words, 0, r[SOAK_COUNTED].len);
	s->out = memory(s, SOAK_AREA);
	soak_must(s, xport_mr_reg(s->x, s->out, SOAK_AREA, 0, &s->out_mr), "xport_mr_reg");
}

void soak_open(struct soak_side *s)
{
	struct xport_attr a = {.size = sizeof(a), .backend = s->o.backend};

	/* On a machine that has other things to do, and has us run last, a peer is not lost so soon. */
	if (getenv("XPORT_PEER_TIMEOUT") == NULL)
		a.peer_timeout_ms = PATIENCE_MS;

	if (xport_open(&a, &s->x) != XPORT_OK) {
		struct xport_error e = {.size = sizeof(e)};

		(void)xport_last_error(NULL, &e);
		fprintf(stderr, "soak: cannot open %s: %s %s\n", s->o.backend ? s->o.backend : "a back end", e.text,
		        e.hint);
		exit(1);
	}
	s->count.size = sizeof(s->count);
}

void soak_renew(struct soak_side *s)
{
	int i = (int)(s->round & 1);

	if (s->own.renew_in) {
		soak_must(s, xport_mr_dereg(s->region[i].mr), "xport_mr_dereg");
		register_region(s, &s->region[i]);
		s->renewed[i] = true;
	}
	if (s->own.renew_out) {
		soak_must(s, xport_mr_dereg(s->out_mr), "xport_mr_dereg");
		soak_must(s, xport_mr_reg(s->x, s->out, SOAK_AREA, 0, &s->out_mr), "xport_mr_reg");
	}
	s->ops += (uint64_t)s->own.renew_in + s->own.renew_out + s->peer.renew_in + s->peer.renew_out;
}

/* ---- notes ---- */

void soak_expect_note(struct soak_side *s)
{
	static uint8_t in[8192];
	struct xport_opt o = {.size = sizeof(o), .context = in};

	s->now.heard = false;
	soak_must(s, xport_recv(s->x, in, sizeof(in), SOAK_NOTE, SOAK_NOTE, &o), "xport_recv");
}

/* Descriptors have the numbers behind those of the regions. */
static size_t add_bulk(struct soak_side *s, size_t at, uint32_t i)
{
	struct note_key k = {.region = SOAK_REGIONS + i};
	size_t len = sizeof(s->note) - at - sizeof(k);

	soak_must(s, xport_bulk_pack(s->bulks.own[i], s->note + at + sizeof(k), &len), "xport_bulk_pack");
	k.len = (uint32_t)len;
	memcpy(s->note + at, &k, sizeof(k));
	return at + sizeof(k) + len;
}

static size_t add_key(struct soak_side *s, size_t at, uint32_t region)
{
	struct note_key k = {.region = region};
	size_t len = sizeof(s->note) - at - sizeof(k);

	soak_must(s, xport_rkey_pack(s->region[region].mr, s->note + at + sizeof(k), &len), "xport_rkey_pack");
	k.len = (uint32_t)len;
	memcpy(s->note + at, &k, sizeof(k));
	return at + sizeof(k) + len;
}

void soak_tell(struct soak_side *s, bool all_keys)
{
	struct note n = {.magic = NOTE_MAGIC, .round = s->round};
	struct xport_opt o = {.size = sizeof(o), .context = s->note};
	size_t len = sizeof(n);
	int r;

	/* Where the connection ends with this round nobody would use them. */
	bool last = s->ending || (s->round + 1) % s->o.run.reconnect == 0;

	for (uint32_t i = 0; i < SOAK_REGIONS; i++) {
		if (!all_keys && (last || i > 1 || !s->renewed[i] || i == (s->round & 1)))
			continue;
		len = add_key(s, len, i);
		n.keys++;
		if (i < 2)
			s->renewed[i] = false;
	}
	for (uint32_t i = 0; all_keys && i < SOAK_BULKS; i++) {
		len = add_bulk(s, len, i);
		n.keys++;
	}
	memcpy(s->note, &n, sizeof(n));
	s->now.told = false;
	while ((r = xport_send(s->ep, s->note, len, SOAK_NOTE, &o)) == XPORT_ERR_AGAIN)
		soak_progress(s);
	soak_must(s, r, "xport_send");
	s->count.sends++;
}

static void take_key(struct soak_side *s, const struct note_key *k, const uint8_t *bytes)
{
	struct soak_region *r = &s->region[k->region];

	xport_rkey_destroy(r->old);
	r->old = r->key;
	soak_must(s, xport_rkey_unpack(s->ep, bytes, k->len, &r->key), "xport_rkey_unpack");
}

void soak_take_note(struct soak_side *s, const uint8_t *bytes, size_t len)
{
	size_t at = sizeof(struct note);
	struct note_key k;
	struct note n;

	memcpy(&n, bytes, sizeof(n));
	if (len < sizeof(n) || n.magic != NOTE_MAGIC || n.round != s->round)
		soak_fail(s, "a note of round %" PRIu64 " instead of %" PRIu64, n.round, s->round);
	for (uint32_t i = 0; i < n.keys; i++) {
		memcpy(&k, bytes + at, sizeof(k));
		at += sizeof(k);
		if (k.region >= SOAK_REGIONS + SOAK_BULKS || k.len > len - at)
			soak_fail(s, "a note that is damaged");
		if (k.region >= SOAK_REGIONS)
			soak_bulks_take(s, (int)(k.region - SOAK_REGIONS), bytes + at, k.len);
		else
			take_key(s, &k, bytes + at);
		at += k.len;
	}
	s->now.heard = true;
	s->count.receives++;
}

/* ---- the connection ---- */

static void listen_there(struct soak_side *s)
{
	char name[64];

	soak_must(s, xport_listen(s->x, s->o.listen, NULL, &s->listener), "xport_listen");
	soak_must(s, xport_listener_name(s->listener, name, sizeof(name)), "xport_listener_name");
	dprintf(s->o.report, "soak: listening on %s\n", name);
	if (s->o.report != 1)
		close(s->o.report);
}

/* The initiator says what is run. */
static void learn_run(struct soak_side *s)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	soak_must(s, xport_ep_query(s->ep, &info), "xport_ep_query");
	if (info.private_len != sizeof(s->o.run) ||
	    memcmp(info.private_data, &s->o.run.magic, sizeof(s->o.run.magic)) != 0)
		soak_fail(s, "the peer is no soak of this kind");
	memcpy(&s->o.run, info.private_data, sizeof(s->o.run));
}

/* Of "A+B+C" each connection uses the next one; NULL: there is only one transport. */
static const char *next_transport(const struct soak_side *s, char *name, size_t len)
{
	const char *all = s->o.backend != NULL ? s->o.backend : "", *from = all;
	uint32_t n = 1;

	for (const char *p = all; *p != '\0'; p++)
		n += *p == '+';
	if (n == 1)
		return NULL;
	for (uint32_t skip = (s->connections - 1) % n; skip > 0; skip--)
		from = strchr(from, '+') + 1;
	snprintf(name, len, "%.*s", (int)strcspn(from, "+"), from);
	return name;
}

static void connect_there(struct soak_side *s)
{
	struct xport_conn_attr a = {.size = sizeof(a), .private_data = &s->o.run, .private_len = sizeof(s->o.run)};
	char name[64];
	int r;

	a.transports = next_transport(s, name, sizeof(name));
	/* A handshake that the machine had no time for is given up after 5 s. */
	for (int i = 0; (r = xport_connect(s->x, s->o.connect, &a, PATIENCE_MS, &s->ep)) != XPORT_OK && i < RETRIES;
	     i++)
		s->retries++;
	soak_must(s, r, "xport_connect");
}

void soak_join(struct soak_side *s)
{
	bool first = s->connections++ == 0;

	if (s->role == 0) {
		connect_there(s);
	} else {
		if (first)
			listen_there(s);
		soak_must(s, xport_accept(s->listener, PATIENCE_MS, &s->ep), "xport_accept");
		if (first)
			learn_run(s);
	}
	if (first) {
		s->round = s->o.run.first;
		open_memory(s);
		soak_bulks_open(s);
	}
	soak_expect_note(s);
	soak_tell(s, true);
	while (!s->now.heard || !s->now.told)
		soak_progress(s);
}

/* What tests plant: something that is lost with each connection. */
static void lose_something(const struct soak_side *s)
{
	static void *volatile lost;

	if (s->o.plant == SOAK_LOST_FD && dup(2) < 0)
		exit(1);
	if (s->o.plant == SOAK_LOST_MEMORY) {
		lost = malloc(100);
		if (lost != NULL)
			*(volatile char *)lost = 1;
	}
}

static void drop_keys(struct soak_side *s)
{
	for (int i = 0; i < SOAK_REGIONS; i++) {
		xport_rkey_destroy(s->region[i].key);
		xport_rkey_destroy(s->region[i].old);
		s->region[i].key = s->region[i].old = NULL;
	}
}

void soak_part(struct soak_side *s, int closer)
{
	if (s->role == closer)
		soak_must(s, xport_ep_close(s->ep, PATIENCE_MS), "xport_ep_close");
	while (s->role != closer && !s->closed)
		soak_progress(s);
	drop_keys(s);
	soak_bulks_part(s);
	xport_ep_destroy(s->ep);
	s->ep = NULL;
	s->closed = false;
	lose_something(s);
}

void soak_close(struct soak_side *s)
{
	xport_listener_close(s->listener);
	soak_bulks_close(s);
	for (int i = 0; i < SOAK_REGIONS; i++)
		soak_must(s, xport_mr_dereg(s->region[i].mr), "xport_mr_dereg");
	soak_must(s, xport_mr_dereg(s->out_mr), "xport_mr_dereg");
	xport_close(s->x);
	free(s->region[0].p);
	free(s->region[SOAK_SOURCE].p);
	free(s->out);
}
