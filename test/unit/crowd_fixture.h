/* SPDX-License-Identifier: BSD-3-Clause */
/* crowd_fixture.h - two connected instances over `loop`, for the tests of crowd*_test.cc; these test side 0. */
#ifndef TEST_CROWD_FIXTURE_H
#define TEST_CROWD_FIXTURE_H

#include <gtest/gtest.h>
#include <xport.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

namespace
{

using Clock = std::chrono::steady_clock;

inline long since(Clock::time_point t)
{
	return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - t).count();
}

/* H_TIMEOUT_SCALE, as in the conformance suite: valgrind and a busy machine take longer. */
inline long scaled(long ms)
{
	const char *s = getenv("H_TIMEOUT_SCALE");
	return s != nullptr ? ms * atol(s) : ms;
}

inline void nap(long ms)
{
	std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

/* Side 0 is looked at; side 1 polls in a thread of its own, once it is asked to. */
class Crowd : public testing::Test
{
protected:
	xport *x[2] = {};
	xport_ep *ep[2] = {};
	xport_mr *mr = nullptr;
	xport_rkey *key = nullptr;
	xport_listener *listener = nullptr;
	std::vector<uint8_t> bytes = std::vector<uint8_t>(4096);
	std::thread other;
	std::atomic<bool> stop{false};

	static xport_attr attr()
	{
		xport_attr a{};
		a.size = sizeof(a);
		a.backend = "loop:message";
		a.peer_timeout_ms = 60000;
		return a;
	}

	void connect(const xport_attr &first)
	{
		xport_attr second = attr();
		xport_completion c{};
		char name[64];

		ASSERT_EQ(XPORT_OK, xport_open(&first, &x[0]));
		ASSERT_EQ(XPORT_OK, xport_open(&second, &x[1]));
		ASSERT_EQ(XPORT_OK, xport_listen(x[1], "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		ASSERT_EQ(XPORT_OK, xport_connect(x[0], name, nullptr, 0, &ep[0]));
		for (auto start = Clock::now(); c.type != XPORT_EVENT_CONNECTED && since(start) < 30000;) {
			xport_poll(x[1], nullptr, 0);
			xport_wait(x[0], &c, 1, 1);
		}
		ASSERT_EQ(static_cast<uint32_t>(XPORT_EVENT_CONNECTED), c.type);
		ASSERT_EQ(XPORT_OK, xport_accept(listener, 30000, &ep[1]));

		uint8_t packed[2048];
		size_t len = sizeof(packed);
		ASSERT_EQ(XPORT_OK, xport_mr_reg(x[1], bytes.data(), bytes.size(), XPORT_REMOTE_WRITE, &mr));
		ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, packed, &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep[0], packed, len, &key));
	}

	void poll_other()
	{
		other = std::thread([this] {
			xport_completion c[8];
			while (!stop)
				xport_wait(x[1], c, 8, 20);
		});
	}

	int put() { return xport_put(ep[0], "x", 1, key, 0, nullptr); }

	/* Completes as it is posted. */
	int put_nothing() { return xport_put(ep[0], nullptr, 0, key, 0, nullptr); }

	void TearDown() override
	{
		stop = true;
		if (other.joinable())
			other.join();
		xport_close(x[0]);
		xport_close(x[1]);
	}
};

} // namespace

#endif
