// SPDX-License-Identifier: BSD-3-Clause
//! The C interface of libxport and libxport_services.  `bindings/rust/generate` makes `bindings.rs` of `xport.h`, and
//! `services.rs` of `xport_services.h`.  These headers are its manual.
#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    deref_nullptr
)]
mod bindings;
mod services;
pub use bindings::*;
pub use services::*;
