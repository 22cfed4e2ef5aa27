/* SPDX-License-Identifier: BSD-3-Clause */
/* round.c - one round: the operations that are posted, the completions, and the end. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "soak/side.h"

enum { BATCH = 64, POLL_EVERY = 64, OWN_ADDS = 16, PATIENCE_S = 60 };

/* Contexts of what is no step. */
static char round_flush, stale_put;

static void *context_of(uint32_t step)
{
	return (void *)(uintptr_t)(step + 1);
}

/* ---- what comes ---- */

static void take_notification(struct soak_side *s, uint64_t value, uint64_t length, uint64_t offset)
{
	struct soak_progress *now = &s->now;
	const struct soak_step *t;

	while (now->next_notify < s->peer.n && s->peer.step[now->next_notify].kind != SOAK_NOTIFY)
		now->next_notify++;
	t = &s->peer.step[now->next_notify];
	if (now->next_notify >= s->peer.n || value != soak_tag(s->round, now->next_notify))
		soak_fail(s, "MISMATCH: a notification with the value %#" PRIx64 ", where %#" PRIx64 " was due", value,
		          soak_tag(s->round, now->next_notify));
	if (length != t->len || (t->len > 0 && offset != t->at))
		soak_fail(s, "MISMATCH: the notification of step %" PRIu32 " says %" PRIu64 " bytes at %" PRIu64,
		          now->next_notify, length, offset);
	now->notified++;
	now->next_notify++;
	soak_verify_puts(s, now->next_notify);
}

static void take_event(struct soak_side *s, const struct xport_completion *c)
{
	switch (c->type) {
	case XPORT_EVENT_NOTIFY:
		s->count.notifications++;
		if (s->nearly == SOAK_STEPS)
			soak_fail(s, "MISMATCH: more notifications than there can be");
		if (s->in_round && (c->tag & SOAK_ROUND_MASK) != soak_tag(s->round + 1, 0))
			take_notification(s, c->tag, c->length, c->offset);
		else /* the other side is ahead */
			s->early[s->nearly++] = (struct soak_early){c->tag, c->length, c->offset};
		return;
	case XPORT_EVENT_INCOMING:
	case XPORT_EVENT_CONNECTED:
		return;
	case XPORT_EVENT_CLOSED:
		if (!s->now.heard)
			soak_fail(s, "the peer closed in the middle of a round");
		s->closed = true;
		return;
	default:
		soak_fail(s, "the connection is lost: %s", xport_status_name(c->status));
	}
}

static void take_stale(struct soak_side *s, int status)
{
	if (status != XPORT_ERR_STALE_KEY)
		soak_fail(s, "MISMATCH: a put with a stale key: %s", xport_status_name(status));
}

void soak_take(void *arg, const struct xport_completion *c)
{
	struct soak_side *s = arg;

	if (c->type >= XPORT_EVENT_NOTIFY) {
		take_event(s, c);
	} else if (c->context == &stale_put) {
		s->stale_pending--;
		take_stale(s, c->status);
	} else if (c->status != XPORT_OK && c->status != XPORT_ERR_TRUNCATED) {
		soak_fail(s, "an operation of type %" PRIu32 " failed: %s", c->type, xport_status_name(c->status));
	} else if (c->type == XPORT_OP_RECV && (c->tag & SOAK_NOTE) != 0) {
		soak_take_note(s, c->context, c->length);
	} else if (c->type == XPORT_OP_RECV) {
		soak_verify_received(s, c);
	} else if (c->context == s->note) {
		s->now.told = true;
	} else if (c->context == &round_flush) {
		s->now.flushed = true;
	} else {
		s->now.pending--;
		soak_verify_own(s, c);
	}
}

static int reap(struct soak_side *s, int timeout_ms)
{
	struct xport_completion list[BATCH];
	int n = timeout_ms == 0 ? xport_poll(s->x, list, BATCH) : xport_wait(s->x, list, BATCH, timeout_ms);

	if (n < 0)
		soak_fail(s, "polling: %s", xport_status_name(n));
	for (int i = 0; i < n; i++)
		if (s->bulks.b == NULL || xport_bulks_step(s->bulks.b, &list[i]) == 0)
			soak_take(s, &list[i]);
	return n;
}

void soak_poll(struct soak_side *s)
{
	(void)reap(s, 0);
}

/* Frames and acknowledgements that ever went out or came: on a bad network a long message takes a while. */
static uint64_t traffic(struct soak_side *s)
{
	struct xport_counters k = {.size = sizeof(k)};

	soak_must(s, xport_stats(s->x, NULL, &k), "xport_stats");
	return k.frames_in + k.frames_out + k.acks_in + k.acks_out + k.frames_acked;
}

void soak_progress(struct soak_side *s)
{
	uint64_t seen;

	if (reap(s, 1000) > 0) {
		s->quiet_since = 0;
		return;
	}
	seen = traffic(s);
	if (s->quiet_since == 0 || seen != s->seen) {
		s->quiet_since = soak_seconds();
		s->seen = seen;
	}
	if (soak_seconds() - s->quiet_since < PATIENCE_S)
		return;
	xport_dump(s->x);
	soak_fail(s, "nothing has come or gone for %d s", PATIENCE_S);
}

/* ---- what is posted ---- */

/* The receives of the other side's messages, in their order, up to so many, and as far as there is room. */
static void post_receives(struct soak_side *s, uint32_t upto)
{
	struct soak_progress *now = &s->now;
	uint8_t *area = s->region[s->round & 1].p;

	while (now->posted_receives < upto) {
		const struct soak_step *t = &s->peer.step[now->seen_receives];
		struct xport_opt o = {.size = sizeof(o),
		                      .context = context_of(now->seen_receives),
		                      .mr = t->registered ? s->region[s->round & 1].mr : NULL,
		                      .source = t->any ? NULL : s->ep};
		int r = XPORT_OK;

		if (t->kind == SOAK_SEND)
			r = xport_recv(s->x, area + t->at, t->room, soak_tag(s->round, now->seen_receives),
			               t->exact ? ~UINT64_C(0) : SOAK_ROUND_MASK, &o);
		if (r == XPORT_ERR_AGAIN)
			return;
		soak_must(s, r, "xport_recv");
		now->posted_receives += t->kind == SOAK_SEND;
		now->seen_receives++;
	}
}

void soak_post_late(struct soak_side *s)
{
	post_receives(s, s->peer.receives);
}

/* When nothing else is to be posted first. */
static void progress_late(struct soak_side *s)
{
	soak_post_late(s);
	soak_progress(s);
}

static int post_atomic(struct soak_side *s, const struct soak_step *t, struct xport_opt *o)
{
	struct xport_atomic_args a = {.size = sizeof(a),
	                              .op = t->op,
	                              .width = t->width,
	                              .operand = t->operand,
	                              .compare = t->compare,
	                              .result = t->fetch ? s->out + t->at : NULL};

	o->mr = NULL;
	return xport_atomic(s->ep, &a, s->region[SOAK_COUNTED].key,
	                    ((s->round & 1) * SOAK_WORDS + t->word) * sizeof(uint64_t), o);
}

static int post_once(struct soak_side *s, uint32_t i)
{
	const struct soak_step *t = &s->own.step[i];
	xport_rkey *key = s->region[s->round & 1].key;
	uint8_t *here = s->out + t->at;
	struct xport_opt o = {.size = sizeof(o),
	                      .flags = t->flags,
	                      .context = context_of(i),
	                      .mr = t->registered ? s->out_mr : NULL,
	                      .value = soak_tag(s->round, i)};

	switch (t->kind) {
	case SOAK_PUT:
		return xport_put(s->ep, here, t->len, key, t->at, &o);
	case SOAK_NOTIFY:
		return xport_put_notify(s->ep, here, t->len, key, t->at, &o);
	case SOAK_GET:
		return xport_get(s->ep, here, t->len, s->region[SOAK_SOURCE].key, t->slice, &o);
	case SOAK_SEND:
		return xport_send(s->ep, here, t->len, soak_tag(s->round, i), &o);
	case SOAK_ATOMIC:
		return post_atomic(s, t, &o);
	default:
		o.mr = NULL;
		soak_must(s, t->slice & 1 ? xport_fence(s->ep) : XPORT_OK, "xport_fence");
		return xport_flush(s->ep, &o);
	}
}

static void prepare(struct soak_side *s, const struct soak_step *t)
{
	if (t->kind != SOAK_PUT && t->kind != SOAK_NOTIFY && t->kind != SOAK_SEND)
		return;
	memcpy(s->out + t->at, s->region[SOAK_SOURCE].p + t->slice, t->len);
	/* For tests: what a broken network would do. */
	if (t->kind == SOAK_PUT && t->len > 0 && ++s->filled_puts == s->o.plant_at && s->o.plant == SOAK_WRONG_BYTE)
		s->out[t->at + t->len / 2] ^= 0x40;
}

static void post(struct soak_side *s, uint32_t i)
{
	const struct soak_step *t = &s->own.step[i];
	uint64_t *const count[] = {&s->count.puts,  &s->count.put_notifies, &s->count.gets,
	                           &s->count.sends, &s->count.atomics,      &s->count.flushes};
	int r;

	prepare(s, t);
	while ((r = post_once(s, i)) == XPORT_ERR_AGAIN) {
		/* Both sides may be full of messages that nobody receives yet. */
		progress_late(s);
	}
	soak_must(s, r, "posting");
	s->now.pending += !(t->flags & XPORT_QUIET);
	++*count[t->kind];
}

static void post_stale(struct soak_side *s)
{
	struct soak_region *region = &s->region[s->round & 1];
	struct xport_opt o = {.size = sizeof(o), .context = &stale_put};
	int r;

	if (region->old == NULL)
		return;
	r = xport_put(s->ep, s->region[SOAK_SOURCE].p, 100, region->old, SOAK_GAP, &o);
	if (r == XPORT_OK) {
		s->stale_pending++;
		s->count.puts++;
	} else {
		take_stale(s, r);
	}
}

/* The CPU adds to the same words as the other side. */
static void add_here(struct soak_side *s)
{
	_Atomic uint64_t *hot = (_Atomic uint64_t *)(s->words + (s->round & 1) * SOAK_WORDS + SOAK_STEPS);

	for (int i = 0; i < SOAK_HOT; i++)
		atomic_fetch_add(&hot[i], 1);
}

static void post_steps(struct soak_side *s)
{
	uint32_t early = s->peer.late ? s->peer.receives / 2 : s->peer.receives;
	int added = 0;

	for (uint32_t i = 0; i < s->own.n; i++) {
		post(s, i);
		if (i % POLL_EVERY != POLL_EVERY - 1)
			continue;
		soak_poll(s);
		post_receives(s, early);
		if (added++ < OWN_ADDS)
			add_here(s);
	}
	while (added++ < OWN_ADDS)
		add_here(s);
}

/* ---- a round ---- */

/* What the plans do to the words, here and there. */
static void foresee(struct soak_side *s)
{
	uint64_t *model = s->model + (s->round & 1) * SOAK_WORDS, *mirror = s->mirror + (s->round & 1) * SOAK_WORDS;

	for (uint32_t i = 0; i < s->peer.n; i++)
		if (s->peer.step[i].kind == SOAK_ATOMIC)
			(void)soak_apply(&s->peer.step[i], &model[s->peer.step[i].word]);
	memcpy(s->hot, mirror + SOAK_STEPS, sizeof(s->hot));
	for (uint32_t i = 0; i < s->own.n; i++)
		if (s->own.step[i].kind == SOAK_ATOMIC)
			s->now.fetched[i] = soak_apply(&s->own.step[i], &mirror[s->own.step[i].word]);
	for (int i = SOAK_STEPS; i < SOAK_WORDS; i++) {
		model[i] += OWN_ADDS;
		mirror[i] += OWN_ADDS;
	}
}

static void begin_round(struct soak_side *s)
{
	uint32_t n = s->nearly;

	soak_plan(&s->own, s->o.run.seed, s->round, s->role, s->o.run.window);
	soak_plan(&s->peer, s->o.run.seed, s->round, 1 - s->role, s->o.run.window);
	memset(&s->now, 0, offsetof(struct soak_progress, fetched));
	s->now.flushed = false;
	foresee(s);
	soak_expect_note(s);
	s->nearly = 0;
	s->in_round = true;
	for (uint32_t i = 0; i < n; i++)
		take_notification(s, s->early[i].value, s->early[i].length, s->early[i].offset);
}

static bool arrived(const struct soak_side *s)
{
	return s->now.heard && s->now.told && s->now.received == s->peer.receives &&
	       s->now.notified == s->peer.notifications;
}

static void flush(struct soak_side *s)
{
	struct xport_opt o = {.size = sizeof(o), .context = &round_flush};
	int r;

	while ((r = xport_flush(s->ep, &o)) == XPORT_ERR_AGAIN)
		progress_late(s);
	soak_must(s, r, "xport_flush");
	s->count.flushes++;
	while (!s->now.flushed || s->now.pending > 0 || s->stale_pending > 0)
		progress_late(s);
}

void soak_round(struct soak_side *s)
{
	begin_round(s);
	post_receives(s, s->peer.late ? s->peer.receives / 2 : s->peer.receives);
	post_stale(s);
	post_steps(s);
	flush(s);
	soak_bulks_round(s);
	soak_tell(s, false);
	while (!arrived(s))
		progress_late(s);
	soak_verify_round(s);
	soak_bulks_verify(s);
	s->ops += s->own.n + s->peer.n;
	s->in_round = false;
}
