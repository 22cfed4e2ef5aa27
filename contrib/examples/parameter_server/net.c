/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - what server and worker both do with the library. */
#include "net.h"

#include <stdio.h>
#include <time.h>

double ps_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool say(const char *what, int status, const struct xport_error *e)
{
	const char *text = e->status == status && e->text[0] != '\0' ? e->text : xport_strerror(status);
	const char *hint = e->status == status ? e->hint : "";

	fprintf(stderr, "parameter_server: %s: %s%s%s\n", what, text, hint[0] != '\0' ? " " : "", hint);
	return false;
}

bool ps_failed(const xport *x, const char *what, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	(void)xport_last_error(x, &e);
	return say(what, status, &e);
}

bool ps_service_failed(const char *what, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	(void)xport_services_last_error(&e);
	return say(what, status, &e);
}

bool ps_open(const char *backend, xport **x, xport_rpcs **rpcs)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	int r = xport_open(&attr, x);

	if (r != XPORT_OK)
		return ps_failed(NULL, "opening the network", r);
	r = xport_rpcs_create(*x, NULL, rpcs);
	return r == XPORT_OK || ps_service_failed("the calls", r);
}

/* What is left of it, `r` being the status of the registration. */
static bool region_registered(const xport *x, struct ps_region *region, struct ps_key *key, int r)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	size_t len = sizeof(key->bytes);

	if (r == XPORT_OK)
		r = xport_mr_query(region->mr, &info);
	if (r == XPORT_OK && key != NULL)
		r = xport_rkey_pack(region->mr, key->bytes, &len);
	if (r != XPORT_OK)
		return ps_failed(x, "registered memory", r);
	region->base = info.base;
	if (key != NULL)
		key->len = (uint32_t)len;
	return true;
}

bool ps_region_make(xport *x, struct ps_region *region, size_t bytes, uint32_t rights, struct ps_key *key)
{
	return region_registered(x, region, key, xport_mr_alloc(x, bytes, rights, &region->mr));
}

bool ps_region_over(xport *x, struct ps_region *region, void *base, size_t bytes, uint32_t rights, struct ps_key *key)
{
	return region_registered(x, region, key, xport_mr_reg(x, base, bytes, rights, &region->mr));
}

bool ps_key_use(const xport *x, xport_ep *ep, const struct ps_key *key, size_t bytes, uint32_t rights,
                xport_rkey **rkey)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	int r = key->len > sizeof(key->bytes) ? XPORT_ERR_BAD_KEY : xport_rkey_unpack(ep, key->bytes, key->len, rkey);

	if (r == XPORT_OK)
		r = xport_rkey_query(*rkey, &info);
	if (r != XPORT_OK)
		return ps_failed(x, "a key of the peer's", r);
	if (info.length >= bytes && (info.rights & rights) == rights)
		return true;
	fprintf(stderr, "parameter_server: the peer's memory is not as this program has it: it is another program\n");
	return false;
}

/* Sums are checked in one round trip, and parameters change between the reads, not during them. */
struct xport_versioned_attr ps_versioned(const struct ps_plan *p)
{
	return (struct xport_versioned_attr){.size = sizeof(struct xport_versioned_attr),
	                                     .form = XPORT_VERSIONED_SUMMED,
	                                     .length = p->parameters * sizeof(double)};
}
