/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store.h"

enum { KEYS = 1024, CLIENTS = 64, DELETES = 7, COMPLAINTS = 20 };

struct entry {
	_Atomic uint64_t begun, acknowledged, read;
};

/* Of all clients. */
struct ledger {
	struct entry key[KEYS];
	_Atomic uint64_t puts, gets, deletes, again, torn_reads, longest_ms;
	_Atomic uint64_t torn, lost, stale, unborn,
		failed; /* faults; lost: seen at the end, when nobody writes the key */
	_Atomic int complaints;
};

struct client {
	const struct sl_options *o;
	struct ledger *ledger;
	struct ss_store *store;
	int number;
	uint64_t random;
	bool last; /* nobody writes the key that it reads */
};

/* The value: whose it is, and which write.  The rest follows from that, so that each byte can be held against it. */
struct value {
	uint64_t sum, key, write;
	uint8_t bytes[SR_VALUE - 24];
};

static uint64_t next_random(struct client *c)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random;
}

static size_t make_value(uint64_t key, uint64_t write, struct value *v)
{
	uint64_t seed = key * 1000003 + write;
	size_t n = SR_VALUE - 24 - (write % 5 == 0 ? seed % (SR_VALUE - 24) : 0);

	v->key = key;
	v->write = write;
	for (size_t i = 0; i < n; i++)
		v->bytes[i] = (uint8_t)(seed + i);
	v->sum = XXH3_64bits(&v->key, 16 + n);
	return 24 + n;
}

static bool is_whole(uint64_t key, const struct sr_record *r, uint64_t *write)
{
	struct value v, want;

	memcpy(&v, r->value, r->value_len);
	if (r->value_len < 24 || v.key != key || v.sum != XXH3_64bits(&v.key, r->value_len - 8))
		return false;
	*write = v.write;
	return make_value(key, v.write, &want) == r->value_len && memcmp(&v, &want, r->value_len) == 0;
}

static size_t make_key(uint64_t key, char *to, size_t room)
{
	return (size_t)snprintf(to, room, "load/%llu", (unsigned long long)key);
}

static bool is_delete(uint64_t write)
{
	return write % DELETES == 0;
}

/* ---- the ledger ---- */

static void at_least(_Atomic uint64_t *at, uint64_t v)
{
	uint64_t now = atomic_load(at);

	while (now < v && !atomic_compare_exchange_weak(at, &now, v))
		continue;
}

static void fault(struct client *c, _Atomic uint64_t *which, uint64_t key, const char *what, uint64_t a, uint64_t b)
{
	atomic_fetch_add(which, 1);
	if (atomic_fetch_add(&c->ledger->complaints, 1) < COMPLAINTS)
		fprintf(stderr, "client %d: key %llu: %s (%llu, %llu)\n", c->number, (unsigned long long)key, what,
		        (unsigned long long)a, (unsigned long long)b);
}

/* Too old. */
static void too_old(struct client *c, uint64_t key, uint64_t write, uint64_t low)
{
	if (c->last)
		fault(c, &c->ledger->lost, key, "an acknowledged write is lost: found, acknowledged", write, low);
	else
		fault(c, &c->ledger->stale, key, "older than was known before: found, known", write, low);
}

/* A delete among these writes: the least that is not below `low`, or 0 if it is above `high`. */
static uint64_t delete_among(uint64_t low, uint64_t high)
{
	uint64_t first = (low + DELETES - 1) / DELETES * DELETES;

	return first <= high ? first : 0;
}

static void judge(struct client *c, uint64_t key, enum ss_status s, const struct sr_record *r, uint64_t low,
                  uint64_t high)
{
	uint64_t write;

	if (s == SS_NOT_FOUND) {
		if (low > 0 && delete_among(low, high) == 0)
			too_old(c, key, 0, low);
	} else if (s != SS_OK) {
		fault(c, &c->ledger->failed, key, ss_text(s), s, 0);
	} else if (!is_whole(key, r, &write)) {
		fault(c, &c->ledger->torn, key, "a torn value: length, version", r->value_len, r->version);
	} else if (write < low) {
		too_old(c, key, write, low);
	} else if (write > high || is_delete(write)) {
		fault(c, &c->ledger->unborn, key, "what nobody had written: found, begun", write, high);
	} else {
		at_least(&c->ledger->key[key].read, write);
	}
}

/* ---- operations ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void do_get(struct client *c, uint64_t key)
{
	struct entry *e = &c->ledger->key[key];
	uint64_t low = larger(atomic_load(&e->acknowledged), atomic_load(&e->read));
	struct sr_record r;
	char name[SR_KEY];
	size_t len = make_key(key, name, sizeof(name));
	enum ss_status s = ss_get(c->store, name, len, &r);

	judge(c, key, s, &r, low, atomic_load(&e->begun));
	atomic_fetch_add(&c->ledger->gets, 1);
}

static void do_write(struct client *c, uint64_t key)
{
	struct entry *e = &c->ledger->key[key];
	uint64_t write = atomic_fetch_add(&e->begun, 1) + 1;
	struct value v;
	char name[SR_KEY];
	size_t len = make_key(key, name, sizeof(name));
	enum ss_status s;

	if (is_delete(write))
		s = ss_delete(c->store, name, len);
	else
		s = ss_put(c->store, name, len, &v, make_value(key, write, &v));
	/* A delete that was sent twice finds nothing the second time. */
	if (s == SS_OK || (s == SS_NOT_FOUND && is_delete(write)))
		atomic_store(&e->acknowledged, write);
	else
		fault(c, &c->ledger->failed, key, ss_text(s), s, write);
	atomic_fetch_add(is_delete(write) ? &c->ledger->deletes : &c->ledger->puts, 1);
}

static void do_one(struct client *c)
{
	uint64_t r = next_random(c) >> 16, key = r % (uint64_t)c->o->keys;
	int64_t began = sh_now_ms();

	if (r >> 32 & 1)
		do_get(c, key);
	else if ((key = key - key % (uint64_t)c->o->clients + (uint64_t)c->number) < (uint64_t)c->o->keys)
		do_write(c, key);
	at_least(&c->ledger->longest_ms, (uint64_t)(sh_now_ms() - began));
}

static uint64_t done(const struct ledger *l)
{
	return atomic_load(&l->puts) + atomic_load(&l->gets) + atomic_load(&l->deletes);
}

static int be_client(struct client *c)
{
	int64_t until;

	c->store = ss_open("storage_client", c->o->keeper);
	if (c->store == NULL)
		return 1;
	/* Opening takes longer than the whole load on a busy machine. */
	until = sh_now_ms() + (int64_t)c->o->seconds * 1000;
	c->store->plain = c->o->plain;
	while (sh_now_ms() < until && atomic_load(&c->ledger->failed) == 0 &&
	       (c->o->ops == 0 || done(c->ledger) < c->o->ops))
		do_one(c);
	/* Nobody else writes its keys. */
	c->last = true;
	for (int key = c->number; key < c->o->keys; key += c->o->clients)
		do_get(c, (uint64_t)key);
	atomic_fetch_add(&c->ledger->again, c->store->again);
	atomic_fetch_add(&c->ledger->torn_reads, c->store->torn);
	ss_close(c->store);
	return 0;
}

/* ---- all of them ---- */

static int report(const struct ledger *l)
{
	uint64_t bad = l->torn + l->lost + l->stale + l->unborn + l->failed;

	printf("%llu operations: %llu puts, %llu gets, %llu deletes; %llu tries by another map, %llu reads of what was "
	       "being written, "
	       "the longest %llu ms\n",
	       (unsigned long long)done(l), (unsigned long long)l->puts, (unsigned long long)l->gets,
	       (unsigned long long)l->deletes, (unsigned long long)l->again, (unsigned long long)l->torn_reads,
	       (unsigned long long)l->longest_ms);
	printf("%llu acknowledged writes lost, %llu stale reads, %llu torn values, %llu never written, %llu failed\n",
	       (unsigned long long)l->lost, (unsigned long long)l->stale, (unsigned long long)l->torn,
	       (unsigned long long)l->unborn, (unsigned long long)l->failed);
	return bad == 0 && l->gets > 0 && l->puts > 0 ? 0 : 1;
}

/* Of an earlier load, which the ledger does not know.  In a process of its own: an instance does not survive a fork. */
static int delete_keys(const struct sl_options *o)
{
	struct ss_store *s = ss_open("storage_client", o->keeper);
	enum ss_status done = s == NULL ? SS_TIMEOUT : SS_OK;
	char name[SR_KEY];

	for (int key = 0; key < o->keys && (done == SS_OK || done == SS_NOT_FOUND); key++)
		done = ss_delete(s, name, make_key((uint64_t)key, name, sizeof(name)));
	ss_close(s);
	return done == SS_OK || done == SS_NOT_FOUND ? 0 : 1;
}

static int start_empty(const struct sl_options *o)
{
	pid_t pid = fork();
	int status = 1;

	if (pid == 0)
		_exit(delete_keys(o));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return status == 0 ? 0 : 1;
}

int sl_run(const struct sl_options *o)
{
	struct ledger *l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc = 0, status;

	if (l == MAP_FAILED || o->clients < 1 || o->clients > CLIENTS || o->keys < o->clients || o->keys > KEYS) {
		fprintf(stderr, "storage_client: load: 1 to %d clients, and as many keys at least, %d at most\n",
		        CLIENTS, KEYS);
		return 2;
	}
	if (start_empty(o) != 0) {
		fputs("storage_client: load: the keys of an earlier load are not deleted\n", stderr);
		munmap(l, sizeof(*l));
		return 1;
	}
	for (int i = 0; i < o->clients; i++) {
		struct client c = {
			.o = o, .ledger = l, .number = i, .random = (uint64_t)getpid() * 7919 + (uint64_t)i + 1};
		pid_t pid = fork();

		if (pid == 0)
			_exit(be_client(&c));
		if (pid < 0)
			rc = 1;
	}
	while (wait(&status) > 0)
		if (status != 0)
			rc = 1;
	if (rc != 0)
		fputs("storage_client: a client of the load has failed\n", stderr);
	rc |= report(l);
	munmap(l, sizeof(*l));
	return rc;
}
