// SPDX-License-Identifier: BSD-3-Clause
//! Listeners, endpoints and keys.
use crate::error::{Error, Result};
use crate::instance::milliseconds;
use crate::lease::LeaseInner;
use crate::memory::{Buf, Hold};
use crate::operation::{Message, Operation};
use crate::options::EndpointInfo;
use crate::raw;
use crate::region::Part;
use crate::state::{Dead, Grave, Shared};
use crate::table::{Flight, Post};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use xport_sys as sys;

enum Connecting {
    Pending(Option<Waker>),
    Failed(Error),
    Done,
}

pub(crate) struct EpInner {
    ep: Option<raw::Ep>,
    grave: Arc<Grave>,
    /// Operations that wait for space in its queue.
    waiting: AtomicUsize,
    connecting: Mutex<Connecting>,
}

impl EpInner {
    pub(crate) fn new(ep: raw::Ep, grave: Arc<Grave>, connecting: bool) -> EpInner {
        let connecting = if connecting { Connecting::Pending(None) } else { Connecting::Done };
        EpInner { ep: Some(ep), grave, waiting: AtomicUsize::new(0), connecting: Mutex::new(connecting) }
    }

    pub(crate) fn ep(&self) -> &raw::Ep {
        // Only `drop` takes it.
        self.ep.as_ref().expect("an endpoint without a handle")
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn add_waiting(&self, n: isize) {
        self.waiting.fetch_add(n as usize, Ordering::Relaxed);
    }

    /// The first event of an endpoint that connects is for the future of `connect`: returns its waker.
    pub(crate) fn connected(&self, kind: u32, status: i32, why: &str) -> Option<Option<Waker>> {
        let mut c = self.connecting.lock().unwrap_or_else(|e| e.into_inner());
        let after = match kind {
            sys::XPORT_EVENT_CONNECTED => Connecting::Done,
            sys::XPORT_EVENT_LOST => Connecting::Failed(Error::new(status, "xport_connect", why)),
            _ => return None,
        };
        match &mut *c {
            Connecting::Pending(waker) => {
                let waker = waker.take();
                *c = after;
                Some(waker)
            }
            _ => None,
        }
    }
}

impl Drop for EpInner {
    fn drop(&mut self) {
        if let Some(ep) = self.ep.take() {
            self.grave.bury(Dead::Ep(ep));
        }
    }
}

pub(crate) struct KeyInner {
    key: Option<raw::Key>,
    ep: Arc<EpInner>,
    /// The key belongs to a lease.
    lease: Option<Arc<LeaseInner>>,
}

impl KeyInner {
    pub(crate) fn of_lease(key: raw::Key, ep: Arc<EpInner>, lease: Arc<LeaseInner>) -> KeyInner {
        KeyInner { key: Some(key), ep, lease: Some(lease) }
    }

    pub(crate) fn ep(&self) -> &Arc<EpInner> {
        &self.ep
    }

    pub(crate) fn key(&self) -> &raw::Key {
        // Only `drop` takes it.
        self.key.as_ref().expect("a key without a handle")
    }
}

impl Drop for KeyInner {
    fn drop(&mut self) {
        if self.lease.is_some() {
            return; // the lease frees it
        }
        if let Some(key) = self.key.take() {
            self.ep.grave.bury(Dead::Key(key));
        }
    }
}

pub(crate) struct ListenerInner {
    listener: Option<raw::Listener>,
    grave: Arc<Grave>,
}

impl ListenerInner {
    pub(crate) fn new(listener: raw::Listener, grave: Arc<Grave>) -> ListenerInner {
        ListenerInner { listener: Some(listener), grave }
    }

    pub(crate) fn raw(&self) -> &raw::Listener {
        // Only `drop` takes it.
        self.listener.as_ref().expect("a listener without a handle")
    }
}

impl Drop for ListenerInner {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.grave.bury(Dead::Listener(listener));
        }
    }
}

pub(crate) trait Accepting {
    fn try_accept(self: &Arc<Self>, inner: &ListenerInner, waker: &Waker) -> Result<Option<Endpoint>>;
}

/// An address that peers connect to.
pub struct Listener {
    pub(crate) inner: ListenerInner,
    pub(crate) address: String,
    pub(crate) shared: Arc<Shared>,
}

impl Listener {
    /// "host:port" with the real port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next connection.
    pub fn accept(&self) -> Accept<'_> {
        Accept { listener: self }
    }
}

/// The future of `Listener::accept`.
pub struct Accept<'a> {
    listener: &'a Listener,
}

impl Future for Accept<'_> {
    type Output = Result<Endpoint>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Endpoint>> {
        let Listener { inner, shared, .. } = self.listener;
        match shared.try_accept(inner, cx.waker()) {
            Ok(Some(ep)) => Poll::Ready(Ok(ep)),
            Ok(None) => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

/// The future of `Instance::connect`.  Dropped, it ends the endpoint.
pub struct Connect {
    ep: Option<Result<Endpoint>>,
}

impl Connect {
    pub(crate) fn new(ep: Result<Endpoint>) -> Connect {
        Connect { ep: Some(ep) }
    }
}

impl Future for Connect {
    type Output = Result<Endpoint>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Endpoint>> {
        let ep = match self.ep.take().expect("polled after it was ready") {
            Ok(ep) => ep,
            Err(e) => return Poll::Ready(Err(e)),
        };
        let turned = ep.shared.turn();
        let inner = ep.inner.clone();
        let mut c = inner.connecting.lock().unwrap_or_else(|e| e.into_inner());
        match &mut *c {
            Connecting::Pending(waker) => {
                turned?;
                *waker = Some(cx.waker().clone());
                self.ep = Some(Ok(ep));
                Poll::Pending
            }
            Connecting::Failed(e) => Poll::Ready(Err(e.clone())),
            Connecting::Done => Poll::Ready(Ok(ep)),
        }
    }
}

/// What an atomic stores in the word.
#[derive(Clone, Copy, Debug)]
pub enum Atomic {
    Add(u64),
    And(u64),
    Or(u64),
    Xor(u64),
    Swap(u64),
    /// `new` if the word equals `expected`.
    CompareAndSwap {
        expected: u64,
        new: u64,
    },
}

/// A connection to one peer.  The last handle closes it, without waiting.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) inner: Arc<EpInner>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) cancelable: bool,
}

impl Endpoint {
    pub(crate) fn new(inner: Arc<EpInner>, shared: Arc<Shared>) -> Endpoint {
        Endpoint { inner, shared, deadline: None, cancelable: false }
    }

    /// The same endpoint, whose operations have a deadline: after it they end with the status `Timeout`, and their buffers
    /// come back.
    ///
    /// The time includes that in the queue.  A put, get or atomic that the network itself still holds ends the endpoint:
    /// see "Deadlines" in xport.h.  Calls of `Rpc` have a deadline of their own.
    pub fn within(&self, deadline: Duration) -> Endpoint {
        Endpoint { deadline: Some(deadline), ..self.clone() }
    }

    /// The same endpoint, whose sends can be cancelled until a receive has matched them: by `Operation::cancel`, and by
    /// dropping the operation.
    pub fn cancelable(&self) -> Endpoint {
        Endpoint { cancelable: true, ..self.clone() }
    }

    pub fn info(&self) -> Result<EndpointInfo> {
        self.shared.lock().library.ep_info(self.inner.ep())
    }

    /// What the peer passed to `listen` or `connect`.
    pub fn private_data(&self) -> Result<Vec<u8>> {
        self.shared.lock().library.private_data(self.inner.ep())
    }

    /// Makes a peer's key usable on this endpoint.  Any bytes may be passed.
    pub fn unpack(&self, bytes: &[u8]) -> Result<RemoteKey> {
        let mut state = self.shared.lock();
        let key = state.library.rkey_unpack(self.inner.ep(), bytes)?;
        let info = state.library.rkey_query(&key);
        let inner = Arc::new(KeyInner { key: Some(key), ep: self.inner.clone(), lease: None });
        let (length, rights) = info?;
        Ok(RemoteKey::new(inner, self.shared.clone(), length, rights))
    }

    pub(crate) fn flight(&self, post: Post, hold: Hold, key: Option<&RemoteKey>) -> Flight {
        let cancelable = self.cancelable && matches!(post, Post::Send { .. });
        let end = self.deadline.and_then(|d| Instant::now().checked_add(d));
        let flags = if cancelable { sys::XPORT_CANCELABLE } else { 0 };
        Flight { end, flags, ..Flight::new(post, hold, Some(&self.inner), key.map(|k| &k.inner)) }
    }

    fn buffer_operation<T: crate::operation::Output>(
        &self,
        post: Post,
        buf: impl Into<Buf>,
        key: Option<&RemoteKey>,
    ) -> Operation<T> {
        let flight = self.flight(post, buf.into().into_hold(&self.shared), key);
        Operation::submit(&self.shared, flight)
    }

    /// Writes the buffer to the remote region.  Completes when the bytes are visible there.
    pub fn put(&self, buf: impl Into<Buf>, key: &RemoteKey, offset: u64) -> Operation<(Result<()>, Buf)> {
        let post = Post::Put { offset, notify: None };
        self.buffer_operation(post, buf, Some(key))
    }

    /// Writes the buffer, and then notifies the peer with a value.
    pub fn put_notify(
        &self,
        buf: impl Into<Buf>,
        key: &RemoteKey,
        offset: u64,
        value: u64,
    ) -> Operation<(Result<()>, Buf)> {
        let notify = Some(value);
        self.buffer_operation(Post::Put { offset, notify }, buf, Some(key))
    }

    /// Posts a put unless the queue is full: then the status is `Again`, and the buffer comes back.
    pub fn try_put(
        &self,
        buf: impl Into<Buf>,
        key: &RemoteKey,
        offset: u64,
    ) -> std::result::Result<Operation<(Result<()>, Buf)>, (Error, Buf)> {
        let post = Post::Put { offset, notify: None };
        let flight = self.flight(post, buf.into().into_hold(&self.shared), Some(key));
        match self.shared.try_submit(flight) {
            Ok(number) => Ok(Operation::of(&self.shared, number)),
            Err((e, hold)) => Err((e, Buf::from_hold(hold, &self.shared))),
        }
    }

    /// Reads from the remote region into the buffer.
    pub fn get(&self, buf: impl Into<Buf>, key: &RemoteKey, offset: u64) -> Operation<(Result<()>, Buf)> {
        self.buffer_operation(Post::Get { offset }, buf, Some(key))
    }

    /// Writes a part of a local region.
    pub fn put_part(&self, part: Part, key: &RemoteKey, offset: u64) -> Operation<Result<()>> {
        let post = Post::Put { offset, notify: None };
        Operation::submit(&self.shared, self.flight(post, part.into_hold(&self.shared), Some(key)))
    }

    /// Reads into a part of a local region.
    pub fn get_part(&self, part: Part, key: &RemoteKey, offset: u64) -> Operation<Result<()>> {
        let flight = self.flight(Post::Get { offset }, part.into_hold(&self.shared), Some(key));
        Operation::submit(&self.shared, flight)
    }

    /// Changes a word of 8 bytes.  The result is its old value.
    pub fn atomic(&self, atomic: Atomic, key: &RemoteKey, offset: u64) -> Operation<Result<u64>> {
        let (op, operand, compare) = match atomic {
            Atomic::Add(n) => (sys::XPORT_ATOMIC_ADD, n, 0),
            Atomic::And(n) => (sys::XPORT_ATOMIC_AND, n, 0),
            Atomic::Or(n) => (sys::XPORT_ATOMIC_OR, n, 0),
            Atomic::Xor(n) => (sys::XPORT_ATOMIC_XOR, n, 0),
            Atomic::Swap(n) => (sys::XPORT_ATOMIC_SWAP, n, 0),
            Atomic::CompareAndSwap { expected, new } => (sys::XPORT_ATOMIC_CAS, new, expected),
        };
        let post = Post::Atomic { op, width: 8, operand, compare, offset };
        let hold = Hold::Word(Arc::new(AtomicU64::new(0)));
        Operation::submit(&self.shared, self.flight(post, hold, Some(key)))
    }

    /// Sends a message.  Completes when the buffer may be used again.
    pub fn send(&self, buf: impl Into<Buf>, tag: u64) -> Operation<(Result<()>, Buf)> {
        self.buffer_operation(Post::Send { tag }, buf, None)
    }

    /// Posts a receive for a message of this peer with this tag.
    pub fn recv(&self, buf: impl Into<Buf>, tag: u64) -> Operation<(Result<Message>, Buf)> {
        let mask = u64::MAX;
        self.buffer_operation(Post::Recv { tag, mask }, buf, None)
    }

    /// Completes when all earlier operations are placed.
    pub fn flush(&self) -> Operation<Result<()>> {
        Operation::submit(&self.shared, self.flight(Post::Flush, Hold::Nothing, None))
    }

    /// Orders later operations behind earlier ones, without waiting.  Those that wait for space are not covered.
    pub fn fence(&self) -> Result<()> {
        self.shared.lock().library.fence(self.inner.ep())
    }

    /// Flushes and closes.  Waits up to `limit`, with the lock of the instance held.  Zero: does not wait.
    pub fn close(&self, limit: Duration) -> Result<()> {
        let mut wake = Vec::new();
        let mut state = self.shared.lock();
        let ep = self.inner.ep();
        let result = state.library.ep_close(ep, milliseconds(limit));
        if state.library.ep_info(ep).map_or(false, |i| !i.is_open) {
            state.library.services_forget(ep); // no event reports this end
            state.services_turn(&mut wake);
        }
        drop(state);
        for waker in wake {
            waker.wake();
        }
        result
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Endpoint) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint at {:#x}", self.inner.ep().address())
    }
}

/// The key of a peer's region, on one endpoint.
#[derive(Clone)]
pub struct RemoteKey {
    pub(crate) inner: Arc<KeyInner>,
    instance: Arc<Shared>,
    length: u64,
    rights: u32,
}

impl RemoteKey {
    pub(crate) fn new(inner: Arc<KeyInner>, instance: Arc<Shared>, length: u64, rights: u32) -> RemoteKey {
        RemoteKey { inner, instance, length, rights }
    }

    pub(crate) fn instance(&self) -> &Arc<Shared> {
        &self.instance
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn rights(&self) -> u32 {
        self.rights
    }
}
