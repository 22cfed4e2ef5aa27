// SPDX-License-Identifier: BSD-3-Clause
//! Errors: a status, a sentence, and what to do about it.
use crate::options::text;
use crate::raw;
use std::{fmt, io};
use xport_sys as sys;

macro_rules! statuses {
    ($($name:ident = $value:ident,)*) => {
        /// Why a call or an operation failed.  xport_status(7) has the usual cause of each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Status {
            $(#[doc = stringify!($value)] $name,)*
            /// A status that this version of the crate does not know.
            Other(i32),
        }

        impl Status {
            /// The number of the status in C.
            pub fn code(self) -> i32 {
                match self {
                    $(Status::$name => sys::$value,)*
                    Status::Other(code) => code,
                }
            }
        }

        impl From<i32> for Status {
            fn from(code: i32) -> Status {
                match code {
                    $(sys::$value => Status::$name,)*
                    code => Status::Other(code),
                }
            }
        }
    };
}

statuses! {
    Again = XPORT_ERR_AGAIN,
    Invalid = XPORT_ERR_INVALID,
    NoMemory = XPORT_ERR_NO_MEMORY,
    NotSupported = XPORT_ERR_NOT_SUPPORTED,
    Config = XPORT_ERR_CONFIG,
    NoBackend = XPORT_ERR_NO_BACKEND,
    Fault = XPORT_ERR_FAULT,
    Bounds = XPORT_ERR_BOUNDS,
    Access = XPORT_ERR_ACCESS,
    StaleKey = XPORT_ERR_STALE_KEY,
    BadKey = XPORT_ERR_BAD_KEY,
    Truncated = XPORT_ERR_TRUNCATED,
    Canceled = XPORT_ERR_CANCELED,
    PeerLost = XPORT_ERR_PEER_LOST,
    PeerClosed = XPORT_ERR_PEER_CLOSED,
    Closed = XPORT_ERR_CLOSED,
    Timeout = XPORT_ERR_TIMEOUT,
    Refused = XPORT_ERR_REFUSED,
    Unreachable = XPORT_ERR_UNREACHABLE,
    Incompatible = XPORT_ERR_INCOMPATIBLE,
    Address = XPORT_ERR_ADDRESS,
    Auth = XPORT_ERR_AUTH,
    Fork = XPORT_ERR_FORK,
    System = XPORT_ERR_SYSTEM,
    Protocol = XPORT_ERR_PROTOCOL,
    Busy = XPORT_ERR_BUSY,
}

/// What `xport_last_error` reports of a failed call; or the status of a failed operation, and why its endpoint ended.
#[derive(Clone, Debug)]
pub struct Error {
    pub status: Status,
    /// The function of the C library, such as "xport_connect".
    pub operation: String,
    /// The peer that the failure is about, or "".
    pub peer: String,
    /// What went wrong and why, a sentence.
    pub text: String,
    /// What to do about it, or "".
    pub hint: String,
    /// errno, or the code of the network's library; 0: none.
    pub native_code: i64,
    /// The name of `native_code`, or "".
    pub native: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: i32, operation: &str, text: &str) -> Error {
        let text = if text.is_empty() { raw::strerror(status) } else { text.into() };
        Error {
            status: status.into(),
            operation: operation.into(),
            peer: String::new(),
            text,
            hint: String::new(),
            native_code: 0,
            native: String::new(),
        }
    }

    /// Whether the same call can succeed later: the queue was full.
    pub fn is_retryable(&self) -> bool {
        self.status == Status::Again
    }
}

impl From<&sys::xport_error> for Error {
    fn from(e: &sys::xport_error) -> Error {
        Error {
            status: e.status.into(),
            operation: text(&e.operation),
            peer: text(&e.peer),
            text: text(&e.text),
            hint: text(&e.hint),
            native_code: e.native_code,
            native: text(&e.native),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.text)?;
        if !self.hint.is_empty() {
            write!(f, " {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        use io::ErrorKind as Kind;
        let kind = match e.status {
            Status::Again => Kind::WouldBlock,
            Status::Invalid | Status::Bounds | Status::BadKey | Status::Address => Kind::InvalidInput,
            Status::NoMemory => Kind::OutOfMemory,
            Status::NotSupported => Kind::Unsupported,
            Status::Access | Status::Auth => Kind::PermissionDenied,
            Status::StaleKey | Status::NoBackend => Kind::NotFound,
            Status::PeerLost => Kind::ConnectionReset,
            Status::PeerClosed => Kind::ConnectionAborted,
            Status::Closed => Kind::NotConnected,
            Status::Timeout => Kind::TimedOut,
            Status::Refused => Kind::ConnectionRefused,
            Status::Canceled => Kind::Interrupted,
            _ => Kind::Other,
        };
        io::Error::new(kind, e)
    }
}
