/* SPDX-License-Identifier: BSD-3-Clause */
#include "diff/run.h"

#include "conform/harness.h"
#include "diff/model.h"

int diff_phases = 25;

/* One side of a program at work. */
struct side {
	struct h *h;
	struct diff_program program;
	struct diff_model model;
	const struct diff_phase *phase;
	const struct diff_side *own; /* of the phase */
	const struct diff_outcome *must;
	xport_ep *ep;
	struct h_mem region[DIFF_REGIONS];
	struct h_rkey key[DIFF_REGIONS], old[DIFF_REGIONS]; /* of the other side */
	struct h_mem local, results;
	uint8_t *messages;
	struct h_op *step[DIFF_STEPS], *receive[DIFF_STEPS];
};

/* ---- before a phase ---- */

static void renew_regions(struct side *s)
{
	struct h *h = s->h;
	const struct diff_side *other = &s->phase->side[1 - h->role];

	for (int i = 0; i < DIFF_REGIONS; i++) {
		const struct diff_region *r = &s->own->region[i];

		if (!r->renewed)
			continue;
		if (r->old_len > 0)
			h_mem_free(h, &s->region[i]);
		h->kind = r->allocated ? H_ALLOC : H_REG;
		s->region[i] = h_mem_target(h, r->len, r->skew, r->rights);
		h_fill(s->region[i].p, r->len, r->content);
		h_share(h, 1 - h->role, &s->region[i]);
	}
	for (int i = 0; i < DIFF_REGIONS; i++) {
		if (!other->region[i].renewed)
			continue;
		xport_rkey_destroy(s->old[i].k);
		s->old[i] = s->key[i];
		s->key[i] = h_import(h, 1 - h->role);
	}
}

static void make_local(struct side *s)
{
	struct h *h = s->h;

	h->kind = (enum h_kind)s->own->local_kind;
	s->local = h_mem_local(h, DIFF_LOCAL, s->own->local_skew);
	s->results = h_mem_local(h, s->own->results, s->own->local_skew);
	s->messages = h_buf(h, s->own->messages);
	h_fill(s->local.p, DIFF_LOCAL, s->own->local_content);
}

/* ---- a phase ---- */

static void post_receives(struct side *s)
{
	for (int i = 0; i < s->own->nreceives; i++) {
		const struct diff_receive *r = &s->own->receive[i];

		s->receive[i] = h_recv(s->h, r->any ? NULL : s->ep, s->messages + r->at, r->len, r->tag, r->mask);
	}
}

static int call(struct side *s, const struct diff_step *t, struct xport_opt *o)
{
	const struct h_rkey *key = t->old ? &s->old[t->region] : &s->key[t->region];
	uint8_t *source = s->local.p + t->at, *result = s->results.p + t->at;
	struct xport_atomic_args a = {.size = sizeof(a),
	                              .op = t->op,
	                              .width = t->width,
	                              .operand = t->value,
	                              .compare = t->compare,
	                              .result = t->fetch ? result : NULL};

	o->mr = t->kind == DIFF_GET ? s->results.mr : t->kind == DIFF_ATOMIC ? NULL : s->local.mr;
	switch (t->kind) {
	case DIFF_PUT:
		return xport_put(s->ep, source, t->len, key->k, key->offset + t->offset, o);
	case DIFF_NOTIFY:
		return xport_put_notify(s->ep, source, t->len, key->k, key->offset + t->offset, o);
	case DIFF_GET:
		return xport_get(s->ep, result, t->len, key->k, key->offset + t->offset, o);
	case DIFF_ATOMIC:
		return xport_atomic(s->ep, &a, key->k, key->offset + t->offset, o);
	case DIFF_SEND:
		return xport_send(s->ep, source, t->len, t->value, o);
	case DIFF_FENCE:
		return xport_fence(s->ep);
	default:
		o->mr = NULL;
		return xport_flush(s->ep, o);
	}
}

static void post(struct side *s, int i)
{
	static const int type[] = {XPORT_OP_PUT,  XPORT_OP_PUT_NOTIFY, XPORT_OP_GET, XPORT_OP_ATOMIC, XPORT_OP_SEND, 0,
	                           XPORT_OP_FLUSH};
	const struct diff_step *t = &s->own->step[i];
	struct h *h = s->h;
	struct h_op *op = h_op(h, type[t->kind]);
	struct xport_opt o = {.size = sizeof(o), .flags = t->flags, .context = op, .value = t->value};
	char text[160];
	int r;

	while ((r = call(s, t, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	s->step[i] = NULL;
	if (r == XPORT_OK && t->kind != DIFF_FENCE && !(t->flags & XPORT_QUIET)) {
		s->step[i] = op;
		return;
	}
	h_op_drop(h, op);
	H_CHECK(r == (r == XPORT_OK && t->kind == DIFF_FENCE ? XPORT_OK : t->status),
	        "phase %d, step %d, %s: is %s, must be %s", s->phase->number, i, diff_describe(t, text, sizeof(text)),
	        xport_status_name(r), xport_status_name(t->status));
}

/* Now and then without a poll between them, so that they share frames. */
static void post_steps(struct side *s)
{
	for (int i = 0; i < DIFF_STEPS; i++) {
		post(s, i);
		if ((s->own->step[i].value & 3) == 1)
			h_progress(s->h);
	}
}

/* ---- after a phase ---- */

/* The step that wrote there last, in words. */
static const char *writer(const struct diff_phase *phase, int side, int region, size_t at, char *buf, size_t len)
{
	char text[160];

	snprintf(buf, len, "no step of the phase wrote there");
	for (int i = 0; i < DIFF_STEPS; i++) {
		const struct diff_step *t = &phase->side[side].step[i];

		if (t->kind <= DIFF_ATOMIC && t->kind != DIFF_GET && t->status == XPORT_OK && t->region == region &&
		    at >= t->offset && at < t->offset + t->len)
			snprintf(buf, len, "written by step %d, %s", i, diff_describe(t, text, sizeof(text)));
	}
	return buf;
}

/* The step whose result lies there. */
static const char *reader(const struct side *s, size_t at, char *buf, size_t len)
{
	char text[160];

	snprintf(buf, len, "no step's result");
	for (int i = 0; i < DIFF_STEPS; i++) {
		const struct diff_step *t = &s->own->step[i];

		if ((t->kind == DIFF_GET || (t->kind == DIFF_ATOMIC && t->fetch)) && at >= t->at && at < t->at + t->len)
			snprintf(buf, len, "result of step %d, %s", i, diff_describe(t, text, sizeof(text)));
	}
	return buf;
}

static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t len)
{
	size_t i = 0;

	if (memcmp(a, b, len) == 0)
		return len;
	while (a[i] == b[i])
		i++;
	return i;
}

static void check_memory(struct side *s)
{
	struct h *h = s->h;
	char text[256];
	size_t at;

	for (int i = 0; i < DIFF_REGIONS; i++) {
		size_t len = s->own->region[i].len;

		at = first_difference(s->region[i].p, s->must->region[i], len);
		H_CHECK(at == len, "phase %d, region %d, byte %zu of %zu is 0x%02x, must be 0x%02x; %s",
		        s->phase->number, i, at, len, s->region[i].p[at], s->must->region[i][at],
		        writer(s->phase, 1 - h->role, i, at, text, sizeof(text)));
		H_GUARDS(s->region[i]);
	}
	at = first_difference(s->results.p, s->must->results, s->own->results);
	H_CHECK(at == s->own->results, "phase %d: byte %zu of the results is 0x%02x, must be 0x%02x; %s",
	        s->phase->number, at, s->results.p[at], s->must->results[at], reader(s, at, text, sizeof(text)));
	at = first_difference(s->messages, s->must->messages, s->own->messages);
	H_CHECK(at == s->own->messages, "phase %d: byte %zu of the messages is 0x%02x, must be 0x%02x",
	        s->phase->number, at, s->messages[at], s->must->messages[at]);
	H_TRUE(memcmp(s->local.p, s->must->local, DIFF_LOCAL) == 0);
}

static void check_completions(struct side *s)
{
	struct h *h = s->h;
	char text[160];

	for (int i = 0; i < DIFF_STEPS; i++) {
		const struct diff_step *t = &s->own->step[i];

		if (s->step[i] != NULL)
			H_CHECK(s->step[i]->c.status == t->status, "phase %d, step %d, %s: completed as %s, must be %s",
			        s->phase->number, i, diff_describe(t, text, sizeof(text)),
			        xport_status_name(s->step[i]->c.status), xport_status_name(t->status));
	}
	for (int i = 0; i < s->own->nreceives; i++) {
		const struct diff_received *r = &s->must->received[i];
		const struct xport_completion *c = &s->receive[i]->c;

		H_CHECK(c->status == r->status && c->tag == r->tag && c->length == r->len,
		        "phase %d, receive %d: %s, tag 0x%" PRIx64 ", %" PRIu64 " bytes; must be %s, 0x%" PRIx64
		        ", %" PRIu64,
		        s->phase->number, i, xport_status_name(c->status), c->tag, c->length,
		        xport_status_name(r->status), r->tag, r->len);
	}
}

static void check_notified(struct side *s)
{
	struct h *h = s->h;

	for (int i = 0; i < s->must->nnotified; i++) {
		const struct diff_notified *n = &s->must->notified[i];
		struct xport_completion c = H_EVENT(XPORT_EVENT_NOTIFY);
		uint64_t offset = n->offset + s->region[n->region].offset;

		H_CHECK(c.tag == n->value && c.length == n->len && (n->len == 0 || c.offset == offset) &&
		                (n->len == 0 || c.mr == s->region[n->region].mr),
		        "phase %d, notification %d: value 0x%" PRIx64 ", %" PRIu64 " bytes at %" PRIu64
		        "; must be 0x%" PRIx64 ", %" PRIu64 " at %" PRIu64,
		        s->phase->number, i, c.tag, c.length, c.offset, n->value, n->len, offset);
	}
	H_EQ(0, h->nqueue);
}

static void run_phase(struct side *s)
{
	struct h *h = s->h;

	diff_next(&s->program);
	s->phase = &s->program.phase;
	s->own = &s->phase->side[h->role];
	s->must = &s->model.side[h->role];
	H_TRUE(diff_model_run(&s->model, s->phase));
	renew_regions(s);
	make_local(s);
	if (!s->own->late)
		post_receives(s);
	post_steps(s);
	if (s->own->late)
		post_receives(s);
	h_flush(h, s->ep);
	h_settle(h);
	h_sync(h); /* what the other side did to our memory is complete, too */
	check_completions(s);
	check_notified(s);
	check_memory(s);
	h_mem_free(h, &s->local);
	h_mem_free(h, &s->results);
	h_buf_free(h, s->messages);
	h_sync(h);
}

static void side(struct h *h)
{
	struct side *s = h_buf(h, sizeof(*s));
	struct xport_attr a = h_attr(h);

	s->h = h;
	if (h->param & 1)
		a.queue_depth = 64; /* every other one is often told AGAIN */
	h_mesh(h, &a);
	s->ep = h->ep[1 - h->role];
	diff_begin(&s->program, h->param);
	for (int i = 0; i < diff_phases; i++)
		run_phase(s);
	diff_model_fini(&s->model);
}

const struct h_scenario diff_scenario = {.name = "differential", .role = {side, side}, .timeout_s = 120};
