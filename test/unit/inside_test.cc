/* SPDX-License-Identifier: BSD-3-Clause */
/* inside_test.cc - frames that violate one check each, as no correct peer or network sends them. */
#include "inside_fixture.h"

namespace
{

/* ---- frames ---- */

TEST_F(Inside, ANotificationWithOtherDataThanItSays)
{
	connect();
	xpi_rec_notify n{};
	n.r = record(XPI_REC_NOTIFY, 4);
	n.region = htole64(inside_region(mr));
	n.length = htole64(5);
	breaks(bytes(n, 4), "4 bytes of 5");
	EXPECT_EQ(0, memory[0]);
}

TEST_F(Inside, ARecordThatIsCutOff)
{
	for (uint8_t type : {XPI_REC_PUT, XPI_REC_GET, XPI_REC_GETDATA, XPI_REC_ATOMIC, XPI_REC_VALUE, XPI_REC_FAILED,
	                     XPI_REC_SEND, XPI_REC_RTS, XPI_REC_CTS, XPI_REC_DATA, XPI_REC_NOTIFY, XPI_REC_CLAIM}) {
		connect();
		breaks(bytes(record(type)), "the head alone");
		drop();
	}
}

TEST_F(Inside, ARecordWithDataThatHasNone)
{
	for (uint8_t type : {XPI_REC_GET, XPI_REC_ATOMIC, XPI_REC_VALUE, XPI_REC_FAILED, XPI_REC_RTS, XPI_REC_CTS,
	                     XPI_REC_FLUSH, XPI_REC_BYE, XPI_REC_CLAIM}) {
		connect();
		breaks(bytes(record(type, 8), 80), "8 bytes of data");
		drop();
	}
}

TEST_F(Inside, AMessageLongerThanItsFrame)
{
	connect();
	xpi_rec_send s{};
	s.r = record(XPI_REC_SEND, 500);
	breaks(bytes(s, 400), "400 bytes of 500");
}

TEST_F(Inside, AMessageLongerThanAny)
{
	connect();
	uint32_t most = inside_unexpected(ep);
	xpi_rec_send s{};
	s.r = record(XPI_REC_SEND, most);
	passes(bytes(s, most), "as long as may be");
	s.r = record(XPI_REC_SEND, most + 1);
	breaks(bytes(s, most + 1), "one byte too long");
}

TEST_F(Inside, AnOldWordOnWhatWasConsumed)
{
	connect();
	passes(bytes(record(XPI_REC_FLUSH)), "one message less than before", -256);
	inside_frame(ep, bytes(record(XPI_REC_FLUSH)).data(), sizeof(xpi_rec), 256);
	EXPECT_EQ(XPORT_EP_LOST, state()) << "one more than was sent";
}

/* Of each kind: a header, or data, that is not all there, and data where none belong. */
TEST_F(Inside, RecordsThatAreCutOffOrTooLong)
{
	constexpr struct {
		uint8_t type;
		size_t size;
		bool data;
	} kinds[] = {
		{XPI_REC_PUT, sizeof(xpi_rec_put), true},
		{XPI_REC_GET, sizeof(xpi_rec_get), false},
		{XPI_REC_GETDATA, sizeof(xpi_rec_getdata), true},
		{XPI_REC_ATOMIC, sizeof(xpi_rec_atomic), false},
		{XPI_REC_VALUE, sizeof(xpi_rec_value), false},
		{XPI_REC_FAILED, sizeof(xpi_rec_failed), false},
		{XPI_REC_SEND, sizeof(xpi_rec_send), true},
		{XPI_REC_RTS, sizeof(xpi_rec_rts), false},
		{XPI_REC_CTS, sizeof(xpi_rec_cts), true},
		{XPI_REC_DATA, sizeof(xpi_rec_data), true},
		{XPI_REC_NOTIFY, sizeof(xpi_rec_notify), true},
		{XPI_REC_FLUSH, sizeof(xpi_rec), false},
		{XPI_REC_BYE, sizeof(xpi_rec), false},
		{XPI_REC_CLAIM, sizeof(xpi_rec_key), false},
		{XPI_REC_CMA_ASK, sizeof(xpi_rec), true},
		{XPI_REC_CMA_ANSWER, sizeof(xpi_rec_key), false},
		{XPI_REC_CMA, sizeof(xpi_rec_cma), false},
		{XPI_REC_LEND, sizeof(xpi_rec_lend), true},
		{XPI_REC_PLACED, sizeof(xpi_rec_placed), false},
		{XPI_REC_PUT_AHEAD, sizeof(xpi_rec_put), true},
	};

	for (const auto &k : kinds) {
		Bytes whole = bytes(record(k.type, k.data ? 40 : 0), k.size - sizeof(xpi_rec) + (k.data ? 39 : 0));
		Bytes tooLong = bytes(record(k.type, 1), k.size - sizeof(xpi_rec) + 1);
		std::string what = "record " + std::to_string(k.type);

		if (k.data || k.size > sizeof(xpi_rec)) {
			connect();
			whole.resize(k.data ? whole.size() : k.size - 1);
			breaks(whole, (what + ", the last byte missing").c_str());
			drop();
		}
		if (k.size > sizeof(xpi_rec)) {
			connect();
			whole.resize(sizeof(xpi_rec) + 1);
			breaks(whole, (what + ", most of its header missing").c_str());
			drop();
		}
		if (!k.data) {
			connect();
			breaks(tooLong, (what + ", with data").c_str());
			drop();
		}
	}
	xport_rkey_destroy(nullptr);
}

TEST_F(Inside, AGetForNobody)
{
	connect();
	xpi_rec_get g{};
	g.r = record(XPI_REC_GET);
	g.region = htole64(inside_region(mr));
	g.length = htole64(8);
	breaks(bytes(g), "it has no name");
}

TEST_F(Inside, AGetOfNothing)
{
	connect();
	xpi_rec_get g{};
	g.r = record(XPI_REC_GET);
	g.region = htole64(inside_region(mr));
	g.op = htole32(1);
	breaks(bytes(g), "no bytes");
}

/* Short ones are answered into a frame at once, while there is room in it. */
TEST_F(Inside, MoreGetsThanMayBe)
{
	connect();
	xpi_rec_get g{};
	g.r = record(XPI_REC_GET);
	g.region = htole64(inside_region(mr));
	g.length = htole64(inside_at_once() + 1);
	g.op = htole32(1);
	for (uint32_t i = 0; i < inside_requests(); i++)
		passes(bytes(g), "as many as may be");
	breaks(bytes(g), "one more");
}

TEST_F(Inside, MoreNotificationsThanTheWindow)
{
	connect();
	xpi_rec_notify n{};
	n.r = record(XPI_REC_NOTIFY);
	n.region = htole64(inside_region(mr));
	n.op = htole32(XPI_OP_NOBODY);
	overflows(bytes(n));
}

TEST_F(Inside, MoreMessagesThanTheWindow)
{
	connect();
	xpi_rec_send s{};
	s.r = record(XPI_REC_SEND);
	overflows(bytes(s));
}

TEST_F(Inside, ALongMessageOfNobody)
{
	connect();
	xpi_rec_rts rts{};
	rts.r = record(XPI_REC_RTS);
	rts.length = htole64(100000);
	breaks(bytes(rts), "it has no name");
}

TEST_F(Inside, APutThatFailsTwice)
{
	static uint8_t source[32];
	static char tag;

	connect();
	xport_opt o = context(&tag);
	ASSERT_EQ(XPORT_OK, xport_put(ep, source, sizeof(source), remote(), 0, &o));
	(void)xport_poll(a, nullptr, 0);
	xpi_rec_failed failed{};
	failed.r = record(XPI_REC_FAILED);
	failed.op = htole32(inside_name(ep, &tag));
	failed.status = htole32(-XPORT_ERR_ACCESS);
	passes(bytes(failed), "once");
	failed.status = htole32(-XPORT_ERR_BOUNDS);
	passes(bytes(failed), "and again");
	/* The acknowledgement of the peer's, of the frame that had it. */
	std::vector<xport_completion> done = poll(10);
	ASSERT_LE(1u, done.size());
	EXPECT_EQ(XPORT_ERR_ACCESS, done[0].status) << "the first counts";
}

/* It would have told what the peer waits for. */
TEST_F(Inside, AMessageForWhichThereIsNoMemory)
{
	static uint8_t source[8] = "placed";
	Bytes key(1024);
	size_t len = key.size();
	xport_completion c{};
	xport_rkey *rkey;
	int n = 0;

	connect();
	ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, key.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_rkey_unpack(peer, key.data(), len, &rkey));
	poll(10);
	ASSERT_EQ(XPORT_OK, xport_put(peer, source, sizeof(source), rkey, 0, nullptr));
	inside_no_frames(a, true); /* not for the acknowledgement either */
	EXPECT_EQ(0, xport_poll(a, nullptr, 0));
	EXPECT_EQ(0, memcmp(memory, source, sizeof(source)));
	inside_refuse(1);
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, xport_send(ep, source, sizeof(source), 1, nullptr));
	inside_no_frames(a, false);
	for (int i = 0; i < 100 && n == 0; i++) {
		EXPECT_EQ(0, xport_poll(a, nullptr, 0));
		n = xport_poll(b, &c, 1);
	}
	ASSERT_EQ(1, n) << "the put is not acknowledged";
	EXPECT_EQ(XPORT_OK, c.status);
}

/* A receive for which there is no memory leaves the messages in their order. */
TEST_F(Inside, AReceiveForWhichThereIsNoMemory)
{
	uint8_t in = 0;

	connect();
	for (uint8_t i = 1; i <= 2; i++)
		ASSERT_EQ(XPORT_OK, xport_send(peer, &i, 1, 5, nullptr));
	poll(10);
	inside_no_operations(a, true);
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, xport_recv(a, &in, 1, 5, UINT64_MAX, nullptr));
	inside_no_operations(a, false);
	for (uint8_t i = 1; i <= 2; i++) {
		ASSERT_EQ(XPORT_OK, xport_recv(a, &in, 1, 5, UINT64_MAX, nullptr));
		EXPECT_EQ(i, in);
	}
}

/* One for whose answer there is no memory takes no receive out of its place. */
TEST_F(Inside, ALongMessageForWhoseAnswerThereIsNoMemory)
{
	struct xpi_rec_rts rts {
	};
	uint8_t in[2] = {};

	connect();
	ASSERT_EQ(XPORT_OK, xport_recv(a, &in[0], 1, 5, UINT64_MAX, nullptr));
	ASSERT_EQ(XPORT_OK, xport_recv(a, &in[1], 1, 5, UINT64_MAX, nullptr));
	rts.r.type = XPI_REC_RTS;
	rts.tag = htole64(5);
	rts.length = htole64(1);
	rts.op = htole32(1);
	inside_no_operations(a, true);
	inside_frame(ep, &rts, sizeof(rts), 0);
	inside_no_operations(a, false);
	poll();
	EXPECT_EQ(XPORT_EP_LOST, state());
	xport_ep *self = nullptr, *taken = nullptr;
	xport_listener *listener = nullptr;
	char name[64];
	ASSERT_EQ(XPORT_OK, xport_listen(a, "127.0.0.1:0", nullptr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	ASSERT_EQ(XPORT_OK, xport_connect(b, name, nullptr, 0, &self));
	for (int i = 0; i < 60000 && taken == nullptr; i++) {
		poll();
		(void)!xport_accept(listener, 1, &taken);
	}
	ASSERT_NE(nullptr, taken);
	for (int r = XPORT_ERR_INVALID; r != XPORT_OK;) {
		r = xport_send(self, "!", 1, 5, nullptr);
		poll();
	}
	poll(10);
	EXPECT_EQ('!', in[0]) << "the receive that was posted first";
	EXPECT_EQ(0, in[1]);
}

/* Each operation that waits for an answer gets that of another. */
TEST_F(Inside, AnAnswerThatDoesNotFit)
{
	enum { GET, VALUE, FAILED, FORMS };
	enum { NO_NAME, A_GET, A_QUEUED_GET, AN_ATOMIC, A_QUEUED_ATOMIC, A_SEND, OPERATIONS };

	for (int form = 0; form < FORMS; form++) {
		for (int of = 0; of < OPERATIONS; of++) {
			static uint8_t into[64], source[65536];
			static char tag;
			connect();
			xport_rkey *key = remote();
			xport_opt o = context(&tag);
			xport_atomic_args args{};
			args.size = sizeof(args);
			args.width = 4;
			args.result = into;
			if (of == A_QUEUED_GET || of == A_QUEUED_ATOMIC)
				inside_refuse(1000);
			int posted = XPORT_OK;
			if (of == A_GET || of == A_QUEUED_GET)
				posted = xport_get(ep, into, 32, key, 0, &o);
			if (of == AN_ATOMIC || of == A_QUEUED_ATOMIC)
				posted = xport_atomic(ep, &args, key, 0, &o);
			if (of == A_SEND)
				posted = xport_send(ep, source, sizeof(source), 1, &o);
			ASSERT_EQ(XPORT_OK, posted);
			if (of != A_QUEUED_GET && of != A_QUEUED_ATOMIC)
				(void)xport_poll(a, nullptr, 0);
			uint32_t name = of == NO_NAME ? 12345 : inside_name(ep, &tag);
			ASSERT_NE(0u, name);
			xpi_rec_getdata data{};
			data.r = record(XPI_REC_GETDATA, 8);
			data.op = htole32(name);
			xpi_rec_value value{};
			value.r = record(XPI_REC_VALUE);
			value.op = htole32(name);
			xpi_rec_failed failed{};
			failed.r = record(XPI_REC_FAILED);
			failed.op = htole32(name);
			failed.status = htole32(99);
			Bytes f = form == GET ? bytes(data, 8) : form == VALUE ? bytes(value) : bytes(failed);
			bool fits = (form == GET && of == A_GET) || (form == VALUE && of == AN_ATOMIC) ||
			            (form == FAILED && of != NO_NAME && of != A_SEND);
			SCOPED_TRACE("form " + std::to_string(form) + " of " + std::to_string(of));
			if (fits)
				passes(f, "it fits");
			else
				breaks(f, "it does not fit");
			drop();
		}
	}
}

TEST_F(Inside, DataElsewhereOrTooLong)
{
	for (int which = 0; which < 2; which++) {
		static uint8_t into[32];
		static char tag;
		connect();
		xport_opt o = context(&tag);
		ASSERT_EQ(XPORT_OK, xport_get(ep, into, 32, remote(), 0, &o));
		(void)xport_poll(a, nullptr, 0);
		xpi_rec_getdata data{};
		data.r = record(XPI_REC_GETDATA, which == 0 ? 8 : 33);
		data.at = htole64(which == 0 ? 8 : 0);
		data.op = htole32(inside_name(ep, &tag));
		breaks(bytes(data, which == 0 ? 8 : 33), "");
		drop();
	}
}

TEST_F(Inside, AFailureOfNothingInParticular)
{
	static uint8_t into[32];
	static char tag;

	connect();
	xport_opt o = context(&tag);
	ASSERT_EQ(XPORT_OK, xport_get(ep, into, 32, remote(), 0, &o));
	(void)xport_poll(a, nullptr, 0);
	xpi_rec_failed failed{};
	failed.r = record(XPI_REC_FAILED);
	failed.op = htole32(XPI_OP_NOBODY);
	passes(bytes(failed), "nobody wants to know");
	failed.op = htole32(inside_name(ep, &tag));
	failed.status = htole32(0);
	passes(bytes(failed), "a failure by the name of success");
	auto done = poll();
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(XPORT_ERR_PROTOCOL, done[0].status);
}

} // namespace
