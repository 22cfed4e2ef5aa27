/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

extern "C" {
#include "base/error.h"
}

namespace
{

struct xport_error fresh()
{
	struct xport_error err;

	memset(&err, 0xee, sizeof(err));
	err.size = sizeof(err);
	strcpy(err.operation, "xport_connect");
	strcpy(err.peer, "127.0.0.1:7000");
	return err;
}

TEST(Error, FillsAllButOperationAndPeer)
{
	struct xport_error err = fresh();

	EXPECT_EQ(XPORT_ERR_REFUSED, xpi_fail(&err, XPORT_ERR_REFUSED, -25, "UCS_ERR", "do this", "port %d", 7000));
	EXPECT_EQ(XPORT_ERR_REFUSED, err.status);
	EXPECT_EQ(-25, err.native_code);
	EXPECT_STREQ("UCS_ERR", err.native);
	EXPECT_STREQ("port 7000", err.text);
	EXPECT_STREQ("do this", err.hint);
	EXPECT_STREQ("xport_connect", err.operation);
	EXPECT_STREQ("127.0.0.1:7000", err.peer);
	EXPECT_EQ(sizeof(err), err.size);
}

TEST(Error, NullMeansNone)
{
	struct xport_error err = fresh();

	EXPECT_EQ(XPORT_ERR_INVALID, xpi_fail(&err, XPORT_ERR_INVALID, 0, nullptr, nullptr, "x"));
	EXPECT_STREQ("", err.native);
	EXPECT_STREQ("", err.hint);
	EXPECT_EQ(XPORT_ERR_INVALID, xpi_fail(nullptr, XPORT_ERR_INVALID, 0, nullptr, nullptr, "x"));
	EXPECT_EQ(XPORT_ERR_SYSTEM, xpi_fail_errno(nullptr, XPORT_ERR_SYSTEM, nullptr, "x"));
}

TEST(Error, PreservesErrno)
{
	struct xport_error err = fresh();

	errno = ENOSPC;
	(void)xpi_fail(&err, XPORT_ERR_SYSTEM, 0, nullptr, nullptr, "x");
	EXPECT_EQ(ENOSPC, errno);
	(void)xpi_fail_errno(&err, XPORT_ERR_SYSTEM, nullptr, "x");
	EXPECT_EQ(ENOSPC, errno);
}

TEST(Error, ErrnoGivesNameNumberAndText)
{
	struct xport_error err = fresh();

	errno = ENOENT;
	EXPECT_EQ(XPORT_ERR_SYSTEM, xpi_fail_errno(&err, XPORT_ERR_SYSTEM, "hint", "cannot open %s", "/x"));
	EXPECT_EQ(ENOENT, err.native_code);
	EXPECT_STREQ("ENOENT", err.native);
	EXPECT_STREQ("cannot open /x: No such file or directory", err.text);
	EXPECT_STREQ("hint", err.hint);
	errno = 99999;
	EXPECT_EQ(XPORT_ERR_SYSTEM, xpi_fail_errno(&err, XPORT_ERR_SYSTEM, nullptr, "x"));
	EXPECT_STREQ("x: unknown error", err.text);
}

/* Only an errno with one cause alone has a hint; one that is given goes before it. */
TEST(Error, ErrnoHasAHintWhereItsCauseIsKnown)
{
	constexpr struct {
		int error;
		const char *hint;
	} cases[] = {{EMFILE, "ulimit -n"}, {ENFILE, "fs.file-max"}, {EINTR, "try again"}, {EBUSY, "try again"}};
	struct xport_error err = fresh();

	for (const auto &c : cases) {
		errno = c.error;
		(void)xpi_fail_errno(&err, XPORT_ERR_SYSTEM, nullptr, "x");
		EXPECT_NE(nullptr, strstr(err.hint, c.hint)) << err.hint;
		errno = c.error;
		(void)xpi_fail_errno(&err, XPORT_ERR_SYSTEM, "given", "x");
		EXPECT_STREQ("given", err.hint);
	}
	for (int error : {EINVAL, ENOMEM, EACCES, EPERM, EIO}) {
		errno = error;
		(void)xpi_fail_errno(&err, XPORT_ERR_SYSTEM, nullptr, "x");
		EXPECT_STREQ("", err.hint) << error;
	}
}

TEST(Error, CutsWhatIsTooLong)
{
	struct xport_error err = fresh();
	std::string longer(4000, 'a');

	(void)xpi_fail(&err, XPORT_ERR_SYSTEM, 1, longer.c_str(), longer.c_str(), "%s", longer.c_str());
	EXPECT_EQ(sizeof(err.text) - 1, strlen(err.text));
	EXPECT_EQ(sizeof(err.hint) - 1, strlen(err.hint));
	EXPECT_EQ(sizeof(err.native) - 1, strlen(err.native));
	errno = EIO;
	(void)xpi_fail_errno(&err, XPORT_ERR_SYSTEM, nullptr, "%s", longer.c_str());
	EXPECT_EQ(sizeof(err.text) - 1, strlen(err.text));
}

TEST(Error, MayQuoteItself)
{
	struct xport_error err = fresh();

	(void)xpi_fail(&err, XPORT_ERR_SYSTEM, 1, "native", "hint", "inner");
	(void)xpi_fail(&err, XPORT_ERR_NO_BACKEND, err.native_code, err.native, err.hint, "outer: %s", err.text);
	EXPECT_STREQ("outer: inner", err.text);
	EXPECT_STREQ("native", err.native);
	EXPECT_STREQ("hint", err.hint);
}

} // namespace
