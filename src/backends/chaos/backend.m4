# SPDX-License-Identifier: BSD-3-Clause
# It needs nothing, and is for those who ask for it.
AS_IF([test "x$enable_chaos" = xyes], [have_chaos=yes],
  [why_chaos="a back end for tests, built in by --enable-chaos alone"])
