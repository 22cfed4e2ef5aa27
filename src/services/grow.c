/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/grow.h"

#include <string.h>

#include "services/last_error.h"

int svc_grow_in(void *to, size_t known, size_t first, const void *from, const char *operation, const char *name)
{
	const unsigned char *bytes = from;
	size_t size = 0;

	if (from != NULL) {
		memcpy(&size, from, sizeof(size));
		if (!svc_grow_size(size, first))
			return svc_fail(XPORT_ERR_INVALID, operation, "set it to sizeof(struct ...)",
			                "%s.size is %zu, not %zu", name, size, known);
	}
	for (size_t i = known; i < size; i++)
		if (bytes[i] != 0)
			return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation, "use a newer libxport_services",
			                "%s sets fields unknown to this library", name);
	memset(to, 0, known);
	if (from != NULL)
		memcpy(to, from, size < known ? size : known);
	memcpy(to, &known, sizeof(known));
	return XPORT_OK;
}

void svc_grow_out(void *to, const void *from, size_t known)
{
	const size_t head = sizeof(size_t);
	size_t size;

	memcpy(&size, to, head);
	memcpy((char *)to + head, (const char *)from + head, (size < known ? size : known) - head);
	if (size > known)
		memset((char *)to + known, 0, size - known);
}
