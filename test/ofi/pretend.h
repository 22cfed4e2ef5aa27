/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pretend.h - a provider that says other things of itself than those that run here, as adapters do.
 *
 * Below it is one of libfabric's; between that and the back end stand tables of functions of ours.  What fi_getinfo says
 * is changed by the test, and each call is checked against what was said; the provider below never sees it.  Memory is
 * registered with us alone.  What is sent is given to the provider below by the next poll, from where it lies then, so a
 * buffer that is used again too early shows.
 *
 * ASSUMPTIONS  One provider below a process; one thread; flags of the linker lead fi_getinfo and fi_fabric here.
 */
#ifndef TEST_OFI_PRETEND_H
#define TEST_OFI_PRETEND_H

#include "side.h"

/* The name by which the back end finds it; none that it knows anything about. */
#define PRETEND "pretend"

struct pretend {
	const char *below;                  /* the provider that carries it */
	void (*tell)(struct fi_info *info); /* changes what fi_getinfo is to say of one offer */
	bool order_as_asked;                /* messages keep their order only if that was asked for */
	bool reversed;                      /* completions that come together come in reverse */
	bool late;                          /* completions of sends come some polls after what they tell */
	bool no_wait;       /* no queue can be slept on */
	bool no_ip_first;   /* another offer, of an adapter that has no address of IP, stands before the others */
	unsigned keys_free; /* of all keys only so many are nobody else's yet; 0: all */

	struct fi_info *said; /* the first offer, as told */
	/* what was seen */
	unsigned long sends, injects, recvs, regs, turned;
	size_t longest;
	unsigned most_sends, most_recvs;
};

extern struct pretend pretend;

/* What was registered, as its descriptor. */
struct region {
	struct fid_mr mr;
	struct fi_ops ops;
	struct xpi_list link;
	struct fid_domain *domain;
	const uint8_t *base;
	size_t len;
	const struct fid *bound;
	bool enabled;
};

/* pretend.c */
/* What the provider below has to be given in place of what we said; lives as long as the process. */
struct fi_info *pretend_truth(const struct fi_info *info);
/* That the buffer lies in memory that its endpoint may use. */
void pretend_check_memory(const struct fid_ep *ep, const void *buf, size_t len, void *desc);
bool pretend_is_opaque(void);
/* Between an address of ours that means nothing to anybody else and one of IP. */
void pretend_scramble(void *addr, size_t len);

/* pretend_ep.c */
void pretend_ep(struct fid_ep *ep);
void pretend_cq(struct fid_cq *cq);
/* Addresses as the test's vector gives them out. */
fi_addr_t pretend_addr_out(fi_addr_t below);
/* Whether an operation still uses the region. */
bool pretend_in_use(const struct region *region);

#endif
