// SPDX-License-Identifier: BSD-3-Clause
// scenarios - the scenarios of scenarios.txt with xport.hpp.
//
//   scenarios serve             the target, as peer.c
//   scenarios ADDRESS NAME...   the initiator: prints "ok NAME" for each
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <xport.hpp>

namespace
{

#ifndef WAIT_MS
#define WAIT_MS 60000
#endif
constexpr int minute = WAIT_MS;
constexpr std::size_t region_size = 1 << 20, message_size = 1 << 18;
constexpr std::uint32_t all_rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC;

[[noreturn]] void die(const char *what, int line)
{
	std::fprintf(stderr, "line %d: not so: %s\n", line, what);
	std::_Exit(1);
}
#define MUST(what) ((what) ? (void)0 : die(#what, __LINE__))

std::vector<unsigned char> pattern(unsigned seed, std::size_t n)
{
	std::vector<unsigned char> v(n);
	for (std::size_t i = 0; i < n; i++)
		v[i] = static_cast<unsigned char>(seed + i * 7 + i / 251);
	return v;
}

bool same(const xp::slice &s, std::size_t n, const std::vector<unsigned char> &v)
{
	return n == v.size() && s.size() >= n && (n == 0 || std::memcmp(s.data(), v.data(), n) == 0);
}

// One connection to the target.
struct side {
	explicit side(const char *address, const xport_attr *attr = nullptr)
	    : x(xp::instance::open(attr)), ep(x.connect(address, minute)), key(ep.unpack(peer_key()))
	{
	}
	xp::const_bytes peer_key() const
	{
		xport_ep_info i = ep.info();
		return {i.private_data, i.private_len};
	}
	// The answer to a message.
	xp::done ask(const std::vector<unsigned char> &message)
	{
		bool sent = false;
		ep.send(xp::slice::copy(message), 1).then([&sent](xp::done &d) { sent = d.check().ok(); });
		xp::done answer = x.recv(xp::slice(message_size), 2, ~std::uint64_t{0}, &ep).wait(minute);
		xp::loop(x).run([&sent] { return sent; }, minute);
		return answer;
	}
	void end()
	{
		ep.close(minute);
		MUST(x.orphans() == 0 && x.in_flight() == 0);
	}
	xp::instance x;
	xp::endpoint ep;
	xp::remote_key key;
};

void connect(const char *address)
{
	side s(address);
	MUST(s.ep.info().state == XPORT_EP_OPEN && s.ep.info().peer_pid > 1);
	MUST(s.key.info().length == region_size);
	MUST(s.ep.info().backend[0] != '\0' && s.ep.info().provider[0] != '\0' && s.ep.info().passed_over[0] == '\0');
	try {
		s.x.connect("127.0.0.1:1", minute);
		MUST(!"connected to nobody");
	} catch (const xp::error &e) {
		MUST(e.status() == XPORT_ERR_REFUSED && !e.hint().empty());
		MUST(std::string(e.what()).find("xport_connect") == 0);
	}
	s.end();
	MUST(s.ep.try_close(0) == XPORT_ERR_CLOSED);
	s.x.close();
	MUST(s.x.try_listen("127.0.0.1:0").status() == XPORT_ERR_CLOSED);
	MUST(s.ep.put_value(1, s.key, 0).try_wait().status == XPORT_ERR_CLOSED);
}

void put(const char *address)
{
	side s(address);
	auto bytes = pattern(1, 300001), small = pattern(2, 8);
	s.ep.put(xp::slice::own(pattern(1, 300001)), s.key, 17).wait(minute);
	auto memory = std::make_shared<std::vector<unsigned char>>(small);
	xp::region r = s.x.adopt(memory, memory->data(), memory->size(), 0);
	s.ep.fence();
	{
		xp::done d = s.ep.put(r.all(), s.key, 400000).wait(minute);
		MUST(r.try_close() == XPORT_ERR_BUSY && d.buffer.size() == 8);
	}
	MUST(r.try_close() == XPORT_OK);
	s.ep.put_value(77, s.key, 500000).wait(minute);
	s.ep.flush().wait(minute);
	MUST(same(s.ep.get(xp::slice(bytes.size()), s.key, 17).wait(minute).buffer, bytes.size(), bytes));
	MUST(same(s.ep.get(xp::slice(8), s.key, 400000).wait(minute).buffer, 8, small));
	std::uint64_t value;
	std::memcpy(&value, s.ep.get(xp::slice(8), s.key, 500000).wait(minute).buffer.data(), 8);
	MUST(value == 77);
	s.end();
}

void get(const char *address)
{
	side s(address);
	auto bytes = pattern(3, 70001);
	s.ep.put(xp::slice::copy(bytes), s.key, 5).wait(minute);
	xp::region r = s.x.alloc(100000, 0);
	int left = 10;
	for (int i = 0; i < 10; i++)
		s.ep.get(r.part(0, bytes.size()), s.key, 5).then([&](xp::done &d) {
			left--;
			MUST(d.ok() && same(d.buffer, d.length, bytes));
		});
	xp::loop(s.x).run([&] { return left == 0; }, minute);
	s.end();
}

void notify(const char *address)
{
	side s(address);
	s.ep.put_notify(xp::slice::copy(pattern(4, 4099)), s.key, 1000, 0xfeedfacecafebeef).wait(minute);
	xp::done d = s.ask({'N'});
	std::uint64_t value;
	MUST(d.length == sizeof(value));
	std::memcpy(&value, d.buffer.data(), sizeof(value));
	MUST(value == 0xfeedfacecafebeef);
	s.end();
}

void atomics(const char *address)
{
	side s(address);
	s.ep.put_value(100, s.key, 800).wait(minute);
	s.ep.fence();
	MUST(s.ep.atomic(XPORT_ATOMIC_ADD, s.key, 800, 41).wait(minute).value == 100);
	MUST(s.ep.atomic(XPORT_ATOMIC_CAS, s.key, 800, 7, 141).wait(minute).value == 141);
	MUST(s.ep.atomic(XPORT_ATOMIC_ADD, s.key, 800, 1, 0, 4).wait(minute).value == 7);
	MUST(s.ep.atomic(XPORT_ATOMIC_ADD, s.key, 804, 1, 0, 4).wait(minute).value == 0);
	s.end();
}

void messages(const char *address)
{
	side s(address);
	for (std::size_t n : {1u, 100u, 0u, 5000u, 200003u}) {
		auto bytes = pattern(5, n);
		xp::done d = s.ask(bytes);
		std::reverse(bytes.begin(), bytes.end());
		MUST(d.tag == 2 && same(d.buffer, d.length, bytes));
	}
	s.end();
}

#if defined(__cpp_impl_coroutine)
xp::task receive_one(xp::instance &x, xp::endpoint &ep, bool &took)
{
	co_await x.recv(xp::slice(100), 2, ~std::uint64_t{0}, &ep);
	took = true;
}

xp::task put_and_get(side &s, bool &same_value)
{
	co_await s.ep.put_value(5, s.key, 64);
	co_await s.ep.flush();
	xp::done d = co_await s.ep.get(xp::slice(8), s.key, 64);
	same_value = d.buffer.data()[0] == 5;
	d = co_await s.ep.get(std::move(d.buffer), s.key, region_size);
}

void coroutines(side &s)
{
	bool took = false, same_value = false;
	{
		xp::task t = receive_one(s.x, s.ep, took);
		MUST(!t.finished());
	}
	MUST(s.x.orphans() == 2); // and the wait that timed out
	xp::task t = put_and_get(s, same_value);
	xp::loop(s.x).run([&] { return t.finished(); }, minute);
	MUST(same_value && !took);
	try {
		t.get();
		MUST(!"an error reaches the caller of the task");
	} catch (const xp::error &e) {
		MUST(e.status() == XPORT_ERR_BOUNDS);
	}
}
#else
void coroutines(side &)
{
}
#endif

void cancel(const char *address)
{
	side s(address);
	bool called = false;
	xp::op receive =
		s.x.recv(xp::slice(100), 99).then([&called](xp::done &d) { called = d.status == XPORT_ERR_CANCELED; });
	MUST(receive.in_flight() && receive.cancel() == XPORT_OK);
	xp::loop(s.x).run([&called] { return called; }, minute);
	MUST(!receive.in_flight() && receive.cancel() == XPORT_ERR_INVALID);
	// After its timeout a wait is an orphan, which is cancelled: the answer goes to the next receive.
	MUST(s.x.recv(xp::slice(100), 2, ~std::uint64_t{0}, &s.ep).try_wait(1).status == XPORT_ERR_TIMEOUT);
	coroutines(s);
	MUST(s.ask({'a', 'b'}).buffer.data()[0] == 'b');
	s.ep.flush().wait(minute);
	s.end();
}

// Operations that the peer never matches.
// Operations that wait for space, which never comes.
void queued_deadline(const char *address)
{
	xport_attr attr{};
	attr.size = sizeof(attr);
	attr.queue_depth = 4;
	side s(address, &attr);
	xp::loop loop(s.x);
	for (int i = 0; i < 8; i++)
		s.ep.send(xp::slice(3 << 20), 99).then([](xp::done &) {});
	loop.turn();
	MUST(s.x.timeout() == -1);
	auto begun = std::chrono::steady_clock::now();
	xp::done d = s.ep.send(xp::slice(100), 99).within(50).try_wait(minute);
	MUST(d.status == XPORT_ERR_TIMEOUT && d.buffer.size() == 100);
	MUST(std::chrono::steady_clock::now() - begun >= std::chrono::milliseconds(50));
	// In the loop of the program, which sleeps as long as it may.
	int status = 1;
	s.ep.send(xp::slice(100), 99).within(50).then([&status](xp::done &e) { status = e.status; });
	while (status == 1) {
		int ms = s.x.timeout();
		MUST(ms >= 0 && ms <= 51);
		std::this_thread::sleep_for(std::chrono::milliseconds(ms));
		loop.turn();
	}
	MUST(status == XPORT_ERR_TIMEOUT);
	status = 1;
	xp::op send = s.ep.send(xp::slice(100), 99).then([&status](xp::done &e) { status = e.status; });
	MUST(send.cancel() == XPORT_OK && s.x.timeout() == 0);
	loop.turn();
	MUST(status == XPORT_ERR_CANCELED);
	s.x.close();
}

void deadline(const char *address)
{
	side s(address);
	xp::done d = s.x.recv(xp::slice(100), 99).within(50).try_wait(minute);
	MUST(d.status == XPORT_ERR_TIMEOUT && d.buffer.size() == 100);
	xp::slice data(3 << 20); // longer than eager_max
	d = s.ep.send(data, 99).within(50).try_wait(minute);
	MUST(d.status == XPORT_ERR_TIMEOUT && d.buffer.size() == data.size());
	MUST(s.ep.put_value(1, s.key, 0).within(minute).try_wait(minute).ok());
	int status = 1;
	xp::op send = s.ep.send(data, 99).cancelable().then([&status](xp::done &e) { status = e.status; });
	MUST(send.cancel() == XPORT_OK);
	xp::loop(s.x).run([&status] { return status != 1; }, minute);
	MUST(status == XPORT_ERR_CANCELED);
	s.ep.send(data, 99).cancelable().then([](xp::done &) {}).abandon();
	xp::loop(s.x).run([&s] { return s.x.in_flight() == 0; }, minute);
	MUST(s.ep.info().state == XPORT_EP_OPEN);
	s.end();
	queued_deadline(address);
}

void wrong_key(const char *address)
{
	side s(address);
	auto bad = s.ep.try_unpack(xp::slice(64));
	MUST(!bad && bad.status() == XPORT_ERR_BAD_KEY && !bad.why().text.empty());
	xp::operation o = s.ep.put_value(1, s.key, region_size - 7);
	MUST(o.try_then([](xp::done &) {}) == XPORT_ERR_BOUNDS);
	try {
		o.wait(minute);
		MUST(!"refused");
	} catch (const xp::error &e) {
		MUST(e.status() == XPORT_ERR_BOUNDS &&
		     std::string(e.what()).find("XPORT_ERR_BOUNDS") != std::string::npos);
	}
	s.end();
}

void again(const char *address)
{
	xport_attr attr{};
	attr.size = sizeof(attr);
	attr.queue_depth = 4;
	side s(address, &attr);
	int refused = 0, completed = 0, posted = 0;
	auto count = [&](xp::done &d) { completed += d.check().ok(); };
	for (; refused == 0 && posted < 100; posted++)
		refused = s.ep.put_value(1, s.key, 8).try_then(count);
	MUST(refused == XPORT_ERR_AGAIN && posted == 5);
	for (int i = 0; i < 200; i++)
		s.ep.put_value(static_cast<std::uint64_t>(i), s.key, 8).then(count);
	xp::loop(s.x).run([&] { return completed == 204; }, minute);
	MUST(s.ep.get(xp::slice(8), s.key, 8).wait(minute).buffer.data()[0] == 199);
	// An exception of a callback leaves the loop after the turn.
	s.ep.put_value(1, s.key, 8).then([](xp::done &) { throw 7; });
	try {
		xp::loop(s.x).run([] { return false; }, minute);
		MUST(!"thrown");
	} catch (int n) {
		MUST(n == 7);
	}
	s.end();
}

void fork(const char *address)
{
	side s(address);
	pid_t child = ::fork();
	if (child == 0) {
		bool refused = s.ep.put_value(1, s.key, 0).try_wait(minute).status == XPORT_ERR_FORK;
		refused &= s.x.try_listen("127.0.0.1:0").status() == XPORT_ERR_FORK;
		::_exit(refused ? 0 : 1);
	}
	int status;
	MUST(child > 0 && ::waitpid(child, &status, 0) == child && status == 0);
	s.end();
}

// Memory whose end can be seen.
struct watched {
	std::vector<unsigned char> bytes = std::vector<unsigned char>(100);
	std::shared_ptr<int> token = std::make_shared<int>();
	unsigned char &operator[](std::size_t i) { return bytes[i]; }
	std::size_t size() const { return bytes.size(); }
};

// An operation beside a peer that is gone, and the event.
void lost(side &s, int signal)
{
	auto memory = std::make_shared<std::vector<unsigned char>>(100);
	std::weak_ptr<std::vector<unsigned char>> watch(memory);
	int status = 0;
	s.x.recv(xp::slice(100), 2, ~std::uint64_t{0}, &s.ep).then([&status](xp::done &d) { status = d.status; });
	pid_t pid = static_cast<pid_t>(s.ep.info().peer_pid);
	MUST(::kill(pid, signal) == 0);
	xp::op abandoned[100], one_more;
	std::weak_ptr<int> held;
	{
		watched w;
		held = w.token;
		one_more = s.ep.get(xp::slice::own(std::move(w)), s.key, 0).then([](xp::done &) { std::_Exit(9); });
		one_more.abandon();
		xp::region r = s.x.adopt(memory, memory->data(), memory->size(), 0);
		for (xp::op &o : abandoned) {
			o = s.ep.get(r.all(), s.key, 0).then([](xp::done &) { std::_Exit(9); });
			o.abandon();
		}
	}
	memory.reset();
	MUST(!watch.expired() && !held.expired());
	xp::loop(s.x).run([&] { return status != 0 && s.x.orphans() == 0; }, minute);
	MUST(status == XPORT_ERR_PEER_LOST);
	auto e = s.x.next_event(minute);
	MUST(e && e->type == XPORT_EVENT_LOST && e->ep == s.ep.get());
	MUST(s.x.in_flight() == 0 && s.ep.put_value(1, s.key, 0).try_wait(minute).status == XPORT_ERR_PEER_LOST);
	s.x.reclaim();
	MUST(watch.expired() && held.expired());
	::kill(pid, SIGKILL);
}

void kill(const char *address)
{
	side s(address);
	lost(s, SIGKILL);
}

void stop(const char *address)
{
	side s(address);
	lost(s, SIGSTOP);
}

// ---- the target ----

struct server {
	xp::instance x = xp::instance::open();
	xp::region memory = x.alloc(region_size, all_rights);
	xp::endpoint *ep = nullptr;
	bool wanted = false, come = false, ended = false;
	std::uint64_t value = 0;

	void receive()
	{
		x.recv(xp::slice(message_size), 1, ~std::uint64_t{0}, ep).then([this](xp::done &d) {
			if (!d.ok())
				return;
			wanted = d.length == 1 && d.buffer.data()[0] == 'N';
			std::reverse(d.buffer.data(), d.buffer.data() + d.length);
			if (!wanted)
				reply(d.buffer.sub(0, d.length));
			answer();
		});
	}
	void reply(xp::slice s)
	{
		ep->send(std::move(s), 2).then([this](xp::done &d) {
			if (d.ok())
				receive();
		});
	}
	void answer()
	{
		if (wanted && come)
			reply(xp::slice::copy({&value, sizeof(value)}));
		if (wanted && come)
			wanted = come = false;
	}
	void on_event(const xp::event &e)
	{
		if (e.type == XPORT_EVENT_NOTIFY) {
			value = e.tag;
			come = true;
			answer();
		}
		ended |= (e.type == XPORT_EVENT_CLOSED || e.type == XPORT_EVENT_LOST) && e.ep == ep->get();
	}
	[[noreturn]] void run()
	{
		std::string key = memory.key();
		xp::listener l = x.listen("127.0.0.1:0", {key, 0});
		std::printf("%s\n", l.address().c_str());
		std::fflush(stdout);
		x.on_event([this](const xp::event &e) { on_event(e); });
		for (;;) {
			xp::endpoint next = l.accept();
			ep = &next;
			ended = wanted = come = false;
			receive();
			xp::loop(x).run([this] { return ended; });
		}
	}
};

struct scenario {
	const char *name;
	void (*run)(const char *address);
} const scenarios[] = {{"connect", connect}, {"put", put},           {"get", get},
                       {"notify", notify},   {"atomics", atomics},   {"messages", messages},
                       {"cancel", cancel},   {"deadline", deadline}, {"wrong_key", wrong_key},
                       {"again", again},     {"fork", fork},         {"kill", kill},
                       {"stop", stop}};

} // namespace

int main(int argc, char **argv)
{
	try {
		if (argc == 2 && std::string(argv[1]) == "serve") {
			server s;
			s.run();
		}
		for (int i = 2; i < argc; i++)
			for (const scenario &s : scenarios)
				if (std::string(argv[i]) == s.name) {
					s.run(argv[1]);
					std::printf("ok %s\n", s.name);
					std::fflush(stdout);
				}
	} catch (const std::exception &e) {
		std::fprintf(stderr, "%s\n", e.what());
		return 1;
	}
	return 0;
}
