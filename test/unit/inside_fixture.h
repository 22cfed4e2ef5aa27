/* SPDX-License-Identifier: BSD-3-Clause */
/* inside_fixture.h - two connected instances; one gets frames and keys that no correct peer sends. */
#ifndef INSIDE_FIXTURE_H
#define INSIDE_FIXTURE_H

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <endian.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/* What C++ says of C's enumerations. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wextra"
extern "C" {
#include "core/wire/frame.h"
}
#pragma GCC diagnostic pop
#include "unit/inside.h"

using Bytes = std::vector<uint8_t>;

/* Two instances over `loop`, connected; what b's peer sends is made up. */
class Inside : public testing::Test
{
protected:
	xport *a = nullptr, *b = nullptr;
	xport_ep *ep = nullptr, *peer = nullptr; /* a's, and b's */
	uint8_t memory[4096] = {};
	xport_mr *mr = nullptr, *there = nullptr; /* a's, and b's */
	std::string logged;
	std::mutex logging;

	static void log(void *arg, int, const char *id, const char *line)
	{
		Inside *me = static_cast<Inside *>(arg);
		std::lock_guard<std::mutex> alone(me->logging);

		me->logged += std::string(id) + ": " + line + "\n";
	}
	/* Before another connect. */
	void drop()
	{
		TearDown();
		a = b = nullptr;
		ep = peer = nullptr;
		logged.clear();
	}
	xport *open(const char *backend, const char *emulate)
	{
		xport_attr attr{};
		xport *x = nullptr;

		attr.size = sizeof(attr);
		attr.backend = backend;
		attr.emulate = emulate;
		attr.log_fn = log;
		attr.log_arg = this;
		attr.log_level = XPORT_LOG_INFO;
		EXPECT_EQ(XPORT_OK, xport_open(&attr, &x));
		return x;
	}
	void connect(const char *backend = "loop:message", const char *emulate = nullptr, const char *theirs = nullptr)
	{
		xport_listener *listener;
		char name[64];

		a = open(backend, emulate);
		b = open(backend, theirs);
		ASSERT_EQ(XPORT_OK, xport_listen(b, "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		ASSERT_EQ(XPORT_OK, xport_connect(a, name, nullptr, 0, &ep));
		for (int i = 0; i < 60000 && (peer == nullptr || state() == XPORT_EP_CONNECTING); i++) {
			poll();
			if (peer == nullptr)
				(void)!xport_accept(listener, 1, &peer);
			else
				std::this_thread::sleep_for(std::chrono::microseconds(100));
		}
		ASSERT_EQ(XPORT_EP_OPEN, state());
		ASSERT_EQ(XPORT_OK, xport_mr_reg(a, memory, sizeof(memory),
		                                 XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC, &mr));
	}
	void TearDown() override
	{
		inside_refuse(0);
		xport_close(a);
		xport_close(b);
	}
	int state()
	{
		xport_ep_info info{};

		info.size = sizeof(info);
		EXPECT_EQ(XPORT_OK, xport_ep_query(ep, &info));
		return info.state;
	}
	std::vector<xport_completion> poll(int times = 1)
	{
		std::vector<xport_completion> all;
		xport_completion c[64];

		for (int i = 0; i < times; i++) {
			int n = xport_poll(a, c, 64);
			all.insert(all.end(), c, c + (n > 0 ? n : 0));
			EXPECT_GE(xport_poll(b, nullptr, 0), 0);
		}
		return all;
	}

	template <class Record> static Bytes bytes(Record r, size_t data = 0, size_t size = sizeof(Record))
	{
		Bytes out(size + data);

		memcpy(out.data(), &r, size);
		return out;
	}
	/* The frame ends the endpoint. */
	void breaks(const Bytes &records, const char *what)
	{
		inside_frame(ep, records.data(), records.size(), 0);
		poll();
		EXPECT_EQ(XPORT_EP_LOST, state()) << what;
		EXPECT_NE(std::string::npos, logged.find("broke the protocol")) << what;
	}
	/* Sixteen of them a frame, until there is one too many for the window of messages. */
	void overflows(const Bytes &one)
	{
		Bytes many;
		int frames = 0;

		for (int i = 0; i < 16; i++)
			many.insert(many.end(), one.begin(), one.end());
		while (frames < 4096 && state() == XPORT_EP_OPEN) {
			inside_frame(ep, many.data(), many.size(), 0);
			frames++;
		}
		EXPECT_EQ(XPORT_EP_LOST, state());
		EXPECT_EQ((1 << 20) / XPI_CHARGE_SMALL / 16 + 1, frames);
	}
	void passes(const Bytes &records, const char *what, int freed = 0)
	{
		inside_frame(ep, records.data(), records.size(), freed);
		EXPECT_EQ(XPORT_EP_OPEN, state()) << what << logged;
	}
	/* Of b's memory, for a. */
	xport_rkey *remote(Bytes *key = nullptr)
	{
		static uint8_t bytes[4096] __attribute__((aligned(8)));
		Bytes k(1024);
		size_t len = k.size();
		xport_rkey *rkey = nullptr;

		EXPECT_EQ(XPORT_OK, xport_mr_reg(b, bytes, sizeof(bytes),
		                                 XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC, &there));
		EXPECT_EQ(XPORT_OK, xport_rkey_pack(there, k.data(), &len));
		k.resize(len);
		if (key != nullptr)
			*key = k;
		else
			EXPECT_EQ(XPORT_OK, xport_rkey_unpack(ep, k.data(), k.size(), &rkey));
		return rkey;
	}
	static xport_opt context(void *c)
	{
		xport_opt o{};

		o.size = sizeof(o);
		o.context = c;
		return o;
	}
};

inline xpi_rec record(uint8_t type, uint32_t len = 0)
{
	xpi_rec r{};

	r.type = type;
	r.len = htole32(len);
	return r;
}

#endif
