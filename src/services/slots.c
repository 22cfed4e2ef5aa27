/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/slots.h"

#include <stdlib.h>

#include "services/xport_services.h"

int svc_slots_init(struct svc_slots *s, uint32_t size)
{
	*s = (struct svc_slots){.size = size};
	s->slot = calloc(size, sizeof(*s->slot));
	s->free = calloc(size, sizeof(*s->free));
	if (s->slot == NULL || s->free == NULL) {
		svc_slots_fini(s);
		return XPORT_ERR_NO_MEMORY;
	}
	while (s->nfree < size) {
		s->free[s->nfree] = size - 1 - s->nfree;
		s->nfree++;
	}
	return XPORT_OK;
}

void svc_slots_fini(struct svc_slots *s)
{
	free(s->slot);
	free(s->free);
	*s = (struct svc_slots){0};
}
