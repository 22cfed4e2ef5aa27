/* SPDX-License-Identifier: BSD-3-Clause */
/* coroutine.hpp - operations in coroutines, for C++20.  Included by xport.hpp. */
#ifndef XPORT_COROUTINE_HPP
#define XPORT_COROUTINE_HPP

#ifndef XPORT_HPP
#error "include <xport.hpp>"
#endif

namespace xp
{

/* Waits for an operation.  A frame that is destroyed meanwhile leaves the operation as an orphan. */
class awaiter
{
public:
	explicit awaiter(operation &&o) : operation_(std::move(o)) {}
	awaiter(const awaiter &) = delete;
	~awaiter() { handle_.abandon(); }
	bool await_ready() const noexcept { return false; }
	void await_suspend(std::coroutine_handle<> h)
	{
		handle_ = operation_.then([this, h](done &d) {
			out_ = std::move(d);
			h.resume();
		});
	}
	/* With exceptions: throws if the operation failed. */
	done await_resume()
	{
#if defined(__cpp_exceptions)
		out_.check();
#endif
		return std::move(out_);
	}

private:
	operation operation_;
	op handle_;
	done out_;
};
inline awaiter operation::operator co_await() &&
{
	return awaiter(std::move(*this));
}

/* A coroutine that runs until its first co_await at once.  Destroying the task destroys the frame, which is safe. */
class [[nodiscard]] task
{
public:
	struct promise_type {
		std::exception_ptr thrown;
		std::coroutine_handle<> next = std::noop_coroutine();
		struct finish {
			bool await_ready() const noexcept { return false; }
			std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) const noexcept
			{
				return h.promise().next;
			}
			void await_resume() const noexcept {}
		};
		task get_return_object() noexcept
		{
			return task(std::coroutine_handle<promise_type>::from_promise(*this));
		}
		std::suspend_never initial_suspend() const noexcept { return {}; }
		finish final_suspend() const noexcept { return {}; }
		void return_void() const noexcept {}
		void unhandled_exception() noexcept { thrown = std::current_exception(); }
	};
	task(task &&t) noexcept : handle_(std::exchange(t.handle_, nullptr)) {}
	task &operator=(task &&t) noexcept
	{
		std::swap(handle_, t.handle_);
		return *this;
	}
	~task()
	{
		if (handle_)
			handle_.destroy();
	}
	bool finished() const noexcept { return handle_.done(); }
	/* Throws what the coroutine threw. */
	void get() const
	{
		if (handle_.promise().thrown)
			std::rethrow_exception(handle_.promise().thrown);
	}
	bool await_ready() const noexcept { return finished(); }
	void await_suspend(std::coroutine_handle<> h) const noexcept { handle_.promise().next = h; }
	void await_resume() const { get(); }

private:
	explicit task(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
	std::coroutine_handle<promise_type> handle_;
};

} // namespace xp

#endif
