/* SPDX-License-Identifier: BSD-3-Clause */
#include "diff/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "xport.h"

/* Messages of a phase that nobody receives before its end: fewer than a queue takes. */
enum { LATE_MAX = 20 };

/* splitmix64 */
static uint64_t draw(struct diff_program *p)
{
	uint64_t z = p->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t below(struct diff_program *p, uint64_t n)
{
	return draw(p) % n;
}

static bool chance(struct diff_program *p, unsigned percent)
{
	return below(p, 100) < percent;
}

/* Each power of two up to 2^bits is as likely as the next; 0 is possible. */
static size_t size_of(struct diff_program *p, unsigned bits)
{
	unsigned b = (unsigned)below(p, bits + 1);

	return b == 0 ? 0 : ((size_t)1 << (b - 1)) + below(p, (uint64_t)1 << (b - 1));
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- regions ---- */

static void renew(struct diff_program *p, struct diff_region *r)
{
	static const uint32_t rights[] = {
		XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC,
		XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC,
		XPORT_REMOTE_READ | XPORT_REMOTE_WRITE,
		XPORT_REMOTE_READ,
		XPORT_REMOTE_WRITE,
	};

	r->old_len = r->len;
	r->old_rights = r->rights;
	r->len = 64 + size_of(p, 19);
	r->rights = rights[below(p, sizeof(rights) / sizeof(rights[0]))];
	r->skew = r->rights & XPORT_REMOTE_ATOMIC ? 8 * below(p, 16) : below(p, 128);
	r->allocated = chance(p, 50);
	r->content = draw(p);
	r->renewed = true;
}

/* ---- what may not run side by side ---- */

struct span {
	uint64_t from, to;
	bool writes;
};

/* What one side has posted since its last fence, by region. */
struct open_spans {
	struct span list[DIFF_REGIONS][DIFF_STEPS];
	int n[DIFF_REGIONS];
};

static bool conflicts(const struct open_spans *o, int region, const struct span *s)
{
	for (int i = 0; i < o->n[region]; i++) {
		const struct span *e = &o->list[region][i];

		if (s->from < e->to && e->from < s->to && (s->writes || e->writes))
			return true;
	}
	return false;
}

/* ---- steps ---- */

/* Some steps are errors: without the right, past the end, or with the key of a registration that is gone. */
static void check_access(struct diff_program *p, struct diff_step *s, const struct diff_region *r, uint32_t right)
{
	if (r->old_len > 0 && (r->old_rights & right) != 0 && chance(p, 2)) {
		s->old = true;
		s->len = s->kind == DIFF_ATOMIC ? s->len : 1 + below(p, least(r->old_len, 5000));
		s->offset = 0;
		s->status = XPORT_ERR_STALE_KEY;
	} else if ((r->rights & right) == 0) {
		s->status = XPORT_ERR_ACCESS;
	} else if (chance(p, 2)) {
		s->offset = r->len + 1024; /* an allocated region is a little longer than the part that is used */
		s->status = XPORT_ERR_BOUNDS;
	}
	if (s->status != XPORT_OK)
		s->flags = 0;
}

static void make_rma(struct diff_program *p, struct diff_step *s, const struct diff_region *r)
{
	s->len = least(size_of(p, 17), r->len);
	s->offset = below(p, r->len - s->len + 1);
	if (s->kind == DIFF_NOTIFY)
		s->value = draw(p);
	if (s->kind == DIFF_PUT)
		s->flags = chance(p, 60) ? 0 : chance(p, 50) ? XPORT_LOCAL : XPORT_QUIET;
	if (s->kind == DIFF_GET)
		s->flags = chance(p, 70) ? 0 : XPORT_QUIET;
	check_access(p, s, r, s->kind == DIFF_GET ? XPORT_REMOTE_READ : XPORT_REMOTE_WRITE);
}

static void make_atomic(struct diff_program *p, struct diff_step *s, const struct diff_region *r)
{
	s->width = chance(p, 50) ? 8 : 4;
	s->len = (size_t)s->width;
	s->offset = below(p, r->len / 8) * 8 + (s->width == 4 && chance(p, 50) ? 4 : 0);
	s->op = (int)below(p, XPORT_ATOMIC_CAS + 1);
	s->value = draw(p);
	s->compare = draw(p);
	s->fetch = chance(p, 60);
	check_access(p, s, r, XPORT_REMOTE_ATOMIC);
}

/* Of the classes of tags, odd ones are received exactly, even ones by class, so that every message finds a receive; the
 * last has one tag and both kinds of receives, so that it is their order that decides. */
static void make_send(struct diff_program *p, struct diff_step *s, struct diff_side *to)
{
	enum { CLASSES = 6, BOTH = CLASSES - 1 };
	struct diff_receive *r = &to->receive[to->nreceives++];
	uint64_t class = below(p, CLASSES);
	bool exact = class == BOTH ? chance(p, 50) : class % 2 == 1;

	s->value = class << 32 | (class == BOTH ? 0 : below(p, 3));
	s->len = size_of(p, chance(p, 90) ? 11 : 18);
	r->mask = exact ? UINT64_MAX : UINT64_MAX << 32;
	r->tag = exact ? s->value : class << 32 | below(p, 100);
	r->len = chance(p, 85) ? s->len + below(p, 64) : below(p, s->len + 1);
	r->any = chance(p, 50);
}

static enum diff_kind kind_of(struct diff_program *p)
{
	static const unsigned char share[] = {
		[DIFF_PUT] = 34,  [DIFF_NOTIFY] = 9, [DIFF_GET] = 20,  [DIFF_ATOMIC] = 14,
		[DIFF_SEND] = 16, [DIFF_FENCE] = 3,  [DIFF_FLUSH] = 4,
	};
	unsigned n = (unsigned)below(p, 100);
	int k = 0;

	while (n >= share[k])
		n -= share[k++];
	return (enum diff_kind)k;
}

/* What is posted on the other side's regions; what may not run beside something before it gives way to a fence. */
static void make_access(struct diff_program *p, struct diff_step *s, const struct diff_side *other,
                        struct open_spans *open)
{
	const struct diff_region *r;
	struct span span;

	s->region = (int)below(p, DIFF_REGIONS);
	r = &other->region[s->region];
	if (s->kind == DIFF_ATOMIC)
		make_atomic(p, s, r);
	else
		make_rma(p, s, r);
	span = (struct span){s->offset, s->offset + s->len, s->kind != DIFF_GET};
	if (s->status != XPORT_OK || s->len == 0)
		return;
	if (conflicts(open, s->region, &span))
		*s = (struct diff_step){.kind = DIFF_FENCE};
	else
		open->list[s->region][open->n[s->region]++] = span;
}

static void make_step(struct diff_program *p, struct diff_step *s, struct diff_side *own, struct diff_side *other,
                      struct open_spans *open)
{
	*s = (struct diff_step){.kind = kind_of(p)};
	if (s->kind == DIFF_SEND && other->late && other->nreceives >= LATE_MAX)
		s->kind = DIFF_FENCE;
	if (s->kind == DIFF_SEND)
		make_send(p, s, other);
	else if (s->kind <= DIFF_ATOMIC)
		make_access(p, s, other, open);
	if (s->kind == DIFF_FENCE)
		memset(open->n, 0, sizeof(open->n));
	if (s->kind == DIFF_NOTIFY && s->status == XPORT_OK)
		other->nnotify++;
	if (s->kind == DIFF_GET || (s->kind == DIFF_ATOMIC && s->fetch)) {
		s->at = own->results;
		own->results += s->kind == DIFF_GET ? s->len : 8;
	} else if (s->kind <= DIFF_SEND) {
		s->at = below(p, DIFF_LOCAL - s->len + 1);
	}
}

/* ---- phases ---- */

static void shuffle_receives(struct diff_program *p, struct diff_side *s)
{
	for (int i = s->nreceives - 1; i > 0; i--) {
		int j = (int)below(p, (uint64_t)i + 1);
		struct diff_receive r = s->receive[i];

		s->receive[i] = s->receive[j];
		s->receive[j] = r;
	}
	for (int i = 0; i < s->nreceives; i++) {
		s->receive[i].at = s->messages;
		s->messages += s->receive[i].len;
	}
}

static void begin_side(struct diff_program *p, struct diff_side *s)
{
	for (int i = 0; i < DIFF_REGIONS; i++) {
		s->region[i].renewed = false;
		if (s->region[i].len == 0 || chance(p, 15))
			renew(p, &s->region[i]);
	}
	s->nreceives = s->nnotify = 0;
	s->results = s->messages = 0;
	s->late = chance(p, 40);
	s->local_kind = (int)below(p, 3);
	s->local_skew = below(p, 128);
	s->local_content = draw(p);
}

void diff_begin(struct diff_program *p, uint64_t seed)
{
	memset(p, 0, sizeof(*p));
	p->random = seed;
}

void diff_next(struct diff_program *p)
{
	struct diff_side *side = p->phase.side;

	p->phase.number++;
	begin_side(p, &side[0]);
	begin_side(p, &side[1]);
	for (int i = 0; i < 2; i++) {
		struct open_spans open = {.n = {0}};

		for (int k = 0; k < DIFF_STEPS; k++)
			make_step(p, &side[i].step[k], &side[i], &side[1 - i], &open);
	}
	shuffle_receives(p, &side[0]);
	shuffle_receives(p, &side[1]);
}

const char *diff_describe(const struct diff_step *s, char *buf, size_t len)
{
	static const char *const name[] = {"put", "notify", "get", "atomic", "send", "fence", "flush"};

	snprintf(buf, len, "%s of %zu bytes, region %d%s at %" PRIu64 ", flags %" PRIu32 ", value 0x%" PRIx64,
	         name[s->kind], s->len, s->region, s->old ? " (stale)" : "", s->offset, s->flags, s->value);
	return buf;
}
