/* SPDX-License-Identifier: BSD-3-Clause */
/* cma_test.cc - long data that the receiver reads from the sender's memory, between two instances of this process. */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "cma_fixture.h"

namespace
{

/* ---- what it is for ---- */

TEST_F(Cma, APutTakesAFewFrames)
{
	agree();
	uint64_t before = frames(ep);

	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG - 5, key, 5, nullptr));
	both(10);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(XPORT_OK, done[0].status);
	EXPECT_TRUE(std::equal(far.begin() + 5, far.end(), here.begin()));
	EXPECT_EQ(0, far[4]);
	EXPECT_LE(frames(ep) - before, 4u);
}

/* The first put asks the peer whether it can read. It waits for the answer, and does not leave in frames meanwhile. */
TEST_F(Cma, TheFirstPutTakesAFewFrames)
{
	begin();
	uint64_t before = frames(ep);

	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, nullptr));
	both(20);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(here, far);
	EXPECT_LE(frames(ep) - before, 5u);
}

TEST_F(Cma, DumpNamesThePath)
{
	under_way();
	logged.clear();
	xport_dump(a);
	EXPECT_NE(std::string::npos, logged.find("  put (1) of 1048576 bytes, by CMA, ")) << logged;
	both(10);
	ASSERT_EQ(1u, done.size());
}

TEST_F(Cma, AGetTakesAFewFrames)
{
	begin();
	far = here;
	Bytes got(LONG);
	for (int i = 0; i < 2; i++) { /* with the first it is asked for */
		uint64_t before = frames(peer);

		std::fill(got.begin(), got.end(), uint8_t{0});
		ASSERT_EQ(XPORT_OK, xport_get(ep, got.data(), LONG, key, 0, nullptr));
		both(600);
		ASSERT_EQ(1u, done.size());
		EXPECT_EQ(XPORT_OK, done[0].status);
		EXPECT_EQ(here, got);
		if (i == 1) {
			EXPECT_LE(frames(peer) - before, 4u);
		}
		done.clear();
	}
	/* Each is over, and does not count against what may be asked for at a time. */
	for (uint32_t i = 0; i <= inside_requests(); i++) {
		done.clear();
		ASSERT_EQ(XPORT_OK, xport_get(ep, got.data(), LONG / 32, key, 0, nullptr));
		both(8);
		ASSERT_EQ(1u, done.size()) << logged;
	}
	EXPECT_EQ(XPORT_OK, xport_mr_dereg(far_mr)) << "nothing is served any more";
}

TEST_F(Cma, AMessageTakesAFewFrames)
{
	agree();
	for (size_t room : {LONG, LONG / 2, LONG + 1}) {
		uint64_t before = frames(ep);
		Bytes into(room);

		ASSERT_EQ(XPORT_OK, xport_recv(b, into.data(), room, 1, UINT64_MAX, nullptr));
		ASSERT_EQ(XPORT_OK, xport_send(ep, here.data(), LONG, 1, nullptr));
		both(20);
		ASSERT_EQ(1u, done.size());
		ASSERT_EQ(1u, theirs.size());
		EXPECT_EQ(XPORT_OK, done[0].status);
		EXPECT_EQ(room < LONG ? XPORT_ERR_TRUNCATED : XPORT_OK, theirs[0].status);
		EXPECT_EQ(LONG, theirs[0].length);
		EXPECT_TRUE(
			std::equal(here.begin(), here.begin() + static_cast<long>(std::min(room, LONG)), into.begin()));
		EXPECT_LE(frames(ep) - before, 6u);
		done.clear();
		theirs.clear();
	}
}

/* The last piece is as short as what otherwise goes in a frame, and comes after a pause for the peer to catch up. */
TEST_F(Cma, AShortRestWaitsForWhatWasBeforeIt)
{
	agree();
	Bytes much((4 << 20) + 3, 9), into(much.size());

	ASSERT_EQ(XPORT_OK, xport_recv(b, into.data(), into.size(), 1, UINT64_MAX, nullptr));
	ASSERT_EQ(XPORT_OK, xport_send(ep, much.data(), much.size(), 1, nullptr));
	for (int i = 0; i < 100 && done.empty(); i++) {
		poll_a();
		if (!done.empty()) {
			EXPECT_EQ(into, much) << "the buffer was given back before it was read";
		}
		poll_b();
	}
	ASSERT_EQ(1u, done.size());
	ASSERT_EQ(1u, theirs.size());
	EXPECT_EQ(XPORT_OK, theirs[0].status);
	EXPECT_EQ(much, into);
}

/* XPORT_LOCAL and XPORT_QUIET promise the buffer, and it is read until the peer says so. */
TEST_F(Cma, ALocalPutIsDoneWhenItWasRead)
{
	agree();
	xport_opt o = context(this);
	o.flags = XPORT_LOCAL;
	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, &o));
	for (int i = 0; i < 10; i++)
		poll_a();
	EXPECT_TRUE(done.empty());
	both(10);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(here, far);
}

TEST_F(Cma, AFlushWaitsForAQuietPut)
{
	agree();
	xport_opt o = context(this);
	o.flags = XPORT_QUIET;
	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, &o));
	ASSERT_EQ(XPORT_OK, xport_flush(ep, nullptr));
	for (int i = 0; i < 10; i++)
		poll_a();
	EXPECT_TRUE(done.empty());
	both(10);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_FLUSH), done[0].type);
	EXPECT_EQ(XPORT_OK, done[0].status);
	EXPECT_EQ(here, far);
}

TEST_F(Cma, ANotificationComesAfterItsData)
{
	agree();
	xport_opt o = context(this);
	o.value = 77;
	ASSERT_EQ(XPORT_OK, xport_put_notify(ep, here.data(), LONG, key, 0, &o));
	for (int i = 0; i < 20 && theirs.empty(); i++)
		both(1);
	ASSERT_EQ(1u, theirs.size());
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_NOTIFY), theirs[0].type);
	EXPECT_EQ(77u, theirs[0].tag);
	EXPECT_EQ(here, far);
}

/* How long data has to be is the back end's to say: 16 KiB here. */
TEST_F(Cma, ShorterDataGoesInFrames)
{
	constexpr size_t MIN = 16 << 10;

	agree();
	for (size_t len : {MIN - 1, MIN}) {
		uint64_t before = frames(ep);

		ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), len, key, 0, nullptr));
		both(20);
		ASSERT_EQ(1u, done.size());
		EXPECT_EQ(len<MIN, frames(ep) - before> 1) << len;
		EXPECT_TRUE(std::equal(here.begin(), here.begin() + static_cast<long>(len), far.begin()));
		done.clear();
	}
}

/* What finds no place goes in frames; and the places are free again afterwards. */
TEST_F(Cma, MoreAtATimeThanTheOutboxHolds)
{
	constexpr size_t PIECE = 16 << 10, EACH = 300, ENDPOINTS = 17;
	std::vector<xport_ep *> eps = {};
	std::vector<xport_rkey *> keys;
	uint32_t offered = 0;

	agree();
	eps.push_back(ep);
	keys.push_back(key);
	while (eps.size() < ENDPOINTS) {
		ep = more();
		ASSERT_NE(nullptr, ep);
		key = key_at(ep);
		talk_until_it_is_read();
		eps.push_back(ep);
		keys.push_back(key);
	}
	for (size_t e = 0; e < ENDPOINTS; e++) {
		for (size_t i = 0; i < EACH; i++) {
			size_t at = i % 64 * PIECE;
			xport_opt o = context(&here[at]);

			ASSERT_EQ(XPORT_OK, xport_put(eps[e], &here[at], PIECE, keys[e], at, &o));
		}
		poll_a();
		offered += inside_offered(eps[e]);
		if (e == 0) {
			EXPECT_EQ(256u, offered) << "one endpoint takes what a round is, and no more";
		}
	}
	EXPECT_EQ(4095u, offered) << "so many have a place";
	for (int i = 0; i < 20000 && done.size() < EACH * ENDPOINTS; i++)
		both(1);
	EXPECT_EQ(EACH * ENDPOINTS, done.size());
	EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](auto &c) { return c.status == XPORT_OK; }));
	EXPECT_EQ(here, far);
	for (xport_ep *e : eps)
		EXPECT_EQ(0u, inside_offered(e));
	for (int i = 0; i < 5000; i++) {
		uint64_t before = frames(eps[0]);
		ASSERT_EQ(XPORT_OK, xport_put(eps[0], here.data(), PIECE, keys[0], 0, nullptr));
		both(3);
		ASSERT_LE(frames(eps[0]) - before, 1u) << i;
	}
}

TEST_F(Cma, NotWhereItIsTurnedOff)
{
	for (const char *emulate : {"cma", "all"}) {
		begin(emulate);
		ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, nullptr));
		Bytes got(LONG);
		both(600);
		ASSERT_EQ(1u, done.size());
		EXPECT_EQ(here, far);
		EXPECT_EQ(std::string::npos, logged.find("XP-0017")) << logged;
		/* It does not read, either. */
		far = here;
		ASSERT_EQ(XPORT_OK, xport_get(ep, got.data(), LONG, key, 0, nullptr));
		both(600);
		EXPECT_EQ(here, got);
		EXPECT_NE(std::string::npos, logged.find("the peer cannot read our memory")) << logged;
		again();
	}
}

TEST_F(Cma, NotForAnotherUser)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root, to become another user";
	begin();
	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, nullptr));
	poll_a();
	ASSERT_EQ(0, seteuid(65534));
	poll_b();
	ASSERT_EQ(0, seteuid(0));
	both(600);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(here, far);
	EXPECT_NE(std::string::npos, logged.find("cannot read its memory: Permission denied")) << logged;
	EXPECT_NE(std::string::npos, logged.find("the peer cannot read our memory")) << logged;
}

/* As a device's: the processor reads it, the kernel does not for others. */
TEST_F(Cma, NotFromMemoryThatIsNotRead)
{
#ifdef SYS_memfd_secret
	int fd = static_cast<int>(syscall(SYS_memfd_secret, 0));
#else
	int fd = -1;
#endif
	if (fd < 0)
		GTEST_SKIP() << "the kernel has no memfd_secret";
	ASSERT_EQ(0, ftruncate(fd, LONG));
	auto *secret = static_cast<uint8_t *>(mmap(nullptr, LONG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	close(fd);
	if (secret == MAP_FAILED)
		GTEST_SKIP() << "memory that may not be swapped is limited to less (ulimit -l)";
	agree();
	uint64_t before = frames(ep);
	std::copy(here.begin(), here.end(), secret);
	ASSERT_EQ(XPORT_OK, xport_put(ep, secret, LONG, key, 0, nullptr));
	both(600);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(XPORT_OK, done[0].status);
	EXPECT_EQ(here, far);
	EXPECT_GT(frames(ep) - before, 30u) << "in frames";
	munmap(secret, LONG);
}

/* ---- turns ---- */

/* A body goes on and on; what else this side wants has its turn all the same. */
TEST_F(Cma, APutOvertakesALongMessage)
{
	constexpr size_t BIG = 64 << 20;
	agree();
	Bytes body(BIG, 3), into(BIG);
	xport_opt o = context(this);

	ASSERT_EQ(XPORT_OK, xport_recv(b, into.data(), BIG, 1, UINT64_MAX, nullptr));
	ASSERT_EQ(XPORT_OK, xport_send(ep, body.data(), BIG, 1, nullptr));
	both(4);
	ASSERT_TRUE(done.empty());
	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, &o));
	for (int i = 0; i < 400 && done.empty(); i++)
		both(1);
	ASSERT_FALSE(done.empty());
	EXPECT_EQ(this, done[0].context) << "the message was the first to be done";
	EXPECT_TRUE(theirs.empty());
	EXPECT_EQ(here, far);
	for (int i = 0; i < 400 && theirs.empty(); i++)
		both(1);
	EXPECT_EQ(body, into);
}

TEST_F(Cma, AShortGetOvertakesALongMessage)
{
	constexpr size_t BIG = 64 << 20;
	agree();
	Bytes body(BIG, 3), into(BIG), source(64 << 10, 5), got(64 << 10);
	xport_rkey *back = share(source);

	ASSERT_EQ(XPORT_OK, xport_recv(b, into.data(), BIG, 1, UINT64_MAX, nullptr));
	ASSERT_EQ(XPORT_OK, xport_send(ep, body.data(), BIG, 1, nullptr));
	both(4);
	theirs.clear();
	ASSERT_EQ(XPORT_OK, xport_get(peer, got.data(), got.size(), back, 0, nullptr));
	for (int i = 0; i < 400 && theirs.empty(); i++)
		both(1);
	ASSERT_FALSE(theirs.empty());
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_GET), theirs[0].type);
	EXPECT_EQ(source, got);
	for (int i = 0; i < 400 && theirs.size() < 2; i++)
		both(1);
	EXPECT_EQ(body, into);
}

} // namespace
