# SPDX-License-Identifier: BSD-3-Clause

# XPORT_AUTH - finds libsodium, which authentication by a key needs.  Not to have it must be said, so that no package loses
# it unnoticed.
AC_DEFUN([XPORT_AUTH], [
  AC_ARG_WITH([libsodium],
    [AS_HELP_STRING([--without-libsodium], [build without authentication by a key])], [], [with_libsodium=yes])
  xport_auth="none, by --without-libsodium: a key file is refused"
  AS_IF([test "x$with_libsodium" != xno],
    [PKG_CHECK_MODULES([LIBSODIUM], [libsodium >= 1.0.12], [],
       [AS_IF([test "x$LIBSODIUM_LIBS" = x], [LIBSODIUM_LIBS="-lsodium"])])
     xport_save_CFLAGS=$CFLAGS
     xport_save_LIBS=$LIBS
     CFLAGS="$CFLAGS $LIBSODIUM_CFLAGS"
     LIBS="$LIBSODIUM_LIBS $LIBS"
     AC_MSG_CHECKING([whether libsodium works])
     AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <sodium.h>]],
         [[unsigned char key[32] = {0};
           return sodium_init() < 0 || crypto_kdf_derive_from_key(key, sizeof(key), 1, "12345678", key) != 0;]])],
       [AC_MSG_RESULT([yes])
        xport_auth="by a key (libsodium)"],
       [AC_MSG_RESULT([no])
        AC_MSG_ERROR([libsodium does not compile and link: install its headers (Debian: libsodium-dev), or configure --without-libsodium for a library that cannot authenticate])])
     CFLAGS=$xport_save_CFLAGS
     LIBS=$xport_save_LIBS],
    [LIBSODIUM_CFLAGS= LIBSODIUM_LIBS=])
  AM_CONDITIONAL([HAVE_LIBSODIUM], [test "x$with_libsodium" != xno])
  AC_SUBST([LIBSODIUM_CFLAGS])
  AC_SUBST([LIBSODIUM_LIBS])
])
