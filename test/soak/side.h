/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * side.h - one side of a soak at work: what it has open, the memory that the other side reaches, and one round.
 *
 * Of the memory that is written to there are two areas, and of the words, too: rounds take turns, so that a side may begin
 * with the next one while the other still looks at what came.  Everything that is wrong ends the process, with the seed and
 * the round that do it again.
 */
#ifndef SOAK_SIDE_H
#define SOAK_SIDE_H

#include "services/xport_services.h"
#include "soak/meter.h"
#include "soak/plan.h"
#include "xport.h"

enum soak_plant { SOAK_NOTHING, SOAK_WRONG_BYTE, SOAK_LOST_FD, SOAK_LOST_MEMORY };

/* What both sides must have alike; the initiator's count. */
struct soak_run {
	uint64_t magic, seed, ops, first, rounds; /* until so many operations or rounds; 0: no such limit */
	uint32_t window, reconnect;               /* steps of a round; rounds from one connection to the next */
};

struct soak_options {
	struct soak_run run;
	const char *backend, *listen, *connect;
	int interval_s, plant;
	int report; /* where the target says where it listens */
	uint64_t plant_at;
	uint64_t limit_kib;
};

/* The memory that the other side reaches: two areas, the pattern, the words. */
enum { SOAK_IN, SOAK_SOURCE = 2, SOAK_COUNTED, SOAK_REGIONS };

struct soak_region {
	uint8_t *p;
	size_t len;
	uint32_t rights;
	bool allocated; /* by the library */
	xport_mr *mr;
	xport_rkey *key, *old; /* of the other side's; the one before, which is stale */
};

/* What came of each of the other side's steps, and of our own. */
struct soak_progress {
	uint32_t pending; /* own operations whose completion has not come */
	uint32_t posted_receives, seen_receives,
		received; /* of the other side's sends; the steps they were looked for in */
	uint32_t notified, next_notify;
	uint32_t verified; /* steps of the other side whose puts have been looked at */
	bool flushed, told, heard;
	uint64_t fetched[SOAK_STEPS]; /* what an own atomic must fetch */
};

/* Descriptors of a side: of its pattern, to be pulled from, and of its sink, to be pushed to. */
enum { SOAK_BULKS = 2 };

/* The transfers: bulk.c. */
struct soak_bulks {
	xport_bulks *b;
	xport_bulk *own[SOAK_BULKS], *peer[SOAK_BULKS];
	uint8_t *sink, *in, *image; /* image: blank but in the middle of a comparison */
	xport_mr *sink_mr;
};

/* A notification of the next round. */
struct soak_early {
	uint64_t value, length, offset;
};

struct soak_side {
	struct soak_options o;
	int role; /* 0: the initiator */
	xport *x;
	xport_listener *listener;
	xport_ep *ep;
	bool closed;   /* by the other side */
	bool ending;   /* no round follows in which new keys would be used */
	bool in_round; /* its plans hold */
	struct soak_region region[SOAK_REGIONS];
	struct soak_bulks bulks;
	bool renewed[2];
	uint8_t *out;
	xport_mr *out_mr;
	uint64_t *words, model[2 * SOAK_WORDS], mirror[2 * SOAK_WORDS]; /* ours, as they must be; the other side's */
	struct soak_plan own, peer;
	struct soak_progress now;
	uint64_t hot[SOAK_HOT]; /* the words that everybody adds to, of the other side, before the round */
	uint64_t round, ops, filled_puts;
	uint32_t nearly, stale_pending, connections, retries;
	struct soak_early early[SOAK_STEPS];
	double quiet_since;          /* 0: something came a moment ago */
	uint64_t seen;               /* traffic, then */
	struct xport_counters count; /* what the library must have counted */
	uint8_t note[4096];
	struct soak_meter meter;
};

void soak_fail(struct soak_side *s, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void soak_must(struct soak_side *s, int status, const char *what);

/* Opens, and registers everything. */
void soak_open(struct soak_side *s);
/* Connects, or accepts, and exchanges the keys. */
void soak_join(struct soak_side *s);
/* Ends the connection, from the side `closer`. */
void soak_part(struct soak_side *s, int closer);
void soak_close(struct soak_side *s);
/* Registers anew what the plan of the round that just ended says. */
void soak_renew(struct soak_side *s);
/* Posts the receive for what the other side tells at the end of the round, or after connecting; takes it. */
void soak_expect_note(struct soak_side *s);
void soak_take_note(struct soak_side *s, const uint8_t *bytes, size_t len);
/* Tells the other side that this one is through with the round, or has just connected, and gives it new keys. */
void soak_tell(struct soak_side *s, bool all_keys);

/* Makes progress, and takes what comes; sleeps where there is nothing. */
void soak_progress(struct soak_side *s);
/* soak_progress, but never sleeps. */
void soak_poll(struct soak_side *s);
void soak_round(struct soak_side *s);
/* Takes a completion that is not of a transfer; arg is the side. */
void soak_take(void *arg, const struct xport_completion *c);
/* Posts the receives that are due once nothing else is to be posted first. */
void soak_post_late(struct soak_side *s);

/* bulk.c */
void soak_bulks_open(struct soak_side *s);
void soak_bulks_close(struct soak_side *s);
/* Takes the other side's descriptor, on a new connection. */
void soak_bulks_take(struct soak_side *s, int i, const uint8_t *bytes, size_t len);
/* Before the endpoint is destroyed. */
void soak_bulks_part(struct soak_side *s);
/* Makes this side's transfers of the round. */
void soak_bulks_round(struct soak_side *s);
/* Compares what the other side has pushed, once it is through with the round. */
void soak_bulks_verify(struct soak_side *s);

/* verify.c */
void soak_verify_puts(struct soak_side *s, uint32_t below);
void soak_verify_received(struct soak_side *s, const struct xport_completion *c);
void soak_verify_own(struct soak_side *s, const struct xport_completion *c);
void soak_verify_round(struct soak_side *s);
/* Makes it blank again, as far as it is written to. */
void soak_blank(uint8_t *at, size_t len);

/* The bytes of a tag and of a notification's value: what it is, the round, the step. */
#define SOAK_MESSAGE (UINT64_C(1) << 62)
#define SOAK_NOTE (UINT64_C(2) << 62)
#define SOAK_ROUND_MASK (~UINT64_C(0) << 32)
static inline uint64_t soak_tag(uint64_t round, uint32_t step)
{
	return SOAK_MESSAGE | (round & 0x3fffffff) << 32 | step;
}

#endif
