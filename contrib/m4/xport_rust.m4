# SPDX-License-Identifier: BSD-3-Clause

# XPORT_RUST - finds cargo, rustc and Debian's registry of crates, for the test of bindings/rust.  After XPORT_BACKENDS_DONE.
# The tools are those of Debian unless $CARGO and $RUSTC are set: another cargo may ask the network.
AC_DEFUN([XPORT_RUST], [
  AC_ARG_ENABLE([rust],
    [AS_HELP_STRING([--enable-rust], [test the Rust crates of bindings/rust (default: where Debian's cargo and tokio are)])],
    [], [enable_rust=auto])
  xport_rust=no
  : ${CARGO=/usr/bin/cargo} ${RUSTC=/usr/bin/rustc} ${CARGO_REGISTRY=/usr/share/cargo/registry}
  AS_IF([test "x$enable_rust" = xauto && test "x$enable_sanitizers" != xno], [enable_rust=no])
  AS_IF([test "x$enable_rust" != xno], [
    AC_MSG_CHECKING([for cargo, rustc 1.63 and the crate tokio])
    xport_found=`"$RUSTC" --version 2>&AS_MESSAGE_LOG_FD | sed -n 's/^rustc 1\.\(@<:@0-9@:>@*\).*/\1/p'`
    AS_IF([test "0$xport_found" -lt 63], [xport_rust="no (no rustc 1.63; Debian: rustc)"],
      ["$CARGO" --version >&AS_MESSAGE_LOG_FD 2>&1], [
       AS_IF([ls -d "$CARGO_REGISTRY"/tokio-1.* >&AS_MESSAGE_LOG_FD 2>&1], [xport_rust="yes ($CARGO)"],
         [xport_rust="no (no crate tokio; Debian: librust-tokio-dev)"])],
      [xport_rust="no (no cargo; Debian: cargo)"])
    AC_MSG_RESULT([${xport_rust%% *}])
    AS_CASE(["$enable_rust,$xport_rust"],
      [auto,*|*,yes*], [], [AC_MSG_ERROR([--enable-rust: $xport_rust])])])
  AS_IF([test "${xport_rust#yes}" = "$xport_rust"], [CARGO=])
  AC_SUBST([CARGO])
  AC_SUBST([RUSTC])
  AC_SUBST([CARGO_REGISTRY])
])
