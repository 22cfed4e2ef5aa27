/* SPDX-License-Identifier: BSD-3-Clause */
#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>
#define XXH_INLINE_ALL /* the tests are not linked with it */
#include <xxhash.h>

extern "C" {
#include "core/wire/hello.h"
}

namespace
{

xpi_hello sample(size_t private_len = 5, size_t address_len = 9)
{
	xpi_hello h{};

	h.wire_version = XPI_WIRE_VERSION;
	strcpy(h.library, "0.1.0");
	strcpy(h.backend, "ucx");
	strcpy(h.provider, "tcp");
	strcpy(h.stack, "UCX 1.13.1");
	h.noffers = 1;
	strcpy(h.offers[0].backend, "ucx");
	strcpy(h.offers[0].provider, "tcp");
	strcpy(h.offers[0].protocol, "ucp-am 1");
	strcpy(h.offers[0].device, "lo");
	h.offers[0].flags = XPI_OFFER_OPEN;
	h.offer = 0;
	h.theirs = XPI_OFFER_NONE;
	h.shm_fs = 24;
	h.pointer_size = 8;
	h.incarnation = 0x1122334455667788;
	strcpy(h.host, "node1");
	strcpy(h.boot_id, "0f9a2c8e-0000-4000-8000-123456789abc");
	h.pid_ns = 4026531836;
	h.start_time = 987654321;
	h.pid = 4711;
	h.ep_id = 7;
	h.session = 0xfeedbeef;
	h.frame_max = 8192;
	h.credits = 64;
	h.window = 1 << 20;
	h.requests = 256;
	h.peer_timeout_ms = 5000;
	h.traffic_class = XPORT_TRAFFIC_URGENT;
	h.verdict = XPORT_ERR_REFUSED;
	strcpy(h.verdict_text, "because");
	h.private_len = private_len;
	memset(h.private_data, 'p', private_len);
	h.address_len = address_len;
	memset(h.address, 'a', address_len);
	return h;
}

std::vector<uint8_t> encode(const xpi_hello &h)
{
	std::vector<uint8_t> buf(XPI_HELLO_MAX);

	buf.resize(xpi_hello_encode(&h, buf.data(), buf.size()));
	return buf;
}

/* In a block of exactly that size, so that a look past its end is seen by a sanitizer. */
bool decode(const std::vector<uint8_t> &bytes, xpi_hello *h)
{
	std::vector<uint8_t> exact(bytes);

	exact.shrink_to_fit();
	return xpi_hello_decode(exact.data(), exact.size(), h);
}

/* Makes the checksum right again. */
void sum(std::vector<uint8_t> *bytes)
{
	size_t n = bytes->size() - 8;
	uint64_t sum = XXH64(bytes->data(), n, 0);

	for (int i = 0; i < 8; i++)
		(*bytes)[n + size_t(i)] = uint8_t(sum >> 8 * i);
}

std::string verdict(const xpi_hello &ours, const xpi_hello &theirs, int *status)
{
	char text[512] = "";

	*status = xpi_hello_compatible(&ours, &theirs, text, sizeof(text));
	return text;
}

} // namespace

TEST(Hello, RoundTrip)
{
	for (size_t n : {size_t(0), size_t(1), size_t(XPI_PRIVATE_MAX)}) {
		xpi_hello in = sample(n, n * 2), out;
		std::vector<uint8_t> bytes = encode(in);

		ASSERT_FALSE(bytes.empty());
		EXPECT_EQ(bytes.size(), xpi_hello_length(bytes.data()));
		ASSERT_TRUE(decode(bytes, &out));
		EXPECT_EQ(in.wire_version, out.wire_version);
		EXPECT_STREQ(in.library, out.library);
		EXPECT_STREQ(in.backend, out.backend);
		EXPECT_STREQ(in.provider, out.provider);
		ASSERT_EQ(1, out.noffers);
		EXPECT_STREQ("ucx", out.offers[0].backend);
		EXPECT_STREQ("tcp", out.offers[0].provider);
		EXPECT_STREQ("ucp-am 1", out.offers[0].protocol);
		EXPECT_STREQ("lo", out.offers[0].device);
		EXPECT_EQ(XPI_OFFER_OPEN, out.offers[0].flags);
		EXPECT_EQ(0, out.offer);
		EXPECT_EQ(XPI_OFFER_NONE, out.theirs);
		EXPECT_EQ(in.shm_fs, out.shm_fs);
		EXPECT_STREQ(in.stack, out.stack);
		EXPECT_EQ(in.pointer_size, out.pointer_size);
		EXPECT_EQ(in.big_endian, out.big_endian);
		EXPECT_EQ(in.incarnation, out.incarnation);
		EXPECT_STREQ(in.host, out.host);
		EXPECT_STREQ(in.boot_id, out.boot_id);
		EXPECT_EQ(in.pid_ns, out.pid_ns);
		EXPECT_EQ(in.start_time, out.start_time);
		EXPECT_EQ(in.pid, out.pid);
		EXPECT_EQ(in.ep_id, out.ep_id);
		EXPECT_EQ(in.session, out.session);
		EXPECT_EQ(in.frame_max, out.frame_max);
		EXPECT_EQ(in.credits, out.credits);
		EXPECT_EQ(in.window, out.window);
		EXPECT_EQ(in.requests, out.requests);
		EXPECT_EQ(in.peer_timeout_ms, out.peer_timeout_ms);
		EXPECT_EQ(in.traffic_class, out.traffic_class);
		EXPECT_EQ(in.verdict, out.verdict);
		EXPECT_STREQ(in.verdict_text, out.verdict_text);
		ASSERT_EQ(in.private_len, out.private_len);
		ASSERT_EQ(in.address_len, out.address_len);
		EXPECT_EQ(0, memcmp(in.private_data, out.private_data, in.private_len));
		EXPECT_EQ(0, memcmp(in.address, out.address, in.address_len));
	}
}

TEST(Hello, TheLongestFits)
{
	xpi_hello h = sample(XPI_PRIVATE_MAX, XPI_ADDRESS_MAX), out;
	auto longest = [](char *s, size_t size) {
		memset(s, 'x', size - 1);
		s[size - 1] = '\0';
	};

	longest(h.library, sizeof(h.library));
	longest(h.backend, sizeof(h.backend));
	longest(h.provider, sizeof(h.provider));
	h.noffers = XPI_OFFERS_MAX;
	for (xpi_offer &o : h.offers) {
		longest(o.backend, sizeof(o.backend));
		longest(o.provider, sizeof(o.provider));
		longest(o.protocol, sizeof(o.protocol));
		longest(o.device, sizeof(o.device));
	}
	longest(h.stack, sizeof(h.stack));
	longest(h.host, sizeof(h.host));
	longest(h.boot_id, sizeof(h.boot_id));
	longest(h.verdict_text, sizeof(h.verdict_text));
	std::vector<uint8_t> bytes = encode(h);
	ASSERT_FALSE(bytes.empty());
	ASSERT_TRUE(decode(bytes, &out));
	EXPECT_STREQ(h.verdict_text, out.verdict_text);
	EXPECT_EQ(XPI_ADDRESS_MAX, out.address_len);
}

TEST(Hello, EncodeRefusesWhatDoesNotFit)
{
	xpi_hello h = sample();
	std::vector<uint8_t> bytes = encode(h), room(XPI_HELLO_MAX);

	for (size_t n = 0; n < bytes.size(); n++) {
		std::vector<uint8_t> small(n);
		EXPECT_EQ(0u, xpi_hello_encode(&h, small.data(), n)) << n;
	}
	EXPECT_EQ(bytes.size(), xpi_hello_encode(&h, room.data(), bytes.size()));
	h.private_len = XPI_PRIVATE_MAX + 1;
	EXPECT_EQ(0u, xpi_hello_encode(&h, room.data(), room.size()));
	h = sample();
	h.address_len = XPI_ADDRESS_MAX + 1;
	EXPECT_EQ(0u, xpi_hello_encode(&h, room.data(), room.size()));
}

TEST(Hello, EverySingleBitFlipIsRefused)
{
	for (size_t n : {size_t(0), size_t(100)}) {
		xpi_hello original = sample(n, n);
		std::vector<uint8_t> bytes = encode(original);
		xpi_hello out;

		for (size_t bit = 0; bit < bytes.size() * 8; bit++) {
			bytes[bit / 8] ^= uint8_t(1 << bit % 8);
			/* Of the version only: then it is another version's, and refused as such. */
			if (bit / 8 == 6 || bit / 8 == 7) {
				char text[256];
				EXPECT_TRUE(decode(bytes, &out));
				EXPECT_EQ(XPORT_ERR_INCOMPATIBLE,
				          xpi_hello_compatible(&original, &out, text, sizeof(text)));
			} else {
				EXPECT_FALSE(decode(bytes, &out)) << "bit " << bit;
			}
			bytes[bit / 8] ^= uint8_t(1 << bit % 8);
		}
		EXPECT_TRUE(decode(bytes, &out));
	}
}

TEST(Hello, EveryTruncationAndExtensionIsRefused)
{
	std::vector<uint8_t> bytes = encode(sample());
	xpi_hello out;

	for (size_t n = 0; n < bytes.size(); n++)
		EXPECT_FALSE(decode(std::vector<uint8_t>(bytes.begin(), bytes.begin() + n), &out)) << n;
	bytes.push_back(0);
	EXPECT_FALSE(decode(bytes, &out));
}

TEST(Hello, RandomBytesAreRefused)
{
	std::mt19937 rng(1);
	xpi_hello out;

	for (int i = 0; i < 20000; i++) {
		std::vector<uint8_t> bytes(rng() % 512);

		for (auto &b : bytes)
			b = uint8_t(rng());
		/* Half of them look right at the first glance. */
		if (i % 2 == 0 && bytes.size() >= 24) {
			memcpy(bytes.data(), "XPRT", 4);
			bytes[4] = uint8_t(bytes.size() >> 8);
			bytes[5] = uint8_t(bytes.size());
			bytes[6] = 0;
			bytes[7] = uint8_t(rng() % 3);
		}
		EXPECT_FALSE(decode(bytes, &out));
	}
}

TEST(Hello, LengthIsBounded)
{
	uint8_t first[8] = {'X', 'P', 'R', 'T', 0, 0, 0, 1};
	auto length = [&](unsigned n) {
		first[4] = uint8_t(n >> 8);
		first[5] = uint8_t(n);
		return xpi_hello_length(first);
	};

	EXPECT_EQ(0u, length(0));
	EXPECT_EQ(0u, length(8));
	EXPECT_EQ(0u, length(23));
	EXPECT_EQ(24u, length(24));
	EXPECT_EQ(size_t(XPI_HELLO_MAX), length(XPI_HELLO_MAX));
	EXPECT_EQ(0u, length(XPI_HELLO_MAX + 1));
	EXPECT_EQ(0u, length(65535));
	first[3] = 't';
	EXPECT_EQ(0u, length(100));
}

TEST(Hello, TextThatSteersATerminalDoesNotPass)
{
	xpi_hello h = sample(), out;

	strcpy(h.verdict_text, "red\x1b[31m\nline");
	ASSERT_TRUE(decode(encode(h), &out));
	EXPECT_STREQ("red?[31m?line", out.verdict_text);
}

/* C1 controls, overrides of the direction, and what is no UTF-8 are refused on the way in, wherever they stand. */
TEST(Hello, TextThatDeceivesIsRefused)
{
	for (const char *text : {"a\u009bb", "a\u202eb", "\u2066b",
	                         "a\x9b"
	                         "b"}) {
		xpi_hello h = sample(), out;
		std::string plain(strlen(text), 'x');
		std::vector<uint8_t> bytes;

		strcpy(h.host, plain.c_str());
		bytes = encode(h);
		auto at = std::search(bytes.begin(), bytes.end(), plain.begin(), plain.end());
		ASSERT_NE(bytes.end(), at);
		ASSERT_TRUE(decode(bytes, &out));
		std::copy(text, text + plain.size(), at);
		sum(&bytes);
		EXPECT_FALSE(decode(bytes, &out)) << testing::PrintToString(text);
		strcpy(h.host, text);
		ASSERT_TRUE(decode(encode(h), &out));
		EXPECT_EQ(nullptr, strstr(out.host, text));
	}
}

TEST(Hello, IdentityOfAnotherVersionIsReadable)
{
	xpi_hello h = sample(), out;

	h.wire_version = 77;
	ASSERT_TRUE(decode(encode(h), &out));
	EXPECT_EQ(77, out.wire_version);
	EXPECT_STREQ("0.1.0", out.library);
	EXPECT_STREQ("ucx", out.backend);
	EXPECT_STREQ("tcp", out.provider);
	EXPECT_STREQ("UCX 1.13.1", out.stack);
	EXPECT_EQ(0, out.private_len);
	EXPECT_EQ(0u, out.frame_max);
}

TEST(Hello, CompatibleWithItself)
{
	xpi_hello a = sample(), b = sample();
	int status;

	/* What may differ. */
	strcpy(b.library, "0.1.9");
	strcpy(b.stack, "UCX 1.14.0");
	strcpy(b.host, "node2");
	b.frame_max = 4096;
	verdict(a, b, &status);
	EXPECT_EQ(XPORT_OK, status);
}

TEST(Hello, IncompatibleNamesBothSides)
{
	xpi_hello ours = sample(), theirs = sample();
	int status;
	std::string text, wire = ", wire " + std::to_string(XPI_WIRE_VERSION) + ")";

	strcpy(theirs.offers[0].backend, "ofi");
	strcpy(theirs.stack, "libfabric 1.17.0");
	strcpy(theirs.library, "0.2.0");
	text = verdict(ours, theirs, &status);
	EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, status);
	EXPECT_EQ("the peer runs ofi:tcp (libfabric 1.17.0, libxport 0.2.0" + wire +
	                  ", this side ucx:tcp (UCX 1.13.1, libxport 0.1.0" + wire,
	          text);
}

/* A peer of another version is named although its offers cannot be read. */
TEST(Hello, AnOldPeerIsRefusedWithASentence)
{
	xpi_hello ours = sample(), theirs;
	xpi_hello old = sample();
	int status;

	old.wire_version = 3;
	ASSERT_TRUE(decode(encode(old), &theirs));
	EXPECT_EQ(0, theirs.noffers);
	std::string text = verdict(ours, theirs, &status);
	EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, status);
	EXPECT_EQ(0u, text.find("the peer runs ucx:tcp (UCX 1.13.1, libxport 0.1.0, wire 3), this side ucx:tcp"))
		<< text;
	EXPECT_NE(nullptr, strstr(xpi_hello_advice(&ours, &theirs), "same version"));
}

/* What helps is said of what differs, and of nothing else. */
TEST(Hello, AdviceIsOfWhatDiffers)
{
	xpi_hello ours = sample(), theirs = sample();

	EXPECT_EQ(nullptr, xpi_hello_advice(&ours, &theirs));
	theirs.big_endian = true;
	EXPECT_EQ(nullptr, xpi_hello_advice(&ours, &theirs));
	theirs.wire_version = 99;
	EXPECT_NE(nullptr, strstr(xpi_hello_advice(&ours, &theirs), "version"));
}

TEST(Hello, EachDifferenceIsIncompatible)
{
	struct {
		void (*change)(xpi_hello *);
		const char *told;
	} cases[] = {
		{[](xpi_hello *h) { h->wire_version = 99; }, "wire 99"},
		{[](xpi_hello *h) { strcpy(h->library, "0.2.0"); }, "libxport 0.2.0"},
		{[](xpi_hello *h) { strcpy(h->library, "1.1.0"); }, "libxport 1.1.0"},
		{[](xpi_hello *h) { h->pointer_size = 4; }, "32-bit"},
		{[](xpi_hello *h) { h->big_endian = true; }, "big-endian"},
	};

	for (auto &c : cases) {
		xpi_hello theirs = sample();
		int status;

		c.change(&theirs);
		std::string text = verdict(sample(), theirs, &status);
		EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, status) << c.told;
		EXPECT_NE(std::string::npos, text.find(c.told)) << text;
	}
}

/* A number of offers, or a place among them, beyond the list. */
TEST(Hello, OffersThatAreNotThereAreRefused)
{
	xpi_hello h = sample(), out;

	h.offer = 1;
	EXPECT_FALSE(decode(encode(h), &out));
	h = sample();
	h.theirs = XPI_OFFERS_MAX;
	EXPECT_FALSE(decode(encode(h), &out));
	h = sample();
	h.offers[0].flags = 0x80;
	EXPECT_FALSE(decode(encode(h), &out));
	h = sample();
	h.noffers = XPI_OFFERS_MAX + 1;
	EXPECT_TRUE(encode(h).empty());
	h = sample();
	h.noffers = 0;
	h.offer = XPI_OFFER_NONE;
	EXPECT_TRUE(decode(encode(h), &out));
}

TEST(Hello, WordsRoundTrip)
{
	std::vector<uint8_t> buf(XPI_WORD_HEAD + XPI_WORD_BODY_MAX);
	xpi_word take{}, next{}, out;

	take.kind = 'T';
	take.attempt = 3;
	take.offer = 1;
	take.theirs = 2;
	take.frame_max = 8192;
	take.credits = 64;
	memset(take.protocol, 'p', sizeof(take.protocol) - 1);
	take.address_len = XPI_ADDRESS_MAX;
	memset(take.address, 'a', sizeof(take.address));
	next.kind = 'N';
	next.attempt = 4;
	next.status = XPORT_ERR_UNREACHABLE;
	memset(next.text, 'x', sizeof(next.text) - 1);
	for (const xpi_word *w : {&take, &next}) {
		size_t n = xpi_word_encode(w, buf.data(), buf.size());

		ASSERT_GT(n, size_t(XPI_WORD_HEAD));
		EXPECT_EQ(n, xpi_word_length(buf.data()));
		for (size_t cut = 0; cut < n; cut++) {
			std::vector<uint8_t> part(buf.begin(), buf.begin() + long(cut));

			EXPECT_FALSE(xpi_word_decode(part.data(), cut, &out)) << cut;
			EXPECT_EQ(0u, xpi_word_encode(w, part.data(), cut)) << cut;
		}
		std::vector<uint8_t> exact(buf.begin(), buf.begin() + long(n));
		ASSERT_TRUE(xpi_word_decode(exact.data(), n, &out));
		EXPECT_EQ(0, memcmp(w, &out, sizeof(out)));
		exact[0] = 'Q';
		EXPECT_FALSE(xpi_word_decode(exact.data(), n, &out));
	}
	buf[1] = 0xff;
	EXPECT_EQ(0u, xpi_word_length(buf.data()));
}

TEST(Hello, BothBytesOrdersAreNamed)
{
	xpi_hello ours = sample(), theirs = sample();
	int status;

	ours.big_endian = true;
	EXPECT_NE(std::string::npos,
	          verdict(ours, theirs, &status).find("there 64-bit little-endian, here 64-bit big-endian"));
	EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, status);
}

TEST(Hello, EachCharacterThatSteersIsReplaced)
{
	for (const char *bad : {"a\033b", "a\177b", "a\nb"}) {
		xpi_hello in = sample(), out;

		strcpy(in.host, bad);
		ASSERT_TRUE(decode(encode(in), &out));
		EXPECT_STREQ("a?b", out.host);
	}
}

TEST(Hello, Process)
{
	xpi_hello a{}, b{};
	xpi_self self{};

	xpi_hello_process(&a, &self);
	EXPECT_STREQ(a.boot_id, self.boot_id);
	xpi_hello_process(&b, &self);
	EXPECT_EQ(getpid(), a.pid);
	EXPECT_NE(0u, a.start_time);
	EXPECT_NE(0u, a.pid_ns);
	EXPECT_EQ(36u, strlen(a.boot_id));
	EXPECT_NE('\0', a.host[0]);
	EXPECT_EQ(0, memcmp(&a, &b, sizeof(a)));
}
