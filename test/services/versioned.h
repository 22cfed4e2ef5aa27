/* SPDX-License-Identifier: BSD-3-Clause */
/* versioned.h - shared by the cases of versioned objects: test data in which each word shows the write that it is from. */
#ifndef TEST_SERVICES_VERSIONED_H
#define TEST_SERVICES_VERSIONED_H

#include <stdbool.h>
#include <stdint.h>

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { V_WORDS = 128, V_LEN = V_WORDS * 8 };
/* Where they lie in the object; and in a copy of the form COPIES. */
enum { V_BODY = 64, V_SUM = 16 };

struct xport_versioned_attr v_attr(uint64_t form);
void v_fill(uint64_t *data, uint64_t n);
bool v_torn(const uint64_t *data);
/* Skips where memory that is read while it is written, which these are about, is taken for a fault. */
void v_needs_races(struct h *h);
/* Meets all others and makes an object, whose memory is *m; the end of both. */
xport_versioned *v_object(struct h *h, uint64_t form, struct h_mem *m);
void v_end(struct h *h, xport_versioned *object, struct h_mem *m);
/* A role that has an object for role 1, and serves. */
void v_serve(struct h *h, uint64_t form);
/* XPORT_OK or AGAIN. */
int v_read_one(struct h *h, xport_versioned_peer *p, uint64_t *data);

#endif
