/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "base/log.h"
}

namespace
{

struct Line {
	int level;
	std::string id, text;
};

void collect(void *arg, int level, const char *id, const char *line)
{
	static_cast<std::vector<Line> *>(arg)->push_back({level, id, line});
	errno = EPERM;
}

std::string drain(int fd)
{
	char buf[8192];
	ssize_t n = read(fd, buf, sizeof(buf));

	return std::string(buf, n > 0 ? static_cast<size_t>(n) : 0);
}

TEST(Log, SinkGetsLevelIdAndLine)
{
	std::vector<Line> lines;
	struct xpi_log log = {XPORT_LOG_INFO, collect, &lines, -1, nullptr, {}};

	errno = ENOSPC;
	xpi_log(&log, XPORT_LOG_WARN, "0123", "text %d", 7);
	EXPECT_EQ(ENOSPC, errno);
	ASSERT_EQ(1u, lines.size());
	EXPECT_EQ(XPORT_LOG_WARN, lines[0].level);
	EXPECT_EQ("XP-0123", lines[0].id);
	EXPECT_EQ("text 7", lines[0].text);
}

TEST(Log, LevelDropsWhatIsMoreTalkative)
{
	std::vector<Line> lines;
	struct xpi_log log = {XPORT_LOG_WARN, collect, &lines, -1, nullptr, {}};

	xpi_log(&log, XPORT_LOG_INFO, "9001", "no");
	xpi_log(&log, XPORT_LOG_DEBUG, "9001", "no");
	EXPECT_TRUE(lines.empty());
	xpi_log(&log, XPORT_LOG_ERROR, "9001", "yes");
	xpi_log(&log, XPORT_LOG_WARN, "9001", "yes");
	EXPECT_EQ(2u, lines.size());
}

TEST(Log, DescriptorGetsWholeLines)
{
	int p[2];

	ASSERT_EQ(0, pipe2(p, O_NONBLOCK));
	struct xpi_log log = {XPORT_LOG_DEBUG, nullptr, nullptr, p[1], nullptr, xpi_fd_identify(p[1])};
	errno = ENOSPC;
	xpi_log(&log, XPORT_LOG_ERROR, "9001", "one");
	xpi_log(&log, XPORT_LOG_WARN, "9002", "two");
	xpi_log(&log, XPORT_LOG_INFO, "9003", "three");
	xpi_log(&log, XPORT_LOG_DEBUG, "9004", "four");
	EXPECT_EQ(ENOSPC, errno);
	EXPECT_EQ("xport E XP-9001: one\nxport W XP-9002: two\nxport I XP-9003: three\nxport D XP-9004: four\n",
	          drain(p[0]));
	close(p[0]);
	close(p[1]);
}

TEST(Log, OneLineStaysOneLine)
{
	int p[2];

	ASSERT_EQ(0, pipe2(p, O_NONBLOCK));
	struct xpi_log log = {XPORT_LOG_DEBUG, nullptr, nullptr, p[1], nullptr, xpi_fd_identify(p[1])};
	xpi_log(&log, XPORT_LOG_ERROR, "9001", "a\nxport E XP-9999: forged\r\033[2J\x7f");
	EXPECT_EQ("xport E XP-9001: a xport E XP-9999: forged  [2J \n", drain(p[0]));
	xpi_log(&log, XPORT_LOG_ERROR, "9001", "%s", std::string(5000, 'x').c_str());
	std::string line = drain(p[0]);
	EXPECT_EQ(1023u, line.size());
	EXPECT_EQ('\n', line.back());
	EXPECT_EQ(line.size() - 1, line.find('\n'));
	close(p[0]);
	close(p[1]);
}

TEST(Log, TooManyOfOneIdAreLeftOutAndCounted)
{
	std::vector<Line> lines;
	struct xpi_log_rate rate;
	struct xpi_log log = {XPORT_LOG_DEBUG, collect, &lines, -1, nullptr, {}};

	xpi_log_rate_init(&log, &rate);
	for (int i = 0; i < XPI_LOG_BURST + 50; i++) {
		xpi_log(&log, XPORT_LOG_WARN, "9001", "line %d", i);
		xpi_log(&log, XPORT_LOG_ERROR, "9002", "errors all come");
	}
	xpi_log(&log, XPORT_LOG_INFO, "9003", "another id");
	EXPECT_EQ(2u * XPI_LOG_BURST + 50 + 1, lines.size());
	EXPECT_EQ("XP-9003", lines.back().id);
	usleep(1100000);
	xpi_log(&log, XPORT_LOG_WARN, "9001", "later");
	EXPECT_EQ("later", lines.back().text);
	EXPECT_EQ("XP-9001", lines[lines.size() - 2].id);
	EXPECT_EQ(0u, lines[lines.size() - 2].text.find("left out 50 lines with this id"));
	for (int i = 0; i < XPI_LOG_BURST + 6; i++)
		xpi_log(&log, XPORT_LOG_INFO, "9001", "more");
	xpi_log_rate_end(&log);
	EXPECT_EQ("XP-9001", lines.back().id);
	EXPECT_EQ(0u, lines.back().text.find("left out 7 lines with this id"));
	EXPECT_EQ(nullptr, log.rate);
}

TEST(Log, MoreIdsThanThereIsRoomForAreNotLimited)
{
	std::vector<Line> lines;
	struct xpi_log_rate rate;
	struct xpi_log log = {XPORT_LOG_DEBUG, collect, &lines, -1, nullptr, {}};

	xpi_log_rate_init(&log, &rate);
	for (int i = 0; i < XPI_LOG_IDS; i++)
		xpi_log(&log, XPORT_LOG_INFO, std::to_string(1000 + i).c_str(), "one");
	for (int i = 0; i < 2 * XPI_LOG_BURST; i++)
		xpi_log(&log, XPORT_LOG_INFO, "9999", "many");
	EXPECT_EQ(static_cast<size_t>(XPI_LOG_IDS + 2 * XPI_LOG_BURST), lines.size());
	xpi_log_rate_end(&log);
}

TEST(Log, ReaderThatWentAwayKillsNobody)
{
	int p[2];
	sigset_t pending;

	ASSERT_EQ(0, pipe2(p, 0));
	close(p[0]);
	ASSERT_NE(SIG_ERR, signal(SIGPIPE, SIG_DFL));
	struct xpi_log log = {XPORT_LOG_DEBUG, nullptr, nullptr, p[1], nullptr, xpi_fd_identify(p[1])};
	xpi_log(&log, XPORT_LOG_ERROR, "9001", "nobody reads this");
	sigpending(&pending);
	EXPECT_FALSE(sigismember(&pending, SIGPIPE));
	sigset_t blocked;
	pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
	EXPECT_FALSE(sigismember(&blocked, SIGPIPE));
	close(p[1]);
}

} // namespace
