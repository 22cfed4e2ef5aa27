/* SPDX-License-Identifier: BSD-3-Clause */
/* wrap.h - calls of the services that are made to fail, in the calling thread (the linker's --wrap). */
#ifndef SVC_TEST_WRAP_H
#define SVC_TEST_WRAP_H

/* As many registrations say NO_MEMORY. */
void svc_wrap_reg(int refused);

#endif
