/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_services.hpp - remote procedure calls, leases and pools of libxport_services for C++17, on xport.hpp.
 *
 * A call is an operation as those of xport.hpp: post it by then, try_then or wait, or co_await it.  Its reply is
 * done::buffer, with done::length bytes.  The memory of the reply belongs to a slot until the call has ended.  A caller
 * that goes away cancels the call.
 *
 * An instance has one rpc, which ends with it.  The loop of the instance runs it.
 */
#ifndef XPORT_SERVICES_HPP
#define XPORT_SERVICES_HPP

#include <map>
#include <xport.hpp>
#include <xport_services.h>

#include <xport/leases.hpp>
#include <xport/pool.hpp>

namespace xp
{

/* Options of a call. */
struct call_options {
	bool one_way = false;        /* no reply: done when the callee has handed it to its application */
	const void *trace = nullptr; /* 24 bytes of trace context that the handler gets; copied */
	/* Regions whose keys are in the payload.  They are kept until the callee accesses them no longer. */
	std::vector<slice> lent;
	/* Called after the end of the call: XPORT_OK, or why the callee cannot be heard.  After XPORT_ERR_PROTOCOL, _NO_MEMORY
	   and _PEER_CLOSED a handler may still access the memory: close the regions before it is used again. */
	std::function<void(int status)> released;
	slice reply; /* memory of the reply; empty: new memory of the longest payload */
};

/*
 * A call of a peer, at its callee.  Reply once, now or later.  A request that is destroyed without a reply ends at its
 * caller with XPORT_ERR_CANCELED, or XPORT_ERR_TIMEOUT if its deadline is over.
 */
class rpc_request;

namespace detail
{

struct loan {
	std::vector<slice> lent;
	std::function<void(int)> released;
};

struct rpc_service final : service {
	explicit rpc_service(core &c) : owner(&c) {}
	const char *name() const noexcept override { return "rpc"; }
	bool step(const xport_completion *c) noexcept override { return xport_rpcs_step(rpcs, c) == 1; }
	int timeout() noexcept override { return rpcs != nullptr ? xport_rpcs_timeout(rpcs) : -1; }
	int take() override;
	void forget(xport_ep *ep) noexcept override { xport_rpcs_forget(rpcs, ep); }
	int cancel(std::uint64_t id) noexcept override { return xport_rpc_cancel(rpcs, id); }
	/* Drops other completions, as the end of the instance does.  Calls whose messages cannot be ended without waiting stay
	   allocated; nothing uses them after xport_close. */
	void end() noexcept override
	{
		int status = XPORT_ERR_TIMEOUT;

		for (int i = 0; i < 100 && status == XPORT_ERR_TIMEOUT; i++)
			status = xport_rpcs_destroy(rpcs, nullptr, nullptr, 0);
		rpcs = nullptr;
	}
	void done_with(const xport_rpc_event &e);

	core *owner;
	xport_rpcs *rpcs = nullptr; /* NULL: it has ended */
	std::size_t max_payload = 0;
	std::deque<std::function<void(rpc_request)>> handlers;
	std::map<std::uint64_t, loan> loans; /* by the id of the call */
};

/* A call before it is posted. */
struct rpc_call final : posted_by_service {
	int post(slot &s, xport_ep *ep) noexcept override
	{
		using clock = std::chrono::steady_clock;
		auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock::now()).count();
		xport_rpc_args a{};

		if (rpc == nullptr || rpc->rpcs == nullptr)
			return XPORT_ERR_CLOSED;
		if (foreign)
			return XPORT_ERR_INVALID;
		a.size = sizeof(a);
		a.payload = payload.data();
		a.len = payload.size();
		a.reply = s.buffer.data();
		a.reply_max = s.buffer.size();
		a.deadline_ms = deadline_ms <= 0 ? 0 : left < 1 ? 1 : static_cast<std::uint32_t>(left);
		a.flags = flags;
		a.context = &s;
		a.id = &s.id;
		std::memcpy(a.trace, trace, sizeof(a.trace));
		int status = xport_rpc_call(rpc->rpcs, ep, method.c_str(), &a);
		if (status == XPORT_OK) {
			s.owner = rpc;
			if (!given.lent.empty())
				rpc->loans[s.id] = std::move(given);
		}
		return status;
	}
	rpc_service *rpc = nullptr;
	bool foreign = false; /* the endpoint belongs to another instance */
	std::string method, payload;
	int deadline_ms = 0;
	std::chrono::steady_clock::time_point end;
	std::uint32_t flags = 0;
	unsigned char trace[24] = {};
	loan given;
};

} // namespace detail

class rpc_request
{
public:
	rpc_request(rpc_request &&r) noexcept
	    : core_(std::move(r.core_)), rpc_(r.rpc_), event_(r.event_), id_(std::exchange(r.id_, 0))
	{
	}
	rpc_request &operator=(rpc_request &&r) noexcept
	{
		std::swap(core_, r.core_);
		std::swap(rpc_, r.rpc_);
		std::swap(event_, r.event_);
		std::swap(id_, r.id_);
		return *this;
	}
	~rpc_request()
	{
		if (id_ != 0)
			fail(left() == 0 ? XPORT_ERR_TIMEOUT : XPORT_ERR_CANCELED, "the handler dropped the request");
	}
	const char *method() const noexcept { return event_.method; }
	/* Valid until the reply. */
	const_bytes payload() const noexcept { return {event_.payload, event_.len}; }
	/* The caller, to be compared with endpoint::get; NULL: its endpoint has ended. */
	xport_ep *ep() const noexcept
	{
		int status = left();
		return status >= 0 || status == XPORT_ERR_CANCELED ? event_.ep : nullptr;
	}
	bool one_way() const noexcept { return (event_.flags & XPORT_RPC_ONE_WAY) != 0; }
	bool lent() const noexcept { return (event_.flags & XPORT_RPC_LENT) != 0; }
	const unsigned char *trace() const noexcept { return event_.trace; }
	/* Milliseconds until the deadline, or why nobody waits for the reply. */
	int left() const noexcept { return alive() ? xport_rpc_left(rpc_->rpcs, id_) : XPORT_ERR_CLOSED; }
	/* Returns XPORT_OK, or why the caller does not get the reply: one that is too long ends the call, too. */
	int reply(const_bytes b) noexcept { return end(XPORT_OK, b); }
	int fail(int status, const char *text = "") noexcept
	{
		std::size_t n = std::strlen(text);
		std::size_t max = alive() ? rpc_->max_payload : 0;
		return end(status < 0 ? status : static_cast<int>(XPORT_ERR_SYSTEM), {text, n < max ? n : max});
	}

private:
	friend struct detail::rpc_service;
	rpc_request(detail::rpc_service *r, const xport_rpc_event &e)
	    : core_(detail::ref<detail::core>(r->owner)), rpc_(r), event_(e), id_(e.id)
	{
	}
	bool alive() const noexcept { return core_ && core_->x != nullptr && rpc_->rpcs != nullptr && id_ != 0; }
	int end(int status, const_bytes b) noexcept
	{
		if (!alive())
			return XPORT_ERR_CLOSED;
		std::uint64_t id = std::exchange(id_, 0);
		int got = xport_rpc_reply(rpc_->rpcs, id, status, b.data(), b.size());
		/* These leave the request as it is. */
		if (got == XPORT_ERR_BOUNDS || got == XPORT_ERR_NO_MEMORY || got == XPORT_ERR_INVALID)
			xport_rpc_reply(rpc_->rpcs, id, got, nullptr, 0);
		return got;
	}
	detail::ref<detail::core> core_;
	detail::rpc_service *rpc_;
	xport_rpc_event event_;
	std::uint64_t id_;
};

namespace detail
{

inline void rpc_service::done_with(const xport_rpc_event &e)
{
	xport_completion c{};
	done d;

	c.status = e.status;
	c.length = e.len;
	d.ran = e.ran;
	d.retry_after_ms = e.retry_after_ms;
	d.cause = e.why;
	owner->finish(*static_cast<slot *>(e.context), c, std::move(d));
}

inline int rpc_service::take()
{
	xport_rpc_event e{};
	int n = 0;

	e.size = sizeof(e);
	while (rpcs != nullptr && owner->x != nullptr && xport_rpcs_next(rpcs, &e) == 1) {
		n++;
		if (e.type == XPORT_RPC_DONE) {
			done_with(e);
		} else if (e.type == XPORT_RPC_RELEASED) {
			auto over = loans.extract(e.id);
			if (over && over.mapped().released)
				owner->guarded([&] { over.mapped().released(e.status); });
		} else if (e.type == XPORT_RPC_REQUEST) {
			rpc_request request(this, e);
			auto &handler = *static_cast<std::function<void(rpc_request)> *>(e.context);
			owner->guarded([&] { handler(std::move(request)); });
		}
	}
	return n;
}

} // namespace detail

/* The calls of an instance, as caller and as callee. */
class rpc
{
public:
	rpc(rpc &&) noexcept = default;
	rpc &operator=(rpc &&) noexcept = default;
	/* NULL: all defaults. */
	static result<rpc> try_create(instance &x, const xport_rpcs_attr *attr = nullptr)
	{
		detail::core &c = *x.core_.get();
		if (c.x == nullptr)
			return failure{XPORT_ERR_CLOSED, 0, "rpc", {}, {}, "the instance is closed", {}};
		for (auto &other : c.services)
			if (std::strcmp(other->name(), "rpc") == 0)
				return failure{XPORT_ERR_BUSY, 0, "rpc", {}, {}, "the instance has an rpc already",
				               "use that one."};
		auto s = std::make_unique<detail::rpc_service>(c);
		int status = xport_rpcs_create(c.x, attr, &s->rpcs);
		if (status < 0)
			return detail::service_failure(status, "xport_rpcs_create");
		xport_rpcs_info i{};
		i.size = sizeof(i);
		if (xport_rpcs_query(s->rpcs, &i) == XPORT_OK)
			s->max_payload = i.max_payload;
		rpc r(x.core_, s.get());
		c.services.push_back(std::move(s));
		return r;
	}
	/* Bytes of the longest payload of a call or reply. */
	std::size_t max_payload() const noexcept { return alive() ? rpc_->max_payload : 0; }
	/*
	 * Calls a method of a peer.  The deadline begins now, and travels with the call.  If too many calls are in progress,
	 * this one waits.  done::ran says whether the handler ran, enum xport_rpc_ran.
	 */
	operation call(const endpoint &ep, const char *method, const_bytes payload, int deadline_ms,
	               call_options how = {}) const
	{
		auto c = std::make_unique<detail::rpc_call>();
		detail::request r;
		r.ep = ep.rec_;
		r.buffer = std::move(how.reply);
		if (r.buffer.size() == 0 && !how.one_way)
			r.buffer = slice(max_payload());
		c->rpc = alive() ? rpc_ : nullptr;
		c->foreign = ep.rec_->owner.get() != core_.get();
		c->method = method;
		if (payload.size() > 0)
			c->payload.assign(static_cast<const char *>(payload.data()), payload.size());
		c->deadline_ms = deadline_ms;
		c->end = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
		c->flags = (how.one_way ? static_cast<unsigned>(XPORT_RPC_ONE_WAY) : 0U) |
		           (how.lent.empty() ? 0U : static_cast<unsigned>(XPORT_RPC_LENT));
		if (how.trace != nullptr)
			std::memcpy(c->trace, how.trace, sizeof(c->trace));
		c->given = {std::move(how.lent), std::move(how.released)};
		if (deadline_ms > 0)
			r.end = c->end;
		r.extra = std::move(c);
		return operation(core_, std::move(r));
	}
	/* Registers a method.  The loop calls `f` with each request.  It may keep the request, and reply later. */
	result<bool> try_handle(const char *method, std::function<void(rpc_request)> f)
	{
		if (!alive())
			return failure{XPORT_ERR_CLOSED, 0, "rpc", {}, {}, "the calls have ended", {}};
		rpc_->handlers.push_back(std::move(f));
		int status = xport_rpc_register(rpc_->rpcs, method, nullptr, &rpc_->handlers.back());
		if (status < 0) {
			rpc_->handlers.pop_back();
			return detail::service_failure(status, "xport_rpc_register");
		}
		return true;
	}
	/* Calls that have lent memory that the callee may still access. */
	std::size_t loans() const noexcept { return alive() ? rpc_->loans.size() : 0; }
#if defined(__cpp_exceptions)
	static rpc create(instance &x, const xport_rpcs_attr *attr = nullptr)
	{
		return try_create(x, attr).value();
	}
	void handle(const char *method, std::function<void(rpc_request)> f)
	{
		try_handle(method, std::move(f)).value();
	}
#endif

private:
	rpc(detail::ref<detail::core> c, detail::rpc_service *s) : core_(std::move(c)), rpc_(s)
	{
	}
	bool alive() const noexcept
	{
		return core_ && core_->x != nullptr && rpc_->rpcs != nullptr;
	}
	detail::ref<detail::core> core_;
	detail::rpc_service *rpc_;
};

} // namespace xp

#endif
