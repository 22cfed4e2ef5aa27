/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.hpp - registered buffers of one length, made many at a time.  Included by xport_services.hpp. */
#ifndef XPORT_POOL_HPP
#define XPORT_POOL_HPP

#include <xport.hpp>

namespace xp
{
namespace detail
{

struct pool_rec;

/* One buffer.  It belongs to its pool, which stays while a slice has the buffer. */
struct pool_block final : block {
	void unused() noexcept override;
	ref<pool_rec> pool; /* while it is in use */
};

struct pool_rec {
	void unused() noexcept { delete this; }
	std::size_t refs = 0, length = 0;
	std::vector<ref<region_rec>> slabs;
	std::deque<pool_block> blocks; /* never moves a block */
	std::vector<pool_block *> free;

	~pool_rec()
	{
		for (auto &slab : slabs)
			slab->parts.clear();
	}
};

inline void pool_block::unused() noexcept
{
	ref<pool_rec> owner(std::move(pool));
	owner->free.push_back(this); /* has space for all */
}

} // namespace detail

/*
 * Registered buffers of one length.  A slice of a pool returns its buffer when the last copy of the slice is destroyed: a
 * slot does that after the completion.  The memory is that of regions, and ends with the instance.
 */
class pool
{
public:
	pool(instance &x, std::size_t length, std::uint32_t rights = 0)
	    : core_(x.core_), rights_(rights), rec_(new detail::pool_rec)
	{
		rec_->length = length;
	}
	/* A buffer, which still has the bytes of its last owner.  Registers more memory if no buffer is free. */
	result<slice> try_take()
	{
		if (rec_->free.empty()) {
			std::size_t n = (std::size_t(4) << 20) / std::max<std::size_t>(rec_->length, 1);
			if (int status = grow(n < 1 ? 1 : n > 64 ? 64 : n); status < 0)
				return why_;
		}
		detail::pool_block *b = rec_->free.back();
		if (b->base == nullptr)
			return failure{XPORT_ERR_CLOSED, 0, "pool", {}, {}, "the instance is closed", {}};
		rec_->free.pop_back();
		b->pool = rec_;
		return slice(b);
	}
	/* Registers memory until there are at least `n` buffers.  Returns a status. */
	int try_reserve(std::size_t n) { return n > buffers() ? grow(n - buffers()) : static_cast<int>(XPORT_OK); }
	std::size_t buffers() const noexcept { return rec_->blocks.size(); }
	std::size_t in_use() const noexcept { return buffers() - rec_->free.size(); }
#if defined(__cpp_exceptions)
	slice take()
	{
		return try_take().value();
	}
	void reserve(std::size_t n)
	{
		if (try_reserve(n) < 0)
			throw error(why_);
	}
#endif

private:
	/* Buffers begin at cache lines. */
	int grow(std::size_t n)
	{
		std::size_t length = rec_->length, stride = (length + 63) & ~std::size_t(63);
		if (length == 0 || stride < length || n > SIZE_MAX / stride) {
			why_ = {XPORT_ERR_INVALID, 0, "pool", {}, {}, "the buffers are empty, or too long", {}};
			return why_.status;
		}
		if (core_->x == nullptr) {
			why_ = {XPORT_ERR_CLOSED, 0, "pool", {}, {}, "the instance is closed", {}};
			return why_.status;
		}
		std::size_t first = buffers();
		undo failed{*rec_.get(), first, nullptr};
		if (int status = xport_mr_alloc(core_->x, n * stride, rights_, &failed.mr); status < 0) {
			why_ = core_->describe(status, "xport_mr_alloc");
			return status;
		}
		std::vector<detail::block *> parts;
		parts.reserve(n);
		rec_->free.reserve(first + n);
		rec_->slabs.reserve(rec_->slabs.size() + 1);
		for (std::size_t i = 0; i < n; i++)
			parts.push_back(&rec_->blocks.emplace_back());
		auto *rec = new detail::region_rec(core_, failed.mr, nullptr);
		failed.mr = nullptr;
		failed.first = SIZE_MAX;
		rec->parts = std::move(parts);
		rec_->slabs.emplace_back(rec);
		for (std::size_t i = 0; i < n; i++) {
			detail::pool_block &b = rec_->blocks[first + i];
			b.base = rec->base + i * stride;
			b.length = length;
			b.mr = rec->mr;
			rec_->free.push_back(&b);
		}
		return XPORT_OK;
	}
	/* After a failure, or an exception: no block is left without memory, and no memory without an owner. */
	struct undo {
		~undo()
		{
			if (mr != nullptr)
				(void)xport_mr_dereg(mr);
			while (pool.blocks.size() > first)
				pool.blocks.pop_back();
		}
		detail::pool_rec &pool;
		std::size_t first;
		xport_mr *mr;
	};
	detail::ref<detail::core> core_;
	std::uint32_t rights_;
	failure why_{};
	detail::ref<detail::pool_rec> rec_;
};

} // namespace xp

#endif
