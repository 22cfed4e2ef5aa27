// SPDX-License-Identifier: BSD-3-Clause
//! Buffers, regions, and the C calls of leases: memory of a peer.
//!
//! A `Buf` has one owner: its caller, or the slot of the operation that uses it.  Peers have no key to it, so it is a plain
//! slice for its owner.  A `Region` is memory that peers may change at any time: it is never lent as a slice, but read and
//! written by copies of atomic words.
#![allow(unsafe_code)]
use crate::endpoint::{EpInner, KeyInner};
use crate::error::{Error, Result};
use crate::lease::{LeaseEvent, LeaseOptions, LeasesInfo};
use crate::pool::PoolInner;
use crate::raw::{Ep, Handle, Key, Lease, Library, Mr};
use crate::state::{Dead, Grave, Shared};
use crate::table::{Flight, Post};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::raw::c_int;
use std::os::unix::io::{BorrowedFd, RawFd};
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8};
use std::sync::Arc;
use xport_sys as sys;

// ---- buffers ----

/// Memory with one owner, at a fixed address: the parts of a Vec, or a region without rights, all of it or a block of a pool.
pub(crate) struct RawBuf {
    base: Handle<u8>,
    len: usize,
    capacity: usize,
    region: Option<Arc<RegionInner>>,
    /// The block of a pool.
    block: Option<(Arc<PoolInner>, usize)>,
    /// The instance of the region, which ends after it.  None in a slot of that instance, which must not keep itself.
    instance: Option<Arc<Shared>>,
}

impl RawBuf {
    fn new(v: Vec<u8>) -> RawBuf {
        let mut v = ManuallyDrop::new(v);
        RawBuf {
            base: Handle(NonNull::new(v.as_mut_ptr()).unwrap_or_else(NonNull::dangling)),
            len: v.len(),
            capacity: v.capacity(),
            region: None,
            block: None,
            instance: None,
        }
    }

    /// A block of a pool, which has no other owner.
    pub(crate) fn of_block(
        pool: Arc<PoolInner>,
        region: Arc<RegionInner>,
        offset: usize,
        len: usize,
    ) -> Option<RawBuf> {
        let base = Handle(NonNull::new(region.at(offset))?);
        Some(RawBuf { base, len, capacity: len, region: Some(region), block: Some((pool, offset)), instance: None })
    }

    pub(crate) fn parts(&self) -> (*mut u8, usize) {
        (self.base.0.as_ptr(), self.len)
    }
}

impl Drop for RawBuf {
    fn drop(&mut self) {
        if let (Some((pool, offset)), Some(region)) = (self.block.take(), self.region.as_ref()) {
            pool.give_back(region.clone(), offset);
        }
        if self.region.is_none() {
            // SAFETY: these are the parts of the Vec of `new`.
            drop(unsafe { Vec::from_raw_parts(self.base.0.as_ptr(), self.len, self.capacity) });
        }
    }
}

/// The memory of an operation: bytes with one owner.
///
/// Made of a `Vec<u8>` without a copy, or by `Instance::buffer`, which registers it: the network then accesses it directly.
/// An operation takes it, and returns it with the result.  Operations of another instance are refused with `Invalid`.
pub struct Buf {
    raw: RawBuf,
}

impl Buf {
    pub fn zeroed(len: usize) -> Buf {
        vec![0; len].into()
    }

    /// The bytes.  Copied if the memory is registered.
    pub fn into_vec(self) -> Vec<u8> {
        if self.raw.region.is_some() {
            return self.to_vec();
        }
        let raw = ManuallyDrop::new(self.raw);
        // SAFETY: the parts of the Vec of `new`, which no destructor frees now.
        unsafe { Vec::from_raw_parts(raw.base.0.as_ptr(), raw.len, raw.capacity) }
    }

    pub(crate) fn from_region(region: Arc<RegionInner>, instance: Arc<Shared>) -> Buf {
        let raw = RawBuf {
            base: Handle(region.base.0),
            len: region.len,
            capacity: region.len,
            region: Some(region),
            block: None,
            instance: Some(instance),
        };
        Buf { raw }
    }

    pub(crate) fn of_block(mut raw: RawBuf, instance: Arc<Shared>) -> Buf {
        raw.instance = Some(instance);
        Buf { raw }
    }

    /// Whether it is registered with another instance.
    #[inline]
    pub(crate) fn is_foreign(&self, instance: &Arc<Shared>) -> bool {
        self.raw.instance.as_ref().map_or(false, |own| !Arc::ptr_eq(own, instance))
    }

    /// For a slot of the instance.
    pub(crate) fn into_hold(mut self, instance: &Arc<Shared>) -> Hold {
        if !self.is_foreign(instance) {
            self.raw.instance = None;
        }
        Hold::Buf(self.raw)
    }

    pub(crate) fn from_hold(hold: Hold, instance: &Arc<Shared>) -> Buf {
        match hold {
            Hold::Buf(mut raw) => {
                if raw.region.is_some() && raw.instance.is_none() {
                    raw.instance = Some(instance.clone());
                }
                Buf { raw }
            }
            _ => Buf::zeroed(0),
        }
    }
}

/// What became of an operation that waits.
pub(crate) enum Lent {
    Done,
    Refused(i32),
    /// It is in flight: its slot has the buffer.  With the result of the poll.
    Posted(u64, Result<usize>),
}

impl Library {
    /// Posts an operation, and polls once.  Without other completions, a buffer that is free again needs no slot.
    /// The buffer is not that of another instance.
    #[inline]
    pub(crate) fn run(&mut self, post: &Post, buf: &mut Buf, ep: &Arc<EpInner>, key: Option<&Arc<KeyInner>>) -> Lent {
        let number = self.table.next();
        let (memory, length) = buf.raw.parts();
        // SAFETY: buf, ep and key are borrowed for the whole call.  At its end the operation has completed, or the slot has
        // the memory, whose address does not change, and the handles.
        let status = unsafe {
            self.post_lent(
                post,
                (memory, length),
                buf.raw.region.as_ref().map(|r| r.mr()),
                ep,
                key.map(|k| &**k),
                number,
            )
        };
        if status < 0 {
            return Lent::Refused(status);
        }
        let polled = self.poll();
        if let (Ok(1), c) = (&polled, self.completion(0)) {
            if c.number == number && c.status >= 0 && c.kind < sys::XPORT_EVENT_NOTIFY {
                return Lent::Done;
            }
        }
        let mut raw = std::mem::replace(buf, Buf::zeroed(0)).raw;
        raw.instance = None;
        let hold = Hold::Buf(raw);
        self.table.insert_posted(Flight::new(post.clone(), hold, Some(ep), key));
        Lent::Posted(number, polled)
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: initialised memory of which self is the only owner; nobody else has its key.  A block of a pool is in one
        // RawBuf at a time.
        unsafe { std::slice::from_raw_parts(self.raw.base.0.as_ptr(), self.raw.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.raw.base.0.as_ptr(), self.raw.len) }
    }
}

impl From<Vec<u8>> for Buf {
    fn from(v: Vec<u8>) -> Buf {
        Buf { raw: RawBuf::new(v) }
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Buf {
        bytes.to_vec().into()
    }
}

impl<const N: usize> From<&[u8; N]> for Buf {
    fn from(bytes: &[u8; N]) -> Buf {
        bytes.to_vec().into()
    }
}

impl<const N: usize> From<[u8; N]> for Buf {
    fn from(bytes: [u8; N]) -> Buf {
        bytes.to_vec().into()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf of {} bytes", self.raw.len)
    }
}

// ---- what a slot holds ----

/// What a slot holds for its operation.
pub(crate) enum Hold {
    Nothing,
    Buf(RawBuf),
    /// A part of a region of another instance: it is refused.
    Foreign,
    Part(Arc<RegionInner>, usize, usize),
    Word(Arc<AtomicU64>),
}

impl Hold {
    /// Address and length.  The address is fixed until the hold is dropped.
    pub(crate) fn parts(&self) -> (*mut u8, usize) {
        match self {
            Hold::Nothing | Hold::Foreign => (std::ptr::null_mut(), 0),
            Hold::Buf(raw) => raw.parts(),
            Hold::Part(region, offset, len) => (region.at(*offset), *len),
            Hold::Word(word) => (Arc::as_ptr(word) as *mut u8, 8),
        }
    }

    /// Whether its memory belongs to another instance than the slot.
    pub(crate) fn is_foreign(&self) -> bool {
        match self {
            Hold::Buf(raw) => raw.instance.is_some(),
            Hold::Foreign => true,
            _ => false,
        }
    }

    pub(crate) fn mr(&self) -> Option<&Mr> {
        match self {
            Hold::Buf(raw) => raw.region.as_ref().map(|r| r.mr()),
            Hold::Part(region, ..) => Some(region.mr()),
            _ => None,
        }
    }
}

// ---- regions ----

pub(crate) struct RegionInner {
    pub(crate) mr: Option<Mr>,
    base: Handle<u8>,
    pub(crate) len: usize,
    pub(crate) rights: u32,
    /// A key was packed: peers may know it.
    pub(crate) packed: AtomicBool,
    /// Memory that was registered.
    pub(crate) owned: Option<RawBuf>,
    grave: Arc<Grave>,
}

impl RegionInner {
    pub(crate) fn alloc(library: &mut Library, len: usize, rights: u32, grave: Arc<Grave>) -> Result<RegionInner> {
        let mr = library.mr_alloc(len, rights)?;
        let base = library.mr_base(&mr)?;
        Ok(RegionInner::new(mr, base, len, rights, None, grave))
    }

    pub(crate) fn register(
        library: &mut Library,
        memory: Vec<u8>,
        rights: u32,
        grave: Arc<Grave>,
    ) -> Result<RegionInner> {
        let raw = RawBuf::new(memory);
        let mr = library.mr_reg(&raw, rights)?;
        let (base, len) = (raw.base.0, raw.len);
        Ok(RegionInner::new(mr, base, len, rights, Some(raw), grave))
    }

    fn new(
        mr: Mr,
        base: NonNull<u8>,
        len: usize,
        rights: u32,
        owned: Option<RawBuf>,
        grave: Arc<Grave>,
    ) -> RegionInner {
        RegionInner { mr: Some(mr), base: Handle(base), len, rights, packed: AtomicBool::new(false), owned, grave }
    }

    pub(crate) fn mr(&self) -> &Mr {
        // Only `drop` takes it.
        self.mr.as_ref().expect("a region without a handle")
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        // SAFETY: within the region, or its end.
        unsafe { self.base.0.as_ptr().add(offset) }
    }

    pub(crate) fn check(&self, offset: usize, len: usize, operation: &str) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::new(
                sys::XPORT_ERR_BOUNDS,
                operation,
                &format!("{} bytes at {} are not in a region of {} bytes.", len, offset, self.len),
            )),
        }
    }

    pub(crate) fn byte(&self, i: usize) -> &AtomicU8 {
        // SAFETY: `at` checks the bounds but for the end, which no caller passes; each access of Rust is atomic.
        unsafe { &*(self.at(i) as *const AtomicU8) }
    }

    pub(crate) fn word(&self, i: usize) -> &AtomicU64 {
        assert!(i + 8 <= self.len && (self.at(i) as usize) % 8 == 0);
        // SAFETY: within the region and aligned; each access of Rust is atomic.
        unsafe { &*(self.at(i) as *const AtomicU64) }
    }

    pub(crate) fn aligned(&self, i: usize) -> bool {
        (self.base.0.as_ptr() as usize + i) % 8 == 0
    }
}

impl Drop for RegionInner {
    fn drop(&mut self) {
        if let Some(mr) = self.mr.take() {
            // A region without rights, or without a key, is in no use by peers: to deregister it waits for nothing.
            let waits = self.rights & sys::XPORT_REMOTE_RECV != 0 || self.rights != 0 && *self.packed.get_mut();
            self.grave.bury(Dead::Region { mr, waits, _memory: self.owned.take() });
        }
    }
}

// ---- leases ----

/// What ends a lease.
pub(crate) enum End<'a> {
    Return(&'a Lease),
    /// As the lender.  May wait for the borrower.
    Revoke(&'a Lease),
    /// It has ended.  This frees the key as well.
    Free(Lease),
}

/// What begins a lease.
pub(crate) enum Start<'a> {
    /// Length and rights.
    Ask(u64, u32),
    Give(&'a Mr),
}

impl Library {
    pub(crate) fn leases_create(&mut self, options: &LeaseOptions) -> Result<()> {
        if !self.leases.is_null() {
            let text = "The instance has leases already: clone those.";
            return Err(Error::new(sys::XPORT_ERR_BUSY, "xport_leases_create", text));
        }
        let attr = options.attr();
        // SAFETY: x is open, and the size of attr is set.
        let status = unsafe { sys::xport_leases_create(self.x.as_ptr(), &attr, &mut self.leases) };
        self.service_must(status, "xport_leases_create")
    }

    /// Asks for memory; or gives a region, which belongs to the lease after XPORT_OK.
    pub(crate) fn lease_start(&mut self, ep: &Ep, what: Start) -> Result<Lease> {
        let mut out = null_mut();
        let name = match what {
            Start::Ask(..) => "xport_lease_ask",
            Start::Give(_) => "xport_lease_give",
        };
        let (leases, ep) = (self.leases, ep.0.as_ptr());
        // SAFETY: leases is open, and the handles are valid.
        let status = unsafe {
            match what {
                Start::Ask(length, rights) => sys::xport_lease_ask(leases, ep, length, rights, null_mut(), &mut out),
                Start::Give(mr) => sys::xport_lease_give(leases, ep, mr.0.as_ptr(), null_mut(), &mut out),
            }
        };
        self.service_must(status, name)?;
        let out = NonNull::new(out).ok_or_else(|| Error::new(sys::XPORT_ERR_INVALID, name, ""))?;
        Ok(Handle(out))
    }

    pub(crate) fn lease_end(&mut self, end: End) {
        // SAFETY: the handle is valid.  Free consumes it; no operation uses the key, since the key keeps the lease.  Return
        // fails if there is nothing to return.
        let _ = unsafe {
            match end {
                End::Return(lease) => sys::xport_lease_return(lease.0.as_ptr()),
                End::Revoke(lease) => sys::xport_lease_revoke(lease.0.as_ptr()),
                End::Free(lease) => sys::xport_lease_free(lease.0.as_ptr()),
            }
        };
    }

    /// Whether the memory of a lease is still there, as its lender.
    pub(crate) fn lease_has_memory(&mut self, lease: &Lease) -> bool {
        let mut i = sys::xport_lease_info { size: std::mem::size_of::<sys::xport_lease_info>(), ..Default::default() };
        // SAFETY: the handle is valid, and the size of i is set.
        unsafe { sys::xport_lease_query(lease.0.as_ptr(), &mut i) == sys::XPORT_OK && !i.base.is_null() }
    }

    /// The next event of a lease that this process started, or was given.  Leases that peers asked for are freed here when they end.
    pub(crate) fn lease_next(&mut self, asked: impl Fn(usize) -> bool) -> Option<LeaseEvent> {
        let mut e =
            sys::xport_lease_event { size: std::mem::size_of::<sys::xport_lease_event>(), ..Default::default() };
        let mut i = sys::xport_lease_info { size: std::mem::size_of::<sys::xport_lease_info>(), ..Default::default() };
        // SAFETY: leases is open, or NULL, which is refused; a lease is valid until it is freed after its last event; those
        // that were not asked for have no other owner.
        unsafe {
            while sys::xport_leases_next(self.leases, &mut e) == 1 {
                let over = e.type_ as u32 == sys::XPORT_LEASE_ENDED;
                let given = e.type_ as u32 == sys::XPORT_LEASE_GIVEN;
                if given || asked(e.lease as usize) {
                    let _ = sys::xport_lease_query(e.lease, &mut i);
                    let key = if over { None } else { NonNull::new(i.rkey) };
                    let ended = if over { Some(e.status) } else { None };
                    let (length, rights) = (i.length, i.rights);
                    let given = NonNull::new(e.lease).filter(|_| given).map(|lease| (Handle(lease), e.ep as usize));
                    let taken = e.type_ as u32 == sys::XPORT_LEASE_TAKEN;
                    let (lease, key) = (e.lease as usize, key.map(Handle));
                    return Some(LeaseEvent { lease, given, taken, ended, key, length, rights });
                }
                if over {
                    let _ = sys::xport_lease_free(e.lease);
                }
            }
        }
        None
    }

    pub(crate) fn leases_info(&mut self) -> Result<LeasesInfo> {
        let mut i =
            sys::xport_leases_info { size: std::mem::size_of::<sys::xport_leases_info>(), ..Default::default() };
        // SAFETY: leases is open, and the size of i is set.
        let status = unsafe { sys::xport_leases_query(self.leases, &mut i) };
        self.service_must(status, "xport_leases_query")?;
        Ok(LeasesInfo { lent: i.lent, lent_bytes: i.lent_bytes, borrowed: i.borrowed, refused: i.refused })
    }
}

// ---- versioned objects ----

pub(crate) type Object = Handle<sys::xport_versioned>;
pub(crate) type Reader = Handle<sys::xport_versioned_peer>;

/// A call on an object.
pub(crate) enum Version<'a> {
    Size(&'a sys::xport_versioned_attr),
    /// The bytes have the length of the object.
    Write(&'a Object, &'a [u8]),
    Recover(&'a Object),
    Destroy(&'a Object),
    /// Starts a read into the buffer, or a write of it.  The buffer has the length of the object, and stays until the end.
    Start(&'a Reader, &'a Hold, bool),
    /// Continues, with a completion of the last poll.
    Step(&'a Reader, Option<usize>),
    /// Nothing is in progress.  Consumes the reader.
    End(&'a Reader),
    Number(&'a Reader),
    Retries(&'a Reader),
}

impl Library {
    pub(crate) fn object_create(&mut self, mr: &Mr, offset: u64, attr: &sys::xport_versioned_attr) -> Result<Object> {
        let mut out = null_mut();
        // SAFETY: the handle is valid, and the size of attr is set.
        let status = unsafe { sys::xport_versioned_create(mr.0.as_ptr(), offset, attr, &mut out) };
        self.service_must(status, "xport_versioned_create")?;
        NonNull::new(out).map(Handle).ok_or_else(|| Error::new(sys::XPORT_ERR_INVALID, "xport_versioned_create", ""))
    }

    pub(crate) fn reader_create(
        &mut self,
        ep: &Ep,
        key: &Key,
        offset: u64,
        attr: &sys::xport_versioned_attr,
    ) -> Result<Reader> {
        let (name, mut out) = ("xport_versioned_peer_create", null_mut());
        let (x, ep, key) = (self.x.as_ptr(), ep.0.as_ptr(), key.0.as_ptr());
        // SAFETY: the handles are valid, and the size of attr is set.
        let status = unsafe { sys::xport_versioned_peer_create(x, ep, key, offset, attr, &mut out) };
        self.service_must(status, name)?;
        NonNull::new(out).map(Handle).ok_or_else(|| Error::new(sys::XPORT_ERR_INVALID, name, ""))
    }
}

/// Calls an object, or that of a peer.  `list` is that of the last poll.
pub(crate) fn version(list: &[sys::xport_completion], call: Version) -> i64 {
    // SAFETY: the objects are valid, and used by one thread at a time: `Versioned` is borrowed, and the readers are behind
    // the lock of their instance.  Each call has what it says above.
    unsafe {
        match call {
            Version::Size(attr) => sys::xport_versioned_size(attr) as i64,
            Version::Write(object, b) => sys::xport_versioned_write(object.0.as_ptr(), b.as_ptr() as *const _).into(),
            Version::Recover(object) => sys::xport_versioned_recover(object.0.as_ptr()).into(),
            Version::Destroy(object) => {
                sys::xport_versioned_destroy(object.0.as_ptr());
                0
            }
            Version::Start(reader, hold, true) => {
                sys::xport_versioned_peer_write(reader.0.as_ptr(), hold.parts().0 as *const _).into()
            }
            Version::Start(reader, hold, false) => {
                sys::xport_versioned_peer_read(reader.0.as_ptr(), hold.parts().0 as *mut _).into()
            }
            Version::Step(reader, i) => {
                let c = i.map_or(std::ptr::null(), |i| &list[i] as *const _);
                sys::xport_versioned_peer_step(reader.0.as_ptr(), c).into()
            }
            Version::End(reader) => {
                sys::xport_versioned_peer_destroy(reader.0.as_ptr());
                0
            }
            Version::Number(reader) => sys::xport_versioned_peer_version(reader.0.as_ptr()) as i64,
            Version::Retries(reader) => sys::xport_versioned_peer_retries(reader.0.as_ptr()) as i64,
        }
    }
}

// ---- the descriptor ----

/// The descriptor of an instance, which the library keeps open as long as the borrow lives.
pub(crate) fn borrow_fd<T>(_owner: &T, fd: RawFd) -> BorrowedFd<'_> {
    // SAFETY: the owner is the instance, or keeps it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

extern "C" {
    #[link_name = "poll"]
    fn c_poll(fds: *mut PollFd, n: std::os::raw::c_ulong, timeout: c_int) -> c_int;
}

/// Whether the descriptor is readable within so many milliseconds.
pub(crate) fn readable(fd: RawFd, timeout_ms: c_int) -> bool {
    let mut p = PollFd {
        fd,
        events: 1, // POLLIN
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { c_poll(&mut p, 1, timeout_ms) > 0 }
}
