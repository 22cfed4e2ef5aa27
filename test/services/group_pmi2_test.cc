/* SPDX-License-Identifier: BSD-3-Clause */
/* group_pmi2_test.cc - the source pmi2 with a server that is played here: what a good one says, and rubbish. */
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "services/group_world.h"

extern "C" {
#include "services/group_card.h"
#include "services/group_pmi_wire.h"
#include "services/group_source.h"
}

namespace
{

std::string message(const std::string &items)
{
	char head[16];

	snprintf(head, sizeof(head), "%6zu", items.size());
	return head + items;
}

/* A server of one process. A test may replace an answer: by the command of the request, and all bytes that are sent. */
class server2
{
public:
	server2()
	{
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
			abort();
		thread = std::thread([this] { serve(); });
	}
	~server2()
	{
		close(fd[0]);
		thread.join();
		if (fd[1] >= 0)
			close(fd[1]);
	}
	int client() const { return fd[0]; }

	std::map<std::string, std::string> instead; /* "-": the connection ends */
	std::map<std::string, std::string> kvs;

private:
	static std::string item(const std::string &text, const char *key)
	{
		char value[2048];

		return svc_pmi2_word(text.c_str(), key, value, sizeof(value)) ? value : "";
	}
	/* The next request; "": the end. */
	std::string request(bool first)
	{
		std::string in;
		size_t want = SVC_PMI2_HEAD;
		char c;

		while (read(fd[1], &c, 1) == 1) {
			if (first && c == '\n')
				return in;
			in += c;
			if (!first && in.size() == SVC_PMI2_HEAD)
				want = SVC_PMI2_HEAD + strtoul(in.c_str(), nullptr, 10);
			if (!first && in.size() >= SVC_PMI2_HEAD && in.size() == want)
				return in.substr(SVC_PMI2_HEAD);
		}
		return "";
	}
	std::string answer(const std::string &cmd, const std::string &in)
	{
		if (cmd == "fullinit")
			return "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;rc=0;";
		if (cmd == "kvs-put") {
			kvs[item(in, "key")] = item(in, "value");
			return "cmd=kvs-put-response;rc=0;";
		}
		if (cmd == "kvs-get" && kvs.count(item(in, "key")))
			return "cmd=kvs-get-response;found=TRUE;value=" + kvs[item(in, "key")] + ";rc=0;";
		return "cmd=" + cmd + "-response;rc=0;";
	}
	void serve()
	{
		std::string in = request(true), cmd = "init", out;

		out = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
		while (!in.empty()) {
			if (instead.count(cmd))
				out = instead[cmd];
			if (out == "-") {
				close(fd[1]);
				fd[1] = -1;
				return;
			}
			/* In two pieces: a message need not arrive at once. */
			if (send(fd[1], out.data(), out.size() / 2, MSG_NOSIGNAL) < 0 ||
			    send(fd[1], out.data() + out.size() / 2, out.size() - out.size() / 2, MSG_NOSIGNAL) < 0)
				return;
			in = request(false);
			cmd = item(in, "cmd");
			out = message(answer(cmd, in));
		}
	}

	int fd[2];
	std::thread thread;
};

/* All that a source does, for rank 0; the card that is got is its own. */
int play2(server2 &s)
{
	svc_group_card mine, got;
	svc_group_source *source;
	int r = svc_group_pmi2_open_fd(s.client(), 0, 2, &source, "test");

	svc_card_begin(&mine);
	mine.members = 2;
	snprintf(mine.address, sizeof(mine.address), "127.0.0.1:1234");
	if (r != XPORT_OK)
		return r;
	source->until = svc_now_ms() + 300;
	r = source->ops->offer(source, &mine, 0);
	if (r == XPORT_OK)
		do
			r = source->ops->ready(source, 10);
		while (r == XPORT_ERR_AGAIN);
	if (r == XPORT_OK)
		r = source->ops->card(source, 0, &got, 10);
	if (r == XPORT_OK && (got.own != mine.own || strcmp(got.address, mine.address) != 0))
		r = -1000;
	source->ops->close(source);
	return r;
}

TEST(Pmi2, ACardComesBack)
{
	server2 s;

	EXPECT_EQ(XPORT_OK, play2(s)) << group_world::error_of(XPORT_ERR_PROTOCOL);
	EXPECT_EQ(1u, s.kvs.count("xpg-0-0"));
}

TEST(Pmi2, Rubbish)
{
	static const struct {
		const char *cmd;
		std::string says;
		int status;
	} rubbish[] = {
		{"init", "-", XPORT_ERR_SYSTEM},
		{"init", "", XPORT_ERR_TIMEOUT},
		{"init", "cmd=response_to_init rc=-1 pmi_version=2\n", XPORT_ERR_PROTOCOL},
		{"init", "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n", XPORT_ERR_PROTOCOL},
		{"init", std::string(20000, 'x'), XPORT_ERR_PROTOCOL},
		{"fullinit", "-", XPORT_ERR_SYSTEM},
		{"fullinit", "", XPORT_ERR_TIMEOUT},
		{"fullinit", "   100cmd=", XPORT_ERR_TIMEOUT},
		{"fullinit", "HTTP/1.1 400 Bad Request\r\n", XPORT_ERR_PROTOCOL},
		{"fullinit", "     0", XPORT_ERR_PROTOCOL},
		{"fullinit", "      ", XPORT_ERR_PROTOCOL},
		{"fullinit", "999999", XPORT_ERR_PROTOCOL},
		{"fullinit", "-    5abcde", XPORT_ERR_PROTOCOL},
		{"fullinit", message("cmd=fullinit-response;rank=1;size=2;rc=0;"), XPORT_ERR_PROTOCOL},
		{"fullinit", message("cmd=fullinit-response;rank=0;size=3;rc=0;"), XPORT_ERR_PROTOCOL},
		{"fullinit", message("cmd=fullinit-response;rc=0;"), XPORT_ERR_PROTOCOL},
		{"fullinit", message("cmd=fullinit-response;rank=0;size=2;rc=14;"), XPORT_ERR_PROTOCOL},
		{"fullinit", message("cmd=kvs-put-response;rank=0;size=2;rc=0;"), XPORT_ERR_PROTOCOL},
		{"kvs-put", message("cmd=kvs-put-response;rc=1;errmsg=no space;"), XPORT_ERR_PROTOCOL},
		{"kvs-put", "-", XPORT_ERR_SYSTEM},
		{"kvs-fence", message("cmd=kvs-fence-response;rc=1;"), XPORT_ERR_PROTOCOL},
		{"kvs-fence", message("cmd=kvs-get-response;rc=0;"), XPORT_ERR_PROTOCOL},
		{"kvs-fence", "-", XPORT_ERR_SYSTEM},
		{"kvs-get", message("cmd=kvs-get-response;found=FALSE;rc=0;"), XPORT_ERR_PROTOCOL},
		{"kvs-get", message("cmd=kvs-get-response;found=TRUE;value=;rc=0;"), XPORT_ERR_PROTOCOL},
		{"kvs-get", message("cmd=kvs-get-response;found=TRUE;value=1.xyz;rc=0;"), XPORT_ERR_PROTOCOL},
		{"kvs-get", message("cmd=kvs-get-response;found=TRUE;value=1.0;;1;rc=0;"), XPORT_ERR_PROTOCOL},
		{"kvs-get", message("cmd=kvs-get-response;value=99." + std::string(1080, '0') + ";rc=0;"),
	         XPORT_ERR_PROTOCOL},
		{"kvs-get", "-", XPORT_ERR_SYSTEM},
	};

	for (const auto &w : rubbish) {
		server2 s;

		s.instead[w.cmd] = w.says;
		EXPECT_EQ(w.status, play2(s))
			<< w.cmd << ": " << w.says.substr(0, 80) << ": " << group_world::error_of(w.status);
	}
}

TEST(Pmi2, WordsOfAMessage)
{
	static const char text[] = "cmd=x;value=a;;b;;;;c;empty=;cmdx=1;last=2";
	char v[16];

	EXPECT_TRUE(svc_pmi2_word(text, "value", v, sizeof(v)));
	EXPECT_STREQ("a;b;;c", v);
	EXPECT_TRUE(svc_pmi2_word(text, "empty", v, sizeof(v)));
	EXPECT_STREQ("", v);
	EXPECT_TRUE(svc_pmi2_word(text, "last", v, sizeof(v))); /* the end ends an item, too */
	EXPECT_STREQ("2", v);
	EXPECT_FALSE(svc_pmi2_word(text, "b", v, sizeof(v)));
	EXPECT_FALSE(svc_pmi2_word(text, "las", v, sizeof(v)));
	EXPECT_FALSE(svc_pmi2_word(text, "value", v, 6));
	EXPECT_TRUE(svc_pmi2_word(text, "value", v, 7));
}

} // namespace
