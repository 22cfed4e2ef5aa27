/* SPDX-License-Identifier: BSD-3-Clause */
/* base.hpp - views, errors, results and slices.  Included by xport.hpp. */
#ifndef XPORT_BASE_HPP
#define XPORT_BASE_HPP

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include <xport.h>
#if defined(__cpp_impl_coroutine)
#include <coroutine>
#endif

namespace xp
{

/* ---- Views and errors ---- */

/* A view of bytes that may not be changed. */
class const_bytes
{
public:
	constexpr const_bytes() noexcept = default;
	constexpr const_bytes(const void *data, std::size_t size) noexcept : data_(data), size_(size) {}
	template <class C, class T = std::remove_pointer_t<decltype(std::declval<const C &>().data())>,
	          class = std::enable_if_t<std::is_trivially_copyable<T>::value>>
	const_bytes(const C &c) noexcept : data_(c.data()), size_(c.size() * sizeof(T))
	{
	}
	const void *data() const noexcept { return data_; }
	std::size_t size() const noexcept { return size_; }

private:
	const void *data_ = nullptr;
	std::size_t size_ = 0;
};

/* Why a call or an operation failed. */
struct failure {
	int status = XPORT_OK;
	std::int64_t native_code = 0;
	std::string operation, peer, native, text, hint;
	bool retryable() const noexcept { return status == XPORT_ERR_AGAIN; }
	std::string message() const { return operation + ": " + text + (hint.empty() ? "" : " " + hint); }
};

/* What the functions without try_ throw. */
class error : public std::exception
{
public:
	explicit error(failure f) : failure_(std::move(f)), message_(failure_.message()) {}
	const char *what() const noexcept override { return message_.c_str(); }
	int status() const noexcept { return failure_.status; }
	const std::string &hint() const noexcept { return failure_.hint; }
	const failure &why() const noexcept { return failure_; }

private:
	failure failure_;
	std::string message_;
};

/* A value, or why there is none. */
template <class T> class result
{
public:
	result(T value) : value_(std::move(value)) {}
	result(failure f) : failure_(std::move(f)) {}
	explicit operator bool() const noexcept { return value_.has_value(); }
	int status() const noexcept { return failure_.status; }
	const failure &why() const noexcept { return failure_; }
	T &operator*() &noexcept { return *value_; }
	T &&operator*() &&noexcept { return std::move(*value_); }
	T *operator->() noexcept { return &*value_; }
#if defined(__cpp_exceptions)
	T value() &&
	{
		if (!value_)
			throw error(failure_);
		return std::move(*value_);
	}
#endif

private:
	std::optional<T> value_;
	failure failure_;
};

class endpoint;
class instance;
class lease;
class leases;
class listener;
class operation;
class pool;
class region;
class remote_key;

namespace detail
{

/* A reference that is counted without atomics. */
template <class T> class ref
{
public:
	ref() noexcept = default;
	explicit ref(T *p) noexcept : p_(p) { grab(); }
	ref(const ref &r) noexcept : p_(r.p_) { grab(); }
	ref(ref &&r) noexcept : p_(std::exchange(r.p_, nullptr)) {}
	ref &operator=(ref r) noexcept
	{
		std::swap(p_, r.p_);
		return *this;
	}
	~ref()
	{
		if (p_ != nullptr && --p_->refs == 0)
			p_->unused();
	}
	T *get() const noexcept { return p_; }
	T *operator->() const noexcept { return p_; }
	explicit operator bool() const noexcept { return p_ != nullptr; }

private:
	void grab() noexcept
	{
		if (p_ != nullptr)
			p_->refs++;
	}
	T *p_ = nullptr;
};

struct core;

/* Memory that slices share. */
struct block {
	block() noexcept = default;
	block(const block &) = delete;
	block &operator=(const block &) = delete;
	virtual ~block() = default;
	virtual void unused() noexcept { delete this; }
	std::size_t refs = 0;
	unsigned char *base = nullptr;
	std::size_t length = 0;
	xport_mr *mr = nullptr;
};

/* Memory that a container owns. */
template <class C> struct container_block final : block {
	explicit container_block(C &&c) : held(std::move(c))
	{
		base = reinterpret_cast<unsigned char *>(&held[0]);
		length = held.size() * sizeof(held[0]);
	}
	C held;
};

struct array_block final : block {
	explicit array_block(std::size_t n) : held(new unsigned char[n]())
	{
		base = held.get();
		length = n;
	}
	std::unique_ptr<unsigned char[]> held;
};

} // namespace detail

/* A part of a piece of memory whose ownership is shared.  data() is NULL once the memory has ended with its instance. */
class slice
{
public:
	slice() noexcept = default;
	/* `size` bytes of new memory, zeroed. */
	explicit slice(std::size_t size) : slice(new detail::array_block(size)) {}
	/* A copy of some bytes. */
	static slice copy(const_bytes b)
	{
		slice s(b.size());
		if (b.size() > 0)
			std::memcpy(s.data(), b.data(), b.size());
		return s;
	}
	/* The memory of a container, such as a vector or a string, that is moved in. */
	template <class C, class = std::enable_if_t<!std::is_lvalue_reference<C>::value>> static slice own(C &&c)
	{
		return slice(new detail::container_block<std::decay_t<C>>(std::move(c)));
	}
	unsigned char *data() const noexcept { return block_ && block_->base ? block_->base + offset_ : nullptr; }
	std::size_t size() const noexcept { return block_ && block_->base ? length_ : 0; }
	/* The part at `offset`, cut to what there is. */
	slice sub(std::size_t offset, std::size_t length) const noexcept
	{
		slice s(*this);
		offset = offset < length_ ? offset : length_;
		s.offset_ += offset;
		s.length_ = length < length_ - offset ? length : length_ - offset;
		return s;
	}
	operator const_bytes() const noexcept { return {data(), size()}; }
	xport_mr *mr() const noexcept { return block_ ? block_->mr : nullptr; }

private:
	friend class pool;
	friend class region;
	explicit slice(detail::block *b) : block_(b), length_(b->length) {}
	detail::ref<detail::block> block_;
	std::size_t offset_ = 0, length_ = 0;
};

/* What came of an operation. */
struct done {
	int status = XPORT_OK;
	std::uint32_t type = 0;           /* XPORT_OP_PUT and so on */
	std::uint64_t tag = 0;            /* of a received message */
	std::uint64_t length = 0;         /* bytes; of a received message: its full length */
	std::uint64_t value = 0;          /* the old value, after an atomic */
	xport_ep *ep = nullptr;           /* see xport_completion.ep */
	slice buffer;                     /* the slice of the operation; of a call: the reply */
	int ran = 0;                      /* of a call: enum xport_rpc_ran */
	std::uint32_t retry_after_ms = 0; /* of a call, with XPORT_ERR_BUSY */
	const char *cause = "";           /* of a call: why the library ended it, a static string */
	bool ok() const noexcept { return status == XPORT_OK; }
	failure why() const
	{
		std::string text = cause;
		if (text.empty() && ran == 1 && buffer.size() > 0) /* the handler's */
			text.assign(reinterpret_cast<char *>(buffer.data()),
			            std::size_t(length) < buffer.size() ? std::size_t(length) : buffer.size());
		if (text.empty())
			text = xport_strerror(status);
		return {status, 0, "completion", {}, {}, std::string(xport_status_name(status)) + ", " + text, {}};
	}
#if defined(__cpp_exceptions)
	/* Throws if the operation failed. */
	done &check()
	{
		if (!ok())
			throw error(why());
		return *this;
	}
#endif
};

/* An event of an endpoint or a listener, as in xport_completion. */
using event = xport_completion;

} // namespace xp

#endif
