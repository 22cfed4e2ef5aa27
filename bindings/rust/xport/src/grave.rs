// SPDX-License-Identifier: BSD-3-Clause
//! What destructors leave to the next turn.
use crate::memory::RawBuf;
use crate::raw::{self, Mr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

/// Handles whose owner is gone.  A destructor puts them here, and the next turn frees them.
pub(crate) enum Dead {
    Ep(raw::Ep),
    Key(raw::Key),
    Listener(raw::Listener),
    Region {
        mr: Mr,
        /// To deregister it may wait for peers: it stays until the instance ends.
        waits: bool,
        _memory: Option<RawBuf>,
    },
    Operation(u64),
    /// A request without a reply.
    Request(u64),
    /// A loan that nobody waits for.
    Loan(u64),
    /// It is returned, and freed when it has ended.
    Lease(raw::Lease),
    /// An object of a peer, by its address.
    Reader(usize),
}

#[derive(Default)]
struct Buried {
    dead: Vec<Dead>,
    /// The driver that sleeps.
    sleeper: Option<Waker>,
}

#[derive(Default)]
pub(crate) struct Grave {
    buried: Mutex<Buried>,
    /// `take` returns something.
    pub(crate) used: AtomicBool,
}

impl Grave {
    fn lock(&self) -> MutexGuard<'_, Buried> {
        self.buried.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn bury(&self, dead: Dead) {
        let mut buried = self.lock();
        buried.dead.push(dead);
        self.used.store(true, Ordering::Release);
        let sleeper = buried.sleeper.take();
        drop(buried);
        if let Some(waker) = sleeper {
            waker.wake();
        }
    }

    pub(crate) fn take(&self) -> Vec<Dead> {
        if !self.used.load(Ordering::Acquire) {
            return Vec::new(); // without a lock, since each turn asks
        }
        let mut buried = self.lock();
        self.used.store(false, Ordering::Release);
        std::mem::take(&mut buried.dead)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().dead.is_empty()
    }

    /// `bury` wakes the driver from now on.  Returns false if something was buried already.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) fn watch(&self, waker: &Waker) -> bool {
        let mut buried = self.lock();
        buried.sleeper = Some(waker.clone());
        buried.dead.is_empty()
    }
}
