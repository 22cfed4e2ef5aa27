/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cma_fixture.h - two connected instances that may read long data from each other's memory, for cma_test.cc and
 * cma_end_test.cc.
 */
#ifndef CMA_FIXTURE_H
#define CMA_FIXTURE_H

#include <algorithm>
#include <sys/uio.h>
#include <unistd.h>

#include "inside_fixture.h"

constexpr size_t LONG = 1 << 20;

class Cma : public Inside
{
protected:
	Bytes here = Bytes(LONG), far = Bytes(LONG);
	xport_mr *far_mr = nullptr;
	xport_rkey *key = nullptr;
	std::vector<xport_completion> done, theirs;

	void SetUp() override
	{
		uint8_t from = 1, to = 0;
		iovec here_it_goes{&to, 1}, there_it_is{&from, 1};

		if (process_vm_readv(getpid(), &here_it_goes, 1, &there_it_is, 1, 0) != 1)
			GTEST_SKIP() << "process_vm_readv(2) is not allowed here: " << strerror(errno);
		inside_one_host(true);
	}
	void TearDown() override
	{
		inside_one_host(false);
		Inside::TearDown();
	}
	void again()
	{
		drop();
		done.clear();
		theirs.clear();
		std::fill(far.begin(), far.end(), uint8_t{0});
		inside_one_host(true);
	}
	/* Connected, and `far` is within reach of a. */
	void begin(const char *emulate = nullptr)
	{
		Bytes k(1024);
		size_t len = k.size();

		connect("loop:message", emulate);
		ASSERT_EQ(XPORT_OK,
		          xport_mr_reg(b, far.data(), far.size(), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &far_mr));
		ASSERT_EQ(XPORT_OK, xport_rkey_pack(far_mr, k.data(), &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep, k.data(), len, &key));
		for (size_t i = 0; i < LONG; i++)
			here[i] = static_cast<uint8_t>(i * 7 + i / 256);
	}
	void poll_a()
	{
		xport_completion c[64];
		int n = xport_poll(a, c, 64);

		done.insert(done.end(), c, c + std::max(n, 0));
	}
	void poll_b()
	{
		xport_completion c[64];
		int n = xport_poll(b, c, 64);

		theirs.insert(theirs.end(), c, c + std::max(n, 0));
	}
	void both(int times)
	{
		for (int i = 0; i < times; i++) {
			poll_a();
			poll_b();
		}
	}
	uint64_t frames(xport_ep *of)
	{
		xport_counters c{};

		c.size = sizeof(c);
		EXPECT_EQ(XPORT_OK, xport_stats(of == peer ? b : a, of, &c));
		return c.frames_out;
	}
	/* The peer has been asked, and has answered. */
	void agree()
	{
		begin();
		talk_until_it_is_read();
		ASSERT_NE(std::string::npos, logged.find("is read by the peer from our memory")) << logged;
	}
	/* A put of all is on its way: offered, told, not read yet. */
	void under_way()
	{
		agree();
		xport_opt o = context(this);
		ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, &o));
		poll_a();
		ASSERT_NE(0u, inside_offer(ep, this));
	}
	/* What b is told by a to read, as if it were a frame's worth of that put. */
	xpi_rec_cma reading(uint8_t in_place_of, uint64_t length)
	{
		xpi_rec_cma r{};

		r.r = record(XPI_REC_CMA);
		r.r.a = in_place_of;
		r.region = htole64(inside_region(far_mr));
		r.length = htole64(length);
		r.offer = htole32(inside_offer(ep, this));
		return r;
	}
	bool untouched()
	{
		return std::all_of(far.begin(), far.end(), [](uint8_t v) { return v == 0; });
	}
	/* One more endpoint of a's; `peer` is b's then. */
	xport_ep *more()
	{
		xport_listener *listener;
		xport_ep *second = nullptr, *other = nullptr;
		char name[64];

		EXPECT_EQ(XPORT_OK, xport_listen(b, "127.0.0.1:0", nullptr, &listener));
		EXPECT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		EXPECT_EQ(XPORT_OK, xport_connect(a, name, nullptr, 0, &second));
		for (int i = 0; i < 60000 && (other == nullptr || done.empty()); i++) {
			both(1);
			if (other == nullptr)
				(void)!xport_accept(listener, 1, &other);
			else
				std::this_thread::sleep_for(std::chrono::microseconds(100));
		}
		done.clear(); /* that it is connected */
		theirs.clear();
		peer = other;
		return other != nullptr ? second : nullptr;
	}
	xport_rkey *key_at(xport_ep *of)
	{
		Bytes k(1024);
		size_t len = k.size();
		xport_rkey *out = nullptr;

		EXPECT_EQ(XPORT_OK, xport_rkey_pack(far_mr, k.data(), &len));
		EXPECT_EQ(XPORT_OK, xport_rkey_unpack(of, k.data(), len, &out));
		return out;
	}
	/* Memory of a's, within reach of b. */
	xport_rkey *share(Bytes &of)
	{
		Bytes k(1024);
		size_t len = k.size();
		xport_mr *region;
		xport_rkey *out = nullptr;

		EXPECT_EQ(XPORT_OK, xport_mr_reg(a, of.data(), of.size(), XPORT_REMOTE_READ, &region));
		EXPECT_EQ(XPORT_OK, xport_rkey_pack(region, k.data(), &len));
		EXPECT_EQ(XPORT_OK, xport_rkey_unpack(peer, k.data(), len, &out));
		return out;
	}
	/* With the first put it is asked for. */
	void talk_until_it_is_read()
	{
		ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, nullptr));
		both(600);
		ASSERT_EQ(1u, done.size());
		ASSERT_EQ(here, far);
		done.clear();
		std::fill(far.begin(), far.end(), uint8_t{0});
	}
	/* b ends the endpoint for it. */
	void b_breaks(const Bytes &records, const char *what)
	{
		xport_ep_info info{};

		inside_frame(peer, records.data(), records.size(), 0);
		EXPECT_TRUE(untouched()) << what;
		EXPECT_NE(std::string::npos, logged.find("broke the protocol")) << what << logged;
		poll_b();
		info.size = sizeof(info);
		EXPECT_EQ(XPORT_OK, xport_ep_query(peer, &info));
		EXPECT_EQ(XPORT_EP_LOST, info.state) << what;
	}
};

#endif
