/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * instance.h - an opened back end and its progress.
 *
 * The instance's descriptor is an epoll set of the back end's descriptors and of `wake`, an eventfd. Its states:
 *   UNUSED     the application has not asked for it, and xport_wait has not slept. It costs nothing
 *   ARMED      the back end was armed and nothing waits to be reaped. The next event makes the set readable
 *   SIGNALLED  `wake` is readable
 * Posting while ARMED makes it SIGNALLED. A poll that finds nothing makes it ARMED.
 */
#ifndef XPI_CORE_OBJECT_INSTANCE_H
#define XPI_CORE_OBJECT_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "backends/backend.h"
#include "base/list.h"
#include "base/pool.h"
#include "core/config/settings.h"
#include "core/liveness/monitor.h"
#include "core/object/completion.h"
#include "core/object/op.h"
#include "core/object/poll_budget.h"
#include "core/wire/hello.h"

struct xpi_deadline;
struct xpi_match;
struct xpi_outbox;
struct xpi_set;
struct xpi_transport;

enum { XPI_UNEXPECTED_CLASSES = 9 }; /* of messages that nobody receives yet, by length (msg.h) */

/* What a poll has to do besides polling the back end. */
enum {
	XPI_TODO_WORK = 1,    /* the list of endpoints with work is not empty */
	XPI_TODO_CLOCK = 2,   /* something needs a clock */
	XPI_TODO_SETTLE = 4,  /* somebody sleeps on the descriptor, which has to be settled */
	XPI_TODO_RELEASE = 8, /* an endpoint waits for its completions to be reaped to be freed */
	XPI_TODO_TICK = 16,   /* the timer has expired: look at the clock now, not at the 256th poll */
	XPI_TODO_BROKE = 32,  /* a transport of several broke: its endpoints end */
	XPI_TODO_CLOSING = 64, /* xport_ep_close_start is under way */
	XPI_TODO_TIMED = 128   /* operations that are complete are measured: latency.h */
};

enum { XPI_LOOKS = 8 }; /* looks for old operations that are remembered: longer than the limit is */

/* An entry in the table of endpoints. */
struct xpi_slot {
	struct xport_ep *ep; /* NULL: free */
	uint64_t ended;      /* the session of the last one that ended here: frames for it may be under way */
};

enum xpi_fd_state { XPI_FD_UNUSED, XPI_FD_SIGNALLED, XPI_FD_ARMED };

/* Why calls must take the slow path. Usually none is set. */
enum {
	XPI_SLOW_LOCK = 1,  /* lock the instance */
	XPI_SLOW_FORK = 2,  /* this is a forked child */
	XPI_SLOW_ARMED = 4, /* the descriptor sleeps: fd_state is XPI_FD_ARMED */
	XPI_SLOW_WATCH = 8, /* who finds the lock held breaks the thread rule (XPORT_STRICT) */
	XPI_SLOW_REAP = 16, /* xport_arm found completions: the next poll reaps them, without progress */
	XPI_SLOW_TIMED = 32  /* operations are measured: latency.h */
};

/*
 * The parts of an instance. A comment says which folders assign the members; contrib/check-rooms checks this.
 */

/* The descriptor: object (wakeup.c). -1: not open. */
struct xpi_fd {
	int set;   /* epoll: the others, and those of the back end */
	int wake;  /* eventfd */
	int timer; /* ticks for back ends without a descriptor and for XPORT_OP_TIMEOUT */
	long tick_ms; /* what the timer is set to; 0: it does not tick */
	int user;  /* with the progress thread: the application's descriptor */
	bool user_signalled;
	bool asked; /* by xport_fd: stays in use after xport_wait */
	bool by_arm; /* the application calls xport_arm: polls leave the descriptor alone */
	bool only_reaped; /* xport_arm has set XPI_SLOW_REAP since a poll made progress */
	bool rung;   /* `wake` may be readable: it was written to, or is about to be */
};

/* Threads that got XPORT_ERR_AGAIN: object (backpressure.c, wakeup.c). */
struct xpi_backpressure {
	int64_t notified_ms;  /* when the first thread learned that it may try again; 0: none has */
	uint32_t freed_times; /* space was freed so often */
	unsigned waiting;     /* threads that got AGAIN, and were not told since */
	bool wanted;          /* somebody got AGAIN */
	bool receive_wanted;  /* ... for a receive */
	bool freed;           /* what got AGAIN is worth another try, and not all threads know it yet */
};

/* Threads that sleep: object (wakeup.c) and progress. */
struct xpi_sleepers {
	struct xpi_spin spin;  /* of xport_wait */
	struct xpi_list crowd; /* threads that sleep beside the one that makes progress (wait.c) */
	bool led;              /* somebody sleeps on the descriptors of the back end */
	bool lead_told;        /* what woke it, or will, must stay there until it does */
	bool stirred;          /* something happened that the crowd was not told */
};

/* Connection management: cm, and progress while it walks the handshakes. */
struct xpi_cm {
	struct xpi_list listeners, conns;
	bool busy; /* xpi_conn_progress walks the handshakes: none is freed meanwhile */
};

/* Endpoints that are ending: object and progress. */
struct xpi_ending {
	struct xpi_list eps;
	int64_t since_ms;       /* when the last of them failed */
	struct xpi_watch again; /* when to go on with them */
	struct xpi_list closing; /* those that xport_ep_close_start closes */
	struct xpi_watch late;   /* when the first of their time limits is over, */
	int64_t late_ms;         /* this one */
};

enum { XPI_RETIRED = 64 };

/* The memory of the endpoints that the application destroyed last: object (ep.c). */
struct xpi_retired {
	struct xport_ep *ep[XPI_RETIRED]; /* the next place has the oldest one; NULL: none yet */
	unsigned n;                       /* so many ever */
};

/* The deadlines of operations: object (deadline.c). */
struct xpi_deadlines {
	struct xpi_deadline *heap; /* the first to be over comes first */
	uint32_t n, size;
	int64_t rings_ms;       /* when `watch` rings */
	struct xpi_watch watch; /* when the first of them is over */
};

struct xport {
	/* the data path */
	unsigned slow; /* XPI_SLOW_*; LOCK and WATCH are constant while open */
	enum xpi_fd_state fd_state;
	atomic_uint attention; /* XPI_ATTEND_*; rung by the helper thread: control channels or handshakes need a look */
	unsigned todo;         /* XPI_TODO_* */
	uint32_t epoch;        /* counts polls */
	uint32_t tick;         /* XPORT_OP_TIMEOUT: counts the looks for old operations */
	struct xpi_be *be;     /* what a turn polls: the back end of the only transport, or the set */
	int (*poll)(struct xpi_be *be);
	struct xpi_list work;                                     /* endpoints with something to send or acknowledge */
	struct xpi_pool op_pool, lone_pool;                       /* operations, frames of one record */
	struct xpi_pool unexpected_pools[XPI_UNEXPECTED_CLASSES]; /* msg.h */
	struct xpi_match *match;
	struct xpi_slot *slots; /* of endpoints, by the low 16 bits of the id */
	uint32_t nslots, ep_serial;
	uint64_t strays; /* frames that fit no endpoint, ever */
	/* regions, by the low 20 bits of their id */
	struct xport_mr **mr_table;
	uint32_t mr_table_size, nmr, mr_next;
	uint32_t nreceives;
	struct xpi_outbox *outbox;  /* memory offered to peers of this host, see cma.h; NULL: never yet */
	struct xpi_transport *tp;   /* the one that was opened first */
	struct xpi_list transports; /* one for each back end that is open */
	struct xpi_backpressure backpressure;
	struct xpi_cq cq;
	/* life */
	struct xpi_settings settings;
	struct xport_error err;
	struct xpi_log *log; /* = &settings.log */
	uint64_t incarnation;
	struct xpi_set *set; /* the transports that are open, and those that may be opened */
	pid_t pid;
	struct xpi_live *live;
	struct xpi_wake_flag wake_flag;
	struct xpi_list eps;
	uint32_t nearly; /* frames in the early queues of these, see early.h */
	struct xpi_cm cm;
	struct xpi_ending ending;
	struct xpi_deadlines deadlines;
	struct xpi_retired retired;
	struct xport_opt own_opt;   /* of the call that is in, where it has them of another size (ops.c) */
	struct xport_counters past; /* of endpoints that are gone, and what belongs to none */
	unsigned asked_polls;       /* in a row that found something although the helper asks for one that does not */
	struct xpi_fd fd;
	bool reaped; /* the last poll gave something: the application will come again */
	struct xpi_sleepers sleepers;
	int64_t look_ms[XPI_LOOKS]; /* when old operations were looked for, by tick */
	struct xpi_list all;        /* in the list of all instances, for the fork rule */
	/* threads */
	pthread_mutex_t lock;
	pthread_mutex_t turn; /* held by who is the next to have the lock, if it was not free */
	atomic_uint callers;  /* that wait for it */
	pthread_t thread;
	bool thread_running;
	struct xpi_latency *latency; /* NULL: not measured */
	time_t polled_s; /* the coarse clock at the last poll, with XPI_TODO_CLOCK */
	long polled_ns;
	atomic_bool thread_stop;
	struct xpi_self self; /* of this process, for HELLO; under the lock */
	struct {
		int node;            /* of the devices, with thread@device; -1: none */
		bool moved;          /* to the processors of a node */
		uint64_t before[16]; /* a cpu_set_t: where it ran before it was moved */
	} place;                     /* of the progress thread */
};

_Static_assert(offsetof(struct xport, cq.ring) % 64 == 0, "a completion is one cache line");

/* xpi_tell_crowd - wake the threads that sleep beside the thread that makes progress. */
void xpi_tell_crowd(struct xport *x);

/*
 * xpi_enter, xpi_leave - begin and end a call: fork rule, lock, sleeping descriptor.
 *
 * Returns XPORT_OK, or an error: the call must return it. xpi_enter_slowly is the slow path of xpi_enter.
 */
int xpi_enter_slowly(struct xport *x) __attribute__((cold));
/* xpi_enter_to_look, xpi_enter_asleep - the same for a call that only reads: the descriptor stays ARMED. */
int xpi_enter_asleep(struct xport *x);

static inline int xpi_enter(struct xport *x)
{
	return __builtin_expect(x->slow != 0, 0) ? xpi_enter_slowly(x) : XPORT_OK;
}

static inline int xpi_enter_to_look(struct xport *x)
{
	return __builtin_expect(x->slow != 0, 0) ? xpi_enter_asleep(x) : XPORT_OK;
}

/* xpi_fork_watch - have a forked child find XPI_SLOW_FORK in the instance, until xpi_fork_unwatch. */
void xpi_fork_watch(struct xport *x);
void xpi_fork_unwatch(struct xport *x);
/* xpi_is_forked - true if this process was forked from one that had an instance open. */
bool xpi_is_forked(void);

/* xpi_cancel_allow - restore the cancellation state that the calling thread had when it entered. */
void xpi_cancel_allow(void);

/* xpi_lock - take the lock; waits for it. */
void xpi_lock(struct xport *x);
void xpi_let_callers_in(struct xport *x) __attribute__((cold));

/*
 * xpi_let_in - let the threads that wait for the lock have it first, between two polls of a call that blocks.
 *
 * The caller must look up again everything that another thread's call may free.
 */
static inline void xpi_let_in(struct xport *x)
{
	if (__builtin_expect(atomic_load_explicit(&x->callers, memory_order_relaxed) != 0, 0))
		xpi_let_callers_in(x);
}

static inline void xpi_leave(struct xport *x)
{
	if (__builtin_expect(x->slow & XPI_SLOW_LOCK, 0)) {
		if (__builtin_expect(!xpi_list_empty(&x->sleepers.crowd), 0))
			xpi_tell_crowd(x);
		pthread_mutex_unlock(&x->lock);
		xpi_cancel_allow();
	}
}

/* xpi_request_attention - have the next progress attend to the control channels, as the helper thread does. */
static inline void xpi_request_attention(struct xport *x)
{
	atomic_fetch_or_explicit(&x->attention, XPI_ATTEND_ALL, memory_order_release);
}

/* xpi_time_refuse - describe a time limit below -1. Returns XPORT_ERR_INVALID. */
int xpi_time_refuse(struct xport *x, const char *operation, int timeout_ms) __attribute__((cold));

/* xpi_refuse - describe an error of a posting function in xport_last_error, without a peer. Returns `status`. */
int xpi_refuse(struct xport *x, int status, const char *operation, const char *fmt, ...)
	__attribute__((cold, format(printf, 4, 5)));

#endif
