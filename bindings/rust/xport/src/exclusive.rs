// SPDX-License-Identifier: BSD-3-Clause
//! Operations that wait.
use crate::endpoint::{Endpoint, RemoteKey};
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::memory::{Buf, Lent};
use crate::operation::Output;
use crate::state::{this_thread, Shared, State};
use crate::table::Post;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use xport_sys as sys;

/// An instance that one thread has: its operations wait, and take no lock each.
///
/// The fastest way to put, get and send.  Other threads wait until it is dropped, or until an operation of it sleeps.  Any
/// other call of the same instance by this thread panics meanwhile, but for drops.  One that is forgotten (`mem::forget`)
/// keeps the instance from all threads for ever.
pub struct Exclusive<'a> {
    shared: &'a Arc<Shared>,
    /// None: while an operation sleeps.
    state: Option<MutexGuard<'a, State>>,
}

impl Instance {
    /// Takes the instance for the thread, until the value is dropped.
    pub fn exclusive(&self) -> Exclusive<'_> {
        Exclusive::new(&self.shared)
    }
}

impl<'a> Exclusive<'a> {
    fn new(shared: &'a Arc<Shared>) -> Exclusive<'a> {
        let state = Some(shared.lock());
        shared.holder.store(this_thread(), Ordering::Relaxed);
        Exclusive { shared, state }
    }

    /// Writes the buffer to the remote region.  Returns when the bytes are visible there.
    pub fn put(&mut self, ep: &Endpoint, buf: &mut Buf, key: &RemoteKey, offset: u64) -> Result<()> {
        self.run(Post::Put { offset, notify: None }, buf, ep, Some(key))
    }

    /// Reads from the remote region into the buffer.
    pub fn get(&mut self, ep: &Endpoint, buf: &mut Buf, key: &RemoteKey, offset: u64) -> Result<()> {
        self.run(Post::Get { offset }, buf, ep, Some(key))
    }

    /// Sends a message.  Returns when the buffer may be used again.
    pub fn send(&mut self, ep: &Endpoint, buf: &mut Buf, tag: u64) -> Result<()> {
        self.run(Post::Send { tag }, buf, ep, None)
    }

    #[inline]
    fn run(&mut self, post: Post, buf: &mut Buf, ep: &Endpoint, key: Option<&RemoteKey>) -> Result<()> {
        if !Arc::ptr_eq(self.shared, &ep.shared) {
            return Err(Error::new(sys::XPORT_ERR_INVALID, post.name(), "The endpoint belongs to another instance."));
        }
        if buf.is_foreign(self.shared) {
            return Err(Error::new(
                sys::XPORT_ERR_INVALID,
                post.name(),
                "The memory is registered with another instance.",
            ));
        }
        let state = match &mut self.state {
            Some(state) if state.is_plain(&self.shared.grave) && ep.deadline.is_none() && !ep.cancelable => state,
            _ => return self.submit(post, buf, ep, key),
        };
        let (inner, key_inner) = (&ep.inner, key.map(|k| &k.inner));
        match state.library.run(&post, buf, inner, key_inner) {
            Lent::Done => Ok(()),
            Lent::Refused(sys::XPORT_ERR_AGAIN) => self.submit(post, buf, ep, key),
            Lent::Refused(status) => Err(state.library.failure(status, post.name())),
            Lent::Posted(number, polled) => {
                let mut wake = Vec::new();
                let _ = state.polled(polled, &mut wake);
                self.wait(number, buf, wake)
            }
        }
    }

    /// The same through a slot.
    #[cold]
    fn submit(&mut self, post: Post, buf: &mut Buf, ep: &Endpoint, key: Option<&RemoteKey>) -> Result<()> {
        let mut wake = Vec::new();
        let flight = ep.flight(post, std::mem::replace(buf, Buf::zeroed(0)).into_hold(self.shared), key);
        let shared = self.shared;
        let number = self.state.get_or_insert_with(|| shared.lock()).submit(flight, &mut wake);
        self.wait(number, buf, wake)
    }

    /// Waits for an operation without the lock, and takes its buffer back.
    #[cold]
    fn wait(&mut self, number: u64, buf: &mut Buf, wake: Vec<Waker>) -> Result<()> {
        self.release();
        for waker in wake {
            waker.wake();
        }
        let slot = self.shared.wait(None, number).expect("without a limit there is a result");
        let (result, back) = <(Result<()>, Buf)>::of(slot.finished(self.shared));
        *buf = back;
        *self = Exclusive::new(self.shared);
        result
    }

    fn release(&mut self) {
        if let Some(state) = self.state.take() {
            self.shared.holder.store(0, Ordering::Relaxed);
            drop(state);
        }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Exclusive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exclusive")
    }
}

/// Operations that wait, for a buffer that stays where it is: shorter than those that return an `Operation`, and faster.
impl Endpoint {
    /// Writes the buffer to the remote region.  Returns when the bytes are visible there.
    pub fn put_wait(&self, buf: &mut Buf, key: &RemoteKey, offset: u64) -> Result<()> {
        Exclusive::new(&self.shared).put(self, buf, key, offset)
    }

    /// Reads from the remote region into the buffer.
    pub fn get_wait(&self, buf: &mut Buf, key: &RemoteKey, offset: u64) -> Result<()> {
        Exclusive::new(&self.shared).get(self, buf, key, offset)
    }

    /// Sends a message.  Returns when the buffer may be used again.
    pub fn send_wait(&self, buf: &mut Buf, tag: u64) -> Result<()> {
        Exclusive::new(&self.shared).send(self, buf, tag)
    }
}
