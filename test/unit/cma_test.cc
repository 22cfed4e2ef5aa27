/* SPDX-License-Identifier: BSD-3-Clause */
/* cma_test.cc - long data that is read out of the sender's memory, between two instances of this process; and what a peer
 * that means harm, or ends, may say of it. */
#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inside_fixture.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wextra"
extern "C" {
#include "base/shm.h"
}
#pragma GCC diagnostic pop

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
		ASSERT_NE(std::string::npos, logged.find("is read out of our memory")) << logged;
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
	EXPECT_TRUE(untouched());
}

/* Another process has come to have the number, or another offer the place: what was read is not the operation's. */
TEST_F(Cma, DataIsNotTakenFromWhoeverHasItsPlace)
{
	static uint8_t elsewhere[64];
	const void *const selves[] = {elsewhere, nullptr};

	for (const void *self : selves) {
		uint8_t box[40];
		uint32_t fd;

		under_way();
		inside_outbox(ep, box, false);
		memcpy(&fd, box + 28, sizeof(fd));
		ASSERT_EQ(static_cast<ssize_t>(sizeof(self)),
		          pwrite(static_cast<int>(fd), &self, sizeof(self), inside_offer(ep, this) * 64 + 16));
		/* What comes behind it in a frame of its own does not count either. */
		ASSERT_EQ(XPORT_OK, xport_recv(b, memory, 8, 3, UINT64_MAX, nullptr));
		ASSERT_EQ(XPORT_OK, xport_send(ep, "follows", 8, 3, nullptr));
		poll_a();
		done.clear();
		poll_b();
		if (self == nullptr) {
			EXPECT_TRUE(untouched()) << "where it should begin is nothing, so nothing was read";
		}
		for (int i = 0; i < 1000 && theirs.empty(); i++) {
			usleep(1000);
			poll_b();
		}
		ASSERT_EQ(1u, theirs.size());
		EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_LOST), theirs[0].type);
		EXPECT_EQ(XPORT_ERR_PEER_LOST, theirs[0].status);
		EXPECT_NE(std::string::npos, logged.find("its memory cannot be read any more")) << logged;
		EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << logged;
		EXPECT_TRUE(done.empty()) << "it was acknowledged";
		again();
	}
}

/* The place of an offer that was withdrawn goes to the next, of whatever endpoint. */
TEST_F(Cma, APlaceThatIsUsedAnewIsNoBreachOfTheProtocol)
{
	agree();
	xport_ep *first = ep, *first_peer = peer, *second = more();
	xport_rkey *first_key = key;
	ASSERT_NE(nullptr, second);
	ep = second;
	key = key_at(second);
	talk_until_it_is_read();
	ep = first;
	xport_opt o = context(this);
	ASSERT_EQ(XPORT_OK, xport_put(first, here.data(), LONG, first_key, 0, &o));
	poll_a();
	uint32_t place = inside_offer(first, this);
	ASSERT_NE(0u, place);
	xport_rkey_destroy(first_key);
	xport_ep_destroy(first);
	poll_a();
	o = context(&o);
	ASSERT_EQ(XPORT_OK, xport_put(second, here.data(), LONG, key, 0, &o));
	poll_a();
	ASSERT_EQ(place, inside_offer(second, &o));
	theirs.clear();
	for (int i = 0; i < 1000 && theirs.empty(); i++) {
		poll_b();
		usleep(1000);
	}
	ASSERT_EQ(1u, theirs.size());
	EXPECT_EQ(first_peer, theirs[0].ep);
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_CLOSED), theirs[0].type) << logged;
	EXPECT_EQ(XPORT_ERR_PEER_CLOSED, theirs[0].status);
	EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << logged;
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
	for (uint32_t offer : {0u, 4096u, UINT32_MAX}) {
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
	uint8_t box[40];

	ASSERT_NE(nullptr, more());
	inside_outbox(ep, box, false);
	Bytes ask = bytes(record(XPI_REC_CMA_ASK, sizeof(box)));
	ask.insert(ask.end(), box, box + sizeof(box));
	inside_frame(peer, ask.data(), ask.size(), 0);
	xport_opt o = context(this);
	ASSERT_EQ(XPORT_OK, xport_put(ep, here.data(), LONG, key, 0, &o));
	poll_a();
	ASSERT_NE(0u, inside_offer(ep, this));
	Bytes read = bytes(reading(XPI_REC_PUT, 100));
	inside_frame(peer, read.data(), read.size(), 0);
	EXPECT_TRUE(untouched());
	for (int i = 0; i < 1000 && theirs.empty(); i++) {
		poll_b();
		usleep(1000);
	}
	ASSERT_EQ(1u, theirs.size());
	EXPECT_EQ(peer, theirs[0].ep);
	EXPECT_EQ(XPORT_ERR_PEER_LOST, theirs[0].status);
}

/* However much is offered, there is a bound to what is read at once, or others would have to wait for it. */
TEST_F(Cma, ReadingMoreThanAPieceAtATime)
{
	agree();
	Bytes much(2 * LONG);
	xport_opt o = context(this);
	xport_mr *room;

	ASSERT_EQ(XPORT_OK, xport_mr_reg(b, much.data(), much.size(), XPORT_REMOTE_WRITE, &room));
	ASSERT_EQ(XPORT_OK, xport_send(ep, much.data(), much.size(), 9, &o));
	poll_a();
	Bytes into(2 * LONG);
	ASSERT_EQ(XPORT_OK, xport_recv(b, into.data(), into.size(), 9, UINT64_MAX, nullptr));
	poll_b();
	poll_a();
	ASSERT_NE(0u, inside_offer(ep, this));
	xpi_rec_cma r = reading(XPI_REC_PUT, LONG + 1);
	r.region = htole64(inside_region(room));
	b_breaks(bytes(r), "more than a piece");
}

TEST_F(Cma, ReadingMoreThanARoundInOnePoll)
{
	under_way();
	Bytes many;
	for (int i = 0; i < 6; i++) {
		Bytes one = bytes(reading(XPI_REC_PUT, LONG));
		many.insert(many.end(), one.begin(), one.end());
	}
	inside_frame(peer, many.data(), many.size() / 6 * 5, 0);
	EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << logged;
	inside_frame(peer, many.data(), many.size() / 6, 0);
	EXPECT_NE(std::string::npos, logged.find("broke the protocol")) << logged;
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

/* Where nobody reads, as over a network, the answers must not be asked for without end either. */
TEST_F(Cma, AskingTwiceWhereItIsNotWanted)
{
	for (bool one_host : {true, false}) {
		inside_one_host(one_host);
		connect("loop:message", "cma");
		Bytes ask = bytes(record(XPI_REC_CMA_ASK, 40), 40);
		passes(ask, "once");
		breaks(ask, "twice");
		again();
	}
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

/* A peer tells of the outbox of another process of this user. */
TEST_F(Cma, AskingWithTheOutboxOfAnother)
{
	uint8_t box[40];
	int ends[2];

	begin();
	ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
	pid_t maker = fork();
	ASSERT_GE(maker, 0);
	if (maker == 0) {
		struct xpi_shm shm = {};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (xpi_shm_alloc(&shm, 4096 * 64, nullptr) != XPORT_OK)
			_exit(1);
		memcpy(shm.base, shm.name, sizeof(shm.name));
		memcpy(static_cast<uint8_t *>(shm.base) + 16, &shm.base, sizeof(shm.base));
		xpi_shm_pack(&shm, false, box);
		if (write(ends[1], box, sizeof(box)) != sizeof(box))
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	ASSERT_EQ(static_cast<ssize_t>(sizeof(box)), read(ends[0], box, sizeof(box)));
	close(ends[0]);
	Bytes ask = bytes(record(XPI_REC_CMA_ASK, sizeof(box)));
	ask.insert(ask.end(), box, box + sizeof(box));
	inside_frame(peer, ask.data(), ask.size(), 0);
	EXPECT_NE(std::string::npos, logged.find("its memory cannot be read: No such process")) << logged;
	kill(maker, SIGKILL);
	EXPECT_EQ(maker, waitpid(maker, nullptr, 0));
}

TEST_F(Cma, AnsweringWhatWasNotAsked)
{
	begin();
	b_breaks(bytes(xpi_rec_key{record(XPI_REC_CMA_ANSWER), htole64(1)}), "yes, to nothing");
}

} // namespace
