// SPDX-License-Identifier: BSD-3-Clause
//! Leases: memory that a peer lends on request.
use crate::endpoint::{Endpoint, EpInner, KeyInner, RemoteKey};
use crate::error::{Error, Result};
use crate::instance::{milliseconds, Instance};
use crate::memory::{End, RegionInner, Start};
use crate::raw::{self, Key};
use crate::state::{add_waker, Dead, Grave, Shared, State};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use xport_sys as sys;

/// Options of `Instance::leases`, as struct xport_leases_attr has them.  The default: peers may not ask; this process may.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseOptions {
    /// Bytes lent at a time to peers that ask; 0: peers may not ask.
    pub quota: u64,
    /// Of these, to one peer; 0: all.
    pub peer_quota: u64,
    /// Leases of one peer; 0: the default.
    pub max_leases: u32,
    /// The time for a borrower to answer when memory is taken back; zero: the default.
    pub patience: Duration,
    /// Peers may give regions, which `Leases::given` returns.
    pub take: bool,
}

impl LeaseOptions {
    pub(crate) fn attr(&self) -> sys::xport_leases_attr {
        sys::xport_leases_attr {
            size: std::mem::size_of::<sys::xport_leases_attr>(),
            quota: self.quota,
            peer_quota: self.peer_quota,
            max_leases: self.max_leases,
            patience_ms: milliseconds(self.patience),
            flags: if self.take { sys::XPORT_LEASES_TAKE } else { 0 },
            ..Default::default()
        }
    }
}

/// The state of all leases of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasesInfo {
    /// Leases of this process's memory that have not ended, and their bytes.
    pub lent: u64,
    pub lent_bytes: u64,
    /// Leases of peers' memory that have not ended.
    pub borrowed: u64,
    /// Requests of peers that were refused.
    pub refused: u64,
}

/// An event of a lease that this process asked for: granted, with the key; or ended.
pub(crate) struct LeaseEvent {
    pub(crate) lease: usize,
    /// A peer gave it: the lease, and the address of the endpoint.
    pub(crate) given: Option<(raw::Lease, usize)>,
    /// The peer has taken what this process gave.
    pub(crate) taken: bool,
    pub(crate) ended: Option<i32>,
    pub(crate) key: Option<Key>,
    pub(crate) length: u64,
    pub(crate) rights: u32,
}

/// A lease that this process asked for, until it is freed.
#[derive(Default)]
pub(crate) struct Borrowed {
    /// With length and rights, until the `Lease` has them.
    pub(crate) granted: Option<(Key, u64, u32)>,
    pub(crate) ended: Option<i32>,
    pub(crate) wakers: Vec<Waker>,
    /// Its owner is gone: it is freed when it has ended.
    dead: Option<raw::Lease>,
    /// This process gave it: the memory.
    pub(crate) lent: Option<Arc<RegionInner>>,
    pub(crate) taken: bool,
    /// A peer gave it, and `NextGiven` has not returned it.
    pub(crate) untaken: bool,
}

impl Borrowed {
    pub(crate) fn lent(memory: Arc<RegionInner>) -> Borrowed {
        Borrowed { lent: Some(memory), ..Default::default() }
    }
}

impl State {
    pub(crate) fn lease_events(&mut self, wake: &mut Vec<Waker>) -> usize {
        let mut n = 0;
        loop {
            let borrowed = &self.services.borrowed;
            let event = match self.library.lease_next(|lease| borrowed.contains_key(&lease)) {
                Some(event) => event,
                None => return n,
            };
            n += 1;
            if let Some((lease, ep)) = event.given {
                let granted = event.key.map(|key| (key, event.length, event.rights));
                self.services.borrowed.insert(event.lease, Borrowed { granted, untaken: true, ..Default::default() });
                self.services.given.push_back((lease, ep));
                wake.append(&mut self.services.given_wakers);
                continue;
            }
            if let Some(b) = self.services.borrowed.get_mut(&event.lease) {
                b.granted = event.key.map(|key| (key, event.length, event.rights));
                b.ended = event.ended;
                b.taken |= event.taken;
                wake.append(&mut b.wakers);
                if b.untaken && b.ended.is_some() {
                    self.lease_untaken(event.lease);
                }
                self.lease_bury(event.lease);
            }
        }
    }

    /// A lease that a peer gave has ended before anybody took it.
    fn lease_untaken(&mut self, address: usize) {
        let given = &mut self.services.given;
        let lease = given.iter().position(|(lease, _)| lease.address() == address).and_then(|i| given.remove(i));
        if let (Some((lease, _)), Some(b)) = (lease, self.services.borrowed.get_mut(&address)) {
            b.dead = Some(lease);
        }
    }

    pub(crate) fn lease_wakers(&mut self, wake: &mut Vec<Waker>) {
        for b in self.services.borrowed.values_mut() {
            wake.append(&mut b.wakers);
        }
        wake.append(&mut self.services.given_wakers);
    }

    /// Returns a lease without an owner, or frees it if it has ended.  What was given stays with the peer.
    fn lease_bury(&mut self, address: usize) {
        let b = match self.services.borrowed.get_mut(&address) {
            Some(b) => b,
            None => return,
        };
        if let Some(lease) = b.dead.take() {
            if b.ended.is_some() {
                self.services.borrowed.remove(&address);
                self.library.lease_end(End::Free(lease));
            } else {
                if b.lent.is_none() {
                    self.library.lease_end(End::Return(&lease));
                }
                b.dead = Some(lease);
            }
        }
    }

    pub(crate) fn lease_dies(&mut self, lease: raw::Lease) {
        let address = lease.address();
        if let Some(b) = self.services.borrowed.get_mut(&address) {
            b.dead = Some(lease);
        }
        self.lease_bury(address);
    }
}

/// A lease, and what must not end before it.
pub(crate) struct LeaseInner {
    lease: Option<raw::Lease>,
    grave: Arc<Grave>,
    _ep: Arc<EpInner>,
}

impl LeaseInner {
    pub(crate) fn new(lease: raw::Lease, grave: Arc<Grave>, ep: Arc<EpInner>) -> LeaseInner {
        LeaseInner { lease: Some(lease), grave, _ep: ep }
    }

    pub(crate) fn lease(&self) -> &raw::Lease {
        // Only `drop` takes it.
        self.lease.as_ref().expect("a lease without a handle")
    }
}

impl Drop for LeaseInner {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.grave.bury(Dead::Lease(lease));
        }
    }
}

/// The leases of an instance, as borrower and as lender.  The lender serves its peers by itself, within the quota.
#[derive(Clone)]
pub struct Leases {
    pub(crate) shared: Arc<Shared>,
}

impl Instance {
    /// Makes the leases of the instance, which has them until its end.  Both sides need them.
    pub fn leases(&self, options: &LeaseOptions) -> Result<Leases> {
        let mut state = self.shared.lock();
        state.library.leases_create(options)?;
        state.services.used = true;
        Ok(Leases { shared: self.shared.clone() })
    }
}

impl Leases {
    /// Asks a peer for memory.  Dropped, the future returns what it gets.
    pub fn ask(&self, ep: &Endpoint, length: u64, rights: u32) -> Ask {
        if !Arc::ptr_eq(&ep.shared, &self.shared) {
            let text = "The endpoint belongs to another instance.";
            let e = Error::new(sys::XPORT_ERR_INVALID, "xport_lease_ask", text);
            return Ask { asked: Some(Err(e)), ep: ep.clone() };
        }
        let mut state = self.shared.lock();
        let asked = state.library.lease_start(ep.inner.ep(), Start::Ask(length, rights)).map(|lease| {
            state.services.borrowed.insert(lease.address(), Borrowed::default());
            LeaseInner::new(lease, self.shared.grave.clone(), ep.inner.clone())
        });
        Ask { asked: Some(asked.map(Arc::new)), ep: ep.clone() }
    }

    pub fn info(&self) -> Result<LeasesInfo> {
        self.shared.lock().library.leases_info()
    }
}

/// The future of `Leases::ask`.
pub struct Ask {
    asked: Option<Result<Arc<LeaseInner>>>,
    ep: Endpoint,
}

impl Future for Ask {
    type Output = Result<Lease>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Lease>> {
        let inner = match self.asked.take().expect("polled after it was ready") {
            Ok(inner) => inner,
            Err(e) => return Poll::Ready(Err(e)),
        };
        let shared = self.ep.shared.clone();
        let turned = shared.turn();
        let mut state = shared.lock();
        let b = state.services.borrowed.entry(inner.lease().address()).or_default();
        if let Some((key, length, rights)) = b.granted.take() {
            let key = Arc::new(KeyInner::of_lease(key, self.ep.inner.clone(), inner.clone()));
            drop(state);
            return Poll::Ready(Ok(Lease { key: RemoteKey::new(key, shared, length, rights), inner }));
        }
        match b.ended {
            Some(status) => {
                drop(state);
                Poll::Ready(Err(refused(status)))
            }
            None => {
                if let Err(e) = turned {
                    drop(state);
                    return Poll::Ready(Err(e));
                }
                add_waker(&mut b.wakers, cx.waker());
                drop(state);
                self.asked = Some(Ok(inner));
                Poll::Pending
            }
        }
    }
}

fn refused(status: i32) -> Error {
    Error::new(if status < 0 { status } else { sys::XPORT_ERR_CLOSED }, "xport_lease_ask", "")
}

/// Memory of a peer, which this process may use until it returns it, or the peer takes it back.
///
/// Dropped, it is returned when no operation uses it any more.
pub struct Lease {
    pub(crate) key: RemoteKey,
    pub(crate) inner: Arc<LeaseInner>,
}

impl Lease {
    /// The key of the memory, which begins at offset 0.  Its clones keep the lease.
    pub fn key(&self) -> &RemoteKey {
        &self.key
    }

    /// The endpoint of the lender.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.key.inner.ep().clone(), self.key.instance().clone())
    }

    /// Why the lease has ended: with `StaleKey` the lender took it back.  None: it has not.
    pub fn ended(&self) -> Option<Error> {
        let mut state = self.key.instance().lock();
        state.services.borrowed.entry(self.inner.lease().address()).or_default().ended.map(refused)
    }

    /// Returns the memory.  The future ends when the lender knows.  Operations that use the memory should have completed.
    pub fn give_back(self) -> GiveBack {
        self.key.instance().lock().library.lease_end(End::Return(self.inner.lease()));
        GiveBack { lease: self }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease of {} bytes", self.key.length())
    }
}

/// The future of `Lease::give_back`.
pub struct GiveBack {
    lease: Lease,
}

impl Future for GiveBack {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let shared = self.lease.key.instance();
        let turned = shared.turn();
        let mut state = shared.lock();
        let b = state.services.borrowed.entry(self.lease.inner.lease().address()).or_default();
        match b.ended {
            Some(status) if status < 0 => Poll::Ready(Err(Error::new(status, "xport_lease_return", ""))),
            Some(_) => Poll::Ready(Ok(())),
            None => {
                turned?;
                add_waker(&mut b.wakers, cx.waker());
                Poll::Pending
            }
        }
    }
}
