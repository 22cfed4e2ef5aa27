// SPDX-License-Identifier: BSD-3-Clause
//! Regions that this process gives to a peer, and those that it is given.
use crate::endpoint::{Endpoint, KeyInner, RemoteKey};
use crate::error::{Error, Result};
use crate::lease::{Borrowed, Lease, LeaseInner, Leases};
use crate::memory::{End, RegionInner, Start};
use crate::region::Region;
use crate::state::{add_waker, Shared};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use xport_sys as sys;

/// A region that a peer was given.
///
/// Dropped, the peer keeps the memory until it returns it or its endpoint ends; then it is freed.  Forgotten
/// (`mem::forget`), the same, but memory of `Instance::register` is not freed, and the instance keeps a record until its end.
pub struct Given {
    inner: LeaseInner,
    memory: Arc<RegionInner>,
    shared: Arc<Shared>,
}

impl Leases {
    /// Gives a whole region, with its rights, to a peer, which must take regions (`LeaseOptions::take`).  The region comes
    /// back if it cannot be given, such as while clones, parts or operations of it are left.
    pub fn give(&self, ep: &Endpoint, region: Region) -> std::result::Result<Given, (Error, Region)> {
        let Region { inner, shared } = region;
        let own = Arc::ptr_eq(&shared, &self.shared);
        if !own || !Arc::ptr_eq(&ep.shared, &self.shared) {
            let what = if own { "endpoint" } else { "region" };
            let text = &format!("The {} belongs to another instance.", what);
            let e = Error::new(sys::XPORT_ERR_INVALID, "xport_lease_give", text);
            return Err((e, Region { inner, shared }));
        }
        let mut state = self.shared.lock();
        let mut owned = match Arc::try_unwrap(inner) {
            Ok(owned) => owned,
            Err(inner) => {
                drop(state);
                let text = "Other handles or operations use the region.";
                let e = Error::new(sys::XPORT_ERR_BUSY, "xport_lease_give", text);
                return Err((e, Region { inner, shared }));
            }
        };
        let address = owned.mr().address();
        match state.library.lease_start(ep.inner.ep(), Start::Give(owned.mr())) {
            Ok(lease) => {
                state.regions.remove(&address);
                owned.mr = None; // the lease has it now
                let memory = Arc::new(owned);
                state.services.borrowed.insert(lease.address(), Borrowed::lent(memory.clone()));
                drop(state);
                let inner = LeaseInner::new(lease, self.shared.grave.clone(), ep.inner.clone());
                Ok(Given { inner, memory, shared })
            }
            Err(e) => {
                let inner = Arc::new(owned);
                state.regions.insert(address, Arc::downgrade(&inner));
                drop(state);
                Err((e, Region { inner, shared }))
            }
        }
    }

    /// The next lease of a region that a peer gave.
    pub fn given(&self) -> NextGiven {
        NextGiven { shared: self.shared.clone() }
    }
}

impl Given {
    /// Completes when the peer has the region, or with the reason why it does not.
    pub fn taken(&self) -> Taken<'_> {
        Taken { given: self }
    }

    /// Takes the memory back.  The future completes when the peer cannot access it any more, and the memory is freed.
    ///
    /// Without an answer of the peer this waits until it is reported lost, with the lock of the instance held.
    pub fn revoke(self) -> Revoke {
        self.shared.lock().library.lease_end(End::Revoke(self.inner.lease()));
        Revoke { given: self }
    }

    /// Copies bytes out of the memory, as `Region::read_at`.  Fails with `Closed` when the lease has ended.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.access(|memory| memory.read(offset, out))
    }

    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.access(|memory| memory.write(offset, bytes))
    }

    /// The memory ends in a call of the library.  None is made while the lock is held.
    fn access(&self, f: impl FnOnce(&RegionInner) -> Result<()>) -> Result<()> {
        let mut state = self.shared.lock();
        if !state.library.lease_has_memory(self.inner.lease()) {
            return Err(Error::new(sys::XPORT_ERR_CLOSED, "Given", "The lease has ended."));
        }
        f(&self.memory)
    }

    /// Its end; None: it is in progress.
    fn poll(&self, cx: &mut Context<'_>, until_taken: bool) -> Poll<Result<()>> {
        let turned = self.shared.turn();
        let mut state = self.shared.lock();
        let b = state.services.borrowed.entry(self.inner.lease().address()).or_default();
        let ended = match b.ended {
            Some(status) => status,
            None if until_taken && b.taken => return Poll::Ready(Ok(())),
            None => {
                turned?;
                add_waker(&mut b.wakers, cx.waker());
                return Poll::Pending;
            }
        };
        Poll::Ready(match ended {
            sys::XPORT_OK => Ok(()),
            sys::XPORT_ERR_STALE_KEY if !until_taken => Ok(()),
            status => Err(Error::new(status, "xport_lease_give", "")),
        })
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Given of {} bytes", self.memory.len)
    }
}

/// The future of `Given::taken`.
pub struct Taken<'a> {
    given: &'a Given,
}

impl Future for Taken<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.given.poll(cx, true)
    }
}

/// The future of `Given::revoke`.
pub struct Revoke {
    given: Given,
}

impl Future for Revoke {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.given.poll(cx, false)
    }
}

/// The future of `Leases::given`.
pub struct NextGiven {
    shared: Arc<Shared>,
}

impl Future for NextGiven {
    type Output = Result<Lease>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Lease>> {
        let turned = self.shared.turn();
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        for _ in 0..state.services.given.len() {
            let (lease, address) = match state.services.given.pop_front() {
                Some(given) => given,
                None => break,
            };
            let ep = state.endpoints.get(&address).and_then(|ep| ep.upgrade());
            let b = state.services.borrowed.entry(lease.address()).or_default();
            match ep {
                None => state.services.given.push_back((lease, address)), // not accepted yet
                Some(ep) => {
                    b.untaken = false;
                    if let Some((key, length, rights)) = b.granted.take() {
                        drop(guard);
                        let inner = Arc::new(LeaseInner::new(lease, self.shared.grave.clone(), ep.clone()));
                        let key = Arc::new(KeyInner::of_lease(key, ep, inner.clone()));
                        let key = RemoteKey::new(key, self.shared.clone(), length, rights);
                        return Poll::Ready(Ok(Lease { key, inner }));
                    }
                    state.lease_dies(lease);
                }
            }
        }
        turned?;
        add_waker(&mut state.services.given_wakers, cx.waker());
        Poll::Pending
    }
}
