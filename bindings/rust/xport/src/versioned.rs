// SPDX-License-Identifier: BSD-3-Clause
//! Versioned objects: bytes in a region that peers read, and write, without tearing.
use crate::endpoint::{Endpoint, EpInner, KeyInner, RemoteKey};
use crate::error::{Error, Result};
use crate::instance::milliseconds;
use crate::instance::Instance;
use crate::memory::{version, Buf, Hold, Object, Reader, Version};
use crate::raw::service_error;
use crate::region::Region;
use crate::state::{Dead, Grave, Shared, State};
use std::fmt;
use std::future::Future;
use std::os::raw::c_int;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use xport_sys as sys;

/// How a reader knows that it has one version: see xport_versioned.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Three round trips, no checksum.
    Checked,
    /// One round trip and a checksum.
    Summed,
    /// Two round trips and a checksum; readers succeed even if the owner never pauses.
    Copies,
}

/// An object.  Its owner and its peers have the same form, length and copies.
#[derive(Clone, Copy, Debug)]
pub struct VersionedOptions {
    pub form: Form,
    /// Of the bytes, at least 1.
    pub length: usize,
    /// `Copies`: their number; 0: the default.
    pub copies: u32,
    /// `Copies`, owner: how long a replaced copy stays; None: the default; zero: not at all.
    pub grace: Option<Duration>,
    /// Peer: the number of reads until `Again`; 0: the default.
    pub tries: u32,
}

impl VersionedOptions {
    pub fn new(form: Form, length: usize) -> VersionedOptions {
        VersionedOptions { form, length, copies: 0, grace: None, tries: 0 }
    }

    fn attr(&self) -> sys::xport_versioned_attr {
        let form = match self.form {
            Form::Checked => sys::XPORT_VERSIONED_CHECKED,
            Form::Summed => sys::XPORT_VERSIONED_SUMMED,
            Form::Copies => sys::XPORT_VERSIONED_COPIES,
        };
        sys::xport_versioned_attr {
            size: std::mem::size_of::<sys::xport_versioned_attr>(),
            form: form as c_int,
            length: self.length,
            copies: self.copies,
            grace_ms: self.grace.map_or(0, |d| if d.is_zero() { -1 } else { milliseconds(d).max(1) }),
            tries: self.tries.min(c_int::MAX as u32) as c_int,
        }
    }

    /// Bytes of the region that the object takes; 0: the options are not allowed.
    pub fn size(&self) -> usize {
        version(&[], Version::Size(&self.attr())) as usize
    }
}

fn length_error(operation: &str, got: usize, length: usize) -> Error {
    Error::new(sys::XPORT_ERR_INVALID, operation, &format!("{} bytes for an object of {}.", got, length))
}

/// An object in a region of this process.
pub struct Versioned {
    object: Object,
    length: usize,
    _region: Region,
}

impl Region {
    /// Makes an object that begins so many bytes into the region, a multiple of 64.
    pub fn versioned(&self, offset: u64, options: &VersionedOptions) -> Result<Versioned> {
        let mut state = self.shared.lock();
        let object = state.library.object_create(self.inner.mr(), offset, &options.attr())?;
        Ok(Versioned { object, length: options.length, _region: self.clone() })
    }
}

impl Versioned {
    /// Replaces all bytes.  Does not wait: the status is `Again` while a peer writes, or no copy is free.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let name = "xport_versioned_write";
        if bytes.len() != self.length {
            return Err(length_error(name, bytes.len(), self.length));
        }
        match version(&[], Version::Write(&self.object, bytes)) as i32 {
            status if status < 0 => Err(service_error(status, name)),
            _ => Ok(()),
        }
    }

    /// Releases the lock of a peer that was lost while it wrote.  See xport_versioned_recover for when that is allowed.
    /// Returns whether there was a lock.
    pub fn recover(&mut self) -> bool {
        version(&[], Version::Recover(&self.object)) == 1
    }
}

impl Drop for Versioned {
    fn drop(&mut self) {
        version(&[], Version::Destroy(&self.object));
    }
}

impl fmt::Debug for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Versioned of {} bytes", self.length)
    }
}

/// What the state has of an object of a peer.  It owns the memory of a read or write until that has ended.
pub(crate) struct Reading {
    reader: Reader,
    buf: Option<Hold>,
    busy: bool,
    ended: Option<Result<()>>,
    pub(crate) waker: Option<Waker>,
    /// Its owner is gone.
    dead: bool,
    /// The call that started it.
    name: &'static str,
    handles: (Arc<EpInner>, Arc<KeyInner>),
}

impl State {
    /// Continues a read or write: with a completion, or because there may be space in the queue.
    pub(crate) fn reader_step(&mut self, address: usize, i: Option<usize>, wake: &mut Vec<Waker>) {
        let r = match self.services.readers.get_mut(&address) {
            Some(r) if r.busy => r,
            _ => return,
        };
        let status = version(&self.library.list, Version::Step(&r.reader, i)) as i32;
        if status == 1 {
            return;
        }
        r.busy = false;
        r.ended = Some(if status < 0 { Err(service_error(status, r.name)) } else { Ok(()) });
        wake.extend(r.waker.take());
        self.services.reading -= 1;
        if r.dead {
            self.reader_dies(address);
        }
    }

    pub(crate) fn readers_continue(&mut self, wake: &mut Vec<Waker>) {
        let busy: Vec<usize> = self.services.readers.iter().filter(|(_, r)| r.busy).map(|(a, _)| *a).collect();
        for address in busy {
            self.reader_step(address, None, wake);
        }
    }

    pub(crate) fn reader_dies(&mut self, address: usize) {
        match self.services.readers.get_mut(&address) {
            Some(r) if r.busy => r.dead = true,
            Some(r) => {
                version(&[], Version::End(&r.reader));
                self.services.readers.remove(&address);
            }
            None => {}
        }
    }
}

impl State {
    /// Ends the reads and writes that nobody waits for, at the end of the instance: their handles are freed before it.
    /// They end when their endpoints are closed, without waiting.
    pub(crate) fn end_reading(&mut self, grave: &Grave) {
        let State { library, services, .. } = self;
        for r in services.readers.values_mut() {
            let _ = library.ep_close(r.handles.0.ep(), 0);
            r.dead = true;
        }
        let mut turns = 0;
        // After a failure of the back end no completion comes.
        while self.services.reading > 0 && turns < 1000 && self.turn(grave, &mut Vec::new()).is_ok() {
            turns += 1;
        }
    }
}

/// An object of a peer.  It reads or writes one at a time.
pub struct VersionedPeer {
    address: usize,
    length: usize,
    shared: Arc<Shared>,
}

impl Endpoint {
    /// The object that begins so many bytes into the region of a key.
    pub fn versioned(&self, key: &RemoteKey, offset: u64, options: &VersionedOptions) -> Result<VersionedPeer> {
        let mut state = self.shared.lock();
        if !Arc::ptr_eq(key.inner.ep(), &self.inner) {
            let text = "The key belongs to another endpoint.";
            return Err(Error::new(sys::XPORT_ERR_INVALID, "xport_versioned_peer_create", text));
        }
        let reader = state.library.reader_create(self.inner.ep(), key.inner.key(), offset, &options.attr())?;
        let address = reader.address();
        let handles = (self.inner.clone(), key.inner.clone());
        let reading =
            Reading { reader, buf: None, busy: false, ended: None, waker: None, dead: false, name: "", handles };
        state.services.readers.insert(address, reading);
        Ok(VersionedPeer { address, length: options.length, shared: self.shared.clone() })
    }
}

impl VersionedPeer {
    /// Reads all bytes, of one version.
    ///
    /// If it is dropped, the read goes on without it, and the next one fails with `Busy` until it has ended.
    pub fn read(&mut self) -> VersionedRun<'_> {
        let buf = Buf::zeroed(self.length);
        self.start(buf, false)
    }

    /// Replaces all bytes.
    pub fn write(&mut self, bytes: impl Into<Buf>) -> VersionedRun<'_> {
        self.start(bytes.into(), true)
    }

    fn start(&mut self, buf: Buf, writes: bool) -> VersionedRun<'_> {
        let name = if writes { "xport_versioned_peer_write" } else { "xport_versioned_peer_read" };
        let failed = self.try_start(buf, writes, name).err();
        VersionedRun { peer: self, failed }
    }

    fn try_start(&self, buf: Buf, writes: bool, name: &'static str) -> Result<()> {
        if buf.len() != self.length {
            return Err(length_error(name, buf.len(), self.length));
        }
        let hold = buf.into_hold(&self.shared);
        if hold.is_foreign() {
            let text = "The memory is registered with another instance.";
            return Err(Error::new(sys::XPORT_ERR_INVALID, name, text));
        }
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if let Some(r) = state.services.readers.get_mut(&self.address) {
            let status = version(&[], Version::Start(&r.reader, &hold, writes)) as i32;
            state.library.service_must(status, name)?;
            r.buf = Some(hold);
            r.name = name;
            r.busy = true;
            r.ended = None;
            state.services.reading += 1;
        }
        Ok(())
    }

    fn number(&self, of: impl Fn(&Reader) -> i64) -> u64 {
        self.shared.lock().services.readers.get(&self.address).map_or(0, |r| of(&r.reader) as u64)
    }

    /// The version of the last read or write that succeeded.  Each write adds 2.
    pub fn version(&self) -> u64 {
        self.number(|r| version(&[], Version::Number(r)))
    }

    /// Reads that were repeated, since the handle was made.
    pub fn retries(&self) -> u64 {
        self.number(|r| version(&[], Version::Retries(r)))
    }
}

impl Drop for VersionedPeer {
    fn drop(&mut self) {
        self.shared.abandon(Dead::Reader(self.address));
    }
}

impl fmt::Debug for VersionedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionedPeer of {} bytes", self.length)
    }
}

/// A read or write of an object of a peer: await it, or call `wait`.  The result is the buffer.
#[must_use = "a read that is dropped is abandoned"]
pub struct VersionedRun<'a> {
    peer: &'a mut VersionedPeer,
    failed: Option<Error>,
}

impl VersionedRun<'_> {
    fn take(&mut self) -> Option<Result<Buf>> {
        if let Some(e) = self.failed.take() {
            return Some(Err(e));
        }
        let shared = &self.peer.shared;
        let mut state = shared.lock();
        let r = state.services.readers.get_mut(&self.peer.address)?;
        let ended = r.ended.take()?;
        let hold = r.buf.take()?;
        drop(state);
        Some(ended.map(|()| Buf::from_hold(hold, shared)))
    }

    /// Runs the instance until the end, or until it fails.
    pub fn wait(self) -> Result<Buf> {
        Instance { shared: self.peer.shared.clone() }.block_on(self)
    }
}

impl Future for VersionedRun<'_> {
    type Output = Result<Buf>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Buf>> {
        let turned = self.peer.shared.turn();
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        turned?;
        let mut state = self.peer.shared.lock();
        let r = state.services.readers.get_mut(&self.peer.address).expect("an object without a handle");
        if !r.busy {
            drop(state); // ended in between, by another thread
            return self.take().map_or(Poll::Pending, Poll::Ready);
        }
        let earlier = r.waker.replace(cx.waker().clone());
        drop(state);
        drop(earlier);
        Poll::Pending
    }
}
