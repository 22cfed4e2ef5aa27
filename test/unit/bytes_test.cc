/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "base/bytes.h"
}

namespace
{

TEST(Bytes, LittleEndianWhateverTheHost)
{
	uint8_t buf[15];
	struct xpi_wr w = xpi_wr(buf, sizeof(buf));
	const uint8_t want[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
	                        0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};

	xpi_wr_u8(&w, 0x01);
	xpi_wr_u16(&w, 0x0203);
	xpi_wr_u32(&w, 0x04050607);
	xpi_wr_u64(&w, 0x08090a0b0c0d0e0f);
	EXPECT_FALSE(w.bad);
	EXPECT_EQ(0u, w.left);
	EXPECT_EQ(0, memcmp(want, buf, sizeof(buf)));
}

/* All fields in a row, with the extremes. */
std::vector<uint8_t> sample()
{
	std::vector<uint8_t> buf(64);
	struct xpi_wr w = xpi_wr(buf.data(), buf.size());

	xpi_wr_u8(&w, 0xff);
	xpi_wr_u16(&w, 0xffff);
	xpi_wr_u32(&w, 0xffffffff);
	xpi_wr_u64(&w, 0xffffffffffffffff);
	xpi_wr_str(&w, "host-1");
	xpi_wr_str(&w, "");
	xpi_wr_bytes(&w, "abc", 3);
	EXPECT_FALSE(w.bad);
	buf.resize(buf.size() - w.left);
	return buf;
}

struct Fields {
	uint64_t u8, u16, u32, u64;
	char s1[16], s2[16];
	const uint8_t *raw;
};

Fields read_all(struct xpi_rd *r)
{
	Fields f = {};

	f.u8 = xpi_rd_u8(r);
	f.u16 = xpi_rd_u16(r);
	f.u32 = xpi_rd_u32(r);
	f.u64 = xpi_rd_u64(r);
	xpi_rd_str(r, f.s1, sizeof(f.s1));
	xpi_rd_str(r, f.s2, sizeof(f.s2));
	f.raw = xpi_rd_bytes(r, 3);
	return f;
}

TEST(Bytes, ReadsBackWhatWasWritten)
{
	std::vector<uint8_t> buf = sample();
	struct xpi_rd r = xpi_rd(buf.data(), buf.size());
	Fields f = read_all(&r);

	EXPECT_FALSE(r.bad);
	EXPECT_EQ(0u, r.left);
	EXPECT_EQ(0xffu, f.u8);
	EXPECT_EQ(0xffffu, f.u16);
	EXPECT_EQ(0xffffffffu, f.u32);
	EXPECT_EQ(UINT64_MAX, f.u64);
	EXPECT_STREQ("host-1", f.s1);
	EXPECT_STREQ("", f.s2);
	ASSERT_NE(nullptr, f.raw);
	EXPECT_EQ(0, memcmp("abc", f.raw, 3));
}

/* Each truncation lies in memory of its own length, so that AddressSanitizer sees one byte too many. */
TEST(Bytes, EveryTruncationIsBad)
{
	std::vector<uint8_t> whole = sample();

	for (size_t len = 0; len < whole.size(); len++) {
		std::unique_ptr<uint8_t[]> cut(new uint8_t[len]);
		memcpy(cut.get(), whole.data(), len);
		struct xpi_rd r = xpi_rd(cut.get(), len);
		Fields f = read_all(&r);

		EXPECT_TRUE(r.bad) << len;
		EXPECT_EQ(nullptr, f.raw) << len;
		EXPECT_EQ(0u, xpi_rd_u8(&r)) << "stays bad";
	}
}

TEST(Bytes, EveryTooShortBufferIsBad)
{
	std::vector<uint8_t> whole = sample();

	for (size_t len = 0; len < whole.size(); len++) {
		std::unique_ptr<uint8_t[]> cut(new uint8_t[len]);
		struct xpi_wr w = xpi_wr(cut.get(), len);

		xpi_wr_u8(&w, 0xff);
		xpi_wr_u16(&w, 0xffff);
		xpi_wr_u32(&w, 0xffffffff);
		xpi_wr_u64(&w, UINT64_MAX);
		xpi_wr_str(&w, "host-1");
		xpi_wr_str(&w, "");
		xpi_wr_bytes(&w, "abc", 3);
		EXPECT_TRUE(w.bad) << len;
		xpi_wr_bytes(&w, "", 0);
		EXPECT_TRUE(w.bad) << "stays bad";
	}
}

TEST(Bytes, AfterAFailureAllIsZeroAlsoWhatWouldFit)
{
	const uint8_t buf[] = {1, 2, 3, 4};
	struct xpi_rd r = xpi_rd(buf, sizeof(buf));

	EXPECT_EQ(0u, xpi_rd_u64(&r));
	EXPECT_TRUE(r.bad);
	EXPECT_EQ(0u, xpi_rd_u8(&r));
	EXPECT_EQ(nullptr, xpi_rd_bytes(&r, 1));
	EXPECT_EQ(4u, r.left);
}

TEST(Bytes, LengthsThatWrapAreBad)
{
	const uint8_t buf[] = {1, 2, 3, 4};
	struct xpi_rd r = xpi_rd(buf, sizeof(buf));

	EXPECT_EQ(nullptr, xpi_rd_bytes(&r, SIZE_MAX));
	EXPECT_TRUE(r.bad);
	uint8_t out[4];
	struct xpi_wr w = xpi_wr(out, sizeof(out));
	xpi_wr_bytes(&w, buf, SIZE_MAX);
	EXPECT_TRUE(w.bad);
}

TEST(Bytes, NothingIsThereToReadOfAnEmptyInput)
{
	struct xpi_rd r = xpi_rd(nullptr, 0);

	xpi_rd_bytes(&r, 0);
	EXPECT_FALSE(r.bad);
	EXPECT_EQ(0u, xpi_rd_u16(&r));
	EXPECT_TRUE(r.bad);
}

TEST(Bytes, StringsMustFitWithTheirEnd)
{
	uint8_t buf[16];
	char s[5];

	struct xpi_wr w = xpi_wr(buf, sizeof(buf));
	xpi_wr_str(&w, "four");
	struct xpi_rd r = xpi_rd(buf, sizeof(buf));
	xpi_rd_str(&r, s, sizeof(s));
	EXPECT_FALSE(r.bad);
	EXPECT_STREQ("four", s);
	r = xpi_rd(buf, sizeof(buf));
	xpi_rd_str(&r, s, 4);
	EXPECT_TRUE(r.bad);
	EXPECT_STREQ("", s);
}

TEST(Bytes, StringsMayNotHideAnEnd)
{
	const uint8_t buf[] = {3, 0, 'a', 0, 'b'};
	struct xpi_rd r = xpi_rd(buf, sizeof(buf));
	char s[8];

	xpi_rd_str(&r, s, sizeof(s));
	EXPECT_TRUE(r.bad);
	EXPECT_STREQ("", s);
}

TEST(Bytes, StringsLongerThanTheirLengthFieldAreBad)
{
	std::string longer(UINT16_MAX + 1, 'x');
	std::vector<uint8_t> buf(longer.size() + 8);
	struct xpi_wr w = xpi_wr(buf.data(), buf.size());

	xpi_wr_str(&w, longer.c_str());
	EXPECT_TRUE(w.bad);
	w = xpi_wr(buf.data(), buf.size());
	xpi_wr_str(&w, longer.c_str() + 1);
	EXPECT_FALSE(w.bad);
}

} // namespace
