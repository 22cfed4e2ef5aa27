/* SPDX-License-Identifier: BSD-3-Clause */
/* cma_test.cc - long data that is read out of the sender's memory, between two instances of this process; and what a peer
 * that means harm, or ends, may say of it. */
#include <algorithm>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inside_fixture.h"

namespace
{

constexpr size_t LONG = 1 << 20;

class Cma : public Inside
{
protected:
	Bytes here = Bytes(LONG), far = Bytes(LONG);
	xport_mr *far_mr = nullptr;
	xport_rkey *key = nullptr;
	std::vector<xport_completion> done, theirs;

	void SetUp() override { inside_one_host(true); }
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
		EXPECT_EQ(XPORT_OK, xport_stats(of == ep ? a : b, of, &c));
		return c.frames_out;
	}
	/* The peer has been asked, and has answered. */
	void agree()
	{
		begin();
		ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, nullptr));
		both(600);
		ASSERT_EQ(1u, done.size());
		ASSERT_NE(std::string::npos, logged.find("is read out of our memory")) << logged;
		ASSERT_EQ(here, far);
		done.clear();
		std::fill(far.begin(), far.end(), uint8_t{0});
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
	/* b ends the endpoint for it. */
	void b_breaks(const Bytes &records, const char *what)
	{
		xport_ep_info info{};

		inside_frame(peer, records.data(), records.size(), 0);
		EXPECT_TRUE(std::all_of(far.begin(), far.end(), [](uint8_t v) { return v == 0; })) << what;
		poll_b();
		info.size = sizeof(info);
		EXPECT_EQ(XPORT_OK, xport_ep_query(peer, &info));
		EXPECT_EQ(XPORT_EP_LOST, info.state) << what;
		EXPECT_NE(std::string::npos, logged.find("broke the protocol")) << what << logged;
	}
};

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

TEST_F(Cma, MoreAtATimeThanTheOutboxHolds)
{
	constexpr size_t PIECE = 16 << 10, MANY = 1100;
	agree();
	Bytes much(PIECE * MANY);
	for (size_t i = 0; i < much.size(); i++)
		much[i] = static_cast<uint8_t>(i / PIECE + i);
	Bytes into(much.size());
	for (size_t i = 0; i < MANY; i++) {
		ASSERT_EQ(XPORT_OK, xport_recv(b, &into[i * PIECE], PIECE, i, UINT64_MAX, nullptr));
		ASSERT_EQ(XPORT_OK, xport_send(ep, &much[i * PIECE], PIECE, i, nullptr));
	}
	for (int i = 0; i < 4000 && (done.size() < MANY || theirs.size() < MANY); i++)
		both(1);
	EXPECT_EQ(MANY, done.size());
	EXPECT_EQ(MANY, theirs.size());
	EXPECT_EQ(much, into);
	/* All places are free again. */
	for (size_t i = 0; i < 2 * MANY; i++) {
		uint64_t before = frames(ep);
		ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), PIECE, key, 0, nullptr));
		both(3);
		ASSERT_LE(frames(ep) - before, 1u) << i;
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
		EXPECT_NE(std::string::npos, logged.find("it may not read our memory")) << logged;
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
	EXPECT_NE(std::string::npos, logged.find("its memory cannot be read: Permission denied")) << logged;
	EXPECT_NE(std::string::npos, logged.find("it may not read our memory")) << logged;
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

/* ---- ends ---- */

/* The buffer is the application's again, and what it writes there is not seen by the peer as data. */
TEST_F(Cma, AnOfferIsWithdrawnWithItsEndpoint)
{
	under_way();
	xport_ep_destroy(ep);
	poll_a();
	std::fill(here.begin(), here.end(), uint8_t{0xee});
	poll_b();
	for (int i = 0; i < 200 && theirs.empty(); i++) {
		usleep(1000);
		poll_b();
	}
	ASSERT_EQ(1u, theirs.size());
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_CLOSED), theirs[0].type) << logged;
	EXPECT_EQ(XPORT_ERR_PEER_CLOSED, theirs[0].status);
	EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << logged;
	EXPECT_TRUE(std::all_of(far.begin(), far.end(), [](uint8_t v) { return v == 0; }));
}

/* Another process has come to have the number, or another offer the place: what was read is not the operation's. */
TEST_F(Cma, DataIsNotTakenFromWhoeverHasItsPlace)
{
	static uint8_t elsewhere[64];
	uint8_t box[40];
	uint32_t fd;
	const void *self = elsewhere;
	xport_ep_info info{};

	under_way();
	inside_outbox(ep, box, false);
	memcpy(&fd, box + 28, sizeof(fd));
	ASSERT_EQ(static_cast<ssize_t>(sizeof(self)),
	          pwrite(static_cast<int>(fd), &self, sizeof(self), inside_offer(ep, this) * 64 + 16));
	poll_b();
	info.size = sizeof(info);
	EXPECT_EQ(XPORT_OK, xport_ep_query(peer, &info));
	EXPECT_EQ(XPORT_EP_LOST, info.state);
	EXPECT_NE(std::string::npos, logged.find("its memory cannot be read any more")) << logged;
	EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << logged;
	EXPECT_TRUE(done.empty());
}

/* ---- who means harm ---- */

TEST_F(Cma, ReadingWithoutAnOutbox)
{
	begin();
	xpi_rec_cma r = reading(XPI_REC_PUT, 100);
	r.offer = htole32(1);
	b_breaks(bytes(r), "nothing was told");
}

TEST_F(Cma, ReadingWhatIsNotOffered)
{
	for (uint32_t offer : {0u, 1024u, UINT32_MAX}) {
		under_way();
		xpi_rec_cma r = reading(XPI_REC_PUT, 100);
		r.offer = htole32(offer);
		b_breaks(bytes(r), "no such offer");
		again();
	}
}

TEST_F(Cma, ReadingBeyondAnOffer)
{
	struct {
		uint64_t at, length;
	} beyond[] = {{0, LONG + 1}, {1, LONG}, {LONG, 1}, {UINT64_MAX, 1}, {UINT64_MAX - 7, 16}};

	for (auto &what : beyond) {
		under_way();
		xport_mr *more;
		Bytes room(2 * LONG);
		ASSERT_EQ(XPORT_OK, xport_mr_reg(b, room.data(), room.size(), XPORT_REMOTE_WRITE, &more));
		xpi_rec_cma r = reading(XPI_REC_PUT, what.length);
		r.region = htole64(inside_region(more));
		r.at = htole64(what.at);
		b_breaks(bytes(r), "more than is offered");
		EXPECT_TRUE(std::all_of(room.begin(), room.end(), [](uint8_t v) { return v == 0; }));
		again();
	}
}

/* An offer is for one endpoint: who is told a number of another's does not get what lies there. */
TEST_F(Cma, ReadingWhatIsOfferedToAnother)
{
	agree();
	xport_listener *listener;
	xport_ep *second, *other = nullptr;
	char name[64];
	uint8_t box[40];

	ASSERT_EQ(XPORT_OK, xport_listen(b, "127.0.0.1:0", nullptr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	ASSERT_EQ(XPORT_OK, xport_connect(a, name, nullptr, 0, &second));
	for (int i = 0; i < 60000 && other == nullptr; i++) {
		both(1);
		(void)!xport_accept(listener, 1, &other);
	}
	ASSERT_NE(nullptr, other);
	inside_outbox(ep, box, false);
	Bytes ask = bytes(record(XPI_REC_CMA_ASK, sizeof(box)));
	ask.insert(ask.end(), box, box + sizeof(box));
	inside_frame(other, ask.data(), ask.size(), 0);
	xport_opt o = context(this);
	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, &o));
	poll_a();
	ASSERT_NE(0u, inside_offer(ep, this));
	peer = other;
	b_breaks(bytes(reading(XPI_REC_PUT, 100)), "it is the first endpoint's");
}

TEST_F(Cma, ReadingForWhatIsNotLong)
{
	for (uint8_t type : {XPI_REC_SEND, XPI_REC_RTS, XPI_REC_CMA, XPI_REC_NOTIFY}) {
		under_way();
		b_breaks(bytes(reading(type, 100)), "no data of its own");
		again();
	}
}

TEST_F(Cma, ReadingForAnOperationThatIsNone)
{
	for (uint8_t type : {XPI_REC_GETDATA, XPI_REC_DATA}) {
		under_way();
		xpi_rec_cma r = reading(type, 100);
		r.op = htole32(12345);
		b_breaks(bytes(r), "nobody asked");
		again();
	}
}

TEST_F(Cma, APutThatIsRefusedReadsNothing)
{
	under_way();
	xpi_rec_cma r = reading(XPI_REC_PUT, 100);
	r.offset = htole64(LONG - 99);
	inside_frame(peer, bytes(r).data(), sizeof(r), 0);
	EXPECT_NE(std::string::npos, logged.find("refused an access")) << logged;
	EXPECT_EQ(0, far[LONG - 1]);
}

TEST_F(Cma, AskingTwice)
{
	uint8_t box[40];

	agree();
	inside_outbox(ep, box, false);
	Bytes ask = bytes(record(XPI_REC_CMA_ASK, sizeof(box)));
	ask.insert(ask.end(), box, box + sizeof(box));
	b_breaks(ask, "it was told");
}

TEST_F(Cma, AskingWithAKeyThatIsNone)
{
	begin();
	b_breaks(bytes(record(XPI_REC_CMA_ASK, 39), 39), "39 bytes");
}

TEST_F(Cma, AskingWithAKeyOfNothing)
{
	uint8_t box[40];

	agree();
	inside_outbox(ep, box, true);
	again();
	begin();
	Bytes ask = bytes(record(XPI_REC_CMA_ASK, sizeof(box)));
	ask.insert(ask.end(), box, box + sizeof(box));
	inside_frame(peer, ask.data(), ask.size(), 0);
	EXPECT_NE(std::string::npos, logged.find("its memory cannot be read: No such file")) << logged;
}

TEST_F(Cma, AnsweringWhatWasNotAsked)
{
	begin();
	b_breaks(bytes(xpi_rec_key{record(XPI_REC_CMA_ANSWER), htole64(1)}), "yes, to nothing");
}

} // namespace
