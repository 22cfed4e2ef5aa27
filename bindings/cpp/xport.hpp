/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport.hpp - libxport for C++17: owners, slices, callbacks, and coroutines under C++20.
 *
 * The namespace is xp, because xport is the name of a type in xport.h.  Statuses, rights and types are those of
 * xport.h.
 *
 * Ownership.  instance, endpoint, listener, region and remote_key are move-only owners.  They may be destroyed in any
 * order.  No destructor waits.  An object that outlives its instance is dead: calls on it return XPORT_ERR_CLOSED.
 *
 * Buffers.  An operation takes a slice, which shares the ownership of its memory.  While the operation is in flight,
 * the slice belongs to a slot of the instance, and done::buffer returns it with the completion.  A caller that goes
 * away (op::abandon, a wait that times out, a coroutine frame that is destroyed) leaves an orphan: its completion, or
 * the end of the instance, releases the memory.  Memory in flight is never freed or reused early.
 *
 * Threads.  One thread at a time may use an instance and everything that belongs to it.  Slices belong to it, too:
 * their reference counts are not atomic.
 *
 * Failure.  try_open, try_connect and others return a result, and work with -fno-exceptions.  The functions without
 * try_ throw xp::error, and are declared only with exceptions.
 */
#ifndef XPORT_HPP
#define XPORT_HPP

#include <xport/base.hpp>
#include <xport/core.hpp>
#include <xport/regions.hpp>

namespace xp
{

/* A handle of a posted operation.  Destroying it has no effect. */
class op
{
public:
	op() noexcept = default;
	bool in_flight() const noexcept { return core_ && slot_->generation == generation_; }
	/* Cancels a receive, a call, a cancelable send, or what is queued.  XPORT_ERR_BUSY: its completion comes anyway. */
	int cancel() noexcept { return in_flight() ? core_->cancel(*slot_) : XPORT_ERR_INVALID; }
	/* Drops the callback.  The operation goes on, and its memory is released after its completion. */
	void abandon() noexcept
	{
		if (in_flight())
			core_->orphan(*slot_);
	}

private:
	friend class operation;
	op(detail::ref<detail::core> c, detail::slot *s) : core_(std::move(c)), slot_(s), generation_(s->generation) {}
	detail::ref<detail::core> core_;
	detail::slot *slot_ = nullptr;
	std::uint64_t generation_ = 0;
};

/*
 * An operation that is not posted yet.  Call one of then, try_then, wait and try_wait, or co_await it.
 *
 * If the queue is full, then, wait and co_await queue the operation behind earlier ones of its endpoint, and the loop
 * posts it.  try_then returns XPORT_ERR_AGAIN, and the operation can be posted again.
 */
class [[nodiscard]] operation
{
public:
	/*
	 * Gives the operation a deadline, which begins now: then it ends with XPORT_ERR_TIMEOUT, and its buffer is free.  If
	 * the network itself still holds a put, get or atomic, the endpoint ends: see Deadlines in xport.h.
	 */
	operation &&within(int milliseconds) &&
	{
		request_.end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
		return std::move(*this);
	}
	/* op::cancel and op::abandon withdraw a send until a receive has matched it. */
	operation &&cancelable() &&
	{
		request_.flags |= XPORT_CANCELABLE;
		return std::move(*this);
	}
	/* Posts.  `f` is called with a done by the loop, also if the post failed.  At most 64 bytes, see slot::keep. */
	template <class F> op then(F f)
	{
		detail::slot &s = core_->take();
		op handle(core_, &s);
		s.keep(std::move(f));
		core_->post_or_queue(s, request_);
		return handle;
	}
	/* Posts, and returns the status of the post.  `f` is called only after XPORT_OK. */
	template <class F> int try_then(F f)
	{
		detail::slot &s = core_->take();
		s.keep(std::move(f));
		detail::ep_rec *ep = detail::core::queue_of(request_);
		int status = ep != nullptr && ep->queued > 0 ? XPORT_ERR_AGAIN : core_->post(s, request_);
		if (status < 0) {
			request_.buffer = std::move(s.buffer);
			core_->orphan(s);
			core_->give(s);
		}
		return status;
	}
	/* Posts, and runs the loop until the completion.  After the timeout the operation is an orphan. */
	done try_wait(int timeout_ms = -1)
	{
		std::optional<done> out;
		std::optional<done> *p = &out;
		op handle = then([p](done &d) { p->emplace(std::move(d)); });
		int status = core_->run([p] { return p->has_value(); }, timeout_ms);
		if (out)
			return std::move(*out);
		handle.abandon();
		done d;
		d.status = status;
		return d;
	}
#if defined(__cpp_exceptions)
	done wait(int timeout_ms = -1)
	{
		done d = try_wait(timeout_ms);
		core_->rethrow();
		d.check();
		return d;
	}
#endif
#if defined(__cpp_impl_coroutine)
	class awaiter operator co_await() &&;
#endif

private:
	friend class endpoint;
	friend class instance;
	friend class rpc;
	operation(detail::ref<detail::core> c, detail::request r) : core_(std::move(c)), request_(std::move(r))
	{
	}
	detail::ref<detail::core> core_;
	detail::request request_;
};

/* The key of a peer's region, on one endpoint. */
class remote_key
{
public:
	remote_key(remote_key &&) noexcept = default;
	remote_key &operator=(remote_key &&k) noexcept
	{
		std::swap(rec_, k.rec_);
		return *this;
	}
	~remote_key()
	{
		if (rec_ && rec_->h != nullptr)
			rec_->end();
	}
	xport_rkey *get() const noexcept { return rec_->h; }
	xport_rkey_info info() const noexcept
	{
		xport_rkey_info i{};
		i.size = sizeof(i);
		if (rec_->h == nullptr || rec_->owner->x == nullptr || xport_rkey_query(rec_->h, &i) < 0)
			i.length = 0;
		return i;
	}

private:
	friend class endpoint;
	friend class lease;
	explicit remote_key(detail::key_rec *r) : rec_(r) {}
	detail::ref<detail::key_rec> rec_;
};

/* A connection to one peer.  The destructor closes it without waiting. */
class endpoint
{
public:
	endpoint(endpoint &&) noexcept = default;
	endpoint &operator=(endpoint &&e) noexcept
	{
		std::swap(rec_, e.rec_);
		return *this;
	}
	~endpoint()
	{
		if (rec_)
			rec_->end();
	}
	xport_ep *get() const noexcept { return rec_->h; }
	/* See xport_ep_info.  private_data is valid until the endpoint is destroyed. */
	xport_ep_info info() const noexcept
	{
		xport_ep_info i{};
		i.size = sizeof(i);
		i.state = XPORT_EP_CLOSED;
		if (rec_->alive() && xport_ep_query(rec_->h, &i) < 0)
			i.state = XPORT_EP_LOST;
		return i;
	}
	/* Flushes and closes.  The only call of an endpoint that waits. */
	int try_close(int timeout_ms) noexcept
	{
		int status = rec_->alive() ? xport_ep_close(rec_->h, timeout_ms) : XPORT_ERR_CLOSED;
		if (rec_->alive() && info().state != XPORT_EP_OPEN)
			rec_->forget();
		return status;
	}
	int try_fence() noexcept { return rec_->alive() ? xport_fence(rec_->h) : XPORT_ERR_CLOSED; }
	result<remote_key> try_unpack(const_bytes b)
	{
		xport_rkey *h = nullptr;
		int status = rec_->alive() ? xport_rkey_unpack(rec_->h, b.data(), b.size(), &h) : XPORT_ERR_CLOSED;
		if (status < 0)
			return rec_->owner->describe(status, "xport_rkey_unpack");
		return remote_key(new detail::key_rec(rec_->owner, h));
	}
#if defined(__cpp_exceptions)
	void close(int timeout_ms)
	{
		rec_->owner->must(try_close(timeout_ms), "xport_ep_close");
	}
	void fence()
	{
		rec_->owner->must(try_fence(), "xport_fence");
	}
	remote_key unpack(const_bytes b)
	{
		return try_unpack(b).value();
	}
#endif
	operation put(slice s, const remote_key &k, std::uint64_t offset) const
	{
		return make(XPORT_OP_PUT, std::move(s), k.rec_, offset);
	}
	operation get(slice s, const remote_key &k, std::uint64_t offset) const
	{
		return make(XPORT_OP_GET, std::move(s), k.rec_, offset);
	}
	/* Puts 8 bytes that need no buffer. */
	operation put_value(std::uint64_t value, const remote_key &k, std::uint64_t offset) const
	{
		operation o = make(XPORT_OP_PUT, {}, k.rec_, offset);
		o.request_.small = true;
		o.request_.value = value;
		return o;
	}
	operation put_notify(slice s, const remote_key &k, std::uint64_t offset, std::uint64_t value) const
	{
		operation o = make(XPORT_OP_PUT_NOTIFY, std::move(s), k.rec_, offset);
		o.request_.value = value;
		return o;
	}
	/* `width` is 4 or 8.  done::value has the old value. */
	operation atomic(xport_atomic_op what, const remote_key &k, std::uint64_t offset, std::uint64_t operand,
	                 std::uint64_t compare = 0, int width = 8) const
	{
		operation o = make(XPORT_OP_ATOMIC, {}, k.rec_, offset);
		o.request_.atomic = what;
		o.request_.width = width;
		o.request_.value = operand;
		o.request_.compare = compare;
		return o;
	}
	operation send(slice s, std::uint64_t tag) const
	{
		operation o = make(XPORT_OP_SEND, std::move(s), {}, 0);
		o.request_.value = tag;
		return o;
	}
	operation flush() const
	{
		return make(XPORT_OP_FLUSH, {}, {}, 0);
	}

private:
	friend class instance;
	friend class leases;
	friend class listener;
	friend class rpc;
	explicit endpoint(detail::ep_rec *r) : rec_(r)
	{
	}
	operation make(int kind, slice s, detail::ref<detail::key_rec> k, std::uint64_t offset) const
	{
		detail::request r;
		r.kind = kind;
		r.ep = rec_;
		r.key = std::move(k);
		r.buffer = std::move(s);
		r.offset = offset;
		return operation(rec_->owner, std::move(r));
	}
	detail::ref<detail::ep_rec> rec_;
};

/*
 * Registered memory.  A region that is destroyed leaves its registration to the instance, which ends it in reclaim() or
 * close(): ending a registration may wait for peers.  Call try_close where the program may wait.
 */
class region
{
public:
	region(region &&) noexcept = default;
	region &operator=(region &&) noexcept = default;
	slice all() const noexcept
	{
		slice s;
		s.block_ = detail::ref<detail::block>(rec_.get());
		s.length_ = rec_->length;
		return s;
	}
	slice part(std::size_t offset, std::size_t length) const noexcept { return all().sub(offset, length); }
	unsigned char *data() const noexcept { return rec_->base; }
	std::size_t size() const noexcept { return rec_->length; }
	xport_mr *get() const noexcept { return rec_->mr; }
	/* The packed key, for peers. */
	std::string key() const
	{
		std::size_t n = 0;
		std::string k;
		if (rec_->mr != nullptr && xport_rkey_pack(rec_->mr, nullptr, &n) == XPORT_ERR_BOUNDS) {
			k.resize(n);
			if (xport_rkey_pack(rec_->mr, &k[0], &n) < 0)
				n = 0;
			k.resize(n);
		}
		return k;
	}
	/* Ends the registration.  May wait for peers.  XPORT_ERR_BUSY: a slice is in use, by an operation or the program. */
	int try_close() noexcept { return rec_->refs > 1 ? static_cast<int>(XPORT_ERR_BUSY) : rec_->end(); }

private:
	friend class instance;
	friend class leases;
	explicit region(detail::region_rec *r) : rec_(r) {}
	detail::ref<detail::region_rec> rec_;
};

/* Options of connections. */
struct connection {
	const_bytes private_data; /* what the peer gets; copied */
	int backlog = 0;          /* of a listener */
	const char *transports = nullptr; /* the only ones that it may use, "A+B"; null: all of the instance */
};

/* An address that peers connect to. */
class listener
{
public:
	listener(listener &&) noexcept = default;
	listener &operator=(listener &&l) noexcept
	{
		std::swap(rec_, l.rec_);
		return *this;
	}
	~listener()
	{
		if (rec_)
			rec_->end();
	}
	xport_listener *get() const noexcept { return rec_->h; }
	std::string address() const
	{
		char name[64] = "";
		if (!rec_->alive() || xport_listener_name(rec_->h, name, sizeof(name)) < 0)
			name[0] = 0;
		return name;
	}
	result<endpoint> try_accept(int timeout_ms)
	{
		xport_ep *h = nullptr;
		int status = rec_->alive() ? xport_accept(rec_->h, timeout_ms, &h) : XPORT_ERR_CLOSED;
		if (status < 0)
			return rec_->owner->describe(status, "xport_accept");
		return endpoint(new detail::ep_rec(rec_->owner, h));
	}
#if defined(__cpp_exceptions)
	endpoint accept(int timeout_ms = -1)
	{
		return try_accept(timeout_ms).value();
	}
#endif

private:
	friend class instance;
	explicit listener(detail::listener_rec *r) : rec_(r)
	{
	}
	detail::ref<detail::listener_rec> rec_;
};

/* An opened back end, the slots of its operations, and its completions. */
class instance
{
public:
	/* NULL: all from the environment. */
	static result<instance> try_open(const xport_attr *attr = nullptr)
	{
		detail::ref<detail::core> c(new detail::core);
		int status = xport_open(attr, &c->x);
		if (status < 0) {
			c->x = nullptr;
			return c->describe(status, "xport_open");
		}
		return instance(std::move(c));
	}
	instance(instance &&) noexcept = default;
	instance &operator=(instance &&i) noexcept
	{
		std::swap(core_, i.core_);
		return *this;
	}
	~instance() { close(); }
	/* Drops all operations, without calling their callbacks, and ends all that belongs to the instance. */
	void close() noexcept
	{
		if (core_)
			core_->end();
	}
	xport *get() const noexcept { return core_->x; }
	/* Milliseconds after which the loop must make a turn even if fd() is not readable, or -1.  Ask before each wait. */
	int timeout() const noexcept { return core_->x != nullptr ? core_->timeout() : -1; }
	int fd() const noexcept { return core_->x != nullptr ? xport_fd(core_->x) : -1; }
	xport_info info() const noexcept
	{
		xport_info i{};
		i.size = sizeof(i);
		if (core_->x == nullptr || xport_query(core_->x, &i) < 0)
			i.backend[0] = 0;
		return i;
	}
	/* Operations in flight whose callers have gone. */
	std::size_t orphans() const noexcept { return core_->orphans; }
	/* Operations in flight or queued, with orphans. */
	std::size_t in_flight() const noexcept { return core_->used; }
	/* Ends the registrations of regions that were destroyed.  May wait for peers. */
	void reclaim() noexcept { core_->reclaim(); }
	/* `f` gets events instead of next_event. */
	void on_event(std::function<void(const event &)> f)
	{
		core_->handler = f ? std::make_shared<std::function<void(const event &)>>(std::move(f)) : nullptr;
	}
	/* Runs until an event comes.  Nothing after the timeout or an error. */
	std::optional<event> next_event(int timeout_ms = -1)
	{
		core_->run([this] { return !core_->events.empty(); }, timeout_ms);
		if (core_->events.empty())
			return std::nullopt;
		event e = core_->events.front();
		core_->events.pop_front();
		return e;
	}
	result<listener> try_listen(const char *address, const connection &how = {})
	{
		xport_listener *h = nullptr;
		xport_conn_attr a = attr(how);
		int status = core_->x != nullptr ? xport_listen(core_->x, address, &a, &h) : XPORT_ERR_CLOSED;
		if (status < 0)
			return core_->describe(status, "xport_listen");
		return listener(new detail::listener_rec(core_, h));
	}
	result<endpoint> try_connect(const char *address, int timeout_ms = -1, const connection &how = {})
	{
		xport_ep *h = nullptr;
		xport_conn_attr a = attr(how);
		int status =
			core_->x != nullptr ? xport_connect(core_->x, address, &a, timeout_ms, &h) : XPORT_ERR_CLOSED;
		if (status < 0)
			return core_->describe(status, "xport_connect");
		return endpoint(new detail::ep_rec(core_, h));
	}
	/* Zeroed memory, the fastest that the back end offers. */
	result<region> try_alloc(std::size_t length, std::uint32_t rights)
	{
		xport_mr *h = nullptr;
		int status = core_->x != nullptr ? xport_mr_alloc(core_->x, length, rights, &h) : XPORT_ERR_CLOSED;
		return made(status, "xport_mr_alloc", h, nullptr);
	}
	/* Registers memory.  The region keeps `owner` until the registration has ended. */
	result<region> try_adopt(std::shared_ptr<void> owner, void *base, std::size_t length, std::uint32_t rights)
	{
		xport_mr *h = nullptr;
		int status = core_->x != nullptr ? xport_mr_reg(core_->x, base, length, rights, &h) : XPORT_ERR_CLOSED;
		return made(status, "xport_mr_reg", h, std::move(owner));
	}
	operation recv(slice s, std::uint64_t tag, std::uint64_t mask = ~std::uint64_t{0},
	               const endpoint *source = nullptr, std::uint64_t flags = 0) const
	{
		detail::request r;
		r.kind = XPORT_OP_RECV;
		r.buffer = std::move(s);
		r.value = tag;
		r.compare = mask;
		r.flags = flags;
		if (source != nullptr)
			r.ep = source->rec_;
		return operation(core_, std::move(r));
	}
#if defined(__cpp_exceptions)
	static instance open(const xport_attr *a = nullptr)
	{
		return try_open(a).value();
	}
	listener listen(const char *address, const connection &how = {})
	{
		return try_listen(address, how).value();
	}
	endpoint connect(const char *address, int timeout_ms = -1, const connection &how = {})
	{
		return try_connect(address, timeout_ms, how).value();
	}
	region alloc(std::size_t length, std::uint32_t rights)
	{
		return try_alloc(length, rights).value();
	}
	region adopt(std::shared_ptr<void> owner, void *base, std::size_t length, std::uint32_t rights)
	{
		return try_adopt(std::move(owner), base, length, rights).value();
	}
#endif

private:
	friend class loop;
	friend class leases;
	friend class pool;
	friend class rpc;
	explicit instance(detail::ref<detail::core> c) : core_(std::move(c))
	{
	}
	static xport_conn_attr attr(const connection &how) noexcept
	{
		xport_conn_attr a{};
		a.size = sizeof(a);
		a.private_data = how.private_data.data();
		a.private_len = how.private_data.size();
		a.backlog = how.backlog;
		a.transports = how.transports;
		return a;
	}
	result<region> made(int status, const char *what, xport_mr *h, std::shared_ptr<void> owner)
	{
		if (status < 0)
			return core_->describe(status, what);
		return region(new detail::region_rec(core_, h, std::move(owner)));
	}
	detail::ref<detail::core> core_;
};

/* The completion poller of an instance: it calls the callbacks.  It stays where it is made. */
class loop
{
public:
	explicit loop(instance &i) : core_(i.core_) {}
	loop(const loop &) = delete;
	loop &operator=(const loop &) = delete;
	/* Makes progress and calls callbacks, without waiting.  Returns their number, or a status. */
	int try_turn(int timeout_ms = 0) { return core_->turn(timeout_ms); }
	/* Runs until `until` returns true.  Returns XPORT_OK, XPORT_ERR_TIMEOUT, or why the back end failed. */
	template <class P> int try_run(P until, int timeout_ms = -1)
	{
		return core_->run(std::move(until), timeout_ms);
	}
#if defined(__cpp_exceptions)
	/* The same.  An exception that a callback threw is thrown here, after the other callbacks of the turn. */
	int turn(int timeout_ms = 0)
	{
		int n = core_->must(try_turn(timeout_ms), "xport_poll");
		core_->rethrow();
		return n;
	}
	template <class P> void run(P until, int timeout_ms = -1)
	{
		core_->must(try_run([&] { return core_->thrown != nullptr || until(); }, timeout_ms), "xport_wait");
		core_->rethrow();
	}
#endif

private:
	detail::ref<detail::core> core_;
};

} // namespace xp

#if defined(__cpp_impl_coroutine)
#include <xport/coroutine.hpp>
#endif

#endif
