/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - the names of the parts of a cell, and their kinds. */
#include "kill.h"

#include <stdio.h>

const char *const kl_way_names[KL_WAYS] = {
	[KL_KILLED] = "killed",       [KL_EXITED] = "exited",
	[KL_ABORTED] = "aborted",     [KL_FORKED] = "killed_child_lives",
	[KL_RESTARTED] = "restarted", [KL_SHUT] = "control_shut",
	[KL_STOPPED] = "stopped",     [KL_CUT] = "cut_off",
};

const char *const kl_step_names[KL_STEPS + 1] = {
	[KL_IDLE] = "idle",
	[KL_CONNECTING] = "connecting",
	[KL_ACCEPTING] = "accepting",
	[KL_PUT] = "put",
	[KL_GET] = "get",
	[KL_NOTIFY] = "put_notify",
	[KL_EAGER] = "send_eager",
	[KL_RENDEZVOUS] = "send_rendezvous",
	[KL_RECEIVE] = "receive",
	[KL_FLUSH] = "flush",
	[KL_ATOMIC] = "atomic",
	[KL_KEY] = "key_exchange",
	[KL_DEREG] = "deregistration",
	[KL_AFTER] = "nothing_is_left",
};

const char *const kl_part_names[KL_PARTS] = {[KL_TARGET] = "target", [KL_ORIGIN] = "origin"};

bool kl_is_silent(enum kl_way way)
{
	return way == KL_STOPPED || way == KL_CUT;
}

bool kl_lives_on(enum kl_way way)
{
	return way == KL_STOPPED || way == KL_CUT || way == KL_SHUT;
}

enum kl_state kl_cell_state(const struct kl_cell *cell)
{
	return (enum kl_state)__atomic_load_n(&cell->state, __ATOMIC_ACQUIRE);
}

void kl_cell_judge(struct kl_cell *cell, enum kl_state state, const char *text)
{
	snprintf(cell->text, sizeof(cell->text), "%.8000s", text);
	__atomic_store_n(&cell->state, (int)state, __ATOMIC_RELEASE);
}
