/* SPDX-License-Identifier: BSD-3-Clause */
/* printable_test.cc - which characters of a peer's text may be printed to a terminal. */
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

extern "C" {
#include "base/printable.h"
#include "tools/show.h"
}

namespace
{

std::string clean(std::string text)
{
	xpi_text_clean(&text[0], '?');
	return text;
}

TEST(Printable, TextOfAnyLanguageStays)
{
	for (const char *text : {"", "node1", "a b~", "gr\u00fc\u00dfe", "\u00a0", "\u65e5\u672c\u8a9e", "\u0416",
	                         "\U0001f600", "\u05d0\u05d1", "\U0010ffff", "\ud7ff", "\ue000"}) {
		EXPECT_TRUE(xpi_text_printable(text)) << text;
		EXPECT_EQ(text, clean(text));
	}
}

TEST(Printable, WhatSteersATerminalIsReplaced)
{
	for (const char *text : {"\x01",   "\x1b",   "\n",     "\r",     "\t",     "\x1f",   "\x7f",
	                         "\u0080", "\u0085", "\u009b", "\u009f", "\u061c", "\u200e", "\u200f",
	                         "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069", "\ufeff"}) {
		std::string around = std::string("a") + text + "b";

		EXPECT_FALSE(xpi_text_printable(around.c_str())) << testing::PrintToString(text);
		EXPECT_EQ("a" + std::string(strlen(text), '?') + "b", clean(around));
	}
}

/* Among them the one byte that is a control sequence to a terminal that takes Latin-1, and the long forms of what is refused. */
TEST(Printable, WhatIsNoUtf8IsReplaced)
{
	for (const char *text :
	     {"\x80", "\x9b", "\xff", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe2\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
	      "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80"}) {
		std::string around = std::string("a") + text;

		EXPECT_FALSE(xpi_text_printable(around.c_str())) << testing::PrintToString(text);
		EXPECT_EQ("a" + std::string(strlen(text), '?'), clean(around)) << testing::PrintToString(text);
		EXPECT_EQ("a" + std::string(strlen(text), '?') + "b", clean(around + "b"))
			<< testing::PrintToString(text);
	}
	EXPECT_EQ("?\u00fc", clean("\xe2\u00fc")) << "a character that begins where another one is cut off";
}

/* The tools stand on the public headers alone, so that they have a function of their own for what may be printed. */
TEST(ToolShow, AgreesWithTheLibrary)
{
	std::minstd_rand random(7);

	for (int i = 0; i < 3000000; i++) {
		/* Mostly bytes that could belong together. */
		char s[6] = {};
		uint32_t bits = uint32_t(random()) ^ uint32_t(random()) << 16;
		for (int n = 0; n < 4; n++)
			s[n] = char(n == 0 || (bits >> 24 & 7) == 0 ? bits >> 8 * n : 0x80 | (bits >> 8 * n & 0x3f));
		ASSERT_EQ(xpi_printable(s), s[0] != 0 ? tool_shown(reinterpret_cast<unsigned char *>(s)) : 0)
			<< testing::PrintToString(s);
	}
	char text[] = "a\u202eb\x9b";
	tool_clean(text);
	EXPECT_STREQ("a???b?", text);
}

} /* namespace */
