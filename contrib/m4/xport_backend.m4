# SPDX-License-Identifier: BSD-3-Clause

# XPORT_BACKEND(NAME) - declares the back end that lives in src/backends/NAME/.
#
# src/backends/NAME/backend.m4 says what it needs, by setting
#   have_NAME      yes or no
#   why_NAME       which check failed, where have_NAME=no
#   NAME_CFLAGS, NAME_LIBS
#   NAME_load_env  "VARIABLE=value ..." to be set while its module is loaded, unless the user set them
# XPORT_STACK below does most of that.  A folder without NAME.c is announced, not built.
m4_define([xport_all_dirs], [])
AC_DEFUN([XPORT_BACKEND], [
  AC_ARG_ENABLE([$1], [AS_HELP_STRING([--disable-$1], [leave out the $1 back end (--enable-$1: insist on it)])],
    [], [enable_$1=auto])
  have_$1=no
  why_$1="left out by --disable-$1"
  $1_load_env=
  AS_IF([test "x$enable_$1" != xno], [m4_indir([m4_include], [src/backends/$1/backend.m4])])
  AS_IF([test "x$enable_$1" != xno && test ! -f "$srcdir/src/backends/$1/$1.c"],
    [have_$1=no
     why_$1="this version of libxport has no source for it yet"])
  AS_IF([test "x$enable_$1" = xyes && test "x$have_$1" != xyes],
    [AC_MSG_ERROR([--enable-$1: the $1 back end cannot be built: $why_$1])])
  AS_IF([test "x$have_$1" = xyes],
    [xport_backend_list="$xport_backend_list X($1, \"$$1_load_env\")"
     xport_backend_dirs="$xport_backend_dirs src/backends/$1"
     xport_backend_libs="$xport_backend_libs src/backends/$1/libxport_$1.la"
     xport_backend_stacks="$xport_backend_stacks $$1_LIBS"
     XPORT_SUMMARY([$1], [yes])],
    [xport_backend_missing="$xport_backend_missing X($1, \"$why_$1\")"
     XPORT_SUMMARY([$1], [no ($why_$1)])])
  # HAVE_NAME, for what tests one back end.
  AM_CONDITIONAL(m4_toupper([HAVE_$1]), [test "x$have_$1" = xyes])
  AC_SUBST([$1_CFLAGS])
  AC_SUBST([$1_LIBS])
  AC_CONFIG_FILES([src/backends/$1/Makefile])
  m4_append([xport_all_dirs], [src/backends/$1], [ ])
])

AC_DEFUN([XPORT_SUMMARY], [xport_summary="$xport_summary
    m4_format([[%-12s]], [$1]) $2"])

# XPORT_BACKENDS_DONE - after the last XPORT_BACKEND.
AC_DEFUN([XPORT_BACKENDS_DONE], [
  AC_DEFINE_UNQUOTED([XPORT_BACKEND_LIST(X)], [$xport_backend_list],
    [X(name, load environment) for each back end that is built, in order of preference])
  AC_DEFINE_UNQUOTED([XPORT_BACKEND_MISSING(X)], [$xport_backend_missing],
    [X(name, reason) for each back end that is not built])
  AM_CONDITIONAL([XPI_BUILTIN], [test "x$enable_shared" = xno])
  AS_IF([test "x$enable_shared" = xno],
    [AC_DEFINE([XPI_BUILTIN_BACKENDS], [1], [Back ends are linked in, not loaded as modules])
     xport_kind="static, back ends linked in"
     xport_modules="none"
     xport_builtin_libs=$xport_backend_libs
     xport_builtin_stacks=$xport_backend_stacks],
    [xport_kind="shared"
     AS_IF([test "x$enable_static" = xyes], [xport_kind="shared and static"])
     xport_modules="in LIBDIR/$PACKAGE_NAME"])
  AC_SUBST([xport_backend_dirs])
  AC_SUBST([xport_builtin_libs])
  AC_SUBST([xport_builtin_stacks])
  AC_SUBST([xport_all_backend_dirs], ["xport_all_dirs"])
])

# XPORT_STACK(NAME, PKG-CONFIG MODULES, LIBRARIES, INCLUDES, STATEMENT, PACKAGES) - finds what a back end is built on,
# by pkg-config or else under LIBRARIES, and makes sure by compiling and linking STATEMENT.  Sets have_NAME, why_NAME,
# NAME_CFLAGS and NAME_LIBS, the last two unless the user gave them.  INCLUDES may refuse an old version by an #error.
AC_DEFUN([XPORT_STACK], [
  PKG_CHECK_MODULES([$1], [$2], [xport_pkg=found],
    [xport_pkg="pkg-config: $2 not found"
     AS_IF([test "x$$1_LIBS" = x], [$1_LIBS="$3"])])
  xport_save_CFLAGS=$CFLAGS
  xport_save_LIBS=$LIBS
  CFLAGS="$CFLAGS $$1_CFLAGS"
  LIBS="$$1_LIBS $LIBS"
  AC_MSG_CHECKING([whether the headers for $1 compile])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([$4], [])],
    [AC_MSG_RESULT([yes])
     AC_MSG_CHECKING([whether the libraries for $1 link])
     AC_LINK_IFELSE([AC_LANG_PROGRAM([$4], [$5])],
       [AC_MSG_RESULT([yes])
        have_$1=yes],
       [AC_MSG_RESULT([no])
        why_$1="linking with $$1_LIBS failed; $xport_pkg; Debian: $6"])],
    [AC_MSG_RESULT([no])
     why_$1="its headers do not compile; $xport_pkg; Debian: $6"])
  CFLAGS=$xport_save_CFLAGS
  LIBS=$xport_save_LIBS
])
