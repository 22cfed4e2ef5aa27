// SPDX-License-Identifier: BSD-3-Clause
// calls - remote procedure calls with xport_services.hpp.
//
//   calls serve             the callee
//   calls ADDRESS NAME...   the caller: prints "ok NAME" for each
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <xport_services.hpp>

namespace
{

#ifndef WAIT_MS
#define WAIT_MS 60000
#endif
constexpr int minute = WAIT_MS;

[[noreturn]] void die(const char *what, int line)
{
	std::fprintf(stderr, "line %d: not so: %s\n", line, what);
	std::_Exit(1);
}
#define MUST(what) ((what) ? (void)0 : die(#what, __LINE__))

std::string pattern(std::size_t seed, std::size_t n)
{
	std::string v(n, 0);
	for (std::size_t i = 0; i < n; i++)
		v[i] = static_cast<char>(seed + i * 7 + i / 251);
	return v;
}

std::string reversed(std::string s)
{
	std::reverse(s.begin(), s.end());
	return s;
}

std::string text(const xp::done &d)
{
	return std::string(reinterpret_cast<char *>(d.buffer.data()), d.length);
}

struct side {
	explicit side(const char *address)
	    : x(xp::instance::open()), ep(x.connect(address, minute)), rpc(xp::rpc::create(x)), loop(x)
	{
	}
	xp::done call(const char *method, xp::const_bytes payload = {}, xp::call_options how = {})
	{
		return rpc.call(ep, method, payload, minute, std::move(how)).try_wait(minute);
	}
	void end()
	{
		MUST(x.orphans() == 0 && x.in_flight() == 0);
		ep.close(minute);
	}
	xp::instance x;
	xp::endpoint ep;
	xp::rpc rpc;
	xp::loop loop;
};

void replies(const char *address)
{
	side s(address);
	MUST(xp::rpc::try_create(s.x).status() == XPORT_ERR_BUSY);
	for (std::size_t n : {std::size_t(0), std::size_t(1), std::size_t(3000), s.rpc.max_payload()}) {
		xp::done d = s.call("reverse", pattern(n, n));
		MUST(d.ok() && text(d) == reversed(pattern(n, n)));
	}
	int left = 1500;
	for (std::size_t i = 0; i < 1500; i++)
		s.rpc.call(s.ep, "reverse", pattern(i, 99), minute).then([i, &left](xp::done &d) {
			MUST(d.ok() && text(d) == reversed(pattern(i, 99)));
			left--;
		});
	s.loop.run([&] { return left == 0; }, minute);
	xp::call_options how;
	std::string trace(24, 't');
	how.one_way = true;
	how.trace = trace.data();
	MUST(s.call("keep", std::string("one way"), std::move(how)).ok());
	MUST(text(s.call("kept")) == "one way" + trace + "1");
	how = {};
	how.reply = xp::slice(4);
	xp::done d = s.call("reverse", std::string("abcdef"), std::move(how));
	MUST(d.status == XPORT_ERR_TRUNCATED && d.length == 6 && std::memcmp(d.buffer.data(), "fedc", 4) == 0);
	s.end();
}

void errors(const char *address)
{
	side s(address);
	xp::done d = s.call("fail", std::string("why not"));
	MUST(d.status == XPORT_ERR_BOUNDS && d.ran == XPORT_RPC_RAN_YES);
	MUST(d.why().text.find("why not") != std::string::npos);
	d = s.call("nothing");
	MUST(d.status == XPORT_ERR_NOT_SUPPORTED && d.ran == XPORT_RPC_RAN_NO && !d.why().text.empty());
	d = s.call("drop");
	MUST(d.status == XPORT_ERR_CANCELED && d.ran == XPORT_RPC_RAN_YES);
	MUST(s.call("long").status == XPORT_ERR_BOUNDS);
	MUST(s.call("reverse", std::string(s.rpc.max_payload() + 1, 0)).status == XPORT_ERR_BOUNDS);
	MUST(s.call("no name").status == XPORT_ERR_INVALID);
	MUST(s.rpc.call(s.ep, "reverse", {}, 0).try_wait(minute).status == XPORT_ERR_INVALID);
	MUST(s.rpc.try_handle("xport.mine", [](xp::rpc_request) {}).status() == XPORT_ERR_INVALID);
	s.rpc.handle("mine", [](xp::rpc_request) {});
	MUST(s.rpc.try_handle("mine", [](xp::rpc_request) {}).status() == XPORT_ERR_BUSY);
	try {
		s.rpc.call(s.ep, "fail", std::string("thrown"), minute).wait();
		MUST(!"an exception");
	} catch (const xp::error &e) {
		MUST(e.why().status == XPORT_ERR_BOUNDS && std::strstr(e.what(), "thrown") != nullptr);
	}
	s.end();
}

// A call that waits until others have ended, which they do not.
void queued_call(const char *address)
{
	xp::instance x = xp::instance::open();
	xp::endpoint ep = x.connect(address, minute);
	xport_rpcs_attr attr{};
	attr.size = sizeof(attr);
	attr.max_calls = 1;
	xp::rpc rpc = xp::rpc::create(x, &attr);
	rpc.call(ep, "never", {}, minute).then([](xp::done &) {});
	xp::done d = rpc.call(ep, "reverse", {}, 50).try_wait(minute);
	MUST(d.status == XPORT_ERR_TIMEOUT && d.ran == XPORT_RPC_RAN_NO);
	MUST(rpc.call(ep, "reverse", {}, minute).try_then([](xp::done &) {}) == XPORT_ERR_AGAIN);
	// The queue of an endpoint does not keep calls back.
	xport_attr small{};
	small.size = sizeof(small);
	small.queue_depth = 4;
	xp::instance y = xp::instance::open(&small);
	xp::endpoint to = y.connect(address, minute);
	xp::rpc calls = xp::rpc::create(y);
	for (int i = 0; i < 8; i++)
		to.send(xp::slice(3 << 20), 99).then([](xp::done &) {});
	MUST(calls.call(to, "reverse", {}, minute).try_then([](xp::done &) {}) == XPORT_OK);
}

// Callers that go away.
void deadlines(const char *address)
{
	side s(address);
	MUST(s.rpc.call(s.ep, "never", {}, 50).try_wait(minute).status == XPORT_ERR_TIMEOUT);
	xp::op op =
		s.rpc.call(s.ep, "never", {}, minute).then([](xp::done &d) { MUST(d.status == XPORT_ERR_CANCELED); });
	MUST(op.cancel() == XPORT_OK);
	MUST(s.rpc.call(s.ep, "never", {}, minute).try_wait(1).status == XPORT_ERR_TIMEOUT);
	for (int i = 0; i < 500; i++) {
		std::weak_ptr<int> gone;
		auto held = std::make_shared<int>(i);
		gone = held;
		op = s.rpc.call(s.ep, "reverse", pattern(0, 3000), minute).then([held](xp::done &) {});
		held.reset();
		if (i % 2 != 0)
			s.loop.turn();
		op.abandon();
		MUST(gone.expired()); // the callback; the reply's memory stays
	}
	MUST(text(s.call("reverse", std::string("ab"))) == "ba");
	queued_call(address);
	s.loop.run([&] { return s.x.in_flight() == 0; }, minute);
	s.end();
}

void loans(const char *address)
{
	side s(address);
	xp::region region = s.x.alloc(4096, XPORT_REMOTE_WRITE);
	xp::call_options how;
	int released = 1;
	how.lent.push_back(region.all());
	how.released = [&](int status) { released = status; };
	MUST(s.rpc.call(s.ep, "hold", {}, 50, std::move(how)).try_wait(minute).status == XPORT_ERR_TIMEOUT);
	// The handler is still at work.
	s.loop.try_run([] { return false; }, 20);
	MUST(s.rpc.loans() == 1 && released == 1 && region.try_close() == XPORT_ERR_BUSY);
	MUST(s.call("let-go").ok());
	s.loop.run([&] { return s.rpc.loans() == 0; }, minute);
	MUST(released == XPORT_OK);
	MUST(region.try_close() == XPORT_OK);
	s.end();
}

// Calls beside the end of an endpoint or of the instance, with replies in flight.
void ends(const char *address)
{
	for (int i = 0; i < 20; i++) {
		side s(address);
		int status = 1;
		s.rpc.call(s.ep, "never", {}, minute).then([&](xp::done &d) { status = d.status; });
		s.loop.turn();
		if (i % 2 == 0) {
			s.ep.close(minute);
			s.loop.run([&] { return status != 1; }, minute);
			MUST(status == XPORT_ERR_CLOSED);
			MUST(s.call("reverse").status == XPORT_ERR_CLOSED);
		} else {
			s.x.close();
			MUST(status == 1 && s.rpc.max_payload() == 0);
		}
	}
}

// The end of the instance, by a handler and by the callback of a call, while both run.
void closes(const char *address)
{
	for (int i = 0; i < 4; i++) {
		side s(address);
		auto callee = std::make_unique<xp::instance>(xp::instance::open());
		xp::rpc rpc = xp::rpc::create(*callee);
		xp::loop loop(*callee);
		std::string name(1000, 'h');
		bool over = false;
		rpc.handle("quit", [&, name](xp::rpc_request r) {
			r.reply({});
			if (i % 2 == 0)
				callee->close();
			else
				callee.reset();
			MUST(r.left() == XPORT_ERR_CLOSED && name == std::string(1000, 'h'));
			over = true;
		});
		xp::listener listener = callee->listen("127.0.0.1:0");
		std::thread caller([name = listener.address()] { side(name.c_str()).call("quit"); });
		xp::endpoint from = listener.accept(minute);
		while (!over)
			MUST(loop.try_turn(100) >= 0);
		caller.join();
		MUST(rpc.max_payload() == 0 && loop.try_turn() == XPORT_ERR_CLOSED);
		over = false;
		xp::instance *x = &s.x;
		s.rpc.call(s.ep, "reverse", {}, minute).then([x, &over](xp::done &d) {
			MUST(d.ok());
			x->close();
			over = true;
		});
		while (!over)
			MUST(s.loop.try_turn(100) >= 0);
		MUST(s.loop.try_turn() == XPORT_ERR_CLOSED && s.rpc.max_payload() == 0);
	}
}

#if defined(__cpp_impl_coroutine)
xp::task several(side &s)
{
	for (std::size_t i = 0; i < 20; i++) {
		xp::done d = co_await s.rpc.call(s.ep, "reverse", pattern(i, 100), minute);
		MUST(text(d) == reversed(pattern(i, 100)));
	}
	try {
		co_await s.rpc.call(s.ep, "fail", std::string("awaited"), minute);
		MUST(!"an exception");
	} catch (const xp::error &e) {
		MUST(std::strstr(e.what(), "awaited") != nullptr);
	}
}

xp::task forever(side &s)
{
	co_await s.rpc.call(s.ep, "never", {}, 10 * minute);
}

void coroutines(const char *address)
{
	side s(address);
	xp::task a = several(s), b = several(s);
	{
		xp::task gone = forever(s);
		s.loop.turn();
	}
	s.loop.run([&] { return a.finished() && b.finished() && s.x.in_flight() == 0; }, minute);
	a.get();
	b.get();
	s.end();
}
#endif

// Against rpc_echo.c.
/* Of scenarios.txt: the callee may be that in C. */
void call(const char *address)
{
	side s(address);
	MUST(text(s.call("echo", std::string("from C++"))) == "from C++");
	xp::done d = s.call("nothing");
	MUST(d.status == XPORT_ERR_NOT_SUPPORTED && d.ran == XPORT_RPC_RAN_NO);
	MUST(text(s.call("echo")).empty());
	s.end();
}

void echo(const char *address)
{
	side s(address);
	MUST(text(s.call("echo", std::string("from C++"))) == "from C++");
	MUST(text(s.call("length", std::string(12, 0))) == "12 bytes");
	s.end();
}

int serve()
{
	xp::instance x = xp::instance::open();
	xp::loop loop(x);
	xp::rpc rpc = xp::rpc::create(x);
	std::vector<xp::rpc_request> held, never;
	std::string kept;

	rpc.handle("echo", [](xp::rpc_request r) { r.reply(r.payload()); });
	rpc.handle("reverse", [](xp::rpc_request r) {
		std::string s(static_cast<const char *>(r.payload().data()), r.payload().size());
		r.reply(reversed(std::move(s)));
	});
	rpc.handle("fail", [](xp::rpc_request r) {
		std::string s(static_cast<const char *>(r.payload().data()), r.payload().size());
		r.fail(XPORT_ERR_BOUNDS, s.c_str());
	});
	rpc.handle("drop", [](xp::rpc_request) {});
	rpc.handle("long", [](xp::rpc_request r) { MUST(r.reply(std::string(1 << 20, 0)) == XPORT_ERR_BOUNDS); });
	rpc.handle("keep", [&](xp::rpc_request r) {
		kept.assign(static_cast<const char *>(r.payload().data()), r.payload().size());
		kept.append(reinterpret_cast<const char *>(r.trace()), 24);
		kept += r.one_way() ? '1' : '0';
		r.reply({});
	});
	rpc.handle("kept", [&](xp::rpc_request r) { r.reply(kept); });
	rpc.handle("hold", [&](xp::rpc_request r) {
		MUST(r.lent());
		held.push_back(std::move(r));
	});
	rpc.handle("let-go", [&](xp::rpc_request r) {
		for (auto &h : held)
			MUST(h.reply({}) == XPORT_ERR_CANCELED);
		held.clear();
		r.reply({});
	});
	rpc.handle("never", [&](xp::rpc_request r) { never.push_back(std::move(r)); });
	xp::listener listener = x.listen("127.0.0.1:0");
	std::printf("%s\n", listener.address().c_str());
	std::fflush(stdout);
	for (;;) {
		xp::endpoint ep = listener.accept(-1);
		xport_ep *peer = ep.get();
		bool over = false;
		x.on_event([&](const xp::event &e) {
			over = over || (e.ep == peer && (e.type == XPORT_EVENT_CLOSED || e.type == XPORT_EVENT_LOST));
		});
		loop.run([&] { return over; });
		never.clear();
	}
}

} // namespace

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(const char *address);
	} scenarios[] = {
		{"replies", replies},
		{"errors", errors},
		{"deadlines", deadlines},
		{"loans", loans},
		{"ends", ends},
		{"closes", closes},
#if defined(__cpp_impl_coroutine)
		{"coroutines", coroutines},
#endif
		{"call", call},
		{"echo", echo},
	};
	try {
		if (argc > 1 && std::string(argv[1]) == "serve")
			return serve();
		for (int i = 2; i < argc; i++)
			for (auto &s : scenarios)
				if (std::string(argv[i]) == s.name) {
					s.run(argv[1]);
					std::printf("ok %s\n", s.name);
				}
	} catch (const xp::error &e) {
		std::fprintf(stderr, "%s\n", e.what());
		return 1;
	}
	return 0;
}
