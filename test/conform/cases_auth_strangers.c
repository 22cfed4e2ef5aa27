/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_auth_strangers.c - P7, strangers at the port of a listener with a key: one of each kind, many at once, and for
 * a long time.
 */
#include <sys/socket.h>

#include "cases_auth.h"

/* What a good connection says, as a stranger on the way may have recorded it; and a HELLO of one without a key. */
struct overheard {
	uint8_t up[4096], down[4096], hello[4096];
	size_t nup, ndown, nhello;
};

static void overhear(struct h *h, const char *address, struct overheard *o)
{
	struct h_proxy p;

	h_proxy_start(h, &p, address);
	auth_client(h, p.address);
	memcpy(o->up, p.keep[0], sizeof(o->up));
	memcpy(o->down, p.keep[1], sizeof(o->down));
	o->nup = p.kept[0];
	o->ndown = p.kept[1];
	h_proxy_stop(&p);
	H_TRUE(o->nup > START_LEN + PROOF_LEN + 100 && !memcmp(o->up, "XPKY", 4) && o->up[START_LEN] == 'P');
	/* Whatever else, its HELLO is one that another could send without the key. */
	o->nhello = (size_t)(o->up[START_LEN + PROOF_LEN + 4] << 8 | o->up[START_LEN + PROOF_LEN + 5]);
	memcpy(o->hello, o->up + START_LEN + PROOF_LEN, o->nhello);
	H_TRUE(!memcmp(o->hello, "XPRT", 4));
}

enum { KINDS = 10 };

/* One bad handshake; what comes back may be a START and an 'F', and nothing else. */
static void stranger(struct h *h, const char *address, const struct overheard *o, unsigned kind, bool wait)
{
	uint8_t start[START_LEN], proof[4096] = {'P'}, answer[4096];
	size_t n = 0, len = PROOF_LEN, at = 0;
	int fd = h_raw_connect(h, address);

	memcpy(start, o->up, START_LEN);
	for (size_t i = 0; i < 32; i++)
		start[8 + i] = proof[1 + i] = (uint8_t)rand();
	switch (kind % KINDS) {
	case 0: /* a wrong proof */
		break;
	case 1: /* no key at all */
		h_raw_write(fd, o->hello, o->nhello);
		goto hear;
	case 2: /* all that a true client said, again */
		h_raw_write(fd, o->up, o->nup);
		goto hear;
	case 3: /* its proof with another START */
		memcpy(proof, o->up + START_LEN, len);
		break;
	case 4: /* a server's START */
		start[6] = 'S';
		break;
	case 5: /* another version of it */
		start[5]++;
		break;
	case 6: /* no proof, but the HELLO, which needs one */
		memcpy(proof, o->hello, len = o->nhello);
		break;
	case 7: /* half a word */
		h_raw_write(fd, start, 1 + (size_t)rand() % (START_LEN - 1));
		close(fd);
		return;
	case 8: /* the server's proof, as it gave it to another */
		memcpy(proof, o->down + START_LEN, len);
		break;
	default: /* noise */
		h_raw_write(fd, proof + 1, 32);
		goto hear;
	}
	h_raw_write(fd, start, START_LEN);
	if (kind % KINDS == 9 || !wait)
		goto hear;
	/* the server's START, sent back as a client's, is not known before */
	at = h_raw_read(fd, answer, START_LEN, h_ms(h->limit_ms));
	H_CHECK(at == 0 || at == START_LEN || answer[0] == 'F', "%zu bytes", at);
hear:
	h_raw_write(fd, proof, len);
	shutdown(fd, SHUT_WR);
	n = at + h_raw_read(fd, answer + at, sizeof(answer) - at, h_ms(10000));
	if (n >= START_LEN && answer[0] == 'X') {
		H_CHECK(!memcmp(answer, "XPKY", 4) && answer[6] == 'S', "stranger %u: not a START", kind);
		n -= START_LEN;
		memmove(answer, answer + START_LEN, n);
	}
	H_CHECK(n == 0 || answer[0] == 'F', "stranger %u was told %zu bytes: %02x %02x", kind, n, answer[0], answer[1]);
	H_CHECK(n < 300, "stranger %u was told %zu bytes", kind, n);
	close(fd);
}

/* Two connections at once, each answered with what the other says: as if one could be its own peer. */
static void mirror(struct h *h, const char *address)
{
	int a = h_raw_connect(h, address), b = h_raw_connect(h, address);
	uint8_t start[START_LEN] = "XPKY\0\1C", one[START_LEN], two[START_LEN], answer[512];

	h_raw_write(a, start, START_LEN);
	H_EQ(START_LEN, h_raw_read(a, one, START_LEN, h_ms(h->limit_ms)));
	one[6] = 'C';
	h_raw_write(b, one, START_LEN);
	H_EQ(START_LEN, h_raw_read(b, two, START_LEN, h_ms(h->limit_ms)));
	/* A proof to a must come from somebody who has the key: b gives none before it was given one. */
	H_EQ(0, h_raw_read(b, answer, 1, 100));
	close(a);
	close(b);
}

static void says_nothing_first(struct h *h, const char *address)
{
	uint8_t byte;
	int fd = h_raw_connect(h, address);

	H_EQ(0, h_raw_read(fd, &byte, 1, 200));
	close(fd);
}

static void strangers(struct h *h)
{
	struct overheard *o = h_buf(h, sizeof(*o));
	char address[80];

	auth_open(h, auth_key, NULL);
	h_hear(h, 0, address, sizeof(address));
	overhear(h, address, o);
	says_nothing_first(h, address);
	mirror(h, address);
	for (unsigned i = 0; i < 20 * KINDS; i++)
		stranger(h, address, o, i, i % 2 == 0);
	auth_client(h, address);
	auth_count(h, 2, 2);
}

/* More than may wait at a time: some say nothing, some a START and then nothing.  A good client gets in all the same. */
static void crowd(struct h *h)
{
	enum { STRANGERS = 150 };
	uint8_t start[START_LEN] = "XPKY\0\1C", answer[START_LEN];
	int fd[STRANGERS];
	char address[80];
	int64_t t;

	auth_open(h, auth_key, NULL);
	h_hear(h, 0, address, sizeof(address));
	for (int i = 0; i < STRANGERS; i++) {
		fd[i] = h_raw_connect(h, address);
		start[20] = (uint8_t)i;
		if (i % 2)
			h_raw_write(fd[i], start, START_LEN);
		if (i == 1)
			H_EQ(START_LEN, h_raw_read(fd[i], answer, START_LEN, h_ms(h->limit_ms)));
	}
	/* If each kept its place for the 5 s that it may, this would take 10 s. */
	t = auth_client(h, address);
	H_CHECK(t < 5000000, "it took %" PRId64 " us", t);
	auth_client(h, address);
	for (int i = 0; i < STRANGERS; i++)
		close(fd[i]);
	auth_count(h, 2, 2);
}

/* ---- many of them ---- */

enum { RUNNING = 0, ROUNDS = 20 };

static void attacker(struct h *h)
{
	struct overheard *o = h_buf(h, sizeof(*o));
	uint64_t n = 0;
	char address[80];

	auth_open(h, NULL, NULL);
	h_hear(h, 1, address, sizeof(address));
	h_hear(h, 1, o, sizeof(*o));
	h->idle = true;
	while (n < h->param)
		if (atomic_load(h_word(h, RUNNING)) != 0)
			stranger(h, address, o, (unsigned)n++, false);
		else
			usleep(200);
	atomic_store(h_word(h, RUNNING), 2);
	h->idle = false;
	h_tell_u64(h, 1, n);
}

static int by_time(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median of each of two: quiet, and under attack, in turns, so that the machine's own weather is in both. */
static void besieged(struct h *h)
{
	struct overheard *o = h_buf(h, sizeof(*o));
	int64_t *t[2] = {h_buf(h, 1 << 20), h_buf(h, 1 << 20)};
	size_t n[2] = {0, 0}, per_round = 10;
	int64_t quiet, most;
	char address[80];

	auth_open(h, auth_key, NULL);
	h_hear(h, 0, address, sizeof(address));
	overhear(h, address, o);
	h_tell(h, 2, address, sizeof(address));
	h_tell(h, 2, o, sizeof(*o));
	while (atomic_load(h_word(h, RUNNING)) != 2) {
		for (int attack = 0; attack < 2; attack++) {
			uint64_t was = (uint64_t)!attack;

			/* the attacker says when it is done */
			atomic_compare_exchange_strong(h_word(h, RUNNING), &was, (uint64_t)attack);
			for (size_t i = 0; i < per_round && n[attack] < (1 << 20) / 8; i++)
				t[attack][n[attack]++] = auth_client(h, address);
		}
	}
	H_EQ(h->param, h_hear_u64(h, 2));
	for (int i = 0; i < 2; i++)
		qsort(t[i], n[i], sizeof(*t[i]), by_time);
	h_record(h, "bad_handshakes", h->param);
	h_record(h, "good_clients", n[0] + n[1]);
	h_record(h, "quiet_us", (uint64_t)t[0][n[0] / 2]);
	h_record(h, "attacked_us", (uint64_t)t[1][n[1] / 2]);
	h_record(h, "attacked_p99_us", (uint64_t)t[1][n[1] * 99 / 100]);
	/* The short run is a matter of a second, on a machine that has other work as well. */
	quiet = t[0][n[0] / 2];
	most = h->param >= 100000 ? 2 * quiet : 10 * quiet + (int64_t)h_ms(20) * 1000;
	H_CHECK(h_instrumented() || t[1][n[1] / 2] <= most, "%" PRId64 " us, and %" PRId64 " us where nobody attacks",
	        t[1][n[1] / 2], quiet);
	auth_count(h, n[0] + n[1] + 1, n[0] + n[1] + 1);
}

static const struct h_param some[] = {{"1000", 1000}, {NULL, 0}}, all[] = {{"100000", 100000}, {NULL, 0}};

const struct h_scenario cases_auth_strangers[] = {
	{.name = "P7_auth_strangers", .role = {auth_server, strangers}, .timeout_s = 60},
	{.name = "P7_auth_crowd", .role = {auth_server, crowd}, .timeout_s = 60},
	{.name = "P7_auth_besieged", .role = {auth_server, besieged, attacker}, .params = some, .timeout_s = 120},
	{.name = "P7_auth_besieged_long",
         .role = {auth_server, besieged, attacker},
         .params = all,
         .flags = H_SLOW,
         .timeout_s = 1200},
	{.name = NULL},
};
