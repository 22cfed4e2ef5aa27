/* SPDX-License-Identifier: BSD-3-Clause */
/* settings_attr_test.cc - the fields of xport_attr, beside the environment. */
#include <climits>
#include <cstddef>

#include "settings_fixture.h"

namespace
{

class SettingsAttr : public Settings
{
};

TEST_F(SettingsAttr, AttributesWinOverTheEnvironment)
{
	setenv("XPORT_BACKEND", "ofi", 1);
	setenv("XPORT_REQUIRE", "passive_target", 1);
	setenv("XPORT_EMULATE", "get", 1);
	setenv("XPORT_PROGRESS", "thread@3", 1);
	setenv("XPORT_PEER_TIMEOUT", "7s", 1);
	setenv("XPORT_OP_TIMEOUT", "8s", 1);
	setenv("XPORT_QUEUE_DEPTH", "99", 1);
	setenv("XPORT_LOG", "debug", 1);
	ASSERT_EQ(XPORT_OK, read()) << err.text;
	EXPECT_STREQ("ofi", s.backend);
	EXPECT_EQ(7000, s.peer_timeout_ms);
	EXPECT_EQ(8000, s.op_timeout_ms);
	EXPECT_EQ(XPORT_LOG_DEBUG, s.log.level);

	attr.backend = "ucx:tcp";
	attr.require = "target_bounds";
	attr.emulate = "put";
	attr.progress = "poll";
	attr.peer_timeout_ms = 200;
	attr.op_timeout_ms = 1;
	attr.queue_depth = 16;
	attr.log_level = XPORT_LOG_ERROR;
	ASSERT_EQ(XPORT_OK, read()) << err.text;
	EXPECT_STREQ("ucx:tcp", s.backend);
	EXPECT_EQ(static_cast<uint32_t>(XPI_REQUIRE_TARGET_BOUNDS), s.require);
	EXPECT_EQ(static_cast<uint32_t>(XPI_EMULATE_PUT), s.emulate);
	EXPECT_FALSE(s.progress_thread);
	EXPECT_STREQ("", s.progress_cores);
	EXPECT_EQ(200, s.peer_timeout_ms);
	EXPECT_EQ(1, s.op_timeout_ms);
	EXPECT_EQ(16u, s.queue_depth);
	EXPECT_EQ(XPORT_LOG_ERROR, s.log.level);
	attr.op_timeout_ms = -1;
	ASSERT_EQ(XPORT_OK, read()) << err.text;
	EXPECT_EQ(0, s.op_timeout_ms) << "-1: without limit, whatever the environment says";
}

TEST_F(SettingsAttr, AttributesAreCheckedAsTheEnvironmentIs)
{
	const struct {
		const char *field;
		void (*set)(struct xport_attr *);
	} bad[] = {
		{"xport_attr.backend",
	         [](struct xport_attr *a) {
			 static const std::string longer(300, 'b');
			 a->backend = longer.c_str();
		 }},
		{"xport_attr.require", [](struct xport_attr *a) { a->require = "speed"; }},
		{"xport_attr.emulate", [](struct xport_attr *a) { a->emulate = "send"; }},
		{"xport_attr.progress", [](struct xport_attr *a) { a->progress = "thread@core"; }},
		{"xport_attr.thread_mode", [](struct xport_attr *a) { a->thread_mode = 3; }},
		{"xport_attr.thread_mode", [](struct xport_attr *a) { a->thread_mode = -1; }},
		{"xport_attr.peer_timeout_ms", [](struct xport_attr *a) { a->peer_timeout_ms = 199; }},
		{"xport_attr.peer_timeout_ms", [](struct xport_attr *a) { a->peer_timeout_ms = 3600001; }},
		{"xport_attr.peer_timeout_ms", [](struct xport_attr *a) { a->peer_timeout_ms = INT_MIN; }},
		{"xport_attr.op_timeout_ms", [](struct xport_attr *a) { a->op_timeout_ms = 3600001; }},
		{"xport_attr.op_timeout_ms", [](struct xport_attr *a) { a->op_timeout_ms = -2; }},
		{"xport_attr.queue_depth", [](struct xport_attr *a) { a->queue_depth = 1048577; }},
		{"xport_attr.queue_depth", [](struct xport_attr *a) { a->queue_depth = UINT32_MAX; }},
		{"xport_attr.log_level", [](struct xport_attr *a) { a->log_level = 5; }},
		{"xport_attr.log_level", [](struct xport_attr *a) { a->log_level = -1; }},
		{"xport_attr.traffic_class", [](struct xport_attr *a) { a->traffic_class = 4; }},
		{"xport_attr.traffic_class", [](struct xport_attr *a) { a->traffic_class = -1; }},
		{"xport_attr.size", [](struct xport_attr *a) { a->size = 0; }},
		{"xport_attr.size", [](struct xport_attr *a) { a->size = offsetof(struct xport_attr, log_level); }},
		{"xport_attr.size", [](struct xport_attr *a) { a->size = SIZE_MAX; }},
	};

	for (const auto &b : bad) {
		struct xport_attr a = attr;

		b.set(&a);
		memset(err.text, 0, sizeof(err.text));
		EXPECT_EQ(XPORT_ERR_CONFIG, xpi_settings_read(&a, &s, &err)) << b.field;
		EXPECT_NE(nullptr, strstr(err.text, b.field)) << err.text;
	}
}

TEST_F(SettingsAttr, ALongerStructIsGoodIfItAsksForNothingNew)
{
	struct {
		struct xport_attr a;
		uint64_t later;
	} newer = {attr, 0};

	newer.a.size = sizeof(newer);
	EXPECT_EQ(XPORT_OK, xpi_settings_read(&newer.a, &s, &err)) << err.text;
	newer.later = 1;
	EXPECT_EQ(XPORT_ERR_CONFIG, xpi_settings_read(&newer.a, &s, &err));
}

TEST_F(SettingsAttr, ThreadModes)
{
	for (int mode : {XPORT_THREAD_DEFAULT, XPORT_THREAD_SERIALIZED, XPORT_THREAD_MULTIPLE}) {
		attr.thread_mode = mode;
		ASSERT_EQ(XPORT_OK, read()) << err.text;
		EXPECT_EQ(mode == XPORT_THREAD_MULTIPLE, s.multiple);
	}
}

} // namespace
