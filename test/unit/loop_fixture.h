/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_fixture.h - both ends over `loop` in one thread, connected, for the tests of loop_*_test.cc. */
#ifndef TEST_LOOP_FIXTURE_H
#define TEST_LOOP_FIXTURE_H

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "loop/loop.h"
}
#include "xport.h"

namespace
{

/* Bytes that tell apart the seeds, and the places within 256. */
inline std::vector<uint8_t> pattern(size_t n, unsigned seed)
{
	std::vector<uint8_t> v(n);
	for (size_t i = 0; i < n; i++)
		v[i] = (uint8_t)(i * 31 + seed);
	return v;
}

struct Side {
	xport *x = nullptr;
	xport_ep *ep = nullptr;
	std::vector<xport_completion> done;

	void poll()
	{
		xport_completion c[16];
		int n = xport_poll(x, c, 16);
		ASSERT_GE(n, 0);
		done.insert(done.end(), c, c + n);
	}
};

/* The way the operations go: "provider/emulate". */
class Loop : public testing::TestWithParam<const char *>
{
protected:
	Side a, b;
	xport_listener *listener = nullptr;
	const char *around = ""; /* "chaos:" */
	std::vector<std::string> logged;

	static void log(void *arg, int, const char *id, const char *line)
	{
		static_cast<Loop *>(arg)->logged.push_back(std::string(id) + ": " + line);
	}

	void open(Side &s)
	{
		std::string param = GetParam();
		std::string backend = around + ("loop:" + param.substr(0, param.find('_')));
		std::string emulate = param.substr(param.find('_') + 1);

		if (param.substr(0, 3) == "set") /* one of several */
			backend = "loop:nosuch+loop:rdma";
		xport_attr attr{};
		attr.size = sizeof(attr);
		attr.backend = backend.c_str();
		attr.emulate = emulate == "all" ? "all" : nullptr;
		attr.log_fn = log;
		attr.log_arg = this;
		attr.queue_depth = 64;
		ASSERT_EQ(xport_open(&attr, &s.x), XPORT_OK);
	}

	void both(int times = 1)
	{
		for (int i = 0; i < times; i++) {
			a.poll();
			b.poll();
		}
	}

	static std::string why_ended(const Side &s)
	{
		xport_ep_info i{};

		i.size = sizeof(i);
		return s.ep != nullptr && xport_ep_query(s.ep, &i) == XPORT_OK ? i.why : "";
	}

	/* Polls both until `s` has a completion of that type; takes it out. */
	xport_completion wait(Side &s, uint32_t type)
	{
		auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
		for (unsigned i = 1; i % 1024 != 0 || std::chrono::steady_clock::now() < end; i++) {
			if (i % 1024 == 0) /* the helper thread has its part in connecting */
				std::this_thread::sleep_for(std::chrono::milliseconds(1));
			for (size_t k = 0; k < s.done.size(); k++) {
				if (s.done[k].type == type) {
					xport_completion c = s.done[k];
					s.done.erase(s.done.begin() + (long)k);
					return c;
				}
			}
			both();
		}
		ADD_FAILURE() << "no completion of type " << type << "; a ended: " << why_ended(a)
			      << "; b ended: " << why_ended(b);
		xport_dump(a.x);
		xport_dump(b.x);
		for (auto &l : logged)
			std::cerr << l << "\n";
		return xport_completion{};
	}

	void SetUp() override
	{
		char name[64];
		open(a);
		open(b);
		ASSERT_EQ(xport_listen(b.x, "127.0.0.1:0", nullptr, &listener), XPORT_OK);
		ASSERT_EQ(xport_listener_name(listener, name, sizeof(name)), XPORT_OK);
		ASSERT_EQ(xport_connect(a.x, name, nullptr, 0, &a.ep), XPORT_OK);
		ASSERT_EQ(wait(a, XPORT_EVENT_CONNECTED).ep, a.ep);
		wait(b, XPORT_EVENT_INCOMING);
		ASSERT_EQ(xport_accept(listener, 0, &b.ep), XPORT_OK);
	}

	void TearDown() override
	{
		xport_close(a.x);
		xport_close(b.x);
		for (auto &l : logged)
			ADD_FAILURE() << "logged: " << l;
	}

	/* Memory of b's, and its key at a. */
	struct Remote {
		std::vector<uint8_t> bytes;
		xport_mr *mr = nullptr;
		xport_rkey *key = nullptr;
	};

	void share(Remote &r, size_t size,
	           uint32_t rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC)
	{
		uint8_t key[2048];
		size_t len = sizeof(key);
		r.bytes.assign(size, 0);
		ASSERT_EQ(xport_mr_reg(b.x, r.bytes.data(), size, rights, &r.mr), XPORT_OK);
		ASSERT_EQ(xport_rkey_pack(r.mr, key, &len), XPORT_OK);
		ASSERT_EQ(xport_rkey_unpack(a.ep, key, len, &r.key), XPORT_OK);
	}
};

} // namespace

#endif
