/* SPDX-License-Identifier: BSD-3-Clause */
/* Tag matching against a model that walks lists, while the tables grow. */
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <random>

#include "match_shim.h"

namespace
{

struct Receive {
	int id, peer;
	uint64_t tag, mask;
};

struct Message {
	int id, peer;
	uint64_t tag;
};

bool fits(const Receive &r, const Message &m)
{
	return (r.peer == SHIM_ANY || r.peer == m.peer) && ((r.tag ^ m.tag) & r.mask) == 0;
}

/* Posted receives in order, messages in order: the oldest that fits. */
struct Model {
	std::list<Receive> receives;
	std::list<Message> messages;

	int receive(const Receive &r)
	{
		for (auto m = messages.begin(); m != messages.end(); ++m)
			if (fits(r, *m)) {
				int id = m->id;

				messages.erase(m);
				return id;
			}
		receives.push_back(r);
		return SHIM_NONE;
	}

	int message(const Message &m)
	{
		for (auto r = receives.begin(); r != receives.end(); ++r)
			if (fits(*r, m)) {
				int id = r->id;

				receives.erase(r);
				return id;
			}
		messages.push_back(m);
		return SHIM_NONE;
	}
};

struct Free {
	void operator()(match_shim *s) { match_shim_free(s); }
};

/* How many tags and peers; how often a receive names one exact tag; how often its peer; how many other masks there are. */
struct Mix {
	unsigned tags;
	int peers;
	unsigned exact, sourced, masks;
};

/* More than have a table of their own at a time. */
const uint64_t masks[] = {~UINT64_C(3), 0, 1, 2, 4, 6, 8, 0xf, 0x10, ~UINT64_C(1), 0xf0, UINT64_MAX >> 1};

class Match : public testing::TestWithParam<Mix>
{
protected:
	std::mt19937 random{42};
	std::unique_ptr<match_shim, Free> s{match_shim_new(8)};
	Model model;
	int next = 0;

	unsigned upto(unsigned n) { return random() % n; }

	void receive()
	{
		const Mix &mix = GetParam();
		bool exact = upto(100) < mix.exact;
		int peer =
			upto(100) < mix.sourced ? static_cast<int>(upto(static_cast<unsigned>(mix.peers))) : SHIM_ANY;
		Receive r = {next++, peer, upto(mix.tags), exact ? UINT64_MAX : masks[upto(mix.masks)]};

		ASSERT_EQ(model.receive(r), match_shim_receive(s.get(), r.id, r.peer, r.tag, r.mask))
			<< "receive " << r.id;
	}

	void message()
	{
		Message m = {next++, static_cast<int>(upto(static_cast<unsigned>(GetParam().peers))),
		             upto(GetParam().tags)};

		ASSERT_EQ(model.message(m), match_shim_message(s.get(), m.id, m.peer, m.tag)) << "message " << m.id;
	}

	/* A random one of the posted receives, found by walking a few. */
	void cancel()
	{
		auto r = model.receives.begin();

		if (r == model.receives.end())
			return;
		for (unsigned n = upto(5); n > 0 && std::next(r) != model.receives.end(); n--)
			++r;
		match_shim_cancel(s.get(), r->id);
		model.receives.erase(r);
	}

	void forget()
	{
		int peer = static_cast<int>(upto(static_cast<unsigned>(GetParam().peers)));
		int n = 0;

		for (const Message &m : model.messages)
			n += m.peer == peer;
		ASSERT_EQ(static_cast<uint64_t>(n), match_shim_waiting(s.get(), peer));
		ASSERT_EQ(n, match_shim_forget(s.get(), peer));
		model.messages.remove_if([=](const Message &m) { return m.peer == peer; });
	}
};

/* Waves: first mostly receives, then mostly messages, each high enough for tables to grow. */
TEST_P(Match, AsTheModel)
{
	for (int wave = 0; wave < 8; wave++)
		for (int i = 0; i < 3000 && !HasFatalFailure(); i++) {
			unsigned what = upto(1000);

			if (what < 5)
				cancel();
			else if (what < 6)
				forget();
			else if (what % 8 < (wave % 2 == 0 ? 7U : 1U))
				receive();
			else
				message();
		}
	EXPECT_EQ(model.messages.size(), match_shim_waiting(s.get(), SHIM_ANY));
}

/* Messages are sorted by their senders only once a receive names one: those that wait by then, and those that come later. */
TEST_P(Match, MessagesBeforeTheFirstReceive)
{
	for (int i = 0; i < 3000; i++)
		message();
	for (int i = 0; i < 6000 && !HasFatalFailure(); i++)
		upto(4) == 0 ? message() : receive();
	forget();
	EXPECT_EQ(model.messages.size(), match_shim_waiting(s.get(), SHIM_ANY));
}

// Each tag times the multiplier of an unkeyed hash is a small number, so that all of them would share one list.
TEST(MatchKey, PreparedTagsDoNotShareAList)
{
	const uint64_t multiplier = 0x9e3779b97f4a7c15;
	const int n = 100000;
	struct match_shim *s = match_shim_new(1);
	uint64_t inverse = 1;

	for (int i = 0; i < 6; i++)
		inverse *= 2 - multiplier * inverse;
	ASSERT_EQ(multiplier * inverse, 1u);
	for (int i = 0; i < n; i++)
		ASSERT_EQ(match_shim_message(s, i, 0, static_cast<uint64_t>(i) * inverse), SHIM_NONE);
	EXPECT_LT(match_shim_longest(s), 100u);
	for (int i = 0; i < n; i++)
		ASSERT_EQ(match_shim_receive(s, i, SHIM_ANY, static_cast<uint64_t>(i) * inverse, UINT64_MAX), i);
	match_shim_free(s);
}

TEST(MatchKey, TagsInSequenceDoNotShareAList)
{
	struct match_shim *s = match_shim_new(1);

	for (int i = 0; i < 100000; i++)
		ASSERT_EQ(match_shim_message(s, i, 0, static_cast<uint64_t>(i)), SHIM_NONE);
	EXPECT_LT(match_shim_longest(s), 100u);
	match_shim_free(s);
}

/* Neither do receives with a mask, up to a number of masks, and whichever masks there were before. */
TEST(MatchKey, ReceivesWithAMaskDoNotShareAList)
{
	const int n = 10000;
	struct match_shim *s = match_shim_new(1);

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < n; i++)
			ASSERT_EQ(match_shim_receive(s, i, SHIM_ANY, static_cast<uint64_t>(i) << 32,
			                             UINT64_MAX << (32 - round - i % 8)),
			          SHIM_NONE);
		EXPECT_LT(match_shim_longest(s), 100u) << "round " << round;
		for (int i = n - 1; i >= 0; i--)
			ASSERT_EQ(match_shim_message(s, n + i, 0, static_cast<uint64_t>(i) << 32), i);
	}
	match_shim_free(s);
}

INSTANTIATE_TEST_SUITE_P(Mixes, Match,
                         testing::Values(Mix{4, 2, 80, 50, 1}, Mix{2000, 1, 100, 0, 1}, Mix{2000, 8, 100, 100, 1},
                                         Mix{100, 8, 95, 50, 1}, Mix{1, 8, 100, 50, 1}, Mix{2000, 8, 50, 50, 3},
                                         Mix{60, 4, 20, 30, std::size(masks)}));

} // namespace
