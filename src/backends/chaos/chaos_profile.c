/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_profile.c - profiles of networks that are rarely at hand: one row each, with the reason. */
#include "chaos.h"

const struct chaos_profile chaos_profiles[] = {
	/* Whatever the wrapped back end does; whether puts keep their order the seed decides. */
	{
		.name = "any",
		.keeps_order = true,
		.placed = true,
		.passive = true,
		.bounds = true,
		.atomics = true,
		.put_short = SIZE_MAX,
	},
	/*
	 * InfiniBand, RoCE.  A write is done once the far adapter has it, which is not yet in memory; a later send on the
	 * same queue pair finds it there.  The adapter checks keys.  What is not registered has no key to be sent with;
	 * short writes are inline.
	 */
	{
		.name = "ib",
		.keeps_order = true,
		.passive = true,
		.bounds = true,
		.atomics = true,
		.registered = true,
		.put_short = 220,
		.rma_max = 1 << 20,
		.am_max = 8192,
		.am_credits = 32,
	},
	/*
	 * iWARP.  A write is done when TCP has it: the far side may never see it.  Short reads go by message, and the
	 * target must call for those (verbs over siw).  A frame that finds no receive ends the connection: here are the
	 * fewest receives that the core works with, and short frames.
	 */
	{
		.name = "iwarp",
		.keeps_order = true,
		.early = true,
		.bounds = true,
		.registered = true,
		.get_min = 64,
		.put_short = 80,
		.rma_max = 1 << 20,
		.am_max = 4096,
		.am_credits = 4,
	},
	/*
	 * UCX where it emulates puts by messages of its own (tcp, sysv): a put is done at once and there much later, if the
	 * target calls; nothing checks it there; a frame overtakes it, only a flush of the endpoint tells.
	 */
	{
		.name = "ucx-sw",
		.early = true,
		.put_short = 0,
		.rma_max = 256 << 10,
	},
	/*
	 * libfabric's tcp: a write is done when the bytes are in the socket, in which a later send stands behind it.  The
	 * provider says that it makes progress by itself, and does not.
	 */
	{
		.name = "ofi-tcp",
		.keeps_order = true,
		.early = true,
		.bounds = true,
		.rma_max = 1 << 20,
		.am_credits = 16,
	},
	/*
	 * libfabric's shm: there is no descriptor, writes are copies and so visible when done, sends are not behind them;
	 * and when the peer dies nothing is ever told, and nothing comes back.
	 */
	{
		.name = "shm-wedge",
		.placed = true,
		.passive = true,
		.silent = true,
		.clock = true,
		.put_short = 0,
		.rma_max = 4096,
		.am_max = 4096,
	},
	{.name = NULL},
};
