# SPDX-License-Identifier: BSD-3-Clause

# XPORT_TOOLS - finds what the programs in src/tools need; the library does without it.
AC_DEFUN([XPORT_TOOLS], [
  PKG_CHECK_MODULES([JANSSON], [jansson >= 2.10], [],
    [AS_IF([test "x$JANSSON_LIBS" = x], [JANSSON_LIBS="-ljansson"])])
  xport_save_CFLAGS=$CFLAGS
  xport_save_LIBS=$LIBS
  CFLAGS="$CFLAGS $JANSSON_CFLAGS"
  LIBS="$JANSSON_LIBS $LIBS"
  AC_MSG_CHECKING([whether jansson works])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <argp.h>
#include <jansson.h>]], [[json_decref(json_pack("{sb}", "a", 1)); return argp_parse(0, 0, 0, 0, 0, 0);]])],
    [have_jansson=yes
     xport_tools="yes"],
    [have_jansson=no
     xport_tools="no (jansson, or argp of libc, does not compile and link; Debian: libjansson-dev)"])
  AC_MSG_RESULT([$have_jansson])
  CFLAGS=$xport_save_CFLAGS
  LIBS=$xport_save_LIBS
  AM_CONDITIONAL([HAVE_JANSSON], [test "x$have_jansson" = xyes])
])

# XPORT_USDT - places where a tracer may look: a header is all that they need.
AC_DEFUN([XPORT_USDT], [
  AC_ARG_ENABLE([usdt],
    [AS_HELP_STRING([--enable-usdt], [probes for tracers, by <sys/sdt.h> (default: where it is found)])],
    [], [enable_usdt=auto])
  xport_usdt=no
  AS_IF([test "x$enable_usdt" != xno],
    [AC_CHECK_HEADER([sys/sdt.h],
      [xport_usdt=yes
       AC_DEFINE([XPI_USDT], [1], [Define if there is <sys/sdt.h>, and probes are wanted.])],
      [AS_IF([test "x$enable_usdt" = xauto], [xport_usdt="no (sys/sdt.h not found; Debian: systemtap-sdt-dev)"],
        [AC_MSG_ERROR([--enable-usdt needs sys/sdt.h (Debian: systemtap-sdt-dev)])])])])
])

# XPORT_NUMA - libnuma, by which the pool of libxport_services places memory on a node.
AC_DEFUN([XPORT_NUMA], [
  AC_ARG_ENABLE([numa],
    [AS_HELP_STRING([--enable-numa], [pools on a NUMA node, by libnuma (default: where it is found)])],
    [], [enable_numa=auto])
  xport_numa=no
  NUMA_LIBS=
  AS_IF([test "x$enable_numa" != xno], [
    xport_save_LIBS=$LIBS
    LIBS="-lnuma $LIBS"
    AC_MSG_CHECKING([whether libnuma works])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <numa.h>
#include <numaif.h>]], [[return numa_available() + (int)set_mempolicy(MPOL_DEFAULT, 0, 0);]])],
      [xport_numa=yes
       NUMA_LIBS=-lnuma],
      [AS_IF([test "x$enable_numa" = xauto], [xport_numa="no (libnuma does not compile and link; Debian: libnuma-dev)"],
        [AC_MSG_ERROR([--enable-numa needs libnuma (Debian: libnuma-dev)])])])
    AC_MSG_RESULT([$xport_numa])
    LIBS=$xport_save_LIBS])
  AC_SUBST([NUMA_LIBS])
  AM_CONDITIONAL([HAVE_NUMA], [test "x$NUMA_LIBS" != x])
])
