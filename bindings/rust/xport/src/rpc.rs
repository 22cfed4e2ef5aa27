// SPDX-License-Identifier: BSD-3-Clause
//! Remote procedure calls: the caller and the callee.
use crate::endpoint::{Endpoint, EpInner};
use crate::error::{Error, Result, Status};
use crate::instance::{milliseconds, Instance};
use crate::memory::Buf;
use crate::operation::{sealed, Finished, Operation, Output};
use crate::options::bytes;
use crate::region::Region;
use crate::services::Lent;
use crate::state::{add_waker, Dead, Shared};
use crate::table::{left_ms, Called, Flight, Post};
use std::ffi::{c_void, CString};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use xport_sys as sys;

/// Options of `Instance::rpc`, as struct xport_rpcs_attr has them.  0: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct RpcOptions {
    /// Bytes of the longest payload of a call or reply.
    pub max_payload: u32,
    /// Caller: calls in progress.
    pub max_calls: u32,
    /// Callee: requests that are held at a time.
    pub max_active: u32,
    /// Callee: requests of one peer at a time.
    pub credits: u32,
    /// Callee: the time that the status `Busy` tells the caller to wait.
    pub retry_after: Duration,
}

/// Options of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// No reply: the call is done when the callee has handed it to its application.
    pub one_way: bool,
    /// Trace context that the handler gets, such as a trace id and a span id.
    pub trace: [u8; 24],
}

/// Whether the handler of a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It did not, and will not: the call may be repeated.
    No,
    Yes,
    /// The callee did not answer.
    Unknown,
}

/// The error of a call.
#[derive(Clone, Debug)]
pub struct CallError {
    pub error: Error,
    pub ran: Ran,
    /// With the status `Busy`: when to call again.
    pub retry_after: Duration,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CallError {}

impl From<CallError> for Error {
    fn from(e: CallError) -> Error {
        e.error
    }
}

impl RpcOptions {
    pub(crate) fn attr(&self) -> sys::xport_rpcs_attr {
        sys::xport_rpcs_attr {
            size: std::mem::size_of::<sys::xport_rpcs_attr>(),
            max_payload: self.max_payload,
            max_calls: self.max_calls,
            max_active: self.max_active,
            credits: self.credits,
            retry_after_ms: milliseconds(self.retry_after) as u32,
            ..Default::default()
        }
    }
}

/// An event of the calls of an instance.  `number` is that of the operation.
pub(crate) enum RpcEvent {
    Done { number: u64, status: i32, length: usize, called: Called, why: String },
    Released { number: u64, status: i32 },
    Request(Arrived),
}

impl RpcEvent {
    /// Of the C struct, and what its pointers point to.
    pub(crate) fn new(e: &sys::xport_rpc_event, method: String, why: String, payload: Vec<u8>) -> RpcEvent {
        let number = e.context as usize as u64;
        match e.type_ as u32 {
            sys::XPORT_RPC_REQUEST => RpcEvent::Request(Arrived {
                id: e.id,
                ep: e.ep as usize,
                known: None,
                method,
                payload,
                one_way: e.flags & sys::XPORT_RPC_ONE_WAY != 0,
                lent: e.flags & sys::XPORT_RPC_LENT != 0,
                left_ms: e.left_ms,
                trace: e.trace,
            }),
            sys::XPORT_RPC_RELEASED => RpcEvent::Released { number, status: e.status },
            _ => RpcEvent::Done {
                number,
                status: e.status,
                length: e.len,
                called: Called { ran: e.ran as u32, retry_after_ms: e.retry_after_ms },
                why,
            },
        }
    }
}

/// What a slot has of a call, without the memory of the reply.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: CString,
    pub(crate) payload: Vec<u8>,
    pub(crate) flags: u32,
    pub(crate) trace: [u8; 24],
    pub(crate) end: Instant,
}

impl Call {
    pub(crate) fn args(
        &self,
        reply: *mut c_void,
        reply_max: usize,
        context: *mut c_void,
        id: *mut u64,
    ) -> sys::xport_rpc_args {
        sys::xport_rpc_args {
            size: std::mem::size_of::<sys::xport_rpc_args>(),
            payload: bytes(&self.payload),
            len: self.payload.len(),
            reply,
            reply_max,
            deadline_ms: left_ms(self.end, sys::XPORT_RPC_DEADLINE_MAX as i32), // what it waited for space counts
            flags: self.flags,
            context,
            trace: self.trace,
            id,
            ..Default::default()
        }
    }
}

impl sealed::Sealed for std::result::Result<Vec<u8>, CallError> {}
impl Output for std::result::Result<Vec<u8>, CallError> {
    fn of(mut f: Finished<'_>) -> Self {
        let result = f.result();
        let called = f.outcome.called;
        let length = f.outcome.length as usize;
        let mut reply = Buf::from_hold(f.hold, f.shared).into_vec();
        reply.truncate(length);
        result.map(|()| reply.clone()).map_err(|mut error| {
            let ran = match called.ran {
                sys::XPORT_RPC_RAN_NO => Ran::No,
                sys::XPORT_RPC_RAN_YES => Ran::Yes,
                _ => Ran::Unknown,
            };
            if ran == Ran::Yes && !reply.is_empty() {
                error.text = String::from_utf8_lossy(&reply).into_owned();
            }
            CallError { error, ran, retry_after: Duration::from_millis(called.retry_after_ms.into()) }
        })
    }
}

/// The calls of an instance, as caller and as callee.
#[derive(Clone)]
pub struct Rpc {
    shared: Arc<Shared>,
}

impl Instance {
    /// Makes the calls of the instance, which has them until its end.  Clones are the same calls.
    pub fn rpc(&self, options: &RpcOptions) -> Result<Rpc> {
        let mut state = self.shared.lock();
        state.services.max_payload = state.library.rpcs_create(options)?;
        state.services.used = true;
        Ok(Rpc { shared: self.shared.clone() })
    }
}

impl Rpc {
    /// Bytes of the longest payload of a call or reply.
    pub fn max_payload(&self) -> usize {
        self.shared.lock().services.max_payload
    }

    /// Calls a method of a peer.  The result is the reply.
    ///
    /// The deadline travels with the call.  A dropped operation cancels the call.  If too many calls are in progress, this
    /// one waits, and its time goes on.
    pub fn call(
        &self,
        ep: &Endpoint,
        method: &str,
        payload: &[u8],
        deadline: Duration,
    ) -> Operation<std::result::Result<Vec<u8>, CallError>> {
        self.call_with(ep, method, payload, deadline, &CallOptions::default())
    }

    pub fn call_with(
        &self,
        ep: &Endpoint,
        method: &str,
        payload: &[u8],
        deadline: Duration,
        options: &CallOptions,
    ) -> Operation<std::result::Result<Vec<u8>, CallError>> {
        Operation::of(&self.shared, self.submit(ep, method, payload, deadline, options, None))
    }

    /// Calls a method, and lends it regions, whose keys are in the payload.
    ///
    /// The callee may access them until the `Loan` is over.  A handler may still run after its call has timed out.  A region with a loan cannot be closed.
    pub fn lend(
        &self,
        ep: &Endpoint,
        method: &str,
        payload: &[u8],
        deadline: Duration,
        regions: &[&Region],
    ) -> (Operation<std::result::Result<Vec<u8>, CallError>>, Loan) {
        let number = self.submit(ep, method, payload, deadline, &CallOptions::default(), Some(regions));
        (Operation::of(&self.shared, number), Loan { shared: self.shared.clone(), number })
    }

    fn submit(
        &self,
        ep: &Endpoint,
        method: &str,
        payload: &[u8],
        deadline: Duration,
        options: &CallOptions,
        lent: Option<&[&Region]>,
    ) -> u64 {
        let mut flags = if options.one_way { sys::XPORT_RPC_ONE_WAY } else { 0 };
        if lent.is_some() {
            flags |= sys::XPORT_RPC_LENT;
        }
        let end = Instant::now() + deadline.min(Duration::from_millis(sys::XPORT_RPC_DEADLINE_MAX.into()));
        let call = Call {
            // A NUL byte makes the name malformed, which the library reports.
            method: CString::new(method).unwrap_or_default(),
            payload: payload.to_vec(),
            flags,
            trace: options.trace,
            end,
        };
        let reply = Buf::zeroed(if options.one_way { 0 } else { self.max_payload() });
        let flight = Flight::new(Post::Call(Box::new(call)), reply.into_hold(&self.shared), Some(&ep.inner), None);
        let flight = Flight { end: Some(end), ..flight };
        let own = lent.map_or(true, |regions| regions.iter().all(|r| Arc::ptr_eq(&r.shared, &self.shared)));
        let lent = lent.map(|regions| Lent {
            _regions: regions.iter().map(|r| r.inner.clone()).collect(),
            released: None,
            waker: None,
            orphan: false,
        });
        let foreign = if !Arc::ptr_eq(&ep.shared, &self.shared) {
            Some("The endpoint belongs to another instance.")
        } else if !own {
            Some("A region belongs to another instance.")
        } else {
            None
        };
        self.shared.submit_call(flight, lent, foreign)
    }

    /// Registers a method: `request` returns its calls.  It stays until the end of the instance.
    pub fn register(&self, method: &str) -> Result<()> {
        self.shared.lock().library.rpc_register(method)
    }

    /// The next call of a registered method.
    pub fn request(&self) -> NextRequest<'_> {
        NextRequest { rpc: self }
    }
}

/// The future of `Rpc::request`.
pub struct NextRequest<'a> {
    rpc: &'a Rpc,
}

impl Future for NextRequest<'_> {
    type Output = Result<Request>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Request>> {
        let shared = &self.rpc.shared;
        if let Err(e) = shared.turn() {
            return Poll::Ready(Err(e));
        }
        let mut state = shared.lock();
        match state.services.requests.pop_front() {
            Some(arrived) => {
                let endpoint = arrived.known.as_ref().and_then(|w| w.upgrade());
                let endpoint = endpoint.map(|inner| Endpoint::new(inner, shared.clone()));
                drop(state);
                Poll::Ready(Ok(Request { arrived, endpoint, shared: shared.clone(), ended: false }))
            }
            None => {
                add_waker(&mut state.services.request_wakers, cx.waker());
                Poll::Pending
            }
        }
    }
}

/// A request as the library reported it.
pub(crate) struct Arrived {
    pub(crate) id: u64,
    /// To be looked up when the endpoint is accepted; 0: it is gone.
    pub(crate) ep: usize,
    pub(crate) known: Option<Weak<EpInner>>,
    pub(crate) method: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) one_way: bool,
    pub(crate) lent: bool,
    pub(crate) left_ms: u32,
    pub(crate) trace: [u8; 24],
}

/// A call of a peer.  Dropped without a reply, it ends at its caller with the status `Canceled`.
pub struct Request {
    arrived: Arrived,
    endpoint: Option<Endpoint>,
    shared: Arc<Shared>,
    ended: bool,
}

impl Request {
    pub fn method(&self) -> &str {
        &self.arrived.method
    }

    pub fn payload(&self) -> &[u8] {
        &self.arrived.payload
    }

    /// The caller; None: it is gone, or no call has returned it yet.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// The trace context of the caller.
    pub fn trace(&self) -> &[u8; 24] {
        &self.arrived.trace
    }

    /// Whether the caller expects no reply.
    pub fn is_one_way(&self) -> bool {
        self.arrived.one_way
    }

    /// Whether the payload has keys of memory that was lent for this call.
    pub fn is_lent(&self) -> bool {
        self.arrived.lent
    }

    /// The time until the deadline when the request came.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.arrived.left_ms.into())
    }

    /// The time that is left.  The status `Canceled`: the caller no longer wants the reply.
    pub fn left(&self) -> Result<Duration> {
        self.shared.lock().library.rpc_left(self.arrived.id).map(Duration::from_millis)
    }

    /// Replies.  An error: the reply is too long, which its caller is told, or the caller has gone.
    pub fn reply(self, payload: &[u8]) -> Result<()> {
        self.end(sys::XPORT_OK, payload)
    }

    /// Replies with an error and a text.
    pub fn fail(self, status: Status, text: &str) -> Result<()> {
        let code = status.code();
        let max = self.shared.lock().services.max_payload;
        let bytes = text.as_bytes();
        self.end(if code < 0 { code } else { sys::XPORT_ERR_SYSTEM }, &bytes[..bytes.len().min(max)])
    }

    fn end(mut self, status: i32, payload: &[u8]) -> Result<()> {
        self.ended = true;
        let mut wake = Vec::new();
        let result = {
            let mut state = self.shared.lock();
            let result = state.library.rpc_reply(self.arrived.id, status, payload);
            // These leave the request as it is.
            match result.as_ref().map_err(|e| e.status) {
                Err(Status::Bounds) | Err(Status::NoMemory) | Err(Status::Invalid) => {
                    let code = result.as_ref().map_or_else(|e| e.status.code(), |()| 0);
                    let _ = state.library.rpc_reply(self.arrived.id, code, b"");
                }
                _ => {}
            }
            state.services_turn(&mut wake);
            result
        };
        for waker in wake {
            waker.wake();
        }
        result
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.abandon(Dead::Request(self.arrived.id));
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request of {} with {} bytes", self.arrived.method, self.arrived.payload.len())
    }
}

/// Regions that a call has lent: the future ends when the callee accesses them no longer.
///
/// An error: the callee cannot be heard.  With `Protocol`, `NoMemory` and `PeerClosed` a handler may still access the memory.
pub struct Loan {
    shared: Arc<Shared>,
    number: u64,
}

impl Future for Loan {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let turned = self.shared.turn();
        let mut state = self.shared.lock();
        let lent = match state.services.loans.get_mut(&self.number) {
            Some(lent) => lent,
            None => return Poll::Ready(Ok(())), // polled after it was ready
        };
        match lent.released {
            Some(status) if status < 0 => Poll::Ready(Err(Error::new(status, "xport_rpc_call", ""))),
            Some(_) => Poll::Ready(Ok(())),
            None => {
                turned?;
                lent.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.shared.abandon(Dead::Loan(self.number));
    }
}

impl Shared {
    fn submit_call(&self, flight: Flight, lent: Option<Lent>, foreign: Option<&str>) -> u64 {
        let mut wake = Vec::new();
        let mut state = self.lock();
        let number = match foreign {
            Some(why) => state.refuse(flight, why),
            None => state.submit(flight, &mut wake),
        };
        if let Some(lent) = lent {
            state.services.loans.insert(number, lent);
            if state.library.table.get(number).map_or(true, |slot| slot.is_done()) {
                state.loan_ends(number, sys::XPORT_OK, &mut wake); // it was refused
            }
        }
        state.services_turn(&mut wake);
        drop(state);
        for waker in wake {
            waker.wake();
        }
        number
    }
}
