/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_peer_test.cc - a connected peer that writes another endpoint's number into its frames, over every provider. */
#include <chrono>

#include "unit/inside_fixture.h"

using namespace std::chrono;

/* a's endpoint is the victim, `other` one of another peer, `c`. */
class HostilePeer : public Inside
{
protected:
	xport *c = nullptr;
	xport_ep *other = nullptr, *hostile = nullptr; /* a's, and c's */

	void meet(const char *backend)
	{
		xport_listener *listener;
		char name[64];

		a = open(backend, nullptr);
		b = open(backend, nullptr);
		c = open(backend, nullptr);
		ASSERT_TRUE(a != nullptr && b != nullptr && c != nullptr) << backend;
		ASSERT_EQ(XPORT_OK, xport_listen(a, "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		ASSERT_EQ(XPORT_OK, xport_connect(b, name, nullptr, 0, &peer));
		accept(listener, b, peer, &ep);
		ASSERT_EQ(XPORT_OK, xport_connect(c, name, nullptr, 0, &hostile));
		accept(listener, c, hostile, &other);
		ASSERT_EQ(XPORT_EP_OPEN, state_of(ep)) << backend << logged;
		ASSERT_EQ(XPORT_EP_OPEN, state_of(other)) << backend << logged;
	}
	/* Until both ends are open. */
	void accept(xport_listener *listener, xport *x, xport_ep *client, xport_ep **out)
	{
		auto end = steady_clock::now() + seconds(30);

		while (steady_clock::now() < end && (*out == nullptr || state_of(client) == XPORT_EP_CONNECTING)) {
			EXPECT_GE(xport_poll(x, nullptr, 0), 0);
			if (*out == nullptr)
				(void)!xport_accept(listener, 1, out);
			else
				poll_all(1);
		}
		ASSERT_NE(nullptr, *out) << logged;
		ASSERT_EQ(XPORT_EP_OPEN, state_of(client)) << logged;
	}
	static int state_of(xport_ep *e)
	{
		xport_ep_info info{};

		info.size = sizeof(info);
		EXPECT_EQ(XPORT_OK, xport_ep_query(e, &info));
		return info.state;
	}
	/* Until a's message is there, or so many times. */
	bool poll_all(int times)
	{
		xport_completion done;
		bool came = false;

		for (int i = 0; i < times && !came; i++) {
			EXPECT_GE(xport_poll(b, nullptr, 0), 0);
			EXPECT_GE(xport_poll(c, nullptr, 0), 0);
			came = xport_poll(a, &done, 1) == 1 && done.type == XPORT_OP_RECV && done.status == XPORT_OK;
		}
		return came;
	}
	/* The victim's peer sends, and that is what arrives. */
	void good_message(uint64_t word, const std::string &what)
	{
		uint64_t got = 0;

		ASSERT_EQ(XPORT_OK, xport_recv(a, &got, sizeof(got), 7, UINT64_MAX, nullptr)) << what;
		ASSERT_EQ(XPORT_OK, xport_send(peer, &word, sizeof(word), 7, nullptr)) << what;
		auto end = steady_clock::now() + seconds(30);
		bool came = false;
		while (!came && steady_clock::now() < end)
			came = poll_all(100);
		ASSERT_TRUE(came) << what << logged;
		EXPECT_EQ(word, got) << what;
	}
	/* The other peer sends in the victim's name, until something has come of it. */
	void attack(const std::string &what)
	{
		uint64_t word = 666;
		auto end = steady_clock::now() + seconds(30);

		ASSERT_EQ(XPORT_OK, xport_send(hostile, &word, sizeof(word), 7, nullptr)) << what;
		while (steady_clock::now() < end && inside_strays(a) == 0 && state_of(other) == XPORT_EP_OPEN)
			poll_all(10);
		xport_counters n{};
		n.size = sizeof(n);
		EXPECT_EQ(XPORT_OK, xport_stats(a, nullptr, &n));
		EXPECT_EQ(0u, n.unmatched) << what << " delivered it";
		EXPECT_EQ(XPORT_EP_OPEN, state_of(ep)) << what << logged;
	}
	void part()
	{
		TearDown();
		a = b = c = nullptr;
		ep = peer = other = hostile = nullptr;
		logged.clear();
	}
	void TearDown() override
	{
		xport_close(c);
		c = nullptr;
		Inside::TearDown();
		a = b = nullptr;
	}
	static Bytes message()
	{
		xpi_rec_send s{};

		s.r = record(XPI_REC_SEND, 8);
		s.tag = htole64(7);
		return bytes(s, 8);
	}
};

/* Where the network, or its library, does not say who sent a frame. */
static bool anonymous(const std::string &name)
{
	for (const char *part : {"ucx", "ofi:shm", "rxm", "rxd", "udp"})
		if (name.find(part) != std::string::npos)
			return true;
	return false;
}

TEST_F(HostilePeer, IsEndedOrItsFramesAreDroppedOverEachProvider)
{
	static xport_candidate list[64];
	int n = xport_list(nullptr, list, sizeof(list[0]), 64), tried = 0;

	for (int i = 0; i < n && i < 64; i++) {
		std::string name = list[i].name;

		if (list[i].state != XPORT_READY)
			continue;
		meet(name.c_str());
		if (HasFatalFailure())
			return;
		good_message(1, name);
		/* With the right session where that does not help: else by a guess. */
		inside_pretend(hostile, ep, anonymous(name) ? 1 : 0);
		attack(name);
		if (anonymous(name)) {
			EXPECT_EQ(1u, inside_strays(a)) << name;
			EXPECT_EQ(XPORT_EP_OPEN, state_of(other)) << name << logged;
		} else {
			EXPECT_EQ(XPORT_EP_LOST, state_of(other)) << name;
			EXPECT_NE(std::string::npos, logged.find("XP-0010")) << name << logged;
		}
		good_message(2, name);
		part();
		tried++;
	}
	EXPECT_GT(tried, 0);
}

TEST_F(HostilePeer, EndsByAFrameForAnotherEndpointOnItsChannel)
{
	meet("loop:message");
	inside_frame_by(ep, other, 0, message().data(), message().size());
	EXPECT_EQ(XPORT_EP_LOST, state_of(other));
	EXPECT_EQ(XPORT_EP_OPEN, state_of(ep));
	EXPECT_NE(std::string::npos, logged.find("a frame for another endpoint"));
	EXPECT_EQ(0u, inside_strays(a));
	/* It is ending: what else comes on its channel is nobody's any more. */
	inside_frame_by(ep, other, 0, message().data(), message().size());
	EXPECT_EQ(XPORT_EP_OPEN, state_of(ep));
	good_message(3, "loop");
}

/* Over shared memory a peer can still change the second piece of a frame: it may only be the data of one record. */
TEST_F(HostilePeer, EndsByARecordInTheSecondPiece)
{
	Bytes two = message(), more = message();

	two.insert(two.end(), more.begin(), more.end());
	for (size_t cut : {more.size(), more.size() + 8, two.size()}) {
		meet("loop:message");
		inside_frame_cut(other, message().data(), message().size(), 8);
		EXPECT_EQ(XPORT_EP_OPEN, state_of(other)) << logged;
		inside_frame_cut(other, two.data(), two.size(), cut);
		EXPECT_EQ(XPORT_EP_LOST, state_of(other)) << cut;
		EXPECT_NE(std::string::npos, logged.find("a damaged frame")) << cut;
		part();
	}
}

TEST_F(HostilePeer, EndsByARunt)
{
	meet("loop:message");
	inside_runt(other, false);
	EXPECT_EQ(XPORT_EP_OPEN, state_of(other));
	EXPECT_EQ(1u, inside_strays(a));
	inside_runt(other, true);
	EXPECT_EQ(XPORT_EP_LOST, state_of(other));
	EXPECT_NE(std::string::npos, logged.find("shorter than"));
}

/* Each bit counts, and the log warns of the 64th, the 128th and so on. */
TEST_F(HostilePeer, GuessesAreDroppedCountedAndTold)
{
	meet("loop:message");
	for (unsigned i = 0; i < 1000; i++) {
		inside_frame_by(ep, nullptr, UINT64_C(1) << i % 64, message().data(), message().size());
		EXPECT_EQ(i + 1, inside_strays(a));
		EXPECT_EQ(i + 1 >= 64, logged.find("XP-0025") != std::string::npos) << i;
	}
	size_t lines = 0;
	for (size_t at = 0; (at = logged.find("XP-0025", at)) != std::string::npos; at++)
		lines++;
	EXPECT_EQ(4u, lines) << logged;
	EXPECT_EQ(XPORT_EP_OPEN, state_of(ep));
	good_message(4, "loop");
}

/* What was under way when an endpoint ended is no guess. */
TEST_F(HostilePeer, LateFramesAreNoGuesses)
{
	Bytes late = message();

	meet("loop:message");
	uint32_t id = inside_id(ep);
	uint64_t session = inside_session(ep);
	xport_ep_destroy(ep);
	inside_frame_late(a, id, session, late.data(), late.size());
	poll_all(10);
	inside_frame_late(a, id, session, late.data(), late.size());
	EXPECT_EQ(0u, inside_strays(a));
	inside_frame_late(a, id, session + 1, late.data(), late.size());
	EXPECT_EQ(1u, inside_strays(a));
	ep = nullptr;
}
