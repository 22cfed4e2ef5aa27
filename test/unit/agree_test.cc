/* SPDX-License-Identifier: BSD-3-Clause */
/* agree_test.cc - which transport two sides agree on, and what they say of the others. */
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/cm/agree.h"
}

namespace
{

/* "ucx:shm" shares memory, "verbs" and "verbs:X" take any provider, a "!" in front has failed. */
xpi_hello side(const std::vector<std::string> &names, const char *boot_id = "one")
{
	xpi_hello h{};

	h.wire_version = XPI_WIRE_VERSION;
	strcpy(h.library, "0.1.0");
	strcpy(h.boot_id, boot_id);
	h.pid_ns = 1;
	h.shm_fs = 1;
	for (std::string name : names) {
		xpi_offer *o = &h.offers[h.noffers++];
		bool failed = name[0] == '!';
		std::string backend, provider;

		name = failed ? name.substr(1) : name;
		backend = name.substr(0, name.find(':'));
		provider = name.find(':') == std::string::npos ? "" : name.substr(name.find(':') + 1);
		strcpy(o->backend, backend.c_str());
		strcpy(o->provider, provider.c_str());
		o->flags = failed ? XPI_OFFER_FAILED : 0;
		if (failed)
			strcpy(o->device, "no such device");
		if (provider == "shm")
			o->flags |= XPI_OFFER_SHARED;
		if (provider.empty() || backend == "verbs")
			o->flags |= XPI_OFFER_ANY;
	}
	return h;
}

std::string name(const xpi_hello &h, unsigned i)
{
	char buf[72];

	return xpi_offer_name(&h.offers[i], buf, sizeof(buf));
}

/* The client's names of all pairs, the best first. */
std::vector<std::string> agreed(const xpi_hello &client, const xpi_hello &server)
{
	xpi_agreement a;
	std::vector<std::string> names;

	xpi_agree(&client, &server, &a);
	for (int i = 0; i < a.n; i++)
		names.push_back(name(client, a.pairs[i].client));
	return names;
}

using Names = std::vector<std::string>;

std::string passed(const xpi_hello &ours, unsigned i, const xpi_hello &theirs, unsigned chosen)
{
	char text[256];

	bool offered = xpi_agree_passed(&ours, i, &theirs, chosen, text, sizeof(text));
	EXPECT_EQ(offered, text[0] != '\0');
	return text;
}

} // namespace

TEST(Agree, TheFirstCommonOneIsFirst)
{
	EXPECT_EQ((Names{"ucx:shm", "ucx:tcp"}), agreed(side({"ucx:shm", "ucx:tcp"}), side({"ucx:shm", "ucx:tcp"})));
	EXPECT_EQ((Names{"ucx:tcp"}), agreed(side({"ucx:shm", "ucx:tcp"}), side({"ofi:tcp", "ucx:tcp"})));
	EXPECT_EQ((Names{"ofi:tcp"}), agreed(side({"ofi:tcp"}), side({"ucx:shm", "ucx:tcp", "ofi:tcp"})));
	EXPECT_EQ(Names{}, agreed(side({"ucx:tcp"}), side({"ofi:tcp"})));
	EXPECT_EQ(Names{}, agreed(side({}), side({"ofi:tcp"})));
}

/* Both lists count; where they contradict each other, the client's order decides. */
TEST(Agree, BothOrdersCount)
{
	EXPECT_EQ((Names{"ucx:tcp", "ofi:tcp"}), agreed(side({"ucx:tcp", "ofi:tcp"}), side({"ofi:tcp", "ucx:tcp"})));
	EXPECT_EQ((Names{"ofi:tcp", "ucx:tcp"}), agreed(side({"ofi:tcp", "ucx:tcp"}), side({"ucx:tcp", "ofi:tcp"})));
	EXPECT_EQ((Names{"ofi:tcp", "ucx:tcp"}),
	          agreed(side({"ucx:tcp", "ofi:tcp"}), side({"ofi:tcp", "ofi:net", "ucx:tcp"})));
}

/* Both sides compute it from the same two HELLOs: the order of the pairs does not depend on who asks. */
TEST(Agree, IsAFunctionOfBothHellos)
{
	std::vector<Names> lists = {{"ucx:tcp"},
	                            {"ucx:tcp", "ofi:tcp"},
	                            {"ofi:tcp", "ucx:tcp"},
	                            {"ucx:shm", "verbs", "ucx:tcp"},
	                            {"verbs:rxe0", "verbs:siw0", "ofi"}};

	for (const Names &a : lists) {
		for (const Names &b : lists) {
			xpi_agreement one, two, back;

			xpi_hello client = side(a), server = side(b);
			xpi_agree(&client, &server, &one);
			xpi_agree(&client, &server, &two);
			ASSERT_EQ(0, memcmp(&one, &two,
			                    offsetof(xpi_agreement, pairs) + size_t(one.n) * sizeof(one.pairs[0])));
			xpi_agree(&server, &client, &back);
			EXPECT_EQ(one.n, back.n) << "what is common is common both ways";
			for (int i = 0; i < one.n; i++) {
				char why[256];

				EXPECT_EQ(XPORT_OK, xpi_agree_fits(&server, one.pairs[i].server, &client,
				                                   one.pairs[i].client, why, sizeof(why)));
			}
		}
	}
}

/* Both have a directory: the PID namespaces may differ, but not the hosts, and not the directories. */
TEST(Agree, MemoryIsPassedBetweenContainers)
{
	xpi_hello a = side({"shm:ring", "ucx:tcp"}), b = a, c;
	auto why = [](const xpi_hello &ours, const xpi_hello &theirs) { return passed(ours, 0, theirs, 1); };

	a.offers[0].flags = b.offers[0].flags = XPI_OFFER_SHARED;
	b.pid_ns = b.shm_fs = 2;
	EXPECT_EQ((Names{"ucx:tcp"}), agreed(a, b));
	a.offers[0].flags |= XPI_OFFER_PASSED;
	EXPECT_EQ((Names{"ucx:tcp"}), agreed(a, b));
	EXPECT_NE(std::string::npos, why(a, b).find("only the process here has XPORT_SHM_DIR")) << why(a, b);
	EXPECT_NE(std::string::npos, why(b, a).find("only the process there has XPORT_SHM_DIR")) << why(b, a);
	b.offers[0].flags |= XPI_OFFER_PASSED;
	EXPECT_EQ((Names{"shm:ring", "ucx:tcp"}), agreed(a, b));
	c = b;
	strcpy(a.offers[0].protocol, "shm-ring 2 in 5:1");
	strcpy(c.offers[0].protocol, "shm-ring 2 in 5:2");
	EXPECT_EQ((Names{"ucx:tcp"}), agreed(a, c));
	EXPECT_NE(std::string::npos, why(a, c).find("not the same directory")) << why(a, c);
	strcpy(b.boot_id, "two");
	EXPECT_EQ((Names{"ucx:tcp"}), agreed(a, b));
}

TEST(Agree, MemoryIsSharedWithinOneHostOnly)
{
	Names all = {"ucx:shm", "ucx:tcp"};
	xpi_hello a = side(all), b = side(all, "two");

	EXPECT_EQ((Names{"ucx:tcp"}), agreed(a, b));
	EXPECT_NE(std::string::npos, passed(a, 0, b, 1).find("different hosts")) << passed(a, 0, b, 1);
	b = side(all);
	b.pid_ns = 2;
	EXPECT_EQ((Names{"ucx:tcp"}), agreed(a, b));
	EXPECT_NE(std::string::npos, passed(a, 0, b, 1).find("different PID namespaces"));
	b = side(all);
	b.shm_fs = 2;
	EXPECT_EQ((Names{"ucx:tcp"}), agreed(a, b));
	EXPECT_NE(std::string::npos, passed(a, 0, b, 1).find("different /dev/shm"));
	/* An unknown protocol does not decide: the stack finds out. */
	b = side(all, "");
	EXPECT_EQ(all, agreed(a, b));
	b = side(all);
	b.pid_ns = b.shm_fs = 0;
	EXPECT_EQ(all, agreed(a, b));
}

/* Where nothing else is possible, a stack that can do without a common /dev/shm is not refused for it. */
TEST(Agree, AnotherDevShmDoesNotRefuseTheOnlyTransport)
{
	xpi_hello a = side({"ucx:shm"}), b = side({"ucx:shm"});

	b.shm_fs = 2;
	EXPECT_EQ((Names{"ucx:shm"}), agreed(a, b));
}

/* Nor is shm, which has no files there, whatever else is possible. */
TEST(Agree, AnotherDevShmDoesNotRefuseMemoryWithoutFiles)
{
	xpi_hello a = side({"shm:ring", "ucx:tcp"}), b = a;

	a.offers[0].flags = b.offers[0].flags = XPI_OFFER_SHARED;
	b.shm_fs = 2;
	EXPECT_EQ((Names{"shm:ring", "ucx:tcp"}), agreed(a, b));
}

TEST(Agree, DevicesMayHaveOtherNames)
{
	xpi_hello a = side({"verbs:rxe0"}), b = side({"verbs:mlx5_0"});

	EXPECT_EQ((Names{"verbs:rxe0"}), agreed(a, b));
	/* Each with each: only the protocol tells RoCE from iWARP. */
	a = side({"verbs:rxe0", "verbs:siw0"});
	b = side({"verbs:siw1", "verbs:rxe1"});
	EXPECT_EQ(4u, agreed(a, b).size());
	strcpy(a.offers[0].protocol, "verbs-am 2 / RoCE");
	strcpy(a.offers[1].protocol, "verbs-am 2 / iWARP");
	strcpy(b.offers[0].protocol, "verbs-am 2 / iWARP");
	strcpy(b.offers[1].protocol, "verbs-am 2 / RoCE");
	EXPECT_EQ((Names{"verbs:rxe0", "verbs:siw0"}), agreed(a, b));
}

/* "ofi" alone may turn out to be another provider: what is certain comes first. */
TEST(Agree, AnOpenQuestionComesLast)
{
	EXPECT_EQ((Names{"ofi:tcp", "ofi"}), agreed(side({"ofi", "ofi:tcp"}), side({"ofi:tcp"})));
	EXPECT_EQ((Names{"ofi"}), agreed(side({"ofi"}), side({"ofi"})));
	EXPECT_EQ((Names{"ofi"}), agreed(side({"ofi"}), side({"ofi:sockets"})));
}

TEST(Agree, WhatFailedIsNotTaken)
{
	xpi_hello a = side({"!ucx:shm", "ucx:tcp", "ofi:tcp"}), b = side({"ucx:shm", "!ucx:tcp", "ofi:tcp"});

	EXPECT_EQ((Names{"ofi:tcp"}), agreed(a, b));
	EXPECT_EQ("not usable here: no such device", passed(a, 0, b, 2));
	EXPECT_EQ("the peer cannot use it: no such device", passed(a, 1, b, 2));
}

TEST(Agree, EveryReasonOfPassingOver)
{
	xpi_hello a = side({"verbs", "ofi:tcp", "ucx:tcp"}), b = side({"ucx:tcp", "ofi:net", "ofi:sockets", "ofi:tcp"});

	EXPECT_EQ("", passed(a, 0, b, 2)) << "the peer does not offer it";
	EXPECT_EQ("the peer prefers ucx:tcp", passed(a, 1, b, 2));
	strcpy(a.offers[1].protocol, "msg 1");
	strcpy(b.offers[3].protocol, "msg 2");
	EXPECT_EQ("protocol there \"msg 2\", here \"msg 1\"", passed(a, 1, b, 2));
}

TEST(Agree, NothingInCommonListsBothSides)
{
	xpi_hello a = side({"ucx:shm", "ucx:tcp"}), b = side({"ofi:tcp", "verbs"});
	const char *hint = nullptr;
	char text[600];

	EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, xpi_agree_none(&a, &b, text, sizeof(text), &hint));
	EXPECT_EQ(0, strncmp(text, "the peer runs ofi:tcp + verbs (", 31)) << text;
	EXPECT_NE(nullptr, strstr(text, "this side ucx:shm + ucx:tcp (")) << text;
	EXPECT_NE(nullptr, strstr(hint, "XPORT_BACKEND")) << hint;
	/* Only memory would have been common. */
	b = side({"ucx:shm"}, "two");
	EXPECT_EQ(XPORT_ERR_UNREACHABLE, xpi_agree_none(&a, &b, text, sizeof(text), &hint));
	EXPECT_NE(nullptr, strstr(text, "different hosts, and ucx:shm only works within one")) << text;
	/* One version of a stack with another. */
	a = side({"ucx:tcp"});
	b = side({"ucx:tcp"});
	strcpy(a.offers[0].protocol, "ucp-am 1 / 1.13");
	strcpy(b.offers[0].protocol, "ucp-am 1 / 1.14");
	EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, xpi_agree_none(&a, &b, text, sizeof(text), &hint));
	EXPECT_NE(nullptr, strstr(text, "protocol there \"ucp-am 1 / 1.14\", here \"ucp-am 1 / 1.13\"")) << text;
	EXPECT_NE(nullptr, strstr(hint, "same version")) << hint;
	/* Whatever there is room for. */
	for (size_t room : {size_t(1), size_t(20), size_t(600)}) {
		text[0] = 'x';
		xpi_agree_none(&a, &b, text, room, &hint);
		EXPECT_LT(strnlen(text, room), room);
	}
}

/* 16 devices with 16: more pairs than are kept, and the best are. */
TEST(Agree, ManyPairsKeepTheBest)
{
	Names names;
	xpi_agreement a;

	for (int i = 0; i < XPI_OFFERS_MAX; i++)
		names.push_back("verbs:d" + std::to_string(i));
	xpi_hello both = side(names);
	xpi_agree(&both, &both, &a);
	ASSERT_EQ(XPI_PAIRS_MAX, a.n);
	EXPECT_EQ(0, a.pairs[0].client + a.pairs[0].server);
	for (int i = 1; i < a.n; i++)
		EXPECT_LE(a.pairs[i - 1].client + a.pairs[i - 1].server, a.pairs[i].client + a.pairs[i].server);
	EXPECT_LE(a.pairs[a.n - 1].client + a.pairs[a.n - 1].server, 10);
}
