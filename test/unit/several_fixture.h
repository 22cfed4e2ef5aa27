/* SPDX-License-Identifier: BSD-3-Clause */
/* several_fixture.h - a server and clients with several transports each, over loop. */
#ifndef UNIT_SEVERAL_FIXTURE_H
#define UNIT_SEVERAL_FIXTURE_H

#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "loop/loop.h"
}
#include "xport.h"

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/* A server and any number of clients, all polled by one thread. */
class Several : public testing::Test
{
protected:
	std::vector<xport *> all;
	std::map<xport *, std::vector<xport_completion>> done;
	xport *server = nullptr;
	xport_listener *listener = nullptr;
	char name[64] = "";
	std::string logged;

	void SetUp() override { loop_manners = {}; }
	void TearDown() override
	{
		loop_manners.holds = false;
		for (xport *x : all)
			xport_close(x);
		loop_manners = {};
	}
	static void log(void *arg, int, const char *id, const char *line)
	{
		static_cast<Several *>(arg)->logged += std::string(id) + ": " + line + "\n";
	}
	xport *open(const char *backend, const char *progress = nullptr)
	{
		xport_attr attr{};
		xport *x = nullptr;

		attr.progress = progress;
		attr.size = sizeof(attr);
		attr.backend = backend;
		attr.log_fn = log;
		attr.log_arg = this;
		attr.log_level = XPORT_LOG_INFO;
		attr.peer_timeout_ms = 60000;
		EXPECT_EQ(XPORT_OK, xport_open(&attr, &x)) << logged;
		all.push_back(x);
		return x;
	}
	void serve(const char *backend, const char *progress = nullptr)
	{
		server = open(backend, progress);
		ASSERT_EQ(XPORT_OK, xport_listen(server, "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	}
	void poll(int times = 1)
	{
		for (int i = 0; i < times; i++) {
			for (xport *x : all) {
				xport_completion c[16];
				int n = xport_poll(x, c, 16);

				ASSERT_GE(n, 0);
				done[x].insert(done[x].end(), c, c + n);
			}
		}
	}
	/* Polls until x has reaped one of that type, and takes it. */
	xport_completion wait(xport *x, uint32_t type)
	{
		auto end = steady_clock::now() + std::chrono::seconds(60);

		for (unsigned i = 1; steady_clock::now() < end; i++) {
			std::vector<xport_completion> &d = done[x];

			for (size_t k = 0; k < d.size(); k++) {
				if (d[k].type == type) {
					xport_completion c = d[k];

					d.erase(d.begin() + long(k));
					return c;
				}
			}
			poll();
			if (i % 64 == 0)
				std::this_thread::sleep_for(milliseconds(1));
		}
		ADD_FAILURE() << "no completion of type " << type << "\n" << logged;
		return {};
	}
	/* A connection, and the server's end of it; NULL: it failed, and `err` says why. */
	struct Pair {
		xport_ep *client, *server;
	};
	xport_error err{};
	Pair connect(xport *x, int timeout_ms = 20000, const char *transports = nullptr)
	{
		xport_conn_attr attr{};

		auto end = steady_clock::now() + milliseconds(timeout_ms);
		Pair p{};
		xport_ep_info info{};

		err.size = sizeof(err);
		attr.size = sizeof(attr);
		attr.transports = transports;
		EXPECT_EQ(XPORT_OK, xport_connect(x, name, &attr, 0, &p.client));
		info.size = sizeof(info);
		for (unsigned i = 1; steady_clock::now() < end; i++) {
			poll();
			EXPECT_EQ(XPORT_OK, xport_ep_query(p.client, &info));
			if (info.state != XPORT_EP_CONNECTING)
				break;
			if (i % 16 == 0)
				std::this_thread::sleep_for(milliseconds(1));
		}
		(void)!xport_last_error(x, &err);
		if (info.state != XPORT_EP_OPEN) {
			snprintf(err.text, sizeof(err.text), "%s", info.why);
			err.status = info.reason;
			return {};
		}
		while (xport_accept(listener, 0, &p.server) != XPORT_OK && steady_clock::now() < end)
			poll();
		EXPECT_NE(nullptr, p.server);
		return p;
	}
	static xport_ep_info query(xport_ep *ep)
	{
		xport_ep_info info{};

		info.size = sizeof(info);
		EXPECT_EQ(XPORT_OK, xport_ep_query(ep, &info));
		return info;
	}
	static std::string over(xport_ep *ep)
	{
		xport_ep_info info = query(ep);

		return std::string(info.backend) + ":" + info.provider;
	}
	/* A message each way. */
	void talk(Pair p, xport *x)
	{
		char in[8] = "";

		ASSERT_EQ(XPORT_OK, xport_recv(server, in, sizeof(in), 7, ~UINT64_C(0), nullptr));
		ASSERT_EQ(XPORT_OK, xport_send(p.client, "hello", 6, 7, nullptr));
		EXPECT_EQ(p.server, wait(server, XPORT_OP_RECV).ep);
		EXPECT_STREQ("hello", in);
		wait(x, XPORT_OP_SEND);
		ASSERT_EQ(XPORT_OK, xport_recv(x, in, sizeof(in), 8, ~UINT64_C(0), nullptr));
		ASSERT_EQ(XPORT_OK, xport_send(p.server, "again", 6, 8, nullptr));
		EXPECT_EQ(p.client, wait(x, XPORT_OP_RECV).ep);
		EXPECT_STREQ("again", in);
		wait(server, XPORT_OP_SEND);
	}
	/* A put into `at` of the server's memory, which is registered as mr. */
	void put(Pair p, xport *x, xport_mr *mr, const char *bytes, const char *at)
	{
		uint8_t key[256];
		size_t len = sizeof(key);
		xport_rkey *k;

		ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, key, &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(p.client, key, len, &k));
		xport_rkey_info info{};
		info.size = sizeof(info);
		/* The native key comes. A transport that was idle is polled only now and then. */
		for (int i = 0; i < 100000 && over(p.client) != "loop:message" && info.put == 0; i++) {
			poll();
			ASSERT_EQ(XPORT_OK, xport_rkey_query(k, &info));
		}
		ASSERT_EQ(XPORT_OK, xport_put(p.client, bytes, strlen(bytes) + 1, k, 0, nullptr));
		EXPECT_EQ(XPORT_OK, wait(x, XPORT_OP_PUT).status);
		EXPECT_STREQ(bytes, at);
		xport_rkey_destroy(k);
	}
	bool has_logged(const char *what) const { return logged.find(what) != std::string::npos; }
};

#endif
