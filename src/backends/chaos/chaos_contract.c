/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chaos_contract.c - checks that the core keeps the contract with a back end. A network would not report a
 * violation.
 */
#include <stdarg.h>
#include <stdio.h>

#include "chaos.h"

void chaos_contract_broken(struct xpi_be *be, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	xpi_log(be->log, XPORT_LOG_ERROR, "4002", "chaos: the core broke the contract: %s (seed=%u)", text,
	        be->config.seed);
}

void chaos_contract_post(struct xpi_be *be, const struct chaos_ep *ep, const char *what)
{
	if (ep->quiescing)
		chaos_contract_broken(be, "%s on a quiesced endpoint", what);
	else if (ep->connecting)
		chaos_contract_broken(be, "%s on an endpoint before it was connected", what);
}

void chaos_contract_outside(struct xpi_be *be, const char *what)
{
	if (be->calling > 0)
		chaos_contract_broken(be, "%s in a callback", what);
}

/* To see whether bytes changed; FNV-1a. */
uint64_t chaos_contract_sum(const void *p, size_t len)
{
	const uint8_t *b = p;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}
