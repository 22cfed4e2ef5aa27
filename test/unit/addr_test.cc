/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <cstring>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string>

extern "C" {
#include "core/cm/addr.h"
}

namespace
{

struct Parsed {
	int status;
	std::string text, first;
	bool loopback;
	int n;
};

Parsed parse(const std::string &address, bool listening = false)
{
	xport_error err{};
	xpi_addrs out;
	char buf[64] = "";
	Parsed p{};

	p.status = xpi_addr_resolve(address.c_str(), listening, &out, &err);
	p.text = err.text;
	p.n = out.n;
	if (p.status == XPORT_OK) {
		xpi_addr_format(reinterpret_cast<sockaddr *>(&out.a[0].sa), buf, sizeof(buf));
		p.first = buf;
		p.loopback = xpi_addr_loopback(reinterpret_cast<sockaddr *>(&out.a[0].sa));
	} else {
		EXPECT_EQ(p.status, err.status);
	}
	return p;
}

} // namespace

TEST(Addr, Good)
{
	for (const char *same :
	     {"127.0.0.1:7000", "0.0.0.0:1", "255.255.255.255:65535", "[::1]:7000", "[::]:80", "[2001:db8::1]:443"}) {
		Parsed p = parse(same);
		EXPECT_EQ(XPORT_OK, p.status) << p.text;
		EXPECT_EQ(same, p.first);
		EXPECT_EQ(1, p.n);
	}
	EXPECT_EQ("127.0.0.1:7000", parse("[::ffff:127.0.0.1]:7000").first);
	EXPECT_EQ("[fe80::1%1]:7", parse("[fe80::1%lo]:7").first);
}

/* The system would call it an invalid argument. */
TEST(Addr, ALinkLocalAddressNeedsItsZone)
{
	for (const char *address : {"[fe80::1]:7", "[febf::1]:7"}) {
		Parsed p = parse(address);
		EXPECT_EQ(XPORT_ERR_ADDRESS, p.status) << address;
		EXPECT_NE(std::string::npos, p.text.find("link-local address without a zone")) << p.text;
	}
}

TEST(Addr, Listening)
{
	EXPECT_EQ("127.0.0.1:0", parse("127.0.0.1:0", true).first);
	EXPECT_EQ("[::]:0", parse("*:0", true).first);
	EXPECT_EQ(2, parse("*:7000", true).n);
}

TEST(Addr, Name)
{
	addrinfo *known = nullptr;

	if (getaddrinfo("localhost", nullptr, nullptr, &known) != 0)
		GTEST_SKIP() << "this machine does not know the name localhost (/etc/hosts)";
	freeaddrinfo(known);
	Parsed p = parse("localhost:7000");

	EXPECT_EQ(XPORT_OK, p.status) << p.text;
	EXPECT_TRUE(p.loopback);
	EXPECT_TRUE(p.first == "127.0.0.1:7000" || p.first == "[::1]:7000") << p.first;
}

TEST(Addr, Loopback)
{
	EXPECT_TRUE(parse("127.0.0.1:1").loopback);
	EXPECT_TRUE(parse("127.255.3.4:1").loopback);
	EXPECT_TRUE(parse("[::1]:1").loopback);
	EXPECT_TRUE(parse("[::ffff:127.0.0.1]:1").loopback);
	EXPECT_FALSE(parse("128.0.0.1:1").loopback);
	EXPECT_FALSE(parse("0.0.0.0:1").loopback);
	EXPECT_FALSE(parse("[::]:1").loopback);
	EXPECT_FALSE(parse("[::ffff:10.0.0.1]:1").loopback);
	EXPECT_FALSE(parse("*:1", true).loopback);
}

TEST(Addr, Malformed)
{
	const std::string long_label(64, 'a'), long_host(300, 'a');
	struct {
		std::string address;
		const char *told;
		bool listening;
	} cases[] = {
		{"", "port is missing", false},
		{":", "host is missing", false},
		{":7000", "host is missing", false},
		{"7000", "port is missing", false},
		{"127.0.0.1", "port is missing", false},
		{"127.0.0.1:", "port is missing", false},
		{"127.0.0.1:x", "not a number", false},
		{"127.0.0.1:70 00", "not a number", false},
		{"127.0.0.1: 7000", "not a number", false},
		{"127.0.0.1:7000 ", "not a number", false},
		{"127.0.0.1:+7000", "not a number", false},
		{"127.0.0.1:-1", "not a number", false},
		{"127.0.0.1:0x50", "not a number", false},
		{"127.0.0.1:http", "not a number", false},
		{"127.0.0.1:65536", "above 65535", false},
		{"127.0.0.1:99999999999999999999", "above 65535", false},
		{"127.0.0.1:4294967376", "above 65535", false},
		{"127.0.0.1:080", "begins with 0", false},
		{"127.0.0.1:00", "begins with 0", true},
		{"127.0.0.1:0", "only for listening", false},
		{"127.0.0.1:70:00", "brackets", false},
		{"::1:7000", "brackets", false},
		{"[::1:7000", "not closed", false},
		{"[::1]", "port is missing", false},
		{"[::1]7000", "port is missing", false},
		{"[]:7000", "host is missing", false},
		{"[127.0.0.1]:7000", "not an IPv6", false},
		{"[::g]:7000", "not an IPv6", false},
		{"[::1%nosuchzone]:7000", "not an IPv6", false},
		{"[localhost]:7000", "not an IPv6", false},
		{"127.1:7000", "not an IPv4", false},
		{"1.2.3.256:7000", "not an IPv4", false},
		{"1.2.3.4.5:7000", "not an IPv4", false},
		{"01.2.3.04:7000", "not an IPv4", false},
		{"0x7f000001:7000", "not an IPv4", false},
		{"*:7000", "only for listening", false},
		{"**:7000", "character", true},
		{"my host:7000", "character", false},
		{"host\n:7000", "character", false},
		{"h\xc3\xb6st:7000", "character", false},
		{"http://host:7000", "brackets", false},
		{"user@host:7000", "character", false},
		{"-host:7000", "begins with -", false},
		{"host-.net:7000", "ends with -", false},
		{"a..b:7000", "empty", false},
		{".a:7000", "empty", false},
		{"a..:7000", "empty", false},
		{"127.0.0.1.:7000", "not an IPv4", false},
		{long_label + ":7000", "too long", false},
		{long_host + ":7000", "too long", false},
	};

	for (auto &c : cases) {
		Parsed p = parse(c.address, c.listening);

		EXPECT_EQ(XPORT_ERR_ADDRESS, p.status) << c.address;
		EXPECT_NE(std::string::npos, p.text.find(c.told)) << c.address << ": " << p.text;
	}
}

TEST(Addr, FormatIsBounded)
{
	sockaddr_in6 sin6{};
	char buf[8];

	sin6.sin6_family = AF_INET6;
	memset(&sin6.sin6_addr, 0x77, sizeof(sin6.sin6_addr));
	memset(buf, 'x', sizeof(buf));
	xpi_addr_format(reinterpret_cast<sockaddr *>(&sin6), buf, 5);
	EXPECT_STREQ("[777", buf);
	EXPECT_EQ('x', buf[5]);
}
