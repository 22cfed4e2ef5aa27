/* SPDX-License-Identifier: BSD-3-Clause */
/* hint.h - what the user of a program can do about a failure of the library. */
#ifndef TOOLS_HINT_H
#define TOOLS_HINT_H

#include <string.h>
#include <xport.h>

/* "" if there is nothing to say.  The library's own advice to programs, which names its functions, is not for users. */
static inline const char *tool_hint(const struct xport_error *e)
{
	switch (e->status) {
	case XPORT_ERR_PEER_LOST:
		return "check that the other side still runs, and start again";
	case XPORT_ERR_PEER_CLOSED:
		return "check the messages of the other side";
	case XPORT_ERR_CONFIG:
	case XPORT_ERR_NO_BACKEND:
	case XPORT_ERR_NO_MEMORY:
	case XPORT_ERR_REFUSED:
	case XPORT_ERR_UNREACHABLE:
	case XPORT_ERR_INCOMPATIBLE:
	case XPORT_ERR_ADDRESS:
	case XPORT_ERR_AUTH:
	case XPORT_ERR_TIMEOUT:
	case XPORT_ERR_SYSTEM:
	case XPORT_ERR_PROTOCOL:
		return strstr(e->hint, "(3)") == NULL && strncmp(e->hint, "see the text", 12) != 0 ? e->hint : "";
	default:
		return "";
	}
}

#endif
