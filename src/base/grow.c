/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/grow.h"

#include <string.h>

int xpi_grow_in(void *to, size_t known, size_t first, const void *from)
{
	const unsigned char *bytes = from;
	size_t size;

	memcpy(&size, from, sizeof(size));
	if (!xpi_grow_size(size, first))
		return XPORT_ERR_INVALID;
	for (size_t i = known; i < size; i++)
		if (bytes[i] != 0)
			return XPORT_ERR_NOT_SUPPORTED;
	memset(to, 0, known);
	memcpy(to, from, size < known ? size : known);
	memcpy(to, &known, sizeof(known));
	return XPORT_OK;
}

void xpi_grow_out(void *to, size_t size, const void *from, size_t known)
{
	memcpy(to, from, size < known ? size : known);
	if (size > known)
		memset((char *)to + known, 0, size - known);
}
