/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing among the back ends of this build and the tests' own `loop`. */
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/config/module_path.h"
#include "core/config/registry.h"
#include "core/config/select.h"
#include "core/config/settings.h"
}

namespace
{

struct Line {
	int level;
	std::string text;
};

void collect_line(void *arg, int level, const char *, const char *line)
{
	static_cast<std::vector<Line> *>(arg)->push_back({level, line});
}

void collect_candidate(void *arg, const struct xport_candidate *c)
{
	static_cast<std::vector<struct xport_candidate> *>(arg)->push_back(*c);
}

class Select : public testing::Test
{
protected:
	void SetUp() override
	{
		log = {XPORT_LOG_INFO, collect_line, &lines, -1, nullptr, {}};
		memset(&settings, 0, sizeof(settings));
		settings.peer_timeout_ms = 5000;
		memset(&err, 0, sizeof(err));
		err.size = sizeof(err);
		strcpy(err.operation, "xport_open");
		memset(&choice, 0xee, sizeof(choice));
	}

	/* The core is not called as long as nobody connects. */
	int select(const std::string &backend)
	{
		struct xpi_be_open_args args;

		memset(&args, 0, sizeof(args));
		args.core = reinterpret_cast<struct xpi_core *>(this);
		args.up = &up;
		args.log = &log;
		args.err = &err;
		args.peer_timeout_ms = settings.peer_timeout_ms;
		snprintf(settings.backend, sizeof(settings.backend), "%s", backend.c_str());
		return xpi_select(&settings, &args, &choice, &candidates);
	}

	void close()
	{
		ASSERT_NE(nullptr, choice.be);
		choice.ops->close(choice.be);
	}

	void expect_text(const char *part) { EXPECT_NE(nullptr, strstr(err.text, part)) << err.text; }

	struct xpi_core_ops up = {};
	struct xpi_log log;
	std::vector<Line> lines;
	struct xpi_settings settings;
	struct xport_error err;
	struct xpi_choice choice;
	struct xpi_candidates candidates;
};

TEST_F(Select, ByName)
{
	ASSERT_EQ(XPORT_OK, select("loop")) << err.text;
	EXPECT_STREQ("loop", choice.ops->name);
	EXPECT_GE(choice.caps.am_max, 4096u);
	EXPECT_STREQ("", err.text) << "a success leaves no error";
	EXPECT_STREQ("xport_open", err.operation);
	close();
}

TEST_F(Select, UnknownNamesAreToldWithTheNearestAndAll)
{
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("lopo"));
	expect_text("no back end lopo");
	expect_text("did you mean loop?");
	for (const struct xpi_registry_entry *e = xpi_registry(); e->name != nullptr; e++)
		expect_text(e->name);
	EXPECT_STREQ("did you mean loop?", err.hint);
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("ucxx:tcp"));
	expect_text("did you mean ucx?");
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("quantum"));
	EXPECT_EQ(nullptr, strstr(err.text, "did you mean")) << err.text;
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select(std::string(255, 'q')));
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("Loop"));
	EXPECT_EQ(nullptr, choice.be);
}

/* Who names a provider alone is told of the back ends that have it. */
TEST_F(Select, AProviderWithoutItsBackEndIsToldWithIt)
{
	bool ucx = false, ofi = false;

	for (const struct xpi_registry_entry *e = xpi_registry(); e->name != nullptr; e++) {
		ucx = ucx || (strcmp(e->name, "ucx") == 0 && e->why_not == nullptr);
		ofi = ofi || (strcmp(e->name, "ofi") == 0 && e->why_not == nullptr);
	}
	for (const char *name : {"tcp", "TCP"}) {
		EXPECT_EQ(XPORT_ERR_NO_BACKEND, select(name));
		std::string names = ucx ? "ucx:tcp" : "";
		names += ucx && ofi ? " or " : "";
		names += ofi ? "ofi:tcp" : "";
		EXPECT_EQ(names.empty() ? "" : "did you mean " + names + "?", err.hint);
		EXPECT_EQ(ucx || ofi, strstr(err.text, "(did you mean ") != nullptr) << err.text;
	}
	if (!ofi)
		return;
	for (const char *name : {"sockets", "socket", "sokets"}) {
		EXPECT_EQ(XPORT_ERR_NO_BACKEND, select(name));
		expect_text("did you mean ofi:sockets?");
	}
}

TEST_F(Select, AnUnknownNameInAListIsOneMoreThatIsNotUsable)
{
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("lopo,quantum"));
	expect_text("lopo");
	expect_text("quantum");
	EXPECT_EQ(nullptr, choice.be);
	ASSERT_EQ(XPORT_OK, select("lopo,loop")) << err.text;
	close();
}

TEST_F(Select, MalformedLists)
{
	for (const char *v : {",", "loop,", ",loop", "loop,,loop", ":", "loop:", ":tcp", "loop:,loop", "auto:x"}) {
		EXPECT_EQ(XPORT_ERR_CONFIG, select(v)) << v;
		EXPECT_NE(nullptr, strstr(err.text, "XPORT_BACKEND")) << err.text;
	}
}

TEST_F(Select, MalformedSets)
{
	struct {
		const char *value, *text;
	} cases[] = {
		{"loop+", "\"\" is not"},
		{"+loop", "\"\" is not"},
		{"loop++ucx", "\"\" is not"},
		{"loop,ucx+", "\"\" is not"},
		{"loop:+ucx", "\"loop:\" is not"},
		{"loop:message+loop:message", "loop:message is there twice"},
		{"loop:native,loop+loop", "loop is there twice"},
		{"loop+auto", "auto is a set already"},
		{"auto+loop", "auto is a set already"},
		{"loop:1+loop:2+loop:3+loop:4+loop:5+loop:6+loop:7+loop:8+loop:9+loop:10+loop:11+loop:12+loop:13+"
	         "loop:14+loop:15+loop:16+loop:17",
	         "at most 16"},
		{"loop:123456789012345678901234567890123456789012345678+loop", "too long"},
	};

	for (const auto &c : cases) {
		EXPECT_EQ(XPORT_ERR_CONFIG, select(c.value)) << c.value;
		EXPECT_NE(nullptr, strstr(err.text, "XPORT_BACKEND")) << err.text;
		expect_text(c.text);
	}
	/* In a set a name that does not exist is an error, although another one does. */
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("loop+lopo"));
	expect_text("there is no back end lopo");
	EXPECT_STREQ("did you mean loop?", err.hint);
}

TEST_F(Select, OfASetTheFirstUsableOneIsOpen)
{
	ASSERT_EQ(XPORT_OK, select("loop:nosuch+loop:native+loop:message")) << err.text;
	EXPECT_EQ(1, choice.candidate);
	ASSERT_EQ(3, candidates.n);
	EXPECT_EQ(XPI_CANDIDATE_FAILED, candidates.list[0].state);
	EXPECT_NE(nullptr, strstr(candidates.list[0].reason, "nosuch")) << candidates.list[0].reason;
	EXPECT_EQ(XPI_CANDIDATE_OPEN, candidates.list[1].state);
	EXPECT_STREQ("native", candidates.list[1].provider);
	EXPECT_EQ(XPI_CANDIDATE_UNOPENED, candidates.list[2].state);
	EXPECT_STREQ("loop:message", candidates.list[2].name);
	close();
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("loop:one+loop:two"));
	expect_text("none of 2 is usable: loop:one: ");
	EXPECT_EQ(0, candidates.n);
}

/* The alternatives of a list may be sets. */
TEST_F(Select, OfAlternativesTheFirstWithSomethingUsable)
{
	ASSERT_EQ(XPORT_OK, select("loop:one+loop:two,loop:native+loop:message,loop")) << err.text;
	ASSERT_EQ(2, candidates.n);
	EXPECT_STREQ("loop:native", candidates.list[0].name);
	close();
	ASSERT_EQ(XPORT_OK, select("loop:one,loop")) << err.text;
	EXPECT_EQ(1, candidates.n) << "a list of single names is no set";
	close();
}

TEST_F(Select, UnknownProviderIsNeverReplaced)
{
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("loop:nosuch"));
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, err.status);
	expect_text("loop:nosuch is not usable: ");
	EXPECT_EQ(nullptr, choice.be);
}

TEST_F(Select, OfAListTheFirstUsableOne)
{
	ASSERT_EQ(XPORT_OK, select("loop:nosuch,loop")) << err.text;
	EXPECT_STREQ("loop", choice.ops->name);
	EXPECT_STREQ("", err.text);
	close();
	bool told = false;
	for (const Line &l : lines)
		told = told || (l.level == XPORT_LOG_INFO && l.text.find("loop:nosuch is not usable") == 0);
	EXPECT_TRUE(told) << "the one passed over is logged";
}

TEST_F(Select, AListOfWhichNoneIsUsableTellsEachReason)
{
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("loop:one,loop:two,loop:three"));
	expect_text("none of 3 is usable: ");
	expect_text("loop:one: ");
	expect_text("; loop:two: ");
	expect_text("; loop:three: ");
}

TEST_F(Select, ALongListIsCutAlike)
{
	std::string list;

	for (int i = 0; i < 15; i++)
		list += (i > 0 ? ",loop:provider" : "loop:provider") + std::to_string(i);
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select(list));
	for (int i = 0; i < 15; i++)
		expect_text(("loop:provider" + std::to_string(i) + ": ").c_str());
	list.clear();
	for (int i = 0; i < 36; i++)
		list += i > 0 ? ",loop:x" : "loop:x";
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select(list));
	expect_text("none of 36 is usable");
}

TEST_F(Select, WhatIsNotBuiltSaysWhy)
{
	for (const struct xpi_registry_entry *e = xpi_registry(); e->name != nullptr; e++) {
		if (e->why_not == nullptr)
			continue;
		EXPECT_EQ(XPORT_ERR_NO_BACKEND, select(e->name));
		expect_text(e->why_not);
		EXPECT_NE('\0', err.hint[0]);
	}
}

TEST_F(Select, AutoNeverTakesTheTestsOwn)
{
	int rc = select("auto");

	if (rc == XPORT_OK) {
		for (int i = 0; xpi_site_backends[i] != nullptr; i++)
			EXPECT_STRNE(xpi_site_backends[i]->name, choice.ops->name);
		close();
	} else {
		EXPECT_EQ(XPORT_ERR_NO_BACKEND, rc);
		EXPECT_EQ(nullptr, strstr(err.text, "loop:")) << err.text;
	}
}

TEST_F(Select, RequiredCapabilities)
{
	ASSERT_EQ(XPORT_OK, select("loop")) << err.text;
	bool passive = xpi_choice_passive_target(&settings, &choice.caps);
	bool bounds = xpi_choice_target_bounds(&settings, &choice.caps);
	close();

	settings.require = XPI_REQUIRE_PASSIVE_TARGET;
	EXPECT_EQ(passive ? XPORT_OK : XPORT_ERR_NO_BACKEND, select("loop"));
	if (passive)
		close();
	else
		expect_text("passive_target");
	settings.emulate = XPI_EMULATE_ALL;
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("loop")) << "what the core carries needs the target's calls";
	expect_text("passive_target");
	EXPECT_EQ(nullptr, choice.be);

	settings.require = XPI_REQUIRE_TRAFFIC_CLASS;
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, select("loop")) << "it sends no packets, and does not say so";
	expect_text("traffic_class");
	settings.require = XPI_REQUIRE_TARGET_BOUNDS;
	ASSERT_EQ(XPORT_OK, select("loop")) << "and is checked there";
	close();
	settings.emulate = 0;
	EXPECT_EQ(bounds ? XPORT_OK : XPORT_ERR_NO_BACKEND, select("loop"));
	if (bounds)
		close();
	else
		expect_text("target_bounds");
}

TEST_F(Select, CapabilitiesFollowFromWhoCarries)
{
	struct xpi_be_caps caps;

	memset(&caps, 0, sizeof(caps));
	EXPECT_TRUE(xpi_choice_target_bounds(&settings, &caps)) << "nothing native: the core carries and checks";
	EXPECT_FALSE(xpi_choice_passive_target(&settings, &caps));
	caps.rkey_native_max = 64;
	caps.passive_target = true;
	EXPECT_FALSE(xpi_choice_target_bounds(&settings, &caps));
	EXPECT_TRUE(xpi_choice_passive_target(&settings, &caps));
	settings.emulate = XPI_EMULATE_PUT;
	EXPECT_FALSE(xpi_choice_target_bounds(&settings, &caps)) << "get is native still";
	EXPECT_FALSE(xpi_choice_passive_target(&settings, &caps));
	settings.emulate = XPI_EMULATE_PUT | XPI_EMULATE_GET;
	EXPECT_TRUE(xpi_choice_target_bounds(&settings, &caps));
	EXPECT_FALSE(xpi_choice_passive_target(&settings, &caps));
	settings.progress_thread = true;
	EXPECT_TRUE(xpi_choice_passive_target(&settings, &caps)) << "the thread calls at the target";
	settings.progress_thread = false;
	settings.emulate = 0;
	caps.target_bounds = true;
	EXPECT_TRUE(xpi_choice_target_bounds(&settings, &caps));
}

TEST_F(Select, ListsEveryBackEndWithReasons)
{
	std::vector<struct xport_candidate> list;
	int n = xpi_select_list(&log, collect_candidate, &list);

	ASSERT_EQ(static_cast<int>(list.size()), n);
	for (const struct xpi_registry_entry *e = xpi_registry(); e->name != nullptr; e++) {
		size_t len = strlen(e->name), found = 0;

		for (const auto &c : list) {
			if (strncmp(c.name, e->name, len) != 0 || (c.name[len] != '\0' && c.name[len] != ':'))
				continue;
			found++;
			EXPECT_EQ(e->why_not != nullptr, c.state == XPORT_NOT_BUILT) << c.name;
			EXPECT_NE('\0', c.reason[0]) << c.name;
			if (c.state != XPORT_READY) {
				EXPECT_NE('\0', c.hint[0]) << c.name;
			}
		}
		EXPECT_GT(found, 0u) << e->name;
	}
}

/* What the list calls ready can be opened by that name, and then is what was asked for. */
TEST_F(Select, WhatIsReadyOpens)
{
	std::vector<struct xport_candidate> list;

	ASSERT_GT(xpi_select_list(&log, collect_candidate, &list), 0);
	for (const auto &c : list) {
		if (c.state != XPORT_READY)
			continue;
		ASSERT_EQ(XPORT_OK, select(c.name)) << c.name << ": " << err.text;
		EXPECT_EQ(0, strncmp(c.name, choice.ops->name, strlen(choice.ops->name)));
		close();
	}
}

} // namespace
