// SPDX-License-Identifier: BSD-3-Clause
//! Put, get and send over UCX, verbs or libfabric, chosen at run time: the safe interface of libxport.
//!
//! An operation takes its buffer, and returns it with the result.  Until the completion the buffer belongs to a slot of the
//! instance: whether the future is awaited, dropped or forgotten, nothing in flight is freed, moved or readable.
//!
//! The crate needs no runtime: `Operation::wait` and `Instance::block_on` run the instance.  With the feature `tokio`, `drive`
//! does that in a task.  doc/rust.md is the manual.
#![deny(unsafe_code)]
#[cfg(feature = "tokio")]
mod driver;
mod endpoint;
mod error;
mod exclusive;
mod grave;
mod instance;
mod lease;
mod lent;
mod memory;
mod operation;
mod options;
mod pool;
mod raw;
mod region;
mod rpc;
mod services;
mod state;
mod table;
mod versioned;

#[cfg(feature = "tokio")]
pub use driver::drive;
pub use endpoint::{Accept, Atomic, Connect, Endpoint, Listener, RemoteKey};
pub use error::{Error, Result, Status};
pub use exclusive::Exclusive;
pub use instance::{open, Event, Instance, NextEvent};
pub use lease::{Ask, GiveBack, Lease, LeaseOptions, Leases, LeasesInfo};
pub use lent::{Given, NextGiven, Revoke, Taken};
pub use memory::Buf;
pub use operation::{Message, Operation, Output};
pub use options::{ConnOptions, EndpointInfo, Info, Options};
pub use pool::Pool;
pub use raw::version;
pub use region::{Part, Region};
pub use rpc::{CallError, CallOptions, Loan, NextRequest, Ran, Request, Rpc, RpcOptions};
pub use versioned::{Form, Versioned, VersionedOptions, VersionedPeer, VersionedRun};

/// Rights of peers on a region, combined by `|`.
pub const REMOTE_READ: u32 = xport_sys::XPORT_REMOTE_READ;
pub const REMOTE_WRITE: u32 = xport_sys::XPORT_REMOTE_WRITE;
pub const REMOTE_ATOMIC: u32 = xport_sys::XPORT_REMOTE_ATOMIC;
pub const ATOMIC_NIC: u32 = xport_sys::XPORT_ATOMIC_NIC;
pub const REMOTE_RECV: u32 = xport_sys::XPORT_REMOTE_RECV;
