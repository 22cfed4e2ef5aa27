// SPDX-License-Identifier: BSD-3-Clause
//! Buffers, regions, and the C calls of leases: memory of a peer.
//!
//! A `Buf` has one owner: its caller, or the slot of the operation that uses it.  Peers have no key to it, so it is a plain
//! slice for its owner.  A `Region` is memory that peers may change at any time: it is never lent as a slice, but read and
//! written by copies of atomic words.
#![allow(unsafe_code)]
use crate::error::{Error, Result};
use crate::lease::{LeaseEvent, LeaseOptions, LeasesInfo};
use crate::raw::{Ep, Handle, Lease, Library, Mr};
use crate::state::{Dead, Grave, Shared};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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
        }
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
/// An operation takes it, and returns it with the result.
pub struct Buf {
    raw: RawBuf,
    /// Registered memory belongs to an instance.
    _instance: Option<Arc<Shared>>,
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
        };
        Buf { raw, _instance: Some(instance) }
    }

    pub(crate) fn into_hold(self) -> Hold {
        Hold::Buf(self.raw)
    }

    pub(crate) fn from_hold(hold: Hold, instance: &Arc<Shared>) -> Buf {
        match hold {
            Hold::Buf(raw) => {
                let _instance = raw.region.as_ref().map(|_| instance.clone());
                Buf { raw, _instance }
            }
            _ => Buf::zeroed(0),
        }
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
        Buf { raw: RawBuf::new(v), _instance: None }
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

// ---- pools ----

/// Blocks of registered memory.  Each is in `unused`, or belongs to one RawBuf.
pub(crate) struct PoolInner {
    length: usize,
    /// The place of a block: a region, and the offset in it.
    unused: Mutex<Vec<(Arc<RegionInner>, usize)>>,
    blocks: AtomicUsize,
}

impl PoolInner {
    fn give_back(&self, region: Arc<RegionInner>, offset: usize) {
        self.unused.lock().unwrap_or_else(|e| e.into_inner()).push((region, offset));
    }

    fn take(self: &Arc<PoolInner>) -> Option<RawBuf> {
        let (region, offset) = self.unused.lock().unwrap_or_else(|e| e.into_inner()).pop()?;
        let base = Handle(NonNull::new(region.at(offset))?);
        let block = Some((self.clone(), offset));
        Some(RawBuf { base, len: self.length, capacity: self.length, region: Some(region), block })
    }
}

/// Registered buffers of one length, which are made many at a time and used again.
///
/// A `Buf` comes back to its pool when its owner drops it: a slot does that after the completion, if nobody waits for it.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<PoolInner>,
    instance: Arc<Shared>,
}

/// A slab has at most so many blocks, and about so many bytes.
const SLAB_BLOCKS: usize = 64;
const SLAB_BYTES: usize = 4 << 20;

impl Pool {
    pub(crate) fn new(length: usize, instance: Arc<Shared>) -> Pool {
        let inner = PoolInner { length, unused: Mutex::default(), blocks: AtomicUsize::new(0) };
        Pool { inner: Arc::new(inner), instance }
    }

    /// A buffer with the bytes that its last owner left.  Registers memory if there is none.
    pub fn take(&self) -> Result<Buf> {
        loop {
            if let Some(raw) = self.inner.take() {
                return Ok(Buf { raw, _instance: Some(self.instance.clone()) });
            }
            self.grow((SLAB_BYTES / self.inner.length.max(1)).clamp(1, SLAB_BLOCKS))?;
        }
    }

    /// Registers memory until the pool has at least so many buffers.
    pub fn reserve(&self, buffers: usize) -> Result<()> {
        match buffers.saturating_sub(self.buffers()) {
            0 => Ok(()),
            missing => self.grow(missing),
        }
    }

    /// The number of buffers, in use or not.
    pub fn buffers(&self) -> usize {
        self.inner.blocks.load(Ordering::Relaxed)
    }

    /// Of these, the buffers that are in use.
    pub fn in_use(&self) -> usize {
        self.buffers() - self.inner.unused.lock().unwrap_or_else(|e| e.into_inner()).len()
    }

    fn grow(&self, blocks: usize) -> Result<()> {
        // Blocks begin at cache lines.
        let stride = self.inner.length.checked_add(63).map(|n| n & !63);
        let length = stride.and_then(|n| n.checked_mul(blocks));
        let length = length.ok_or_else(|| Error::new(sys::XPORT_ERR_NO_MEMORY, "Pool", "The buffers are too long."))?;
        let mut state = self.instance.lock();
        let region = RegionInner::alloc(&mut state.library, length, 0, self.instance.grave.clone())?;
        drop(state);
        let region = Arc::new(region);
        for i in 0..blocks {
            self.inner.give_back(region.clone(), i * (length / blocks));
        }
        self.inner.blocks.fetch_add(blocks, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool of buffers of {} bytes", self.inner.length)
    }
}

/// What a slot holds for its operation.
pub(crate) enum Hold {
    Nothing,
    Buf(RawBuf),
    Part(Arc<RegionInner>, usize, usize),
    Word(Arc<AtomicU64>),
}

impl Hold {
    /// Address and length.  The address is fixed until the hold is dropped.
    pub(crate) fn parts(&self) -> (*mut u8, usize) {
        match self {
            Hold::Nothing => (std::ptr::null_mut(), 0),
            Hold::Buf(raw) => raw.parts(),
            Hold::Part(region, offset, len) => (region.at(*offset), *len),
            Hold::Word(word) => (Arc::as_ptr(word) as *mut u8, 8),
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
    mr: Option<Mr>,
    base: Handle<u8>,
    len: usize,
    rights: u32,
    /// A key was packed: peers may know it.
    packed: AtomicBool,
    /// Memory that was registered.
    owned: Option<RawBuf>,
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

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        // SAFETY: within the region, or its end.
        unsafe { self.base.0.as_ptr().add(offset) }
    }

    fn check(&self, offset: usize, len: usize, operation: &str) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::new(
                sys::XPORT_ERR_BOUNDS,
                operation,
                &format!("{} bytes at {} are not in a region of {} bytes.", len, offset, self.len),
            )),
        }
    }

    fn byte(&self, i: usize) -> &AtomicU8 {
        // SAFETY: `at` checks the bounds but for the end, which no caller passes; each access of Rust is atomic.
        unsafe { &*(self.at(i) as *const AtomicU8) }
    }

    fn word(&self, i: usize) -> &AtomicU64 {
        assert!(i + 8 <= self.len && (self.at(i) as usize) % 8 == 0);
        // SAFETY: within the region and aligned; each access of Rust is atomic.
        unsafe { &*(self.at(i) as *const AtomicU64) }
    }

    fn aligned(&self, i: usize) -> bool {
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

/// Registered memory that peers may read or write, if it grants the rights and they have its key.
///
/// Without `close`, a region whose key was packed stays registered until its instance ends: to end the registration may wait
/// for peers, and a destructor never waits.
#[derive(Clone)]
pub struct Region {
    pub(crate) inner: Arc<RegionInner>,
    pub(crate) shared: Arc<Shared>,
}

impl Region {
    pub fn len(&self) -> usize {
        self.inner.len
    }

    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    pub fn rights(&self) -> u32 {
        self.inner.rights
    }

    /// The packed key, for peers.
    pub fn key(&self) -> Result<Vec<u8>> {
        let mut state = self.shared.lock();
        self.inner.packed.store(true, Ordering::Relaxed);
        state.library.rkey_pack(self.inner.mr())
    }

    /// Copies bytes out of the region.  While a peer writes, old and new bytes may be mixed.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let r = &self.inner;
        r.check(offset, out.len(), "read_at")?;
        let mut i = 0;
        while i < out.len() {
            if out.len() - i >= 8 && r.aligned(offset + i) {
                let word = r.word(offset + i).load(Ordering::Relaxed);
                out[i..i + 8].copy_from_slice(&word.to_ne_bytes());
                i += 8;
            } else {
                out[i] = r.byte(offset + i).load(Ordering::Relaxed);
                i += 1;
            }
        }
        Ok(())
    }

    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let r = &self.inner;
        r.check(offset, bytes.len(), "write_at")?;
        let mut i = 0;
        while i < bytes.len() {
            if bytes.len() - i >= 8 && r.aligned(offset + i) {
                let mut word = [0; 8];
                word.copy_from_slice(&bytes[i..i + 8]);
                r.word(offset + i).store(u64::from_ne_bytes(word), Ordering::Relaxed);
                i += 8;
            } else {
                r.byte(offset + i).store(bytes[i], Ordering::Relaxed);
                i += 1;
            }
        }
        Ok(())
    }

    /// A word of the region.  The offset must be a multiple of 8.
    pub fn atomic_u64(&self, offset: usize) -> Result<&AtomicU64> {
        self.inner.check(offset, 8, "atomic_u64")?;
        if !self.inner.aligned(offset) {
            return Err(Error::new(sys::XPORT_ERR_INVALID, "atomic_u64", "The word is not aligned."));
        }
        Ok(self.inner.word(offset))
    }

    /// A part of the region as the memory of an operation.
    pub fn part(&self, offset: usize, len: usize) -> Result<Part> {
        self.inner.check(offset, len, "part")?;
        Ok(Part { region: self.inner.clone(), _instance: self.shared.clone(), offset, len })
    }

    /// Ends the registration and frees the memory.  Waits until no peer can access it, and holds the lock of the instance
    /// meanwhile.  Fails if clones, parts or operations of the region are left.
    pub fn close(self) -> Result<()> {
        let Region { inner, shared } = self;
        let mut state = shared.lock();
        let mut inner = Arc::try_unwrap(inner)
            .map_err(|_| Error::new(sys::XPORT_ERR_BUSY, "close", "Other handles or operations use the region."))?;
        let mr = match inner.mr.take() {
            Some(mr) => mr,
            None => return Ok(()),
        };
        state.library.mr_dereg(mr).map_err(|(e, mr)| {
            inner.mr = Some(mr);
            e
        })
    }
}

impl PartialEq for Region {
    fn eq(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region of {} bytes", self.inner.len)
    }
}

/// A part of a region.
#[derive(Clone)]
pub struct Part {
    region: Arc<RegionInner>,
    _instance: Arc<Shared>,
    offset: usize,
    len: usize,
}

impl Part {
    pub(crate) fn into_hold(self) -> Hold {
        Hold::Part(self.region, self.offset, self.len)
    }
}

// ---- leases ----

/// What ends a lease.
pub(crate) enum End<'a> {
    Return(&'a Lease),
    /// It has ended.  This frees the key as well.
    Free(Lease),
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

    pub(crate) fn lease_ask(&mut self, ep: &Ep, length: u64, rights: u32) -> Result<Lease> {
        let mut out = null_mut();
        // SAFETY: leases is open, and the handle is valid.
        let status = unsafe { sys::xport_lease_ask(self.leases, ep.0.as_ptr(), length, rights, null_mut(), &mut out) };
        self.service_must(status, "xport_lease_ask")?;
        let out = NonNull::new(out).ok_or_else(|| Error::new(sys::XPORT_ERR_INVALID, "xport_lease_ask", ""))?;
        Ok(Handle(out))
    }

    pub(crate) fn lease_end(&mut self, end: End) {
        // SAFETY: the handle is valid.  Free consumes it; no operation uses the key, since the key keeps the lease.  Return
        // fails if there is nothing to return.
        let _ = unsafe {
            match end {
                End::Return(lease) => sys::xport_lease_return(lease.0.as_ptr()),
                End::Free(lease) => sys::xport_lease_free(lease.0.as_ptr()),
            }
        };
    }

    /// The next event of a lease that this process asked for.  Leases that peers asked for are freed here when they end.
    pub(crate) fn lease_next(&mut self, asked: impl Fn(usize) -> bool) -> Option<LeaseEvent> {
        let mut e =
            sys::xport_lease_event { size: std::mem::size_of::<sys::xport_lease_event>(), ..Default::default() };
        let mut i = sys::xport_lease_info { size: std::mem::size_of::<sys::xport_lease_info>(), ..Default::default() };
        // SAFETY: leases is open, or NULL, which is refused; a lease is valid until it is freed after its last event; those
        // that were not asked for have no other owner.
        unsafe {
            while sys::xport_leases_next(self.leases, &mut e) == 1 {
                let over = e.type_ as u32 == sys::XPORT_LEASE_ENDED;
                if asked(e.lease as usize) {
                    let _ = sys::xport_lease_query(e.lease, &mut i);
                    let key = if over { None } else { NonNull::new(i.rkey) };
                    let ended = if over { Some(e.status) } else { None };
                    let (length, rights) = (i.length, i.rights);
                    return Some(LeaseEvent { lease: e.lease as usize, ended, key: key.map(Handle), length, rights });
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
