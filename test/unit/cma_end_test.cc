/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cma_end_test.cc - no more reads from a peer's memory after its endpoint has ended; and false descriptions of memory
 * by a malicious peer.
 */
#include <cerrno>

#include "cma_fixture.h"
#include "shm_maker.h"

extern "C" ssize_t __real_process_vm_readv(pid_t, const iovec *, unsigned long, const iovec *, unsigned long,
                                           unsigned long);

static int reading_fails; /* with that errno */

/* The linker calls it in place of process_vm_readv (sources.am). */
extern "C" ssize_t __wrap_process_vm_readv(pid_t pid, const iovec *to, unsigned long nto, const iovec *from,
                                           unsigned long nfrom, unsigned long flags)
{
	if (reading_fails != 0) {
		errno = reading_fails;
		return -1;
	}
	return __real_process_vm_readv(pid, to, nto, from, nfrom, flags);
}

namespace
{

/* ---- ends ---- */

/* The buffer is the application's again, and what it writes there is not seen by the peer as data. */
TEST_F(Cma, AnOfferIsWithdrawnWithItsEndpoint)
{
	under_way();
	xport_ep_destroy(ep);
	poll_a();
	std::fill(here.begin(), here.end(), uint8_t{0xee});
	poll_b();
	for (int i = 0; i < 10000 && theirs.empty(); i++) {
		usleep(1000);
		poll_b();
	}
	ASSERT_EQ(1u, theirs.size());
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_CLOSED), theirs[0].type) << logged;
	EXPECT_EQ(XPORT_ERR_PEER_CLOSED, theirs[0].status);
	EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << logged;
	EXPECT_TRUE(untouched());
}

/* Nor is what has been answered to a get. */
TEST_F(Cma, AnAnswerIsWithdrawnWithItsEndpoint)
{
	begin();
	Bytes got(LONG);
	far = here;
	ASSERT_EQ(XPORT_OK, xport_get(ep, got.data(), LONG, key, 0, nullptr)); /* with the first it is asked for */
	both(600);
	ASSERT_EQ(1u, done.size());
	ASSERT_EQ(here, got);
	done.clear();
	std::fill(got.begin(), got.end(), uint8_t{0});
	ASSERT_EQ(XPORT_OK, xport_get(ep, got.data(), LONG, key, 0, nullptr));
	poll_a();
	poll_b();
	ASSERT_EQ(1u, inside_offered(peer));
	xport_ep_destroy(peer);
	poll_b();
	std::fill(far.begin(), far.end(), uint8_t{0xee});
	for (int i = 0; i < 10000 && done.size() < 2; i++) {
		usleep(1000);
		poll_a();
	}
	ASSERT_EQ(2u, done.size()) << logged;
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_GET), done[0].type);
	EXPECT_EQ(XPORT_ERR_PEER_CLOSED, done[0].status);
	EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << logged;
	EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](uint8_t v) { return v == 0; }));
}

/* That it cannot be read for want of memory is nobody's fault, and is told as it is. */
TEST_F(Cma, NoMemoryToReadWith)
{
	under_way();
	reading_fails = ENOMEM;
	poll_b();
	reading_fails = 0;
	for (int i = 0; i < 1000 && theirs.empty(); i++) {
		usleep(1000);
		poll_b();
	}
	ASSERT_EQ(1u, theirs.size());
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_LOST), theirs[0].type);
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, theirs[0].status) << logged;
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
		EXPECT_NE(std::string::npos, logged.find("can no longer read the peer's memory")) << logged;
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
	EXPECT_NE(std::string::npos, logged.find("cannot read its memory: No such file")) << logged;
}

/* A peer tells of the outbox of another process of this user. */
TEST_F(Cma, AskingWithTheOutboxOfAnother)
{
	begin();
	ShmMaker other(4096 * 64, [](xpi_shm *shm) {
		memcpy(static_cast<uint8_t *>(shm->base) + 16, &shm->base, sizeof(shm->base));
		memcpy(shm->base, shm->name, sizeof(shm->name));
	});
	ASSERT_TRUE(other.made());
	Bytes ask = bytes(record(XPI_REC_CMA_ASK, sizeof(other.key)));
	ask.insert(ask.end(), other.key, other.key + sizeof(other.key));
	inside_frame(peer, ask.data(), ask.size(), 0);
	EXPECT_NE(std::string::npos, logged.find("cannot read its memory: No such process")) << logged;
}

TEST_F(Cma, AnsweringWhatWasNotAsked)
{
	begin();
	b_breaks(bytes(xpi_rec_key{record(XPI_REC_CMA_ANSWER), htole64(1)}), "yes, to nothing");
}

} // namespace
