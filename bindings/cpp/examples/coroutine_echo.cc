// SPDX-License-Identifier: BSD-3-Clause
// coroutine_echo - a server and a client of messages, in C++20: a coroutine for each connection.
//
//   coroutine_echo             the server: prints its address, and ends after its first client
//   coroutine_echo HOST:PORT   the client: sends three lines, and prints the answers
#include <cstdio>
#include <xport.hpp>

enum { REQUEST = 1, ANSWER = 2, MINUTE = 60000 };
static constexpr std::uint64_t whole_tag = ~std::uint64_t{0};

static xp::task serve(xp::instance &x, xp::endpoint &peer)
{
	xp::slice buffer(100);
	for (;;) {
		xp::done request = co_await x.recv(std::move(buffer), REQUEST, whole_tag, &peer);
		if (request.length == 0)
			break;
		xp::done answer = co_await peer.send(request.buffer.sub(0, request.length), ANSWER);
		buffer = std::move(request.buffer);
	}
}

static xp::task ask(xp::instance &x, xp::endpoint &peer)
{
	for (const char *line : {"one", "two", "three"}) {
		co_await peer.send(xp::slice::copy({line, std::strlen(line)}), REQUEST);
		xp::done answer = co_await x.recv(xp::slice(100), ANSWER, whole_tag, &peer);
		std::printf("%.*s\n", static_cast<int>(answer.length), reinterpret_cast<char *>(answer.buffer.data()));
	}
	co_await peer.send({}, REQUEST);
}

int main(int argc, char **argv)
{
	try {
		xp::instance x = xp::instance::open();
		xp::loop loop(x);
		if (argc > 1) {
			xp::endpoint peer = x.connect(argv[1], MINUTE);
			xp::task t = ask(x, peer);
			loop.run([&t] { return t.finished(); });
			t.get();
			peer.close(MINUTE);
		} else {
			xp::listener listener = x.listen("127.0.0.1:0");
			std::printf("%s\n", listener.address().c_str());
			std::fflush(stdout);
			xp::endpoint peer = listener.accept(MINUTE);
			xp::task t = serve(x, peer);
			loop.run([&t] { return t.finished(); });
			t.get();
		}
	} catch (const xp::error &e) {
		std::fprintf(stderr, "%s\n", e.what());
		return 1;
	}
	return 0;
}
