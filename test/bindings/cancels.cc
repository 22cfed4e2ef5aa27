// SPDX-License-Identifier: BSD-3-Clause
//
// cancels - many operations without a caller beside a stopped peer.
//
//	cancels ADDRESS cancels   the target is that of scenarios.cc: prints "ok cancels"
//
// Until its completion, the memory of an operation must be in no other buffer. So the memory that is free again gets
// other bytes, and the peer then goes on: neither the operations nor that memory may have changed.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <set>
#include <string>
#include <vector>
#include <xport_services.hpp>

#define CHECK(x) ((x) ? (void)0 : (void)(std::fprintf(stderr, "%d: not so: %s\n", __LINE__, #x), std::_Exit(1)))

using steady = std::chrono::steady_clock;
static constexpr int limit = 60000;
static constexpr std::size_t piece = 4099;

static const unsigned char *bytes_of(std::size_t i)
{
	static const std::vector<unsigned char> all = [] {
		std::vector<unsigned char> v(1 << 14);
		for (std::size_t j = 0; j < v.size(); j++)
			v[j] = static_cast<unsigned char>(j * 7 + j / 251);
		return v;
	}();
	return &all[i % 8192];
}

static double since(steady::time_point begun)
{
	return std::chrono::duration<double>(steady::now() - begun).count();
}

/* Whether each thread of a process has stopped. */
static bool is_stopped(pid_t pid)
{
	std::string tasks = "/proc/" + std::to_string(pid) + "/task";
	DIR *dir = opendir(tasks.c_str());
	bool stopped = dir != nullptr;

	while (struct dirent *e = stopped ? readdir(dir) : nullptr) {
		FILE *f = e->d_name[0] == '.' ? nullptr : std::fopen((tasks + "/" + e->d_name + "/stat").c_str(), "r");
		char state = 'T';
		if (f != nullptr) {
			stopped = std::fscanf(f, "%*d (%*[^)]) %c", &state) == 1 && state == 'T';
			std::fclose(f);
		}
	}
	if (dir != nullptr)
		closedir(dir);
	return stopped;
}

/* kill only asks for it. */
static void stop(pid_t pid)
{
	auto begun = steady::now();

	CHECK(::kill(pid, SIGSTOP) == 0);
	while (!is_stopped(pid))
		CHECK(since(begun) < limit / 1000);
}

struct side {
	explicit side(const char *address, const xport_attr &attr)
	    : x(xp::instance::open(&attr)), ep(x.connect(address, limit)),
	      key(ep.unpack({ep.info().private_data, ep.info().private_len})), pool(x, piece), loop(x)
	{
	}
	/* Every other one is registered. */
	xp::slice buffer(int i) { return i % 2 == 0 ? pool.take() : xp::slice(piece); }
	static void give_up(xp::operation &&o, int way)
	{
		if (way % 3 == 0) {
			o.try_wait(0);
			return;
		}
		xp::op handle = o.then([](xp::done &) { std::_Exit(9); });
		if (way % 3 == 1)
			handle.cancel();
		handle.abandon();
	}
	/* Gives up operations of each kind.  Returns the memory that is free again. */
	std::vector<xp::slice> batch(int each, bool cancelable)
	{
		std::set<unsigned char *> fetched;
		std::vector<xp::slice> others;
		std::size_t before = x.orphans();

		for (int i = 0; i < each; i++) {
			xp::slice out = buffer(i), get = buffer(i + 1);
			std::memcpy(out.data(), bytes_of(static_cast<std::size_t>(i)), piece);
			fetched.insert(get.data());
			xp::operation send = ep.send(out, 1);
			give_up(ep.put(out, key, piece * static_cast<std::size_t>(i % 250)), i);
			give_up(cancelable ? std::move(send).cancelable() : std::move(send), i / 2);
			give_up(ep.get(std::move(get), key, 0), i / 4);
			give_up(x.recv(buffer(i), 2, ~std::uint64_t{0}, &ep), i / 8);
		}
		loop.turn();
		CHECK(x.orphans() - before >= static_cast<std::size_t>(each));
		std::size_t held = pool.in_use();
		for (int i = 0; i < 4 * each; i++) {
			others.push_back(buffer(i));
			CHECK(fetched.count(others.back().data()) == 0);
			std::memset(others.back().data(), 0xdd, piece);
		}
		CHECK(held >= static_cast<std::size_t>(each / 2));
		return others;
	}
	static void intact(const std::vector<xp::slice> &others)
	{
		static const std::vector<unsigned char> junk(piece, 0xdd);
		for (const xp::slice &s : others)
			CHECK(std::memcmp(s.data(), junk.data(), piece) == 0);
	}
	/* The peer goes on: so do the operations, with the bytes that they had. */
	void resumed(pid_t pid, int each)
	{
		CHECK(::kill(pid, SIGCONT) == 0);
		for (int i = 0; i < each; i++) {
			xp::done answer = x.recv(xp::slice(piece), 2, ~std::uint64_t{0}, &ep).wait(limit);
			CHECK(answer.length == piece);
			std::reverse(answer.buffer.data(), answer.buffer.data() + piece);
			CHECK(std::memcmp(answer.buffer.data(), bytes_of(static_cast<std::size_t>(i)), piece) == 0);
		}
		ep.flush().wait(limit);
		loop.run([this] { return x.in_flight() == 0; }, limit);
		xp::slice got = ep.get(xp::slice(piece * static_cast<std::size_t>(each)), key, 0).wait(limit).buffer;
		for (std::size_t i = 0; i < static_cast<std::size_t>(each); i++)
			CHECK(std::memcmp(got.data() + piece * i, bytes_of(i), piece) == 0);
	}
	/* Waits for the loss of the peer, after at most 1.5 peer timeouts; longer, if this process itself did not run. */
	void lost(steady::time_point begun)
	{
		double gap = 0, longest = 1.5 * x.info().peer_timeout_ms / 1000;

		while (x.in_flight() > 0) {
			auto last = steady::now();
			(void)loop.try_run([this] { return x.in_flight() == 0; }, 50);
			gap = std::max(gap, since(last));
			CHECK(since(begun) < limit / 1000);
		}
		CHECK(since(begun) < longest || (gap > 0.5 && since(begun) < 2 * longest));
	}
	xp::instance x;
	xp::endpoint ep;
	xp::remote_key key;
	xp::pool pool;
	xp::loop loop;
};

static void cancels(const char *address)
{
	const char *backend = std::getenv("XPORT_BACKEND");
	xport_attr attr{};
	attr.size = sizeof(attr);
	if (backend != nullptr && std::strstr(backend, "shm") != nullptr)
		attr.emulate = "get"; /* else one from memory that is mapped here completes beside a stopped peer */
	side s(address, attr);
	pid_t pid = static_cast<pid_t>(s.ep.info().peer_pid);
	for (int i = 0; i < 4; i++) {
		stop(pid);
		std::vector<xp::slice> others = s.batch(125, false);
		s.resumed(pid, 125);
		s.intact(others);
	}
	CHECK(s.pool.in_use() == 0);
	stop(pid);
	std::vector<xp::slice> others = s.batch(2000, true);
	s.lost(steady::now());
	::kill(pid, SIGCONT);
	(void)s.loop.try_run([] { return false; }, 200);
	s.intact(others);
	others.clear();
	CHECK(s.x.orphans() == 0 && s.pool.in_use() == 0);
	auto e = s.x.next_event(0);
	CHECK(e && e->type == XPORT_EVENT_LOST && e->ep == s.ep.get());
	::kill(pid, SIGKILL);
}

int main(int argc, char **argv)
try {
	if (argc != 3 || std::strcmp(argv[2], "cancels") != 0)
		return 2;
	cancels(argv[1]);
	std::printf("ok cancels\n");
	return 0;
} catch (const xp::error &e) {
	std::fprintf(stderr, "%s\n", e.what());
	return 1;
}
