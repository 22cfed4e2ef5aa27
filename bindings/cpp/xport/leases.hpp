/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * leases.hpp - memory that peers lend.  Included by xport_services.hpp.
 *
 * An instance has one `leases`, which ends with it.  The loop of the instance runs it, and serves peers that ask.
 */
#ifndef XPORT_LEASES_HPP
#define XPORT_LEASES_HPP

#include <xport.hpp>
#include <xport_services.h>

namespace xp
{
namespace detail
{

inline failure service_failure(int status, const char *operation)
{
	xport_error e{};
	e.size = sizeof(e);
	if (xport_services_last_error(&e) < 0 || e.status != status)
		return {status, 0, operation, {}, {}, xport_strerror(status), {}};
	return {status, e.native_code, e.operation, e.peer, e.native, e.text, e.hint};
}

/* A lease that this process started or was given.  The service owns it until it has ended and nobody has it. */
struct lease_rec {
	void unused() noexcept;
	std::size_t refs = 0;
	struct lease_service *service = nullptr; /* NULL: the leases have ended */
	xport_lease *h = nullptr;
	bool lender = false;
	bool held = false; /* granted, or taken */
	bool ended = false;
	int status = XPORT_OK; /* after the end */
	ref<key_rec> key;
	ref<region_rec> memory; /* of the lender */
};

struct lease_service final : service {
	explicit lease_service(core &c) : owner(&c) {}
	const char *name() const noexcept override { return "leases"; }
	bool step(const xport_completion *c) noexcept override
	{
		bool own = xport_leases_step(leases, c) == 1;
		if (own || c == nullptr || c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED)
			look();
		return own;
	}
	int timeout() noexcept override { return leases != nullptr ? xport_leases_timeout(leases) : -1; }
	int take() override;
	void forget(xport_ep *ep) noexcept override
	{
		xport_leases_forget(leases, ep);
		look();
	}
	int cancel(std::uint64_t) noexcept override { return XPORT_ERR_INVALID; }
	void end() noexcept override
	{
		int status = XPORT_ERR_TIMEOUT;

		for (int i = 0; i < 100 && status == XPORT_ERR_TIMEOUT; i++)
			status = xport_leases_destroy(leases, nullptr, nullptr, 0);
		leases = nullptr;
		while (!all.empty()) {
			ref<lease_rec> rec(all.back());
			all.pop_back();
			over(*rec.get(), XPORT_ERR_CLOSED);
			rec->h = nullptr;
			rec->service = nullptr;
		}
	}
	/* Memory that a call has deregistered is no longer lent: nothing may access it. */
	void look() noexcept
	{
		for (std::size_t i = lent.size(); i-- > 0;) {
			xport_lease_info info{};
			info.size = sizeof(info);
			if (xport_lease_query(lent[i]->h, &info) < 0 || info.base == nullptr)
				unlend(i);
		}
	}
	void unlend(std::size_t i) noexcept
	{
		lent[i]->memory->gone();
		lent[i]->memory = {};
		lent[i] = lent.back();
		lent.pop_back();
	}
	void over(lease_rec &rec, int status) noexcept
	{
		rec.ended = true;
		rec.status = status;
		if (rec.key)
			rec.key->h = nullptr; /* queued operations end with XPORT_ERR_STALE_KEY */
		for (std::size_t i = 0; rec.memory && i < lent.size(); i++)
			if (lent[i] == &rec)
				unlend(i);
	}
	/* Frees a lease that has ended. */
	void free(lease_rec &rec) noexcept
	{
		for (std::size_t i = 0; i < all.size(); i++)
			if (all[i] == &rec) {
				all[i] = all.back();
				all.pop_back();
				break;
			}
		(void)xport_lease_free(rec.h);
		rec.h = nullptr;
		rec.service = nullptr;
	}
	/* Allocates what a lease needs, so that nothing fails after it has started. */
	std::unique_ptr<lease_rec> prepare()
	{
		auto rec = std::make_unique<lease_rec>();
		room(all);
		room(lent);
		return rec;
	}
	static void room(std::vector<lease_rec *> &list)
	{
		if (list.size() == list.capacity())
			list.reserve(2 * list.size() + 8);
	}
	lease_rec &started(std::unique_ptr<lease_rec> prepared, xport_lease *h, ref<region_rec> memory) noexcept
	{
		lease_rec *rec = prepared.release();
		rec->service = this;
		rec->h = h;
		xport_lease_set_context(h, rec);
		all.push_back(rec);
		rec->lender = bool(memory);
		if (memory)
			lent.push_back(rec);
		rec->memory = std::move(memory);
		return *rec;
	}

	core *owner;
	xport_leases *leases = nullptr; /* NULL: they have ended */
	std::vector<lease_rec *> all;
	std::vector<lease_rec *> lent;                     /* those that have memory */
	std::shared_ptr<std::function<void(lease)>> given; /* shared: it may replace itself */
};

/* Nobody has it: it is returned.  What was given stays with the peer.  It is freed after its end. */
inline void lease_rec::unused() noexcept
{
	if (service == nullptr) {
		delete this;
	} else if (ended) {
		service->free(*this);
		delete this;
	} else if (!lender) {
		(void)xport_lease_return(h);
	}
}

} // namespace detail

/*
 * Memory of a peer, or memory of this process that a peer has.
 *
 * A lease of a peer's memory that is destroyed is returned.  Memory that was given stays with the peer until it returns
 * the lease, or its endpoint ends.
 */
class lease
{
public:
	/* A lease that was moved from has ended, with the status XPORT_ERR_CLOSED. */
	lease(lease &&l) noexcept { *this = std::move(l); }
	/* The lease that was here before is destroyed. */
	lease &operator=(lease &&l) noexcept
	{
		if (this == &l)
			return *this;
		drop_key();
		rec_ = std::move(l.rec_);
		core_ = std::move(l.core_);
		key_.rec_ = std::move(l.key_.rec_);
		return *this;
	}
	~lease() { drop_key(); }
	/* Granted, or taken by the peer, and it has not ended. */
	bool held() const noexcept { return rec_ && rec_->held && !rec_->ended; }
	bool ended() const noexcept { return !rec_ || rec_->ended; }
	/* After the end: XPORT_OK if the borrower returned it, XPORT_ERR_STALE_KEY if the lender revoked it. */
	int status() const noexcept { return rec_ ? rec_->status : XPORT_ERR_CLOSED; }
	/* The key of the memory, which begins at offset 0.  For a borrower, while the lease is held. */
	const remote_key &key()
	{
		detail::key_rec *k = rec_ ? rec_->key.get() : nullptr;
		if (!key_.rec_ || (k != nullptr && key_.rec_.get() != k))
			key_.rec_ = detail::ref<detail::key_rec>(k != nullptr ? k : new detail::key_rec({}, nullptr));
		return key_;
	}
	/* Returns a peer's memory, or takes memory back: then it may wait for a silent peer.  The end follows. */
	int end() noexcept
	{
		if (!rec_ || rec_->h == nullptr)
			return XPORT_ERR_CLOSED;
		int status = rec_->lender ? xport_lease_revoke(rec_->h) : xport_lease_return(rec_->h);
		if (rec_->service != nullptr)
			rec_->service->look();
		return status;
	}
	/* Runs the loop until the lease is held or has ended.  Returns XPORT_OK if it is held, or why not. */
	int try_wait(int timeout_ms = -1)
	{
		return run([this] { return ended() || rec_->held; }, timeout_ms);
	}
	/* The same until the lease has ended.  Returns its status. */
	int try_wait_end(int timeout_ms = -1)
	{
		return run([this] { return ended(); }, timeout_ms);
	}

private:
	friend class leases;
	friend struct detail::lease_service;
	lease(detail::ref<detail::core> c, detail::lease_rec &rec) : core_(std::move(c)), rec_(&rec) {}
	template <class P> int run(P until, int timeout_ms)
	{
		int waited = rec_ ? core_->run(until, timeout_ms) : static_cast<int>(XPORT_OK);
		return waited < 0 ? waited : ended() ? status() : XPORT_OK;
	}
	/* The lease frees the key, and not its owner here. */
	void drop_key() noexcept { key_.rec_ = {}; }
	detail::ref<detail::core> core_;
	detail::ref<detail::lease_rec> rec_;
	remote_key key_{nullptr}; /* without a record until `key` */
};

/* The leases of an instance, as borrower and as lender. */
class leases
{
public:
	leases(leases &&) noexcept = default;
	leases &operator=(leases &&) noexcept = default;
	/* NULL: peers may not ask; this process may.  A lender sets `quota`, and XPORT_LEASES_TAKE to take regions. */
	static result<leases> try_create(instance &x, const xport_leases_attr *attr = nullptr)
	{
		detail::core &c = *x.core_.get();
		if (c.x == nullptr)
			return failure{XPORT_ERR_CLOSED, 0, "leases", {}, {}, "the instance is closed", {}};
		for (auto &other : c.services)
			if (std::strcmp(other->name(), "leases") == 0)
				return failure{XPORT_ERR_BUSY, 0, "leases", {}, {}, "the instance has leases already",
				               "use those."};
		auto s = std::make_unique<detail::lease_service>(c);
		int status = xport_leases_create(c.x, attr, &s->leases);
		if (status < 0)
			return detail::service_failure(status, "xport_leases_create");
		leases l(x.core_, s.get());
		c.services.push_back(std::move(s));
		return l;
	}
	/* Asks a peer for memory.  The lease is granted later, or ends. */
	result<lease> try_ask(const endpoint &ep, std::uint64_t length, std::uint32_t rights)
	{
		const char *what = "xport_lease_ask";
		if (!alive() || !ep.rec_->alive() || ep.rec_->owner.get() != core_.get())
			return refused(what, ep);
		auto rec = service_->prepare();
		xport_lease *h = nullptr;
		if (int status = xport_lease_ask(service_->leases, ep.get(), length, rights, nullptr, &h); status < 0)
			return detail::service_failure(status, what);
		return lease(core_, service_->started(std::move(rec), h, {}));
	}
	/*
	 * Gives a whole region, with its rights, to a peer that takes regions.  The lease owns the registration after success.
	 * Slices of the region are empty after the end of the lease; memory that the program registered stays.
	 */
	result<lease> try_give(const endpoint &ep, region &r)
	{
		const char *what = "xport_lease_give";
		if (!alive() || !ep.rec_->alive() || ep.rec_->owner.get() != core_.get())
			return refused(what, ep);
		if (r.rec_->owner.get() != core_.get())
			return refused(XPORT_ERR_INVALID, what, "the region belongs to another instance");
		if (r.rec_->refs > 1)
			return refused(XPORT_ERR_BUSY, what, "slices of the region are in use");
		auto rec = service_->prepare();
		xport_lease *h = nullptr;
		if (int status = xport_lease_give(service_->leases, ep.get(), r.rec_->mr, nullptr, &h); status < 0)
			return detail::service_failure(status, what);
		r.rec_->mr = nullptr;
		return lease(core_, service_->started(std::move(rec), h, r.rec_));
	}
	/* The loop calls `f` with each lease of a region that a peer gave. */
	void on_given(std::function<void(lease)> f)
	{
		if (alive())
			service_->given = f ? std::make_shared<std::function<void(lease)>>(std::move(f)) : nullptr;
	}
	xport_leases_info info() const noexcept
	{
		xport_leases_info i{};
		i.size = sizeof(i);
		if (!alive() || xport_leases_query(service_->leases, &i) < 0)
			i.lent = 0;
		return i;
	}
#if defined(__cpp_exceptions)
	static leases create(instance &x, const xport_leases_attr *attr = nullptr)
	{
		return try_create(x, attr).value();
	}
	lease ask(const endpoint &ep, std::uint64_t length, std::uint32_t rights)
	{
		return try_ask(ep, length, rights).value();
	}
	lease give(const endpoint &ep, region &r)
	{
		return try_give(ep, r).value();
	}
#endif

private:
	leases(detail::ref<detail::core> c, detail::lease_service *s) : core_(std::move(c)), service_(s)
	{
	}
	bool alive() const noexcept
	{
		return core_ && core_->x != nullptr && service_->leases != nullptr;
	}
	static failure refused(int status, const char *what, const char *text)
	{
		return {status, 0, what, {}, {}, text, {}};
	}
	failure refused(const char *what, const endpoint &ep) const
	{
		if (!alive())
			return refused(XPORT_ERR_CLOSED, what, "the leases have ended");
		if (!ep.rec_->alive())
			return refused(XPORT_ERR_CLOSED, what, "the endpoint is closed");
		return refused(XPORT_ERR_INVALID, what, "the endpoint belongs to another instance");
	}
	detail::ref<detail::core> core_;
	detail::lease_service *service_;
};

inline int detail::lease_service::take()
{
	xport_lease_event e{};
	int n = 0;

	e.size = sizeof(e);
	while (leases != nullptr && owner->x != nullptr && xport_leases_next(leases, &e) == 1) {
		auto *rec = static_cast<lease_rec *>(e.context);
		/* HANDED: the lender frees the memory, whose bytes no program asks for. */
		bool over_now = e.type == XPORT_LEASE_ENDED || e.type == XPORT_LEASE_HANDED;
		n++;
		if (e.type == XPORT_LEASE_GIVEN)
			rec = &started(prepare(), e.lease, {});
		if (rec == nullptr) { /* a peer asked */
			if (over_now)
				(void)xport_lease_free(e.lease);
			continue;
		}
		ref<lease_rec> keep(rec->refs > 0 || e.type == XPORT_LEASE_GIVEN ? rec : nullptr);
		if (over_now) {
			over(*rec, e.status);
			if (!keep) { /* nobody has it */
				free(*rec);
				delete rec;
			}
			continue;
		}
		xport_lease_info i{};
		i.size = sizeof(i);
		if (xport_lease_query(e.lease, &i) == XPORT_OK && i.rkey != nullptr)
			rec->key = ref<key_rec>(new key_rec(ref<core>(owner), i.rkey));
		rec->held = true;
		if (!keep && !rec->lender)
			(void)xport_lease_return(rec->h); /* nobody has it */
		auto f = e.type == XPORT_LEASE_GIVEN ? given : nullptr;
		if (f)
			owner->guarded([&] { (*f)(lease(ref<core>(owner), *rec)); });
	}
	return n;
}

} // namespace xp

#endif
