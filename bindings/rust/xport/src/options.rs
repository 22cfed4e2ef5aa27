// SPDX-License-Identifier: BSD-3-Clause
//! Options of calls, and what queries return.
use crate::error::{Error, Result};
use std::ffi::{c_void, CString};
use std::os::raw::{c_char, c_int};
use std::ptr::null;
use xport_sys as sys;

/// Options of `open`, as struct xport_attr has them.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// XPORT_BACKEND, such as "ucx:tcp".
    pub backend: Option<String>,
    /// XPORT_REQUIRE.
    pub require: Option<String>,
    /// XPORT_EMULATE.
    pub emulate: Option<String>,
    /// XPORT_PROGRESS.
    pub progress: Option<String>,
    /// XPORT_PEER_TIMEOUT in milliseconds; 0: the default.
    pub peer_timeout_ms: i32,
    /// XPORT_OP_TIMEOUT in milliseconds; 0: the default.
    pub op_timeout_ms: i32,
    /// XPORT_QUEUE_DEPTH; 0: the default.
    pub queue_depth: u32,
}

/// What a connection may be asked for; of a listener: all of its connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnOptions<'a> {
    /// The other side gets it with the connection; at most 1024 bytes.
    pub private_data: &'a [u8],
    /// The only transports that may be used, such as "verbs+ofi:tcp"; None: all of the instance.
    pub transports: Option<&'a str>,
    /// Of a listener: how many connections may wait to be accepted; 0: the default.
    pub backlog: i32,
}

/// What an endpoint is.
#[derive(Clone, Debug)]
pub struct EndpointInfo {
    pub is_open: bool,
    /// "host:port" of both ends of the control channel.
    pub peer: String,
    pub local: String,
    /// As the peer reported them.
    pub peer_host: String,
    pub peer_pid: i64,
    /// Why the endpoint ended, a sentence; "" before its end.
    pub why: String,
    /// The transport in use; "" until the peers have agreed on one.
    pub backend: String,
    pub provider: String,
    pub device: String,
    /// With several transports: why no better one is used, or "".
    pub passed_over: String,
}

/// What an instance is.
#[derive(Clone, Debug)]
pub struct Info {
    pub backend: String,
    pub provider: String,
    pub device: String,
    pub stack: String,
    pub queue_depth: u32,
    pub peer_timeout_ms: i32,
    pub eager_max: u64,
    pub private_max: u64,
    pub passive_target: bool,
}

impl From<&sys::xport_ep_info> for EndpointInfo {
    fn from(i: &sys::xport_ep_info) -> EndpointInfo {
        EndpointInfo {
            is_open: i.state == sys::XPORT_EP_OPEN as c_int,
            peer: text(&i.peer),
            local: text(&i.local),
            peer_host: text(&i.peer_host),
            peer_pid: i.peer_pid,
            why: text(&i.why),
            backend: text(&i.backend),
            provider: text(&i.provider),
            device: text(&i.device),
            passed_over: text(&i.passed_over),
        }
    }
}

impl From<&sys::xport_info> for Info {
    fn from(i: &sys::xport_info) -> Info {
        Info {
            backend: text(&i.backend),
            provider: text(&i.provider),
            device: text(&i.device),
            stack: text(&i.stack),
            queue_depth: i.queue_depth,
            peer_timeout_ms: i.peer_timeout_ms,
            eager_max: i.eager_max,
            private_max: i.private_max,
            passive_target: i.passive_target == 1,
        }
    }
}

// ---- between Rust and C ----

pub(crate) fn c_string(s: &str, operation: &str) -> Result<CString> {
    CString::new(s).map_err(|_| Error::new(sys::XPORT_ERR_INVALID, operation, "a string with a NUL byte"))
}

pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the bytes are; NULL: there are none.
pub(crate) fn bytes(b: &[u8]) -> *const c_void {
    if b.is_empty() {
        return null();
    }
    b.as_ptr() as *const c_void
}

/// The C struct, and the string that it points to.
pub(crate) fn conn_attr(options: &ConnOptions, operation: &str) -> Result<(sys::xport_conn_attr, Option<CString>)> {
    let data = options.private_data;
    let names = options.transports.map(|names| c_string(names, operation)).transpose()?;
    let attr = sys::xport_conn_attr {
        size: std::mem::size_of::<sys::xport_conn_attr>(),
        private_data: bytes(data),
        private_len: data.len(),
        backlog: options.backlog,
        transports: names.as_ref().map_or(null(), |names| names.as_ptr()),
        ..Default::default()
    };
    Ok((attr, names))
}
