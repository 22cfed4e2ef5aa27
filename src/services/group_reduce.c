/* SPDX-License-Identifier: BSD-3-Clause */
/* The arithmetic of xport_group_allreduce. */
#include "services/group.h"

size_t svc_reduce_size(int type)
{
	switch (type) {
	case XPORT_GROUP_INT32:
	case XPORT_GROUP_FLOAT:
		return 4;
	case XPORT_GROUP_INT64:
	case XPORT_GROUP_UINT64:
	case XPORT_GROUP_DOUBLE:
		return 8;
	default:
		return 0;
	}
}

/*
 * A function for each type. Integers are added as unsigned ones (`word`), which wrap around. Blocks of an array may begin at
 * any address that the type's alignment allows: they are multiples of an element away from the application's own.
 */
#define REDUCE(name, type, word) \
	static void name(int op, void *to, const void *low, const void *high, size_t count) \
	{ \
		const type *a = low, *b = high; \
		type *r = to; \
\
		switch (op) { \
		case XPORT_GROUP_SUM: \
			for (size_t i = 0; i < count; i++) \
				r[i] = (type)((word)a[i] + (word)b[i]); \
			break; \
		case XPORT_GROUP_MIN: \
			for (size_t i = 0; i < count; i++) \
				r[i] = b[i] < a[i] ? b[i] : a[i]; \
			break; \
		default: \
			for (size_t i = 0; i < count; i++) \
				r[i] = b[i] > a[i] ? b[i] : a[i]; \
		} \
	}

REDUCE(reduce_int32, int32_t, uint32_t)
REDUCE(reduce_int64, int64_t, uint64_t)
REDUCE(reduce_uint64, uint64_t, uint64_t)
REDUCE(reduce_float, float, float)
REDUCE(reduce_double, double, double)

void svc_reduce(int type, int op, void *to, const void *low, const void *high, size_t count)
{
	switch (type) {
	case XPORT_GROUP_INT32:
		reduce_int32(op, to, low, high, count);
		break;
	case XPORT_GROUP_INT64:
		reduce_int64(op, to, low, high, count);
		break;
	case XPORT_GROUP_UINT64:
		reduce_uint64(op, to, low, high, count);
		break;
	case XPORT_GROUP_FLOAT:
		reduce_float(op, to, low, high, count);
		break;
	default:
		reduce_double(op, to, low, high, count);
	}
}
