/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baseline.h - what DIRECT_H has for each stack, as inline functions, so that the loops of baseline.c have nothing between them and
 * the stack:
 *
 *   direct_progress(p)
 *   direct_send(p, buf, len)         counted in the other's p->arrived
 *   direct_put(p, buf, len, offset)  into the other's p->direct_mem
 *   direct_put_placed(p, ...)        out of p->direct_mem, and waits until it is
 *   direct_get(p, buf, len, offset)  out of it
 *   direct_wait(p)                   for what the stack still holds
 *   direct_flush_begin(p)            p->pending until all is placed
 *   direct_flush(p)                  the same, and waits
 *   direct_can_sleep(p)              whether the stack has what to sleep on here
 *   direct_sleep(p)                  until there is something to make progress with; not if there is already
 *
 * and, where it defines DIRECT_LONG:
 *
 *   direct_long(p, sending, buf, len)  sends or receives a long message, as the stack does it best
 *   direct_long_wait(p)                for all of these
 *   direct_default_put, _get, _flush   as those above, to the other's p->mem[1], with nothing set that the stack leaves open
 *   direct_default_serve(p)            the target's part, until p->sh->done
 *
 * and, where it defines DIRECT_ADD:
 *
 *   direct_add(p, old, offset)  adds 1 to a word of 8 bytes there, and brings what it was
 */
#ifndef XPORT_TOOLS_TAX_BASELINE_H
#define XPORT_TOOLS_TAX_BASELINE_H

#include "tools/tax/pair.h"

#include DIRECT_H

void direct_open(struct pair *p);
void direct_connect(struct pair *p);
void direct_close(struct pair *p);

#endif
