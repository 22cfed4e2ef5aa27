/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load.h - clients that put, get and delete at random, and a ledger of what they were told, against which each answer is
 * held.
 *
 * Each key is written by one client, its k-th write being number k; all read it.  The ledger, which the clients share, has
 * for each key the last write that was begun, the last that was acknowledged, and the highest that anybody has read.  What
 * a get finds must be no older than what was acknowledged or read before the get, and no newer than what had been begun
 * after it.
 */
#ifndef STORAGE_LOAD_H
#define STORAGE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

struct sl_options {
	const char *keeper;
	int clients, keys, seconds;
	uint64_t ops; /* ends when so many are done; 0: by time alone */
	bool plain;   /* planted: clients take whatever they read */
};

/* Deletes the keys of an earlier load first.  Returns 0: all was as it should be; 1. */
int sl_run(const struct sl_options *o);

#endif
