// SPDX-License-Identifier: BSD-3-Clause
// remote_put - one process writes into the memory of another, with callbacks.
//
//   remote_put             the target: prints its address, then waits for the put
//   remote_put HOST:PORT   the initiator: puts a text into the target's memory
#include <cstdio>
#include <cstring>
#include <xport.hpp>

static constexpr int second = 1000;

static void target()
{
	xp::instance x = xp::instance::open();
	xp::region memory = x.alloc(4096, XPORT_REMOTE_WRITE);
	std::string key = memory.key(); // each peer that connects gets the key
	xp::listener listener = x.listen("127.0.0.1:0", {key, 0});
	std::printf("%s\n", listener.address().c_str());
	std::fflush(stdout);
	xp::endpoint peer = listener.accept(60 * second);
	while (auto e = x.next_event(60 * second))
		if (e->type == XPORT_EVENT_NOTIFY) {
			std::printf("%llu bytes: %s\n", static_cast<unsigned long long>(e->tag),
			            reinterpret_cast<char *>(memory.data()));
			break;
		}
}

static void initiator(const char *address)
{
	xp::instance x = xp::instance::open();
	xp::endpoint peer = x.connect(address, 60 * second);
	xport_ep_info info = peer.info();
	xp::remote_key key = peer.unpack({info.private_data, info.private_len});
	std::string text = "written by C++";
	std::uint64_t length = text.size();
	bool placed = false;
	peer.put_notify(xp::slice::own(std::move(text)), key, 0, length).then([&placed](xp::done &d) {
		d.check(); // throws out of loop::run
		placed = true;
	});
	xp::loop(x).run([&placed] { return placed; });
	peer.close(60 * second);
}

int main(int argc, char **argv)
{
	try {
		if (argc > 1)
			initiator(argv[1]);
		else
			target();
	} catch (const xp::error &e) {
		std::fprintf(stderr, "%s\n", e.what());
		return 1;
	}
	return 0;
}
