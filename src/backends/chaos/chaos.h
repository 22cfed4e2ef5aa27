/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chaos.h - what the files of the back end `chaos` share, see chaos.c.
 *
 * Each operation that the core posts is an item. It is held until its poll (be->held), then the wrapped back end has it
 * (be->out), then it has completed and may be reported later (be->late). Frames to be delivered later are in be->frames.
 * Time is counted in polls: waiting items keep the instance awake, and a run with the same seed is the same again.
 */
#ifndef CHAOS_H
#define CHAOS_H

#include "backends/backend.h"
#include "base/list.h"

/* ---- the options in XPORT_CHAOS (chaos_config.c) ---- */

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

struct chaos_config {
	uint32_t seed;
	uint32_t span;  /* longest delay, in polls */
	uint32_t drop;  /* each connection breaks at a step between 1 and this; 0: never */
	uint32_t kill;  /* the process ends at this step; 0: never */
	uint32_t still; /* only so many frames arrive; 0: all */
	uint32_t chance[CHAOS_NCHANCES];
	const struct chaos_profile *profile;
};

/* Reads the options. NULL and "": the defaults. An error is CONFIG, and its text names the wrong option and the nearest one. */
int chaos_config_read(const char *text, struct chaos_config *w, struct xport_error *err);

/* ---- profiles (chaos_profile.c) ---- */

/* How a network behaves that is not at hand. A profile only takes capabilities away: it adds none that the wrapped back end
 * does not have. */
struct chaos_profile {
	const char *name;
	bool keeps_order;    /* a put is visible to what follows it, if the wrapped back end guarantees this */
	bool early;          /* a put completes once copied, long before it is placed */
	bool placed;         /* completed puts may be placed */
	bool passive;        /* the target need not call */
	bool bounds;         /* the target checks */
	bool atomics;        /* the adapter has its own */
	bool registered;     /* long puts, and gets, from and to registered memory alone */
	bool silent;         /* failures are never reported: operations hang */
	bool clock;          /* there is no descriptor to wait on */
	size_t get_min;      /* shorter gets are refused */
	size_t put_short;    /* puts up to this length complete when posted */
	uint64_t rma_max;    /* longest single put or get; 0: as the wrapped one */
	size_t am_max;       /* longest frame; 0: as the wrapped one */
	unsigned am_credits; /* 0: as the wrapped one */
};

/* The table, ended by a NULL name; the first is no network in particular. */
extern const struct chaos_profile chaos_profiles[];

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

/* Items of one lane keep their order: frames, and also puts and gets if the network orders them. */
enum { CHAOS_LANE_AM, CHAOS_LANE_RMA, CHAOS_NLANES };

struct chaos_item {
	struct xpi_req req; /* the wrapped back end's */
	struct xpi_list link;
	enum chaos_kind kind;
	struct chaos_ep *ep; /* NULL: an arrived frame whose endpoint the wrapped back end does not name */
	struct xpi_req *up;  /* the core's; NULL: already complete for the core */
	uint64_t due;        /* the poll at which it may continue */
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
	unsigned waiting[CHAOS_NLANES]; /* its items in be->held */
	uint64_t stuck[CHAOS_NLANES];   /* the poll in which one of them could not be posted */
	uint64_t steps, drop_at;
	unsigned storm;        /* the next so many calls return AGAIN */
	uint64_t storm_end;    /* until this poll */
	unsigned patience;     /* connecting or quiescing takes at most so many more calls */
	uint64_t patience_end; /* and ends at this poll: the core asks seldom on a busy machine */
	bool connecting, quiescing, quiesced, dropped;
	int put_status; /* status of a put that failed after it was complete for the core */
	_Alignas(16) uint8_t inner[];
};

struct chaos_rkey {
	uint8_t *direct; /* the mapped region, for copying; NULL: not mapped */
	_Alignas(16) uint8_t inner[];
};

/* Lengths accepted by the wrapped back end so far. Such operations may be held, since they will not be NOT_SUPPORTED. */
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
	struct chaos_config config;
	struct chaos_dice dice;
	/* Capabilities as reported to the core, if they differ from the wrapped back end's. */
	bool ordered; /* what follows a put finds it visible */
	size_t put_short, am_max;
	uint64_t rma_max;
	struct chaos_range taken[2][2]; /* puts and gets; from and to registered memory */
	struct xpi_list held, out, late, frames;
	uint64_t now, serial;
	unsigned calling; /* depth of our calls into the core */
	uint32_t arrived; /* frames, up to config.still */
	unsigned naps;    /* times in a row that arm said AGAIN for nothing */
};

static inline bool chaos_chance(struct xpi_be *be, struct chaos_dice *d, enum chaos_chance c)
{
	return chaos_hit(d, be->config.chance[c]);
}

/* ---- chaos_contract.c: what the core owes a back end ---- */

/* Logs that the core broke the contract. Tests check the log. */
void chaos_contract_broken(struct xpi_be *be, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/* Checks that an operation may be posted to this endpoint. */
void chaos_contract_post(struct xpi_be *be, const struct chaos_ep *ep, const char *what);
/* Checks that the call does not come from within a callback. */
void chaos_contract_outside(struct xpi_be *be, const char *what);
uint64_t chaos_contract_sum(const void *p, size_t len);

/* ---- chaos_item.c ---- */

/* `room` bytes for a copy.  NULL: out of memory. */
struct chaos_item *chaos_item_new(enum chaos_kind kind, struct chaos_ep *ep, struct xpi_req *up, size_t room);
/* Adds the item to be->held. */
void chaos_hold(struct xpi_be *be, struct chaos_item *it);
/* Completes the item. May call the core. */
void chaos_end(struct xpi_be *be, struct chaos_item *it, int status);
/* Completes the item at a later poll. */
void chaos_end_late(struct xpi_be *be, struct chaos_item *it, int status);
/* Reports at a later poll that the network lost this endpoint. */
void chaos_fail(struct xpi_be *be, struct chaos_ep *ep, int64_t code, const char *why);
/* Drops all items of the endpoint. */
void chaos_forget(struct xpi_be *be, const struct chaos_ep *ep);
int chaos_lane(const struct xpi_be *be, enum chaos_kind kind);
/* The poll until which something is delayed. */
uint64_t chaos_later(struct xpi_be *be, struct chaos_dice *d);
/* Reports the item to the core and frees it. */
void chaos_tell(struct xpi_be *be, struct chaos_item *it);

/* ---- chaos_comp.c: what comes back, and polling ---- */

extern const struct xpi_core_ops chaos_up;

int chaos_poll(struct xpi_be *be);
int chaos_arm(struct xpi_be *be);
int chaos_fds(struct xpi_be *be, int *fds, int max);

/* ---- chaos_ep.c ---- */

int chaos_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int chaos_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int chaos_ep_mark(struct xpi_be *be, void *ep, int traffic_class);
int chaos_ep_quiesce(struct xpi_be *be, void *ep);
void chaos_ep_destroy(struct xpi_be *be, void *ep);
/* One step of the endpoint. Returns XPORT_OK, or what the call must return. */
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
int chaos_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len);
int chaos_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                      uint64_t length, uint32_t rights, void **direct);
void chaos_rkey_destroy(struct xpi_be *be, void *rkey);

#endif
