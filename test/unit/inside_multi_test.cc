/* SPDX-License-Identifier: BSD-3-Clause */
/* inside_multi_test.cc - receives with XPORT_MULTI: their deadlines, their memory, and messages that come at bad times. */
#include <chrono>
#include <thread>

#include "inside_fixture.h"

namespace
{

enum { TAG = 5, LINE = 64, LONG = 2 << 20, DEADLINES = 64 };

class Multi : public Inside
{
protected:
	Bytes buffer = Bytes(4 << 20);
	uint64_t id = 0;
	uint8_t word[8] = {};

	/* A receive for messages of up to `longest`. */
	int post(size_t len, uint64_t longest, uint32_t deadline_ms = 0, uint64_t mask = UINT64_MAX)
	{
		xport_opt o{};

		o.size = sizeof(o);
		o.flags = XPORT_MULTI;
		o.value = longest;
		o.deadline_ms = deadline_ms;
		o.context = this;
		o.id = &id;
		return xport_recv(a, buffer.data(), len, TAG, mask, &o);
	}
	/* So many others with deadlines; returns their ids. */
	std::vector<uint64_t> post_timed(unsigned n)
	{
		std::vector<uint64_t> ids(n);
		xport_opt o{};

		o.size = sizeof(o);
		o.deadline_ms = 1000000;
		for (auto &timed : ids) {
			o.id = &timed;
			EXPECT_EQ(XPORT_OK, xport_recv(a, word, sizeof(word), TAG + 1, UINT64_MAX, &o));
		}
		return ids;
	}
	/* What a peer says first of a long message; it never sends the rest. */
	Bytes long_message(uint32_t name, uint64_t tag = TAG)
	{
		xpi_rec_rts r{};

		r.r = record(XPI_REC_RTS);
		r.tag = htole64(tag);
		r.length = htole64(LONG);
		r.op = htole32(name);
		return bytes(r);
	}
	Bytes short_message(size_t len, uint64_t tag = TAG)
	{
		xpi_rec_send s{};

		s.r = record(XPI_REC_SEND, static_cast<uint32_t>(len));
		s.tag = htole64(tag);
		return bytes(s, len);
	}
	void frame(const Bytes &records) { inside_frame(ep, records.data(), records.size(), 0); }
	std::string error()
	{
		xport_error e{};

		e.size = sizeof(e);
		EXPECT_EQ(XPORT_OK, xport_last_error(a, &e));
		return e.text;
	}
	/* Its completions. The peer does not poll: it has no message to go on with. */
	std::vector<xport_completion> reap(int times = 1)
	{
		std::vector<xport_completion> all;
		xport_completion c[64];

		for (int i = 0; i < times; i++) {
			int n = xport_poll(a, c, 64);

			for (int k = 0; k < n; k++)
				if (c[k].context == this)
					all.push_back(c[k]);
		}
		return all;
	}
	/* The peer polls; returns how many of its messages have left. */
	unsigned left()
	{
		xport_completion c[64];
		unsigned all = 0;
		int n;

		while ((n = xport_poll(b, c, 64)) > 0)
			for (int k = 0; k < n; k++)
				all += c[k].type == XPORT_OP_SEND;
		return all;
	}
	/* Completions until the end of the receive is among them; that is the last one of them. */
	std::vector<xport_completion> until_end(long limit_ms = 20000)
	{
		std::vector<xport_completion> all;
		auto begin = std::chrono::steady_clock::now();

		while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(limit_ms)) {
			for (const auto &c : reap())
				all.push_back(c);
			if (!all.empty() && all.back().type == XPORT_OP_RECV_END)
				break;
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
		return all;
	}
};

/* ---- deadlines ---- */

/* One place for a deadline is left, and a message that waits needs one, too. */
TEST_F(Multi, AMessageThatWaitsTakesADeadlineOfItsOwn)
{
	connect();
	post_timed(DEADLINES - 1);
	frame(long_message(1));
	ASSERT_EQ(XPORT_OK, post(buffer.size(), 1024, 50));
	auto all = until_end();
	ASSERT_EQ(2U, all.size());
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_RECV), all[0].type);
	EXPECT_EQ(XPORT_ERR_TIMEOUT, all[0].status);
	EXPECT_EQ(XPORT_ERR_TIMEOUT, all[1].status);
}

/* What is over is swept out of the heap when a message needs a place; the receive is not over. */
TEST_F(Multi, KeepsItsDeadlineWhenAMessageNeedsOne)
{
	connect();
	ASSERT_EQ(XPORT_OK, post(buffer.size(), 1024, 50));
	for (uint64_t timed : post_timed(DEADLINES - 1))
		ASSERT_EQ(XPORT_OK, xport_cancel(a, timed));
	frame(long_message(1));
	auto all = until_end();
	ASSERT_EQ(2U, all.size());
	EXPECT_EQ(XPORT_ERR_TIMEOUT, all[1].status);
}

/* ---- memory ---- */

/* Messages of no bytes that are not reaped: they stay with their sender once they fill its window, until others are reaped. */
TEST_F(Multi, MessagesThatAreNotReapedFillTheWindow)
{
	enum { MOST = 8192 }; /* twice the window */
	unsigned sent = 0, gone = 0, reaped = 0;

	connect();
	ASSERT_EQ(XPORT_OK, post(buffer.size(), 1));
	auto send = [&] {
		while (sent < MOST && xport_send(peer, nullptr, 0, TAG, nullptr) == XPORT_OK)
			sent++;
		gone += left();
	};
	for (int i = 0; i < 1000; i++) {
		send();
		EXPECT_EQ(0, xport_poll(a, nullptr, 0));
	}
	EXPECT_GE(gone, 1024U);
	EXPECT_LT(gone, MOST - 1024U);
	for (int i = 0; i < 100000 && reaped < MOST; i++) {
		for (const auto &c : reap())
			EXPECT_EQ(reaped++ * UINT64_C(64), c.offset);
		send();
	}
	EXPECT_EQ(static_cast<unsigned>(MOST), reaped);
}

/* The peer's endpoint ends; the receive stays for others, as it was. */
TEST_F(Multi, OutlivesAMessageWithoutMemory)
{
	for (bool waits : {false, true})
		for (bool longer : {false, true}) {
			connect();
			Bytes m = longer ? long_message(1) : short_message(100);
			if (waits)
				frame(m);
			else
				ASSERT_EQ(XPORT_OK, post(1000, 100));
			/* The receive itself has its memory. */
			inside_some_operations(a, waits ? 1 : 0);
			if (waits)
				EXPECT_EQ(XPORT_OK, post(1000, 100));
			else
				frame(m);
			inside_no_operations(a, false);
			poll();
			EXPECT_EQ(XPORT_EP_LOST, state()) << logged;
			EXPECT_EQ(XPORT_OK, xport_cancel(a, id));
			auto all = until_end();
			ASSERT_EQ(1U, all.size());
			EXPECT_EQ(XPORT_ERR_CANCELED, all[0].status);
			EXPECT_EQ(0U, all[0].length);
			drop();
		}
}

/* There is memory for the answer to it, and none for the message itself. */
TEST_F(Multi, OutlivesALongMessageWithoutItsPart)
{
	for (bool waits : {false, true}) {
		connect();
		if (waits)
			frame(long_message(1));
		else
			ASSERT_EQ(XPORT_OK, post(1000, 100));
		inside_some_operations(a, waits ? 2 : 1);
		if (waits)
			EXPECT_EQ(XPORT_OK, post(1000, 100));
		else
			frame(long_message(1));
		inside_no_operations(a, false);
		poll();
		EXPECT_EQ(XPORT_EP_LOST, state()) << logged;
		EXPECT_EQ(XPORT_OK, xport_cancel(a, id));
		EXPECT_EQ(1U, until_end().size());
		drop();
	}
}

/* ---- messages that are being fetched ---- */

TEST_F(Multi, IsCancelledWhileAMessageIsFetched)
{
	connect();
	ASSERT_EQ(XPORT_OK, post(buffer.size(), 1024));
	frame(long_message(1));
	ASSERT_EQ(XPORT_OK, xport_cancel(a, id));
	EXPECT_EQ(0U, reap(20).size());
	EXPECT_EQ(XPORT_ERR_BUSY, xport_cancel(a, id));
	EXPECT_NE(std::string::npos, error().find("takes no more")) << error();
	inside_ep_failed(ep); /* the message ends with its peer, then the receive */
	auto all = until_end();
	ASSERT_EQ(2U, all.size());
	EXPECT_NE(XPORT_OK, all[0].status);
	EXPECT_EQ(XPORT_ERR_CANCELED, all[1].status);
	EXPECT_EQ(static_cast<uint64_t>(LONG), all[1].length);
}

TEST_F(Multi, IsUsedUpWhileAMessageIsFetched)
{
	connect();
	ASSERT_EQ(XPORT_OK, post(LONG, LONG));
	frame(long_message(1));
	EXPECT_EQ(XPORT_ERR_BUSY, xport_cancel(a, id));
	EXPECT_NE(std::string::npos, error().find("takes no more")) << error();
}

/* The instance closes, or the endpoint is destroyed, while there is space left and a message is being fetched. */
TEST_F(Multi, IsClosedWhileAMessageIsFetched)
{
	for (bool destroy : {false, true}) {
		connect();
		ASSERT_EQ(XPORT_OK, post(buffer.size(), 1024));
		frame(long_message(1));
		frame(short_message(8));
		if (destroy) {
			xport_ep_destroy(ep);
			poll(20);
		}
		drop();
	}
}

/* Two wait; the sender takes one back that was matched: that one ends, and the receive goes on. */
TEST_F(Multi, ASenderWithdrawsAMessageThatIsFetched)
{
	connect();
	xport_opt o{};
	uint64_t sent = 0;
	o.size = sizeof(o);
	o.flags = XPORT_CANCELABLE;
	o.id = &sent;
	ASSERT_EQ(XPORT_OK, xport_send(peer, Bytes(LONG).data(), LONG, TAG, &o));
	ASSERT_EQ(XPORT_OK, xport_cancel(b, sent));
	EXPECT_EQ(XPORT_OK, post(buffer.size(), 1024));
	poll(50);
	o.flags = 0;
	ASSERT_EQ(XPORT_OK, xport_send(peer, "here", 5, TAG, nullptr));
	std::vector<xport_completion> all;
	for (int i = 0; i < 1000 && all.empty(); i++, left())
		for (const auto &c : reap())
			if (c.status == XPORT_OK)
				all.push_back(c);
	ASSERT_EQ(1U, all.size());
	EXPECT_STREQ("here", reinterpret_cast<char *>(buffer.data() + all[0].offset));
}

/* The same once it has been matched, as a deadline of the sender does it. */
TEST_F(Multi, ASenderGivesUpAMessageThatIsFetched)
{
	connect();
	ASSERT_EQ(XPORT_OK, post(buffer.size(), 1024));
	frame(long_message(1));
	xpi_rec_withdraw w{};
	w.r = record(XPI_REC_WITHDRAW);
	w.tag = htole64(TAG);
	w.into = htole32(inside_name(ep, this));
	frame(bytes(w));
	auto c = reap();
	ASSERT_EQ(1U, c.size());
	EXPECT_EQ(XPORT_ERR_CANCELED, c[0].status);
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_RECV), c[0].type);
	frame(short_message(8));
	c = reap();
	ASSERT_EQ(1U, c.size());
	EXPECT_EQ(static_cast<uint64_t>(LONG), c[0].offset);
	EXPECT_EQ(XPORT_OK, xport_cancel(a, id));
	EXPECT_EQ(1U, until_end().size());
}

/* ---- many that wait ---- */

/* It takes those that fit, in order, and leaves the others where they are. */
TEST_F(Multi, TakesWhatWaitsInOrder)
{
	for (uint64_t mask : {UINT64_MAX, ~UINT64_C(1)}) {
		connect();
		for (unsigned i = 0; i < 40; i++)
			frame(short_message(i, i % 4 == 1 ? TAG + 100 : TAG)); /* 30 of 40 fit */
		ASSERT_EQ(XPORT_OK, post(27 * LINE, 1, 0, mask));
		auto all = reap(2);
		ASSERT_EQ(28U, all.size());
		for (unsigned i = 0, len = 0; i < 27; i++, len += len % 4 == 0 ? 2 : 1) {
			EXPECT_EQ(len, all[i].length);
			EXPECT_EQ(static_cast<uint64_t>(i) * LINE, all[i].offset);
		}
		EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_RECV_END), all[27].type);
		xport_counters k{};
		k.size = sizeof(k);
		EXPECT_EQ(XPORT_OK, xport_stats(a, nullptr, &k));
		EXPECT_EQ(13U, k.unmatched);
		drop();
	}
}

/* ---- xport_accept_with ---- */

/* There is no memory for the frame of the answer; there is some later. */
TEST_F(Multi, AnAnswerWaitsForMemory)
{
	const Bytes data(1000, 7);
	xport_listener *listener = nullptr;
	xport_conn_attr attr{};
	xport_ep *more = nullptr, *taken = nullptr;
	char name[64];

	connect();
	ASSERT_EQ(XPORT_OK, xport_listen(b, "127.0.0.1:0", nullptr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	ASSERT_EQ(XPORT_OK, xport_connect(a, name, nullptr, 0, &more));
	attr.size = sizeof(attr);
	attr.private_data = data.data();
	attr.private_len = data.size();
	bool open = false, accepted = false;
	for (int i = 0; i < 60000 && (taken == nullptr || !open); i++) {
		for (const auto &c : poll())
			open = open || c.type == XPORT_EVENT_CONNECTED;
		if (!open)
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		if (taken == nullptr && open) {
			poll(100); /* nothing is left to be acknowledged */
			inside_no_frames(b, true);
			(void)!xport_accept_with(listener, &attr, 1, &taken);
			if (taken == nullptr)
				inside_no_frames(b, false);
		}
	}
	ASSERT_NE(nullptr, taken);
	poll(20);
	inside_no_frames(b, false);
	for (int i = 0; i < 1000 && !accepted; i++)
		for (const auto &c : poll())
			accepted = accepted || (c.type == XPORT_EVENT_ACCEPTED && c.ep == more);
	EXPECT_TRUE(accepted) << "nothing tries again";
}

} // namespace
