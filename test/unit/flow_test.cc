/* SPDX-License-Identifier: BSD-3-Clause */
/* flow_test.cc - when a data path counts as standing still; the test has its own clock. */
#include <gtest/gtest.h>

#include <cstdlib>

#include "flow_shim.h"

namespace
{

enum { TIMEOUT = 1000, BEAT = TIMEOUT / 4 };

class Flow : public testing::Test
{
protected:
	flow *a = flow_new(), *b = flow_new();
	bool a_polls = true, b_polls = true, a_idle = true, b_idle = true;
	int64_t now = 5000, stands = -1; /* the second: when one of them said so */

	~Flow() override
	{
		free(a);
		free(b);
	}
	/* Each sends a beat, and each owner polls if it does. */
	void beat()
	{
		uint8_t from_a[7], from_b[7];

		flow_say(a, from_a, now);
		flow_say(b, from_b, now + BEAT / 2);
		if (flow_stands(flow_heard(b, from_a, now + 1, TIMEOUT)) && stands < 0)
			stands = now;
		owners();
		now += BEAT / 2;
		if (flow_stands(flow_heard(a, from_b, now + 1, TIMEOUT)) && stands < 0)
			stands = now;
		owners();
		now += BEAT / 2;
	}
	void owners()
	{
		if (a_polls)
			flow_poll(a, a_idle);
		if (b_polls)
			flow_poll(b, b_idle);
	}
	void run(int beats)
	{
		while (beats-- > 0 && stands < 0)
			beat();
	}
};

TEST_F(Flow, AFrameThatDoesNotArriveIsFoundInOneAndAHalfTimeouts)
{
	int64_t from;

	run(20);
	EXPECT_EQ(-1, stands);
	from = now;
	flow_send(a, 1);
	run(20);
	EXPECT_GE(stands, from + TIMEOUT * 3 / 4);
	EXPECT_LE(stands, from + TIMEOUT * 3 / 2);
}

TEST_F(Flow, AControlFrameThatDoesNotArriveIsFoundToo)
{
	flow_send_control(b);
	run(8);
	EXPECT_NE(-1, stands);
}

TEST_F(Flow, WhatArrivesLateIsNoFault)
{
	for (int i = 0; i < 20; i++) {
		flow_send(a, 3);
		flow_send_control(a);
		run(2);
		flow_receive(b, 3);
		flow_receive_control(b);
	}
	run(8);
	EXPECT_EQ(-1, stands);
}

TEST_F(Flow, ALongBacklogThatMovesIsNoFault)
{
	flow_send(a, 1000);
	for (int i = 0; i < 100; i++) {
		run(3);
		flow_receive(b, 1);
	}
	EXPECT_EQ(-1, stands);
	run(8);
	EXPECT_NE(-1, stands) << "until it stops";
}

TEST_F(Flow, AReceiverThatDoesNotPollIsBusy)
{
	flow_send(a, 1);
	b_polls = false;
	run(100);
	EXPECT_EQ(-1, stands);
	b_polls = true;
	flow_receive(b, 1); /* by its first poll */
	run(100);
	EXPECT_EQ(-1, stands);
}

TEST_F(Flow, ASenderThatDoesNotPollIsBusy)
{
	flow_send(a, 1);
	a_polls = false;
	run(100);
	EXPECT_EQ(-1, stands);
}

TEST_F(Flow, OwnersThatPollNowAndThenAreBusy)
{
	flow_send(a, 1);
	for (int i = 0; i < 100; i++) {
		b_polls = i % 3 == 0;
		run(1);
	}
	EXPECT_EQ(-1, stands);
}

TEST_F(Flow, PollsThatFindSomethingAreBusy)
{
	flow_send(a, 1);
	b_idle = false;
	run(100);
	EXPECT_EQ(-1, stands);
	b_idle = true;
	a_idle = false;
	run(100);
	EXPECT_EQ(-1, stands);
}

TEST_F(Flow, NobodyIsAskedWhileFramesArrive)
{
	uint8_t from_a[7], from_b[7];

	for (int i = 0; i < 20; i++) {
		flow_send(a, 1000000);
		flow_say(a, from_a, now);
		flow_receive(b, 1000000);
		flow_say(b, from_b, now);
		EXPECT_FALSE(flow_stands(flow_heard(a, from_b, now, TIMEOUT)));
		EXPECT_FALSE(flow_stands(flow_heard(b, from_a, now, TIMEOUT)));
		EXPECT_FALSE(flow_asked(a));
		EXPECT_FALSE(flow_asked(b));
		now += BEAT;
	}
}

/* The counters are modulo 2^24 on the wire. */
TEST_F(Flow, CountersWrap)
{
	flow_send(a, 0xfffffe);
	flow_receive(b, 0xfffffe);
	run(8);
	flow_send(a, 4);
	flow_receive(b, 4);
	run(8);
	EXPECT_EQ(-1, stands);
	flow_send(a, 1);
	run(8);
	EXPECT_NE(-1, stands);
}

} // namespace
