/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/status.h"

/* The enum and the list are one: neither may have what the other lacks. */
#pragma GCC diagnostic error "-Wswitch"

#define COUNT(status, text, hint) +1
_Static_assert(0 XPI_STATUS_LIST(COUNT) == 1 - XPORT_ERR_BUSY, "the list and enum xport_status differ in length");

const char *xpi_status_text(int status)
{
#define TEXT(name, text, hint) \
	case name: \
		return text;
	switch ((enum xport_status)status) {
		XPI_STATUS_LIST(TEXT)
	}
	return "unknown status";
}

const char *xpi_status_name(int status)
{
#define NAME(name, text, hint) \
	case name: \
		return #name;
	switch ((enum xport_status)status) {
		XPI_STATUS_LIST(NAME)
	}
	return "XPORT_ERR_UNKNOWN";
}

const char *xpi_status_hint(int status)
{
#define HINT(name, text, hint) \
	case name: \
		return hint;
	switch ((enum xport_status)status) {
		XPI_STATUS_LIST(HINT)
	}
	return "";
}
