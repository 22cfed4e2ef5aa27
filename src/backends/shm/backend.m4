# SPDX-License-Identifier: BSD-3-Clause
# It needs nothing but Linux.
AS_IF([test "x$enable_shm" != xno], [have_shm=yes])
