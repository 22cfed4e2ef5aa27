/* SPDX-License-Identifier: BSD-3-Clause */
/* core.hpp - the slots of operations in flight, and the turn of the loop.  Included by xport.hpp. */
#ifndef XPORT_CORE_HPP
#define XPORT_CORE_HPP

#include <xport/base.hpp>

namespace xp
{
namespace detail
{

/* What the handles of the C library have in common: they end with their instance. */
template <class H, void (*destroy)(H *)> struct handle_rec {
	handle_rec(ref<core> c, H *handle) : owner(std::move(c)), h(handle) {}
	void unused() noexcept { delete this; }
	bool alive() const noexcept;
	/* Operations in flight complete with an error, and queued ones are refused. */
	void end() noexcept;
	/* No service uses the endpoint any more, which was closed. */
	void forget() noexcept;
	std::size_t refs = 0;
	ref<core> owner;
	H *h;
	std::size_t queued = 0;    /* operations that wait for space in the queue */
	std::uint64_t refused = 0; /* the turn in which a post was refused for want of space */
};
using ep_rec = handle_rec<xport_ep, xport_ep_destroy>;
using key_rec = handle_rec<xport_rkey, xport_rkey_destroy>;
using listener_rec = handle_rec<xport_listener, xport_listener_close>;

struct region_rec final : block {
	region_rec(ref<core> c, xport_mr *handle, std::shared_ptr<void> held);
	~region_rec() override;
	/* Without references: the instance ends the registration where it may wait. */
	void unused() noexcept override;
	int end() noexcept;
	/* The registration has ended. */
	void gone() noexcept;
	ref<core> owner;
	std::shared_ptr<void> keep;
	std::vector<block *> parts; /* of a pool: they end with the memory */
	region_rec *previous = nullptr, *next = nullptr; /* in core::regions */
};

/* A service of an instance, as xport_services.hpp makes it.  The core owns it. */
struct service {
	virtual ~service() = default;
	/* An instance has one service of each name. */
	virtual const char *name() const noexcept = 0;
	/* Takes a completion, or continues if it is NULL.  Returns whether the completion belongs to the service. */
	virtual bool step(const xport_completion *c) noexcept = 0;
	/* Milliseconds until step(NULL) must be called, or -1. */
	virtual int timeout() noexcept = 0;
	/* Takes the events that there are.  Returns their number. */
	virtual int take() = 0;
	virtual void forget(xport_ep *ep) noexcept = 0;
	virtual int cancel(std::uint64_t id) noexcept = 0;
	/* Before xport_close. */
	virtual void end() noexcept = 0;
};

struct slot;

/* What a service posts. */
struct posted_by_service {
	virtual ~posted_by_service() = default;
	/* As core::call.  Sets slot::owner. */
	virtual int post(slot &s, xport_ep *ep) noexcept = 0;
};

/* An operation, before it is posted. */
struct request {
	int kind = 0;
	bool small = false; /* value is what is put */
	int width = 8;
	int atomic = 0;
	ref<ep_rec> ep;
	ref<key_rec> key;
	slice buffer;
	std::uint64_t offset = 0, value = 0, compare = 0, flags = 0;
	std::unique_ptr<posted_by_service> extra;                 /* kind is 0 */
	std::optional<std::chrono::steady_clock::time_point> end; /* the deadline */
	/* For xport_opt.deadline_ms: the time that is left, rounded up. */
	std::uint32_t deadline_ms() const
	{
		using ms = std::chrono::milliseconds;
		auto left = std::chrono::duration_cast<ms>(*end - std::chrono::steady_clock::now() +
		                                           std::chrono::microseconds(999));
		return left.count() < 1 ? 1 : static_cast<std::uint32_t>(left.count());
	}
};

/* What an operation in flight owns.  Slots are freed with the instance, after xport_close. */
struct slot {
	/* Stores the callback in the slot, so that a post allocates nothing. */
	template <class F> void keep(F &&f)
	{
		using T = std::decay_t<F>;
		static_assert(sizeof(T) <= sizeof(room), "a callback is at most 64 bytes: capture a pointer");
		static_assert(std::is_nothrow_move_constructible<T>::value, "a callback is moved");
		new (room) T(std::forward<F>(f));
		call = [](core &c, slot &s, done &d) {
			T *stored = std::launder(reinterpret_cast<T *>(s.room));
			T local(std::move(*stored));
			stored->~T();
			s.call = nullptr;
			release(c, s);
			local(d);
		};
		drop = [](slot &s) { std::launder(reinterpret_cast<T *>(s.room))->~T(); };
	}
	static void release(core &c, slot &s) noexcept;
	void (*call)(core &c, slot &s, done &d) = nullptr; /* NULL: an orphan */
	void (*drop)(slot &s) = nullptr;
	slot *next = nullptr;     /* free, or queued */
	service *owner = nullptr; /* a call of a service is posted: `id` is that of the call */
	std::uint64_t generation = 0, id = 0, word = 0;
	bool used = false, orphaned = false, queued = false, canceled = false, receive = false;
	slice buffer;
	std::unique_ptr<request> waiting; /* queued */
	alignas(std::max_align_t) unsigned char room[64];
};

/* The instance. */
struct core {
	using clock = std::chrono::steady_clock;
	std::size_t refs = 0;
	xport *x = nullptr;
	std::size_t used = 0, orphans = 0, queue_length = 0, depth = 0;
	std::uint64_t turns = 0;
	std::uint64_t recv_refused = 0, calls_refused = 0;
	clock::time_point queue_end = clock::time_point::max(); /* nothing in the queue ends before */
	slot *free_slots = nullptr, *queue_head = nullptr, **queue_tail = &queue_head;
	std::deque<slot> slots; /* never moves a slot */
	region_rec *regions = nullptr;
	std::vector<std::unique_ptr<service>> services;
	std::deque<event> events;
	std::shared_ptr<std::function<void(const event &)>> handler; /* shared: it may replace itself */
	std::exception_ptr thrown; /* the first of the turn */

	/* Services, and the handlers that they own, stay while a turn runs them. */
	struct in_turn {
		explicit in_turn(core &turned) : c(turned) { c.depth++; }
		in_turn(const in_turn &) = delete;
		in_turn &operator=(const in_turn &) = delete;
		~in_turn()
		{
			if (--c.depth == 0 && c.x == nullptr)
				c.free_services();
		}
		core &c;
	};
	/* A handler may own what belongs to the instance. */
	void free_services() noexcept { auto gone = std::move(services); }

	~core() { end(); }
	void unused() noexcept { delete this; }

	failure describe(int status, const char *operation) const
	{
		xport_error e{};
		e.size = sizeof(e);
		if (xport_last_error(x, &e) < 0 || e.status != status)
			return {status, 0, operation, {}, {}, xport_strerror(status), {}};
		return {status, e.native_code, e.operation, e.peer, e.native, e.text, e.hint};
	}
#if defined(__cpp_exceptions)
	int must(int status, const char *operation) const
	{
		if (status < 0)
			throw error(describe(status, operation));
		return status;
	}
#endif
	void rethrow()
	{
		if (thrown)
			std::rethrow_exception(std::exchange(thrown, nullptr));
	}

	slot &take()
	{
		if (free_slots == nullptr) {
			slots.emplace_back();
			free_slots = &slots.back();
		}
		slot &s = *free_slots;
		free_slots = s.next;
		s.next = nullptr;
		s.used = true;
		used++;
		return s;
	}
	void give(slot &s) noexcept
	{
		s.generation++;
		orphans -= s.orphaned;
		s.used = s.orphaned = s.queued = s.canceled = s.receive = false;
		s.owner = nullptr;
		s.buffer = slice();
		s.waiting.reset();
		s.next = free_slots;
		free_slots = &s;
		used--;
	}
	/* A receive that nobody waits for must not take a message. */
	void orphan(slot &s) noexcept
	{
		if (s.call == nullptr)
			return;
		if ((s.receive || s.owner != nullptr) && !s.queued && x != nullptr)
			cancel(s);
		if (s.queued)
			queue_end = clock::time_point::min();
		s.call = nullptr;
		s.orphaned = true;
		orphans++;
		s.drop(s);
	}
	void discard(slot &s) noexcept
	{
		if (s.used) {
			orphan(s);
			give(s);
		}
	}
	int cancel(slot &s) noexcept
	{
		if (x == nullptr)
			return XPORT_ERR_CLOSED;
		if (s.queued) {
			s.canceled = true;
			queue_end = clock::time_point::min(); /* the next turn calls the callback */
			return XPORT_OK;
		}
		return s.owner != nullptr ? s.owner->cancel(s.id) : xport_cancel(x, s.id);
	}

	/* Posts what `r` describes.  The slot owns the buffer after XPORT_OK. */
	int post(slot &s, request &r) noexcept
	{
		if (x == nullptr || (r.ep && r.ep->h == nullptr))
			return XPORT_ERR_CLOSED;
		if (r.key && r.key->h == nullptr)
			return XPORT_ERR_STALE_KEY;
		if (r.flags >> 32 != 0)
			return XPORT_ERR_INVALID;
		s.buffer = std::move(r.buffer);
		int status = call(s, r);
		if (status < 0)
			r.buffer = std::move(s.buffer);
		bool cancelable = r.kind == XPORT_OP_SEND && (r.flags & XPORT_CANCELABLE) != 0;
		s.receive = status == XPORT_OK && (r.kind == XPORT_OP_RECV || cancelable);
		return status;
	}
	int call(slot &s, const request &r) noexcept
	{
		xport_opt opt{};
		opt.size = sizeof(opt);
		opt.flags = static_cast<std::uint32_t>(r.flags);
		opt.context = &s;
		opt.mr = s.buffer.mr();
		if (r.end)
			opt.deadline_ms = r.deadline_ms();
		xport_ep *ep = r.ep ? r.ep->h : nullptr;
		xport_rkey *key = r.key ? r.key->h : nullptr;
		s.word = r.value;
		if (r.extra)
			return r.extra->post(s, ep);
		switch (r.kind) {
		case XPORT_OP_PUT:
			if (r.small)
				return xport_put(ep, &s.word, sizeof(s.word), key, r.offset, &opt);
			return xport_put(ep, s.buffer.data(), s.buffer.size(), key, r.offset, &opt);
		case XPORT_OP_GET:
			return xport_get(ep, s.buffer.data(), s.buffer.size(), key, r.offset, &opt);
		case XPORT_OP_PUT_NOTIFY:
			opt.value = r.value;
			return xport_put_notify(ep, s.buffer.data(), s.buffer.size(), key, r.offset, &opt);
		case XPORT_OP_ATOMIC:
			return atomic(s, r, opt);
		case XPORT_OP_SEND:
			if ((r.flags & XPORT_CANCELABLE) != 0)
				opt.id = &s.id;
			return xport_send(ep, s.buffer.data(), s.buffer.size(), r.value, &opt);
		case XPORT_OP_RECV:
			opt.source = ep;
			opt.id = &s.id;
			return xport_recv(x, s.buffer.data(), s.buffer.size(), r.value, r.compare, &opt);
		default:
			return xport_flush(ep, &opt);
		}
	}
	int atomic(slot &s, const request &r, const xport_opt &opt) noexcept
	{
		xport_atomic_args a{};
		a.size = sizeof(a);
		a.op = r.atomic;
		a.width = r.width;
		a.operand = r.value;
		a.compare = r.compare;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		a.result = reinterpret_cast<unsigned char *>(&s.word) + 8 - r.width;
#else
		a.result = &s.word;
#endif
		s.word = 0;
		return xport_atomic(r.ep->h, &a, r.key->h, r.offset, &opt);
	}

	/* Calls of services take no space in the queue of their endpoint. */
	static ep_rec *queue_of(const request &r) noexcept
	{
		return r.extra ? nullptr : r.ep.get();
	}

	/* Posts, or waits for space behind earlier operations of the endpoint.  Another failure reaches the callback. */
	void post_or_queue(slot &s, request &r)
	{
		if (x == nullptr) {
			discard(s);
			return;
		}
		ep_rec *ep = queue_of(r);
		bool behind = ep != nullptr && ep->queued > 0;
		int status = behind ? static_cast<int>(XPORT_ERR_AGAIN) : post(s, r);
		if (status == XPORT_OK)
			return;
		if (ep != nullptr)
			ep->queued++;
		if (r.end)
			queue_end = std::min(queue_end, *r.end);
		s.waiting = std::make_unique<request>(std::move(r));
		s.queued = true;
		s.next = nullptr;
		*queue_tail = &s;
		queue_tail = &s.next;
		queue_length++;
	}
	/* Why a queued operation is not to be posted, or XPORT_OK. */
	static int over(const slot &s, clock::time_point now) noexcept
	{
		if (s.call == nullptr || s.canceled) /* nobody waits for it any more */
			return XPORT_ERR_CANCELED;
		return s.waiting->end && *s.waiting->end <= now ? static_cast<int>(XPORT_ERR_TIMEOUT) : XPORT_OK;
	}
	/* Milliseconds until a turn must be made, or -1. */
	int timeout() noexcept
	{
		using ms = std::chrono::milliseconds;
		int least = -1;
		for (auto &s : services) {
			int limit = s->timeout();
			if (limit >= 0 && (least < 0 || limit < least))
				least = limit;
		}
		if (queue_end == clock::time_point::max())
			return least;
		auto now = clock::now();
		if (queue_end <= now)
			return 0;
		auto left = std::chrono::duration_cast<ms>(queue_end - now).count() + 1;
		return least >= 0 && least < left ? least : left < INT_MAX ? static_cast<int>(left) : INT_MAX;
	}
	/* Posts what is queued, in order for each endpoint.  Returns how many failed. */
	int post_queued()
	{
		int failed = 0;
		auto now = clock::now();
		slot *list = std::exchange(queue_head, nullptr);
		queue_tail = &queue_head;
		queue_end = clock::time_point::max();
		turns++;
		while (list != nullptr) {
			slot &s = *list;
			list = s.next;
			request &r = *s.waiting;
			ep_rec *ep = queue_of(r);
			std::uint64_t &refused = ep != nullptr ? ep->refused : r.extra ? calls_refused : recv_refused;
			int status = over(s, now);
			if (status == XPORT_OK)
				status = refused == turns ? static_cast<int>(XPORT_ERR_AGAIN) : post(s, r);
			if (status == XPORT_ERR_AGAIN) {
				refused = turns;
				if (r.end)
					queue_end = std::min(queue_end, *r.end);
				s.next = nullptr;
				*queue_tail = &s;
				queue_tail = &s.next;
				continue;
			}
			queue_length--;
			if (ep != nullptr)
				ep->queued--;
			s.queued = s.canceled = false;
			if (status == XPORT_OK) {
				s.waiting.reset();
				continue;
			}
			xport_completion c{};
			c.status = status;
			c.type = static_cast<std::uint32_t>(r.kind);
			s.buffer = std::move(r.buffer);
			finish(s, c);
			failed++;
			if (x == nullptr)
				break;
		}
		return failed;
	}

	void finish(slot &s, const xport_completion &c, done d = {})
	{
		if (s.call == nullptr) {
			give(s);
			return;
		}
		d.status = c.status;
		d.type = c.type;
		d.tag = c.tag;
		d.length = c.length;
		d.value = s.word;
		d.ep = c.ep;
		d.buffer = std::move(s.buffer);
		guarded([&] { s.call(*this, s, d); });
	}
	void dispatch(const xport_completion &c)
	{
		if (c.type < XPORT_EVENT_NOTIFY)
			finish(*static_cast<slot *>(c.context), c);
		else if (auto f = handler)
			guarded([&] { (*f)(c); });
		else
			events.push_back(c);
	}
	/* Exceptions of callbacks wait until the turn is over. */
	template <class F> void guarded(F f)
	{
#if defined(__cpp_exceptions)
		try {
			f();
		} catch (...) {
			if (!thrown)
				thrown = std::current_exception();
		}
#else
		f();
#endif
	}
	/* What has completed already needs no xport_wait, which costs more. */
	int reap(xport_completion (&list)[64], int timeout_ms) noexcept
	{
		int n = xport_poll(x, list, 64);
		return n != 0 || timeout_ms == 0 ? n : xport_wait(x, list, 64, timeout_ms);
	}
	/* One poll, or one wait.  Returns the number of completions, or a status. */
	int turn(int timeout_ms)
	{
		xport_completion list[64];
		ref<core> self(this); /* a callback may drop the instance */
		in_turn inside(*this);

		if (x == nullptr)
			return XPORT_ERR_CLOSED;
		int failed = queue_head != nullptr ? post_queued() : 0;
		if (x == nullptr || failed > 0)
			return failed;
		int limit = timeout();
		if (limit >= 0 && (timeout_ms < 0 || limit < timeout_ms))
			timeout_ms = limit;
		if (!services.empty())
			return serve(timeout_ms);
		int n = reap(list, timeout_ms);
		for (int i = 0; i < n && x != nullptr; i++)
			dispatch(list[i]);
		return n;
	}
	/* A turn of an instance that has services. */
	int serve(int timeout_ms)
	{
		xport_completion list[64];
		int taken = take_events();

		if (taken > 0 || x == nullptr)
			return taken;
		int limit = timeout();
		if (limit >= 0 && (timeout_ms < 0 || limit < timeout_ms))
			timeout_ms = limit;
		int n = reap(list, timeout_ms);
		for (int i = 0; i < n && x != nullptr; i++) {
			bool own = false;
			for (auto &s : services)
				own = own || s->step(&list[i]);
			if (!own)
				dispatch(list[i]);
		}
		return n < 0 || x == nullptr ? n : n + take_events();
	}
	int take_events()
	{
		int n = 0;

		for (std::size_t i = 0; i < services.size() && x != nullptr; i++) {
			if (services[i]->timeout() == 0)
				services[i]->step(nullptr);
			n += services[i]->take();
		}
		return n;
	}
	template <class P> int run(P until, int timeout_ms)
	{
		clock::time_point end{};

		if (timeout_ms >= 0)
			end = clock::now() + std::chrono::milliseconds(timeout_ms);
		while (!until()) {
			int left = -1;
			if (timeout_ms >= 0) {
				auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock::now())
				                    .count();
				left = rest > 0 ? static_cast<int>(rest) + 1 : 0;
			}
			int n = turn(left);
			if (n < 0)
				return n;
			if (left == 0 && !until())
				return XPORT_ERR_TIMEOUT;
		}
		return XPORT_OK;
	}

	void reclaim() noexcept
	{
		for (region_rec *r = regions, *next; r != nullptr; r = next) {
			next = r->next;
			if (r->refs == 0)
				delete r;
		}
	}
	/* Ends the instance.  After xport_close nothing accesses the buffers of its operations. */
	void end() noexcept
	{
		if (x == nullptr)
			return;
		refs++; /* what the slots release may be the last reference */
		for (auto &s : services)
			s->end();
		xport_close(std::exchange(x, nullptr));
		for (region_rec *r = regions, *next; r != nullptr; r = next) {
			next = r->next;
			r->gone();
			if (r->refs == 0)
				delete r;
		}
		for (std::size_t i = 0; i < slots.size(); i++) /* the destructor of a callback may take a slot */
			discard(slots[i]);
		queue_head = nullptr;
		queue_tail = &queue_head;
		queue_end = clock::time_point::max();
		if (depth == 0)
			free_services();
		refs--;
	}
};

inline void slot::release(core &c, slot &s) noexcept
{
	c.give(s);
}

template <class H, void (*destroy)(H *)> bool handle_rec<H, destroy>::alive() const noexcept
{
	return h != nullptr && owner->x != nullptr;
}

template <class H, void (*destroy)(H *)> void handle_rec<H, destroy>::end() noexcept
{
	if (alive()) {
		forget();
		destroy(h);
	}
	h = nullptr;
}

template <class H, void (*destroy)(H *)> void handle_rec<H, destroy>::forget() noexcept
{
	if constexpr (std::is_same<H, xport_ep>::value) {
		if (!owner->services.empty())
			xport_ep_close(h, 0);
		for (auto &s : owner->services)
			s->forget(h);
	}
}

} // namespace detail
} // namespace xp

#endif
