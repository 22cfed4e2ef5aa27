/* SPDX-License-Identifier: BSD-3-Clause */
#include "diff/model.h"

#include <stdlib.h>
#include <string.h>

#include "conform/harness.h"

static bool renew(uint8_t **mem, size_t len)
{
	free(*mem);
	*mem = calloc(1, len + 1);
	return *mem != NULL;
}

static bool begin_side(struct diff_outcome *o, const struct diff_side *s)
{
	o->nnotified = 0;
	for (int i = 0; i < DIFF_REGIONS; i++) {
		if (!s->region[i].renewed)
			continue;
		if (!renew(&o->region[i], s->region[i].len))
			return false;
		h_fill(o->region[i], s->region[i].len, s->region[i].content);
	}
	if (!renew(&o->local, DIFF_LOCAL) || !renew(&o->results, s->results) || !renew(&o->messages, s->messages))
		return false;
	h_fill(o->local, DIFF_LOCAL, s->local_content);
	return true;
}

static uint64_t combined(const struct diff_step *s, uint64_t old)
{
	switch (s->op) {
	case XPORT_ATOMIC_ADD:
		return old + s->value;
	case XPORT_ATOMIC_AND:
		return old & s->value;
	case XPORT_ATOMIC_OR:
		return old | s->value;
	case XPORT_ATOMIC_XOR:
		return old ^ s->value;
	case XPORT_ATOMIC_SWAP:
		return s->value;
	default:
		return old == (s->width == 4 ? (uint32_t)s->compare : s->compare) ? s->value : old;
	}
}

/* Hosts of the suite are little-endian or not: a word is of their order, so only its bytes are moved. */
static void atomic(const struct diff_step *s, uint8_t *at, uint8_t *result)
{
	uint64_t w8;
	uint32_t w4;

	if (s->fetch)
		memcpy(result, at, s->len);
	if (s->width == 8) {
		memcpy(&w8, at, sizeof(w8));
		w8 = combined(s, w8);
		memcpy(at, &w8, sizeof(w8));
	} else {
		memcpy(&w4, at, sizeof(w4));
		w4 = (uint32_t)combined(s, w4);
		memcpy(at, &w4, sizeof(w4));
	}
}

/* The first receive posted that takes it; each takes one message. */
static void deliver(struct diff_outcome *to, const struct diff_side *s, bool *taken, const struct diff_step *send,
                    const uint8_t *data)
{
	for (int i = 0; i < s->nreceives; i++) {
		const struct diff_receive *r = &s->receive[i];

		if (taken[i] || ((r->tag ^ send->value) & r->mask) != 0)
			continue;
		taken[i] = true;
		memcpy(to->messages + r->at, data, send->len < r->len ? send->len : r->len);
		to->received[i] = (struct diff_received){send->len > r->len ? XPORT_ERR_TRUNCATED : XPORT_OK,
		                                         send->value, send->len};
		return;
	}
}

static void step(const struct diff_step *s, struct diff_outcome *own, struct diff_outcome *other,
                 const struct diff_side *other_side, bool *taken)
{
	uint8_t *at = other->region[s->region] + s->offset;

	if (s->status != XPORT_OK)
		return;
	switch (s->kind) {
	case DIFF_NOTIFY:
		other->notified[other->nnotified++] = (struct diff_notified){s->value, s->offset, s->len, s->region};
		memcpy(at, own->local + s->at, s->len);
		break;
	case DIFF_PUT:
		memcpy(at, own->local + s->at, s->len);
		break;
	case DIFF_GET:
		memcpy(own->results + s->at, at, s->len);
		break;
	case DIFF_ATOMIC:
		atomic(s, at, own->results + s->at);
		break;
	case DIFF_SEND:
		deliver(other, other_side, taken, s, own->local + s->at);
		break;
	default:
		break;
	}
}

bool diff_model_run(struct diff_model *m, const struct diff_phase *phase)
{
	for (int i = 0; i < 2; i++)
		if (!begin_side(&m->side[i], &phase->side[i]))
			return false;
	for (int i = 0; i < 2; i++) {
		bool taken[DIFF_STEPS] = {false};

		for (int k = 0; k < DIFF_STEPS; k++)
			step(&phase->side[i].step[k], &m->side[i], &m->side[1 - i], &phase->side[1 - i], taken);
	}
	return true;
}

void diff_model_fini(struct diff_model *m)
{
	for (int i = 0; i < 2; i++) {
		struct diff_outcome *o = &m->side[i];

		for (int k = 0; k < DIFF_REGIONS; k++)
			free(o->region[k]);
		free(o->local);
		free(o->results);
		free(o->messages);
	}
	memset(m, 0, sizeof(*m));
}
