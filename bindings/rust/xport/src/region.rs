// SPDX-License-Identifier: BSD-3-Clause
//! Registered memory of peers.
use crate::error::{Error, Result};
use crate::memory::{Hold, RegionInner};
use crate::state::Shared;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use xport_sys as sys;

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
        self.inner.read(offset, out)
    }

    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.inner.write(offset, bytes)
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
        Ok(Part { region: self.inner.clone(), instance: self.shared.clone(), offset, len })
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

/// A part of a region.  Operations of another instance are refused.
#[derive(Clone)]
pub struct Part {
    region: Arc<RegionInner>,
    instance: Arc<Shared>,
    offset: usize,
    len: usize,
}

impl Part {
    /// For a slot of the instance.
    pub(crate) fn into_hold(self, instance: &Arc<Shared>) -> Hold {
        if !Arc::ptr_eq(&self.instance, instance) {
            return Hold::Foreign;
        }
        Hold::Part(self.region, self.offset, self.len)
    }
}

impl RegionInner {
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let r = self;
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

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let r = self;
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
}
