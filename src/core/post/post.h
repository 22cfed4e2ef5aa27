/* SPDX-License-Identifier: BSD-3-Clause */
/* post.h - the bodies of the public functions that post: checked, accepted, under way if nothing is before them. */
#ifndef XPI_CORE_POST_POST_H
#define XPI_CORE_POST_POST_H

#include <stddef.h>
#include <stdint.h>

#include "core/object/op_life.h"
#include "core/object/rkey.h"

int xpi_send(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt);

int xpi_sendv(struct xport_ep *ep, const struct xport_iov *list, size_t count, uint64_t tag,
              const struct xport_opt *opt);

int xpi_put(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
            const struct xport_opt *opt);
/* The same, past its checks and the fast path. */
int xpi_put_long(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                 const struct xport_opt *opt);
int xpi_get(struct xport_ep *ep, void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
            const struct xport_opt *opt);
int xpi_put_notify(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                   const struct xport_opt *opt);
int xpi_atomic(struct xport_ep *ep, const struct xport_atomic_args *args, struct xport_rkey *k, uint64_t offset,
               const struct xport_opt *opt);

int xpi_flush(struct xport_ep *ep, const struct xport_opt *opt);

int xpi_putv(struct xport_ep *ep, const struct xport_iov *local, size_t nlocal, struct xport_rkey *k,
             const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt);
int xpi_getv(struct xport_ep *ep, const struct xport_iov *local, size_t nlocal, struct xport_rkey *k,
             const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt);

/* Describes why a key does not grant an access, see xpi_rkey_fits. Returns the status. */
int xpi_key_refuse(struct xport_ep *ep, const char *operation, struct xport_rkey *k, uint64_t offset, uint64_t len,
                   uint32_t right) __attribute__((cold));

#endif
