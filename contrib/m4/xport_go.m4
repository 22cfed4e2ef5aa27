# SPDX-License-Identifier: BSD-3-Clause

# XPORT_GO - finds Go, for the test of bindings/go.  After XPORT_BACKENDS_DONE.  It is that of Debian unless $GO is set.
AC_DEFUN([XPORT_GO], [
  AC_ARG_ENABLE([go],
    [AS_HELP_STRING([--enable-go], [test the Go package of bindings/go (default: where Debian's Go is)])],
    [], [enable_go=auto])
  xport_go=no
  : ${GO=/usr/bin/go}
  AS_IF([test "x$enable_go" = xauto && test "x$enable_sanitizers" != xno], [enable_go=no])
  AS_IF([test "x$enable_go" != xno], [
    AC_MSG_CHECKING([for Go 1.19 and pkg-config])
    xport_found=`GOTOOLCHAIN=local "$GO" version 2>&AS_MESSAGE_LOG_FD | sed -n 's/^go version go1\.\(@<:@0-9@:>@*\).*/\1/p'`
    AS_IF([test "0$xport_found" -lt 19], [xport_go="no (no Go 1.19; Debian: golang-go)"],
      [test -z "$PKG_CONFIG"], [xport_go="no (no pkg-config; Debian: pkg-config)"],
      [test "x$ac_cv_sizeof_void_p" = x4], [xport_go="no (it needs a 64-bit system)"],
      [xport_go="yes ($GO)"])
    AC_MSG_RESULT([${xport_go%% *}])
    AS_CASE(["$enable_go,$xport_go"],
      [auto,*|*,yes*], [], [AC_MSG_ERROR([--enable-go: $xport_go])])])
  AS_IF([test "${xport_go#yes}" = "$xport_go"], [GO=])
  AC_SUBST([GO])
])
