/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/wrap.h"

#include "xport.h"

static _Thread_local int regs;

int __real_xport_mr_reg(xport *x, void *buf, size_t length, uint32_t rights, xport_mr **mr);
int __wrap_xport_mr_reg(xport *x, void *buf, size_t length, uint32_t rights, xport_mr **mr);

int __wrap_xport_mr_reg(xport *x, void *buf, size_t length, uint32_t rights, xport_mr **mr)
{
	if (regs == 0)
		return __real_xport_mr_reg(x, buf, length, rights, mr);
	regs--;
	return XPORT_ERR_NO_MEMORY;
}

void svc_wrap_reg(int refused)
{
	regs = refused;
}
