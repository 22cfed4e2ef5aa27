/* SPDX-License-Identifier: BSD-3-Clause */
/* regions.hpp - registered memory, until its registration ends.  Included by xport.hpp. */
#ifndef XPORT_REGIONS_HPP
#define XPORT_REGIONS_HPP

#include <xport/core.hpp>

namespace xp
{
namespace detail
{

inline region_rec::region_rec(ref<core> c, xport_mr *handle, std::shared_ptr<void> held)
    : owner(std::move(c)), keep(std::move(held))
{
	xport_mr_info i{};
	i.size = sizeof(i);
	if (xport_mr_query(handle, &i) == XPORT_OK) {
		base = static_cast<unsigned char *>(i.base);
		length = i.length;
	}
	mr = handle;
	next = owner->regions;
	if (next != nullptr)
		next->previous = this;
	owner->regions = this;
}

inline region_rec::~region_rec()
{
	end();
	(previous != nullptr ? previous->next : owner->regions) = next;
	if (next != nullptr)
		next->previous = previous;
}

inline void region_rec::unused() noexcept
{
	if (mr == nullptr || owner->x == nullptr)
		delete this;
}

inline int region_rec::end() noexcept
{
	int status = XPORT_OK;

	if (mr != nullptr && owner->x != nullptr)
		status = xport_mr_dereg(mr);
	if (status == XPORT_OK || status == XPORT_ERR_FORK)
		gone();
	return status;
}

inline void region_rec::gone() noexcept
{
	mr = nullptr;
	if (keep)
		return;
	base = nullptr;
	length = 0;
	for (block *b : parts) {
		b->mr = nullptr;
		b->base = nullptr;
		b->length = 0;
	}
}

} // namespace detail
} // namespace xp

#endif
