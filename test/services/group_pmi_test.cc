/* SPDX-License-Identifier: BSD-3-Clause */
/* group_pmi_test.cc - the source pmi1 with a server that is played here: what a good one says, and rubbish. */
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "services/group_world.h"

extern "C" {
#include "services/group_card.h"
#include "services/group_source.h"
}

namespace
{

/* A server of one process, whose answers a test may replace: by words of the request, and what is said instead. */
class server
{
public:
	explicit server(size_t value_max) : max(value_max)
	{
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
			abort();
		thread = std::thread([this] { serve(); });
	}
	~server()
	{
		close(fd[0]);
		thread.join();
		if (fd[1] >= 0)
			close(fd[1]);
	}
	int client() const { return fd[0]; }

	std::map<std::string, std::string> instead; /* cmd to answer; "-": the connection ends */
	std::map<std::string, std::string> kvs;
	size_t longest = 0;
	std::atomic<int> late_ms{0};

private:
	std::string answer(const std::string &line)
	{
		char key[256], value[2048];

		if (line.find("cmd=init ") == 0)
			return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
		if (line == "cmd=get_maxes")
			return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=" + std::to_string(max);
		if (line == "cmd=get_my_kvsname")
			return "cmd=my_kvsname kvsname=kvs_1";
		if (line == "cmd=barrier_in")
			return "cmd=barrier_out";
		if (line == "cmd=finalize")
			return "cmd=finalize_ack";
		if (sscanf(line.c_str(), "cmd=put kvsname=kvs_1 key=%255s value=%2047s", key, value) == 2) {
			kvs[key] = value;
			longest = std::max(longest, strlen(value));
			return "cmd=put_result rc=0 msg=success";
		}
		if (sscanf(line.c_str(), "cmd=get kvsname=kvs_1 key=%255s", key) == 1)
			return kvs.count(key) ? "cmd=get_result rc=0 msg=success value=" + kvs[key]
			                      : "cmd=get_result rc=-1 msg=key_not_found value=unknown";
		return "cmd=unknown";
	}
	void serve()
	{
		std::string in;
		char c;

		while (read(fd[1], &c, 1) == 1) {
			std::string cmd, out;

			if (c != '\n') {
				in += c;
				continue;
			}
			cmd = in.substr(4, in.find(' ') == std::string::npos ? std::string::npos : in.find(' ') - 4);
			out = instead.count(cmd) ? instead[cmd] : answer(in) + "\n";
			in.clear();
			group_world::sleep_ms(late_ms);
			if (out == "-") {
				close(fd[1]);
				fd[1] = -1;
				return;
			}
			/* In two pieces: a line need not arrive at once. */
			if (send(fd[1], out.data(), out.size() / 2, MSG_NOSIGNAL) < 0 ||
			    send(fd[1], out.data() + out.size() / 2, out.size() - out.size() / 2, MSG_NOSIGNAL) < 0)
				return;
		}
	}

	int fd[2];
	size_t max;
	std::thread thread;
};

svc_group_card card_of(int rank)
{
	svc_group_card c;

	svc_card_begin(&c);
	c.rank = rank;
	c.members = 2;
	snprintf(c.address, sizeof(c.address), "127.0.0.1:1234");
	return c;
}

/* All that a source does, for rank 0; the last rank's card is its own. */
int play(server &s, svc_group_card *got)
{
	svc_group_card mine = card_of(0);
	svc_group_source *source;
	int r = svc_group_pmi1_open_fd(s.client(), 0, 2, &source, "test");

	if (r != XPORT_OK)
		return r;
	source->until = svc_now_ms() + 300;
	r = source->ops->offer(source, &mine, 0);
	if (r == XPORT_OK)
		do
			r = source->ops->ready(source, 10);
		while (r == XPORT_ERR_AGAIN);
	if (r == XPORT_OK)
		r = source->ops->card(source, 0, got, 10);
	if (r == XPORT_OK && (got->own != mine.own || strcmp(got->address, mine.address) != 0))
		r = -1000;
	source->ops->close(source);
	return r;
}

TEST(Pmi, ACardIsCutIntoPieces)
{
	for (size_t max : {16u, 17u, 100u, 1024u, 100000u}) {
		server s(max);
		svc_group_card got;

		EXPECT_EQ(XPORT_OK, play(s, &got)) << max << ": " << group_world::error_of(-25);
		EXPECT_LT(s.longest, max) << "a value is longer than the server allows";
		EXPECT_EQ(max >= 1024, s.kvs.size() == 1);
	}
}

TEST(Pmi, Rubbish)
{
	static const struct {
		const char *cmd, *says;
		int status;
	} rubbish[] = {
		{"init", "-", XPORT_ERR_SYSTEM},
		{"init", "\n", XPORT_ERR_PROTOCOL},
		{"init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n", XPORT_ERR_PROTOCOL},
		{"init", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", XPORT_ERR_PROTOCOL},
		{"init", "HTTP/1.1 400 Bad Request\r\n", XPORT_ERR_PROTOCOL},
		{"init", "", XPORT_ERR_TIMEOUT},
		{"init", "cmd=response_to_init", XPORT_ERR_TIMEOUT},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=8 vallen_max=1024\n", XPORT_ERR_PROTOCOL},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=-5\n", XPORT_ERR_PROTOCOL},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=99999999999999999999\n",
	         XPORT_ERR_PROTOCOL},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1x\n", XPORT_ERR_PROTOCOL},
		{"get_my_kvsname", "cmd=my_kvsname\n", XPORT_ERR_PROTOCOL},
		{"get_my_kvsname", "cmd=my_kvsname kvsname=\n", XPORT_ERR_PROTOCOL},
		{"put", "cmd=put_result rc=1 msg=no_space\n", XPORT_ERR_PROTOCOL},
		{"put", "-", XPORT_ERR_SYSTEM},
		{"barrier_in", "-", XPORT_ERR_SYSTEM},
		{"barrier_in", "cmd=barrier_in\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=-1 msg=key_not_found value=unknown\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success value=\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success value=1.\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success value=1.xyz\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success value=1.00112233\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success value=0.00\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success value=-3.00\n", XPORT_ERR_PROTOCOL},
		{"get", "cmd=get_result rc=0 msg=success value=99999999999.00\n", XPORT_ERR_PROTOCOL},
		{"get", "-", XPORT_ERR_SYSTEM},
	};

	for (const auto &w : rubbish) {
		server s(1024);
		svc_group_card got;

		s.instead[w.cmd] = w.says;
		EXPECT_EQ(w.status, play(s, &got))
			<< w.cmd << ": " << w.says << ": " << group_world::error_of(w.status);
	}
	{
		server s(1024);
		svc_group_card got;

		s.instead["init"] = std::string(20000, 'x');
		EXPECT_EQ(XPORT_ERR_PROTOCOL, play(s, &got));
		s.instead["init"] = "-";
	}
	{
		server s(1024);
		svc_group_card got;

		s.instead["get"] = "cmd=get_result rc=0 msg=success value=99." + std::string(1080, '0') + "\n";
		EXPECT_EQ(XPORT_ERR_PROTOCOL, play(s, &got));
	}
}

/* An answer that comes after the limit is dropped: the next request gets its own. */
TEST(Pmi, ALateAnswerIsDropped)
{
	server s(1024);
	svc_group_card mine = card_of(0), got;
	svc_group_source *source;

	ASSERT_EQ(XPORT_OK, svc_group_pmi1_open_fd(s.client(), 0, 2, &source, "test"));
	source->until = svc_now_ms() + 2000;
	ASSERT_EQ(XPORT_OK, source->ops->offer(source, &mine, 0));
	while (source->ops->ready(source, 10) == XPORT_ERR_AGAIN)
		;
	s.late_ms = 200;
	source->until = svc_now_ms();
	EXPECT_EQ(XPORT_ERR_TIMEOUT, source->ops->card(source, 1, &got, 0)); /* no such card: the answer is an error */
	source->until = svc_now_ms() + 20;
	EXPECT_EQ(XPORT_ERR_TIMEOUT, source->ops->card(source, 0, &got, 0));
	source->until = svc_now_ms() + 2000;
	EXPECT_EQ(XPORT_OK, source->ops->card(source, 0, &got, 0)) << group_world::error_of(XPORT_ERR_PROTOCOL);
	EXPECT_EQ(mine.own, got.own);
	s.late_ms = 0;
	source->ops->close(source);
}

TEST(Pmi, OneGroupAtATime)
{
	server s(1024);
	svc_group_card mine = card_of(0);
	svc_group_source *first, *second;
	auto says = [&](const char *words) {
		EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, svc_group_pmi1_open(&second, "test"));
		EXPECT_NE(std::string::npos, group_world::error_of(XPORT_ERR_NOT_SUPPORTED).find(words));
	};

	setenv("PMI_FD", std::to_string(s.client()).c_str(), 1);
	setenv("PMI_RANK", "0", 1);
	setenv("PMI_SIZE", "2", 1);
	ASSERT_EQ(XPORT_OK, svc_group_pmi1_open(&first, "test"));
	says("has a group that uses the launcher's PMI");
	first->ops->close(first); /* it has not spoken yet */
	ASSERT_EQ(XPORT_OK, svc_group_pmi1_open(&first, "test"));
	/* Its first request is enough, even if the answer does not come in time. */
	s.late_ms = 200;
	first->until = svc_now_ms() + 20;
	EXPECT_EQ(XPORT_ERR_TIMEOUT, first->ops->offer(first, &mine, 0));
	says("has a group that uses the launcher's PMI");
	first->ops->close(first);
	says("has left the launcher's PMI");
	for (const char *v : {"PMI_FD", "PMI_RANK", "PMI_SIZE"})
		unsetenv(v);
}

TEST(Card, DamagedBytesAreNone)
{
	svc_group_card c = card_of(1), d;
	uint8_t bytes[SVC_CARD_MAX];
	size_t len = svc_card_encode(&c, bytes);

	ASSERT_TRUE(svc_card_decode(&d, bytes, len));
	EXPECT_EQ(1, d.rank);
	EXPECT_STREQ(c.host, d.host);
	EXPECT_FALSE(svc_card_dead(&d));
	for (size_t n = 0; n < len; n++)
		EXPECT_FALSE(svc_card_decode(&d, bytes, n)) << n;
	for (size_t i = 0; i < len; i++) { /* whatever a bit does, nothing is read beyond the end */
		bytes[i] ^= 0x80;
		svc_card_decode(&d, bytes, len);
		bytes[i] ^= 0x80;
	}
	c.rank = 2; /* of 2 members */
	EXPECT_FALSE(svc_card_decode(&d, bytes, svc_card_encode(&c, bytes)));
	c = card_of(0);
	c.pid = 0x7ffffff0;
	EXPECT_TRUE(svc_card_dead(&c));
	c.pid_space++; /* another PID namespace: it cannot be known */
	EXPECT_FALSE(svc_card_dead(&c));
	c.pid_space = 0;
	EXPECT_FALSE(svc_card_dead(&c));
}

TEST(Ranks, AreListed)
{
	uint8_t there[40] = {};
	char text[256];

	memset(there, 1, sizeof(there));
	svc_group_list_ranks(there, 40, text, sizeof(text));
	EXPECT_STREQ("", text);
	there[7] = 0;
	svc_group_list_ranks(there, 40, text, sizeof(text));
	EXPECT_STREQ("rank 7", text);
	there[9] = there[39] = 0;
	svc_group_list_ranks(there, 40, text, sizeof(text));
	EXPECT_STREQ("ranks 7, 9 and 39", text);
	memset(there, 0, sizeof(there));
	svc_group_list_ranks(there, 40, text, sizeof(text));
	EXPECT_STREQ("ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 28 more", text);
	svc_group_list_ranks(there, 40, text, 12);
	EXPECT_STREQ("ranks 0, 1,", text);
}

} // namespace
