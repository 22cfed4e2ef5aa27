/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The source etcd:URLS. The card of each member is an entry xport/group/NAME/rank/RANK under a lease, so the entries of a
 * dead process vanish.
 *
 *	rank 0                                       another rank
 *	puts its card                                waits for the card of rank 0
 *	waits until all cards have its number        puts its card, with the number of rank 0
 *	puts `complete`, a digest of all cards       waits for `complete`, and reads all cards
 *
 * The digest is computed from each member's random number. So entries of an earlier job, which may be there until their leases
 * expire, never make a group complete. Each member keeps its entries until all have joined. After that etcd is not asked any
 * more.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/etcd_client.h"
#include "services/group_source.h"
#include "services/last_error.h"

enum { TTL_S = 10, GRACE_MS = 3000, PAUSE_MS = 10, PAUSE_MAX_MS = 200, KEEP_MS = 1000, KEEP_PAUSE_MS = 2000 };

struct etcd_source {
	struct svc_group_source head;
	struct svc_etcd *etcd; /* NULL: all have joined */
	char prefix[96]; /* xport/group/NAME/ */
	char ranks[104]; /* of the cards */
	int64_t lease;   /* 0: none */
	int ttl_s;
	int64_t renew_at, ask_at; /* when the lease is renewed, and etcd asked again */
	int pause_ms;
	int64_t taken_at; /* since when another process has this rank; 0: none has */
	char taken[160];  /* by whom */
	int64_t differs_at; /* since when rank 0 has another number of members; 0: it has the same */
	int differs;        /* that number */
	bool written;
	bool completed;     /* rank 0 has put `complete` */
	uint64_t group; /* the number of rank 0 */
	struct svc_group_card mine;
	struct svc_group_card *cards;
	uint8_t *present;
};

static const struct svc_etcd_use group_use = {.name = "group",
                                              .variable = "XPORT_GROUP",
                                              .prefix = "xport/group/",
                                              .stranger = "remove it, or set another XPORT_GROUP_NAME"};

static void card_key(const struct etcd_source *s, int rank, struct svc_etcd_entry *entry)
{
	snprintf(entry->key, sizeof(entry->key), "%s%07d", s->ranks, rank);
}

static int etcd_stranger(const struct etcd_source *s, const char *key)
{
	return svc_fail(XPORT_ERR_PROTOCOL, s->head.operation, "remove it, or set another XPORT_GROUP_NAME",
	                "the entry %.120s in etcd is not one of a group", key);
}

static int etcd_number(const struct etcd_source *s, int rank, int members)
{
	return svc_fail(XPORT_ERR_CONFIG, s->head.operation, "give all processes the same number",
	                "rank %d says that the group has %d members, and rank %d says %d", rank, members, s->head.rank,
	                s->head.members);
}

/* Asks again later, and less often each time. */
static int etcd_later(struct etcd_source *s)
{
	s->ask_at = svc_now_ms() + s->pause_ms;
	s->pause_ms = s->pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : s->pause_ms * 2;
	return XPORT_ERR_AGAIN;
}

static void etcd_soon(struct etcd_source *s)
{
	s->pause_ms = PAUSE_MS;
	s->ask_at = 0;
}

/* Gets a lease, or renews it in time. */
static int etcd_lease(struct etcd_source *s)
{
	int64_t now = svc_now_ms();
	bool alive = false;
	int r;

	if (s->lease != 0 && now < s->renew_at)
		return XPORT_OK;
	if (s->lease != 0) {
		r = svc_etcd_lease_keep(s->etcd, s->lease, &alive, s->head.until);
		if (r != XPORT_OK)
			return r;
	}
	if (!alive) {
		s->ttl_s = TTL_S;
		s->written = s->completed = false; /* what was there has gone with the lease */
		s->lease = 0;
		r = svc_etcd_lease_new(s->etcd, &s->lease, &s->ttl_s, s->head.until);
		if (r != XPORT_OK)
			return r;
	}
	s->renew_at = now + s->ttl_s * 1000 / 3;
	return XPORT_OK;
}

/* Somebody's entry is at this rank. OK: it is to be replaced. */
static int etcd_taken(struct etcd_source *s, const struct svc_etcd_entry *entry)
{
	struct svc_group_card c;

	if (!svc_card_decode(&c, entry->value, entry->len) || c.rank != s->head.rank)
		return etcd_stranger(s, entry->key);
	if (c.own == s->mine.own || svc_card_dead(&c))
		return XPORT_OK;
	snprintf(s->taken, sizeof(s->taken), "process %lld on %.63s", (long long)c.pid, c.host);
	if (s->taken_at == 0)
		s->taken_at = svc_now_ms();
	if (svc_now_ms() < s->taken_at + s->ttl_s * 1000 + GRACE_MS)
		return etcd_later(s);
	return svc_fail(XPORT_ERR_BUSY, s->head.operation,
	                "give each process a rank of its own, and each job a XPORT_GROUP_NAME of its own",
	                "two processes have rank %d of the group \"%s\": this one and %s", s->head.rank, s->head.name,
	                s->taken);
}

static int etcd_write(struct etcd_source *s)
{
	struct svc_etcd_entry entry = {.revision = 0};
	struct svc_group_card card = s->mine;
	bool put;
	int r;

	card.group = s->group;
	card_key(s, s->head.rank, &entry);
	for (int i = 0; i < 3; i++) {
		entry.len = svc_card_encode(&card, entry.value);
		r = svc_etcd_put(s->etcd, &entry, s->lease, &put, s->head.until);
		if (r == XPORT_ERR_UNREACHABLE) {
			s->lease = 0;
			return XPORT_ERR_AGAIN;
		}
		if (r != XPORT_OK)
			return r;
		if (put) {
			s->written = true;
			s->taken_at = 0;
			etcd_soon(s);
			return XPORT_OK;
		}
		if (entry.revision != 0)
			r = etcd_taken(s, &entry);
		if (r != XPORT_OK)
			return r;
	}
	return etcd_later(s);
}

/* The card of rank 0 has another number. It may be of a process that has died: then it vanishes. */
static int etcd_differs(struct etcd_source *s, int members)
{
	if (s->differs_at == 0 || s->differs != members)
		s->differs_at = svc_now_ms();
	s->differs = members;
	if (svc_now_ms() < s->differs_at + s->ttl_s * 1000 + GRACE_MS)
		return etcd_later(s);
	return etcd_number(s, 0, members);
}

/* Looks at the card of rank 0. *complete has the digest; revision 0: there is none. */
static int etcd_look(struct etcd_source *s, struct svc_etcd_entry *complete)
{
	struct svc_etcd_entry first;
	struct svc_group_card c;
	int r;

	card_key(s, 0, &first);
	snprintf(complete->key, sizeof(complete->key), "%scomplete", s->prefix);
	r = svc_etcd_get_two(s->etcd, &first, complete, s->head.until);
	if (r != XPORT_OK)
		return r;
	s->present[0] = first.revision != 0;
	if (first.revision == 0) {
		s->differs_at = 0;
		return etcd_later(s);
	}
	if (!svc_card_decode(&c, first.value, first.len) || c.rank != 0)
		return etcd_stranger(s, first.key);
	if (svc_card_dead(&c))
		return etcd_later(s);
	if (c.members != s->head.members)
		return etcd_differs(s, c.members);
	s->differs_at = 0;
	if (c.own != s->group) {
		s->group = c.own;
		s->written = false;
	}
	return XPORT_OK;
}

/* Mixes the bits of a number (a bijection). */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void etcd_digest(const struct etcd_source *s, char *text)
{
	uint64_t all = 0;

	for (int i = 0; i < s->head.members; i++)
		all = mix(all ^ s->cards[i].own) + (uint64_t)i;
	snprintf(text, 17, "%016" PRIx64, all);
}

static int etcd_take(void *arg, const struct svc_etcd_entry *entry)
{
	struct etcd_source *s = arg;
	struct svc_group_card c;

	if (!svc_card_decode(&c, entry->value, entry->len))
		return etcd_stranger(s, entry->key);
	if (c.group != s->group)
		return XPORT_OK; /* of an earlier job: it will vanish */
	if (c.members != s->head.members)
		return etcd_number(s, c.rank, c.members);
	s->cards[c.rank] = c;
	s->present[c.rank] = 1;
	return XPORT_OK;
}

/* Reads all cards. OK: they are all there. */
static int etcd_cards(struct etcd_source *s)
{
	int r;

	memset(s->present, 0, (size_t)s->head.members);
	r = svc_etcd_list(s->etcd, s->ranks, s->head.members, etcd_take, s, s->head.until);
	if (r != XPORT_OK)
		return r;
	for (int i = 0; i < s->head.members; i++)
		if (!s->present[i])
			return etcd_later(s);
	return XPORT_OK;
}

/* Puts `complete`; the cards are all there. */
static int etcd_complete(struct etcd_source *s)
{
	struct svc_etcd_entry complete = {.revision = 0};
	bool put = false;
	int r = XPORT_OK;

	snprintf(complete.key, sizeof(complete.key), "%scomplete", s->prefix);
	for (int i = 0; i < 3 && r == XPORT_OK && !put; i++) {
		etcd_digest(s, (char *)complete.value);
		complete.len = 16;
		r = svc_etcd_put(s->etcd, &complete, s->lease, &put, s->head.until);
	}
	if (r == XPORT_ERR_UNREACHABLE)
		s->lease = 0;
	s->completed = r == XPORT_OK && put;
	return s->completed ? XPORT_OK : r == XPORT_OK || r == XPORT_ERR_UNREACHABLE ? XPORT_ERR_AGAIN : r;
}

static int etcd_finish(struct etcd_source *s)
{
	int64_t n = 0;
	int r = svc_etcd_count(s->etcd, s->ranks, &n, s->head.until);

	if (r == XPORT_OK)
		r = n < s->head.members ? etcd_later(s) : etcd_cards(s);
	return r == XPORT_OK ? etcd_complete(s) : r;
}

/* One step of the table above. OK: the group is complete. */
static int etcd_step(struct etcd_source *s)
{
	struct svc_etcd_entry complete;
	char digest[17];
	int r;

	r = etcd_lease(s);
	if (r == XPORT_OK && s->head.rank > 0)
		r = etcd_look(s, &complete);
	if (r == XPORT_OK && !s->written) {
		r = etcd_write(s);
		return r == XPORT_OK ? XPORT_ERR_AGAIN : r;
	}
	if (r == XPORT_OK && s->head.rank == 0)
		return etcd_finish(s);
	if (r == XPORT_OK && complete.revision == 0)
		return etcd_later(s);
	if (r == XPORT_OK)
		r = etcd_cards(s);
	if (r != XPORT_OK)
		return r;
	etcd_digest(s, digest);
	return complete.len == 16 && memcmp(complete.value, digest, 16) == 0 ? XPORT_OK : etcd_later(s);
}

/* A step at its time. */
static int etcd_try(struct etcd_source *s, int slice_ms)
{
	int64_t left = s->ask_at - svc_now_ms();
	int r;

	if (left > 0) {
		poll(NULL, 0, left < slice_ms ? (int)left : slice_ms);
		return XPORT_ERR_AGAIN;
	}
	r = etcd_step(s);
	if (r == XPORT_ERR_AGAIN && s->ask_at < svc_now_ms())
		etcd_later(s);
	return r;
}

static int etcd_offer(struct svc_group_source *head, const struct svc_group_card *card, int slice_ms)
{
	struct etcd_source *s = (struct etcd_source *)head;
	int r;

	s->mine = *card;
	if (head->rank == 0)
		s->group = card->own;
	r = etcd_try(s, slice_ms);
	return r == XPORT_ERR_AGAIN && s->written ? XPORT_OK : r;
}

static int etcd_ready(struct svc_group_source *head, int slice_ms)
{
	return etcd_try((struct etcd_source *)head, slice_ms);
}

static int etcd_card(struct svc_group_source *head, int rank, struct svc_group_card *card, int slice_ms)
{
	struct etcd_source *s = (struct etcd_source *)head;

	(void)slice_ms;
	*card = s->cards[rank];
	return XPORT_OK;
}

/* Another member may have been suspended, and read the entries only now. Without etcd it cannot: then all is as it was. */
static void etcd_keep(struct svc_group_source *head)
{
	struct etcd_source *s = (struct etcd_source *)head;
	bool there = s->written && (head->rank > 0 || s->completed);
	int64_t now = svc_now_ms();
	int r;

	if (now < s->ask_at || (there && now < s->renew_at))
		return;
	head->until = now + KEEP_MS;
	r = etcd_lease(s);
	if (r == XPORT_OK && !s->written)
		r = etcd_write(s);
	if (r == XPORT_OK && head->rank == 0 && !s->completed)
		r = etcd_complete(s);
	if (r != XPORT_OK)
		s->ask_at = svc_now_ms() + KEEP_PAUSE_MS;
}

static void etcd_leave(struct svc_group_source *head)
{
	struct etcd_source *s = (struct etcd_source *)head;

	if (s->etcd == NULL)
		return;
	if (s->lease != 0)
		(void)svc_etcd_lease_end(s->etcd, s->lease, svc_now_ms() + 1000);
	svc_etcd_close(s->etcd);
	s->etcd = NULL;
}

static void etcd_missing(struct svc_group_source *head, char *text, size_t size)
{
	struct etcd_source *s = (struct etcd_source *)head;
	const char *why = svc_etcd_why(s->etcd);

	head->until = svc_now_ms() + 1000;
	if (why[0] == '\0' && s->written)
		(void)etcd_cards(s);
	if (why[0] != '\0')
		snprintf(text, size, "etcd, which does not answer: %s", why);
	else if (s->taken_at != 0)
		snprintf(text, size, "the end of %s, which has the same rank", s->taken);
	else if (s->differs_at != 0)
		snprintf(text, size, "rank 0 with the same number: it says that the group has %d members, not %d",
		         s->differs, head->members);
	else if (!s->written)
		snprintf(text, size, "rank 0");
	else
		svc_group_list_ranks(s->present, head->members, text, size);
}

static void etcd_close(struct svc_group_source *head)
{
	struct etcd_source *s = (struct etcd_source *)head;

	etcd_leave(head);
	free(s->cards);
	free(s->present);
	free(s);
}

static const struct svc_group_source_ops etcd_ops = {
	.name = "etcd",
	.offer = etcd_offer,
	.ready = etcd_ready,
	.card = etcd_card,
	.missing = etcd_missing,
	.keep = etcd_keep,
	.joined = etcd_leave,
	.close = etcd_close,
};

int svc_group_etcd_open(const struct svc_group_choice *c, const char *urls, struct svc_group_source **source,
                        const char *operation)
{
	struct etcd_source *s = calloc(1, sizeof(*s));
	int r = XPORT_OK;

	if (s != NULL) {
		s->cards = calloc((size_t)c->members, sizeof(*s->cards));
		s->present = calloc((size_t)c->members, 1);
	}
	if (s == NULL || s->cards == NULL || s->present == NULL)
		r = svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	if (r == XPORT_OK)
		r = svc_etcd_open(urls, &group_use, &s->etcd, operation);
	if (r != XPORT_OK) {
		if (s != NULL) {
			free(s->cards);
			free(s->present);
		}
		free(s);
		return r;
	}
	s->head.ops = &etcd_ops;
	s->head.rank = c->rank;
	s->head.members = c->members;
	s->pause_ms = PAUSE_MS;
	s->ttl_s = TTL_S;
	snprintf(s->prefix, sizeof(s->prefix), "xport/group/%s/", c->name);
	snprintf(s->ranks, sizeof(s->ranks), "%srank/", s->prefix);
	*source = &s->head;
	return XPORT_OK;
}
