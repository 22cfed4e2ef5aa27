/* SPDX-License-Identifier: BSD-3-Clause */
/* settings_fixture.h - reads the settings with an environment of the test's own, for settings*_test.cc. */
#ifndef TEST_SETTINGS_FIXTURE_H
#define TEST_SETTINGS_FIXTURE_H

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/config/settings.h"
}

namespace
{

class Settings : public testing::Test
{
protected:
	/* Each test begins without any XPORT_ variable, and leaves the environment as it was. */
	void SetUp() override
	{
		for (char **e = environ; *e != nullptr; e++)
			if (strncmp(*e, "XPORT_", 6) == 0)
				before[std::string(*e, strcspn(*e, "="))] = strchr(*e, '=') + 1;
		for (const auto &v : before)
			unsetenv(v.first.c_str());
		memset(&err, 0, sizeof(err));
		err.size = sizeof(err);
		memset(&attr, 0, sizeof(attr));
		attr.size = sizeof(attr);
		attr.log_fn = collect;
		attr.log_arg = this;
	}

	void TearDown() override
	{
		std::vector<std::string> now;

		for (char **e = environ; *e != nullptr; e++)
			if (strncmp(*e, "XPORT_", 6) == 0)
				now.push_back(std::string(*e, strcspn(*e, "=")));
		for (const auto &name : now)
			unsetenv(name.c_str());
		for (const auto &v : before)
			setenv(v.first.c_str(), v.second.c_str(), 1);
	}

	static void collect(void *arg, int level, const char *id, const char *line)
	{
		auto *self = static_cast<Settings *>(arg);

		self->log.push_back(std::to_string(level) + " " + id + " " + line);
	}

	int read()
	{
		int rc = xpi_settings_read(&attr, &s, &err);

		if (rc == XPORT_OK)
			xpi_settings_fini(&s);
		return rc;
	}

	int read_with(const char *name, const char *value)
	{
		setenv(name, value, 1);
		int rc = read();
		unsetenv(name);
		return rc;
	}

	void expect_bad(const char *name, const char *value)
	{
		memset(err.text, 0, sizeof(err.text));
		EXPECT_EQ(XPORT_ERR_CONFIG, read_with(name, value)) << name << "=" << value;
		EXPECT_EQ(XPORT_ERR_CONFIG, err.status);
		EXPECT_NE(nullptr, strstr(err.text, name)) << err.text;
		EXPECT_NE(nullptr, strstr(err.text, value)) << err.text;
		EXPECT_NE(nullptr, strstr(err.text, "allowed: ")) << err.text;
	}

	struct xpi_settings s;
	struct xport_error err;
	struct xport_attr attr;
	std::vector<std::string> log;
	std::map<std::string, std::string> before;
};

} // namespace

#endif
