/* SPDX-License-Identifier: BSD-3-Clause */
/* board.h - memory that the processes of a crew share with the program that waits for them. */
#ifndef TEST_KILL_BOARD_H
#define TEST_KILL_BOARD_H

#include <stdatomic.h>

#include "kill.h"

/* What one life of the victim is for. */
struct kl_order {
	enum kl_way way;
	enum kl_step step;
	enum kl_part part;
	uint64_t seed;
	bool by_itself; /* it ends itself; else the survivor does that */
	bool wake;      /* stopped: goes on after that, and must see the loss */
	bool measured;  /* the third peer's rate is looked at: more time before the end */
	bool leave;     /* no cell: ends in good order */
};

enum { KL_SAMPLES = 8192, KL_RATIOS = 2048, KL_CELLS = KL_WAYS * KL_STEPS * KL_PARTS + 1 };

/* What was seen of a way. */
struct kl_figures {
	uint64_t kills, in_flight, ended, lost; /* operations in flight at the end; completed once; of those, as lost */
	uint64_t posted;
	unsigned ndetect;
	int32_t detect_us[KL_SAMPLES]; /* from the end to XPORT_EVENT_LOST */
};

/* Where a life is. */
enum kl_phase { KL_COMING, KL_LISTENING, KL_READY, KL_WITHIN, KL_ENDING, KL_SETTLED };

/* Shared by the processes of a crew and the program that waits for it. */
struct kl_board {
	/* set before the crew starts */
	const char *backend;
	bool silent;
	int ncells;
	uint64_t seed;
	int measure_every;
	int window_us; /* in which the third peer's rate is looked at, before and after */
	bool own_shm; /* /dev/shm is the crew's own */
	bool own_net; /* and so is the network */
	char no_net[160];
	/* the survivor and its victim */
	atomic_int current; /* cell */
	atomic_uint lives;  /* orders given */
	struct kl_order order;
	atomic_int phase; /* enum kl_phase of the latest life */
	atomic_uint moved; /* operations of the latest life that ended well */
	_Atomic int64_t ended_us;
	atomic_int child; /* pid of a forked child that lives on */
	char victim_address[80], survivor_address[80];
	atomic_uint keys; /* how often `key` was written; odd: just now */
	uint8_t key[3072];
	/* the third peer */
	atomic_int third_ready, third_full, third_stop;
	_Atomic uint64_t third_done;
	uint8_t third_key[3072];
	/* figures */
	struct kl_figures figures[KL_WAYS];
	unsigned nratio;
	float ratio[KL_RATIOS];
	unsigned nreconnect;
	int32_t reconnect_us[KL_SAMPLES];
	int fds_more, shm_more;
	long heap_half, heap_last, large_half, large_last, rss_half, rss_last;
	unsigned rounds_half, rounds_all;
	unsigned broken; /* survivors whose queue a victim left half-written */
	struct kl_cell cell[KL_CELLS];
};

#endif
