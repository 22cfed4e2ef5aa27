/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chaos.h - the states of the back end `chaos`, see chaos.c.
 *
 * What the core posts is an item.  It is held until its poll has come (be->held), then the wrapped back end has it
 * (be->out), then its end is known and perhaps told later (be->late).  Frames that arrived and are told later stand in
 * be->frames.  Polls are the clock: what waits keeps the instance awake, and a run is the same again with its seed.
 */
#ifndef CHAOS_H
#define CHAOS_H

#include "backends/backend.h"
#include "base/list.h"

/* ---- the words of XPORT_CHAOS (chaos_words.c) ---- */

/* Chances, in percent. */
enum chaos_chance {
	CHAOS_DELAY,
	CHAOS_LATE,
	CHAOS_AGAIN,
	CHAOS_REGFAIL,
	CHAOS_KEYFAIL,
	CHAOS_TRUNCATE,
	CHAOS_NCHANCES
};

struct chaos_words {
	uint32_t seed;
	uint32_t span; /* polls that something is put off by, at most */
	uint32_t drop; /* a connection breaks at a step between 1 and this; 0: none does */
	uint32_t kill; /* the process ends at this step; 0: it does not */
	uint32_t chance[CHAOS_NCHANCES];
	const struct chaos_manner *manner;
};

/* Reads the words; NULL and "": the defaults.  CONFIG names the wrong word, what is allowed, and the nearest. */
int chaos_words_read(const char *text, struct chaos_words *w, struct xport_error *err);

/* ---- manners (chaos_manner.c) ---- */

/* How a network behaves of which there is none here.  Capabilities are only taken away: what the wrapped back end cannot
 * do no manner gives. */
struct chaos_manner {
	const char *name;
	bool keeps_order;    /* what follows a put finds it visible, if the wrapped back end says so */
	bool early;          /* a put is done when it was copied, long before it is there */
	bool placed;         /* a put that is done may be visible */
	bool passive;        /* the target need not call */
	bool bounds;         /* the target checks */
	bool atomics;        /* the adapter has its own */
	bool registered;     /* long puts, and gets, from and to registered memory alone */
	bool silent;         /* no failure is ever told: what was posted hangs */
	bool clock;          /* no descriptor wakes */
	size_t get_min;      /* shorter gets are not taken */
	size_t put_short;    /* at most so much is done when posted */
	uint64_t rma_max;    /* longest single put or get; 0: as the wrapped one */
	size_t am_max;       /* longest frame; 0: as the wrapped one */
	unsigned am_credits; /* 0: as the wrapped one */
};

/* The table, ended by a NULL name; the first is no manner in particular. */
extern const struct chaos_manner chaos_manners[];

/* ---- dice ---- */

struct chaos_dice {
	uint64_t state;
};

static inline uint64_t chaos_roll(struct chaos_dice *d)
{
	uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* 1 to n. */
static inline unsigned chaos_upto(struct chaos_dice *d, unsigned n)
{
	return 1 + (unsigned)(chaos_roll(d) % (n > 0 ? n : 1));
}

static inline bool chaos_hit(struct chaos_dice *d, unsigned percent)
{
	return percent > 0 && chaos_roll(d) % 100 < percent;
}

/* ---- states ---- */

enum chaos_kind { CHAOS_AM, CHAOS_AM_TWO, CHAOS_PUT, CHAOS_GET, CHAOS_ATOMIC, CHAOS_DRAIN, CHAOS_FRAME, CHAOS_FAILED };

/* What must keep its order among itself: frames, and with them puts and gets where those keep it, too. */
enum { CHAOS_LANE_AM, CHAOS_LANE_RMA, CHAOS_NLANES };

struct chaos_item {
	struct xpi_req req; /* the wrapped back end's */
	struct xpi_list link;
	enum chaos_kind kind;
	struct chaos_ep *ep; /* NULL: a frame that arrived */
	struct xpi_req *up;  /* the core's; NULL: it takes it for done */
	uint64_t due;        /* the poll from which on it may go on */
	int status;
	const void *hdr, *data;
	void *buf;
	size_t hlen, dlen; /* puts and gets: dlen bytes at buf */
	uint64_t offset, sum;
	void *mr;
	struct chaos_rkey *rkey;
	struct xport_atomic_args args;
	int64_t code; /* of a failure */
	uint8_t copy[];
};

struct chaos_ep {
	struct xpi_core_ep *core_ep;
	struct chaos_dice dice;
	unsigned waiting[CHAOS_NLANES]; /* of it in be->held */
	uint64_t stuck[CHAOS_NLANES];   /* the poll in which one of them stayed */
	uint64_t steps, drop_at;
	unsigned storm;     /* so many more are answered AGAIN, */
	uint64_t storm_end; /* up to this poll */
	unsigned patience;  /* connecting or quiescing is under way for so many calls more */
	bool connecting, quiescing, quiesced, dropped;
	int put_status; /* of a put that failed after the core took it for done */
	_Alignas(16) uint8_t inner[];
};

struct chaos_rkey {
	uint8_t *direct; /* where it is mapped here: we copy */
	_Alignas(16) uint8_t inner[];
};

/* Lengths that the wrapped back end took so far: such ones may be held, since they will not be NOT_SUPPORTED. */
struct chaos_range {
	size_t min, max;
};

struct xpi_be {
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	const struct xpi_log *log;
	struct xport_error *err;
	const struct xpi_backend *ops; /* what is wrapped */
	struct xpi_be *be;
	struct xpi_be_caps caps; /* its */
	char name[64];           /* its selection: "ucx:tcp" */
	struct chaos_words words;
	struct chaos_dice dice;
	/* What the core was told, where that is not what the wrapped back end says. */
	bool ordered; /* what follows a put finds it visible */
	size_t put_short, am_max;
	uint64_t rma_max;
	struct chaos_range taken[2][2]; /* puts and gets; from and to registered memory */
	struct xpi_list held, out, late, frames;
	uint64_t now, serial;
	unsigned calling; /* depth of our calls into the core */
	unsigned naps;    /* times in a row that arm said AGAIN for nothing */
};

static inline bool chaos_chance(struct xpi_be *be, struct chaos_dice *d, enum chaos_chance c)
{
	return chaos_hit(d, be->words.chance[c]);
}

/* ---- chaos_law.c: what the core owes a back end ---- */

/* Says that the core broke the contract; the log of a test is looked at. */
void chaos_law_broken(struct xpi_be *be, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/* A frame may be posted to this endpoint, or a put and so on. */
void chaos_law_post(struct xpi_be *be, const struct chaos_ep *ep, const char *what);
/* Not from within a callback. */
void chaos_law_outside(struct xpi_be *be, const char *what);
uint64_t chaos_law_sum(const void *p, size_t len);

/* ---- chaos_comp.c: items, and polling ---- */

extern const struct xpi_core_ops chaos_up;

/* `room` bytes for a copy.  NULL: out of memory. */
struct chaos_item *chaos_item_new(enum chaos_kind kind, struct chaos_ep *ep, struct xpi_req *up, size_t room);
/* Stands in be->held from now on. */
void chaos_hold(struct xpi_be *be, struct chaos_item *it);
/* Its end is known, and the core may be called. */
void chaos_end(struct xpi_be *be, struct chaos_item *it, int status);
/* Its end is known, and told at a later poll. */
void chaos_end_late(struct xpi_be *be, struct chaos_item *it, int status);
/* Tells the core at a later poll that the network reports this endpoint as gone. */
void chaos_fail(struct xpi_be *be, struct chaos_ep *ep, int64_t code, const char *why);
/* All that is known of the endpoint is forgotten. */
void chaos_forget(struct xpi_be *be, const struct chaos_ep *ep);
int chaos_poll(struct xpi_be *be);
int chaos_arm(struct xpi_be *be);
int chaos_fds(struct xpi_be *be, int *fds, int max);
int chaos_lane(const struct xpi_be *be, enum chaos_kind kind);

/* ---- chaos_ep.c ---- */

int chaos_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int chaos_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int chaos_ep_quiesce(struct xpi_be *be, void *ep);
void chaos_ep_destroy(struct xpi_be *be, void *ep);
/* One step of the endpoint: XPORT_OK, or what a call has to answer. */
int chaos_step(struct xpi_be *be, struct chaos_ep *ep);
/* One step of the process, which may be its last. */
void chaos_count(struct xpi_be *be);

/* ---- chaos_rma.c: what is posted ---- */

int chaos_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
int chaos_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                      struct xpi_req *req);
int chaos_put(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
              struct xpi_req *req);
int chaos_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
              struct xpi_req *req);
int chaos_atomic(struct xpi_be *be, void *ep, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
                 struct xpi_req *req);
int chaos_drain(struct xpi_be *be, void *ep, struct xpi_req *req);
/* Hands it to the wrapped back end; returns as that does. */
int chaos_forward(struct xpi_be *be, struct chaos_item *it);

/* ---- chaos_mr.c ---- */

int chaos_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
int chaos_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
void chaos_mr_dereg(struct xpi_be *be, void *mr);
int chaos_rkey_pack(struct xpi_be *be, const void *mr, void *buf, size_t *len);
int chaos_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t length,
                      uint32_t rights, void **direct);
void chaos_rkey_destroy(struct xpi_be *be, void *rkey);

#endif
