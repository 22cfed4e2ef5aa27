/* SPDX-License-Identifier: BSD-3-Clause */
/* hint_test.cc - the hints that the tools print. */
#include <cstdio>
#include <cstring>
#include <gtest/gtest.h>

extern "C" {
#include "base/status.h"
#include "tools/hint.h"
}

namespace
{

xport_error with(int status, const char *hint)
{
	xport_error e{};

	e.size = sizeof(e);
	e.status = status;
	snprintf(e.hint, sizeof(e.hint), "%s", hint);
	return e;
}

TEST(ToolHint, AdviceToProgramsIsNotShown)
{
	for (int status = 0; status >= XPORT_ERR_BUSY; status--) {
		xport_error e = with(status, xpi_status_hint(status));
		const char *hint = tool_hint(&e);

		for (const char *word : {"(3)", "endpoint", "program", "register", "see the text"})
			EXPECT_EQ(nullptr, strstr(hint, word)) << xpi_status_name(status) << ": " << hint;
	}
}

TEST(ToolHint, WhatIsKnownOfTheCauseIsShown)
{
	xport_error refused = with(XPORT_ERR_REFUSED, "start the listener, or check the port");
	xport_error lost = with(XPORT_ERR_PEER_LOST, "destroy the endpoint");

	EXPECT_STREQ("start the listener, or check the port", tool_hint(&refused));
	EXPECT_NE(nullptr, strstr(tool_hint(&lost), "other side")) << tool_hint(&lost);
}

} /* namespace */
