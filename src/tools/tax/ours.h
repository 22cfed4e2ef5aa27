/* SPDX-License-Identifier: BSD-3-Clause */
/* ours.h - the loops of struct pair_baseline, through libxport; see ours.c. */
#ifndef XPORT_TOOLS_TAX_OURS_H
#define XPORT_TOOLS_TAX_OURS_H

#include "tools/tax/pair.h"

/* Posts the receives that the loops take messages with. */
void tax_ready(struct pair *p);
void tax_reap(struct pair *p);

void tax_pingpong(struct pair *p, long n);
/* The same, asleep until something comes: in xport_wait, and in poll(2) on xport_fd.  The descriptor, once asked for, costs. */
void tax_wakes(struct pair *p, long n);
void tax_fd_wakes(struct pair *p, long n);
void tax_rate(struct pair *p, long n);
void tax_putpong(struct pair *p, long n);
void tax_putrate(struct pair *p, long n);
void tax_quietrate(struct pair *p, long n);
void tax_putone(struct pair *p, long n);
void tax_getone(struct pair *p, long n);
void tax_bandwidth(struct pair *p, long n);
void tax_placed(struct pair *p, long n);
void tax_gets(struct pair *p, long n);
void tax_messages(struct pair *p, long n);
void tax_messages_large(struct pair *p, long n);
/* As many cache lines there and back as tax_pingpong sends messages, by loads and stores alone. */
void tax_cache_line(struct pair *p, long n);
/* The target reads as many bytes as tax_messages sends, out of the initiator's memory by process_vm_readv(2); that is all. */
void tax_read(struct pair *p, long n);
void tax_read_large(struct pair *p, long n);
/* As many bytes as tax_bandwidth and tax_placed put, by memcpy(3), into memory that both have mapped. */
void tax_copy_large(struct pair *p, long n);
/* tax_copy_messages_large - the same, through the memory that tax_messages_large walks. */
void tax_copy_messages_large(struct pair *p, long n);
void tax_copy_huge(struct pair *p, long n);

/* WINDOW of them in flight, the next as soon as one has ended. */
void tax_slide_send(struct pair *p, long n);
void tax_slide_local(struct pair *p, long n);
void tax_slide_quiet(struct pair *p, long n);
void tax_slide_get(struct pair *p, long n);
void tax_slide_notify(struct pair *p, long n);
void tax_slide_add(struct pair *p, long n);

#endif
