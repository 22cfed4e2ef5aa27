# SPDX-License-Identifier: BSD-3-Clause

# XPORT_PYTHON - finds a Python with cffi and headers, for the package xport of bindings/python.  After
# XPORT_BACKENDS_DONE.  $PYTHON, if set, is the only one that is tried.
AC_DEFUN([XPORT_PYTHON], [
  AC_ARG_ENABLE([python],
    [AS_HELP_STRING([--enable-python], [the Python package xport, by cffi (default: where it can be built)])],
    [], [enable_python=auto])
  xport_python=no
  AS_IF([test "x$enable_python" = xauto && test "x$enable_sanitizers" != xno], [enable_python=no])
  AS_IF([test "x$enable_python" != xno], [
    for xport_try in ${PYTHON-python3 /usr/bin/python3}; do
      AC_MSG_CHECKING([whether $xport_try has cffi and Python.h])
      # Not a script of pyenv's, which may lead to another one tomorrow.
      xport_found=`"$xport_try" -c 'import sys, os, sysconfig, cffi, pycparser
os.stat(os.path.join(sysconfig.get_paths()@<:@"include"@:>@, "Python.h"))
assert sys.version_info >= (3, 9)
print(sys.executable)' 2>&AS_MESSAGE_LOG_FD`
      AS_IF([test -n "$xport_found"], [AC_MSG_RESULT([yes]); break], [AC_MSG_RESULT([no])])
    done
    AS_IF([test -z "$xport_found"], [xport_python="no (no Python with cffi and headers; Debian: python3-cffi python3-dev)"],
      [test "x$enable_shared" = xno], [xport_python="no (there is no shared library)"],
      [PYTHON=$xport_found
       xport_python="yes ($PYTHON)"
       AC_SUBST([PYTHON_CPPFLAGS], [-I`"$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()@<:@"include"@:>@)'`])])
    AS_CASE(["$enable_python,$xport_python"],
      [auto,*|*,yes*], [], [AC_MSG_ERROR([--enable-python: $xport_python])])])
  AM_PATH_PYTHON([3.9], [], [PYTHON=:])
  AM_CONDITIONAL([HAVE_PYTHON], [test "${xport_python#yes}" != "$xport_python"])
])
