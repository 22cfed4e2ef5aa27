// SPDX-License-Identifier: BSD-3-Clause
//! Pools of registered buffers.
use crate::error::{Error, Result};
use crate::memory::{Buf, RawBuf, RegionInner};
use crate::state::Shared;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use xport_sys as sys;

/// Blocks of registered memory.  Each is in `unused`, or belongs to one RawBuf.
pub(crate) struct PoolInner {
    length: usize,
    /// The place of a block: a region, and the offset in it.
    unused: Mutex<Vec<(Arc<RegionInner>, usize)>>,
    blocks: AtomicUsize,
}

impl PoolInner {
    pub(crate) fn give_back(&self, region: Arc<RegionInner>, offset: usize) {
        self.unused.lock().unwrap_or_else(|e| e.into_inner()).push((region, offset));
    }

    fn take(self: &Arc<PoolInner>) -> Option<RawBuf> {
        let (region, offset) = self.unused.lock().unwrap_or_else(|e| e.into_inner()).pop()?;
        RawBuf::of_block(self.clone(), region, offset, self.length)
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

    /// A buffer, which still has the bytes of its last owner.  Registers more memory if no buffer is free.
    pub fn take(&self) -> Result<Buf> {
        loop {
            if let Some(raw) = self.inner.take() {
                return Ok(Buf::of_block(raw, self.instance.clone()));
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
