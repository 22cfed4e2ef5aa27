# SPDX-License-Identifier: BSD-3-Clause

# XPORT_FLAGS - the compiler and linker flags of everything here: XPI_CFLAGS, XPI_CXXFLAGS, and XPI_LDFLAGS for programs,
# XPI_LIB_LDFLAGS besides for the library and the modules.  CFLAGS and its like stay the user's.
AC_DEFUN([XPORT_FLAGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors])], [], [enable_werror=no])
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST], [build with -fsanitize=LIST: "address,undefined" or "thread"])],
    [AS_CASE([$enableval], [yes], [enable_sanitizers=address,undefined])], [enable_sanitizers=no])

  xport_common="-Wall -Wextra -Wpointer-arith -Wformat-security -fvisibility=hidden -fstack-protector-strong -fno-plt"
  # A library's objects are compiled with -fPIC besides, which comes later and counts.
  xport_common="$xport_common -fPIE"
  XPI_LDFLAGS="-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed"
  XPI_LIB_LDFLAGS="-Wl,-Bsymbolic-functions"
  AS_IF([test "x$enable_werror" = xyes], [xport_common="$xport_common -Werror"])
  AS_IF([test "x$enable_sanitizers" = xno],
    [# A library that forgot to name a dependency must not link; sanitizers leave theirs to the program.
     XPI_LIB_LDFLAGS="$XPI_LIB_LDFLAGS -Wl,-z,defs"
     # FORTIFY needs an optimising compiler, and warns without.
     AS_CASE([" $CFLAGS "], [*" -O0 "*], [], [*" -O"*], [xport_common="$xport_common -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"])],
    [xport_common="$xport_common -fsanitize=$enable_sanitizers -fno-omit-frame-pointer"
     AS_CASE([$enable_sanitizers], [*undefined*], [xport_common="$xport_common -fno-sanitize-recover=undefined"],
       [*thread*], [# Stand-alone fences it does not know; the ones here stand beside locks or messages anyway.
         xport_common="$xport_common -Wno-tsan"])
     XPI_LDFLAGS="$XPI_LDFLAGS -fsanitize=$enable_sanitizers"])
  XPI_CFLAGS="-std=gnu11 $xport_common -Wshadow -Wstrict-prototypes -Wmissing-prototypes"
  XPI_CXXFLAGS="-std=gnu++17 $xport_common"

  xport_save_CFLAGS=$CFLAGS
  xport_save_LDFLAGS=$LDFLAGS
  CFLAGS="$CFLAGS $XPI_CFLAGS"
  LDFLAGS="$LDFLAGS $XPI_LDFLAGS -pie"
  AC_MSG_CHECKING([whether the compiler takes our flags])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([#include <stdatomic.h>], [])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$CC does not take $XPI_CFLAGS $XPI_LDFLAGS: a GCC or Clang with C11 is needed])])
  CFLAGS=$xport_save_CFLAGS
  LDFLAGS=$xport_save_LDFLAGS

  AM_CONDITIONAL([XPI_SANITIZED], [test "x$enable_sanitizers" != xno])
  AC_SUBST([XPI_SANITIZERS], [$enable_sanitizers])
  AC_SUBST([XPI_CFLAGS])
  AC_SUBST([XPI_CXXFLAGS])
  AC_SUBST([XPI_LDFLAGS])
  AC_SUBST([XPI_LIB_LDFLAGS])
])

# XPORT_GTEST - finds GoogleTest; the library does without it, its tests do not.
AC_DEFUN([XPORT_GTEST], [
  AC_ARG_ENABLE([tests],
    [AS_HELP_STRING([--disable-tests], [build neither the tests nor xport_conform, which need GoogleTest])],
    [], [enable_tests=yes])
  AS_IF([test "x$enable_tests" = xno], [have_gtest=no xport_tests="no (left out by --disable-tests)"],
    [_XPORT_LOOK_FOR_GTEST])
  AM_CONDITIONAL([HAVE_GTEST], [test "x$have_gtest" = xyes])
])

AC_DEFUN([_XPORT_LOOK_FOR_GTEST], [
  PKG_CHECK_MODULES([GTEST], [gtest >= 1.10], [],
    [AS_IF([test "x$GTEST_LIBS" = x], [GTEST_LIBS="-lgtest -lpthread"])])
  AC_LANG_PUSH([C++])
  xport_save_CXXFLAGS=$CXXFLAGS
  xport_save_LIBS=$LIBS
  CXXFLAGS="$CXXFLAGS -std=gnu++17 $GTEST_CFLAGS"
  LIBS="$GTEST_LIBS $LIBS"
  AC_MSG_CHECKING([whether GoogleTest works])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([#include <gtest/gtest.h>], [return RUN_ALL_TESTS();])],
    [have_gtest=yes
     xport_tests="yes"],
    [have_gtest=no
     xport_tests="no (GoogleTest does not compile and link; Debian: libgtest-dev), nor xport_conform"])
  AC_MSG_RESULT([$have_gtest])
  CXXFLAGS=$xport_save_CXXFLAGS
  LIBS=$xport_save_LIBS
  AC_LANG_POP([C++])
])
