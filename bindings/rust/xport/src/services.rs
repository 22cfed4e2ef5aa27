// SPDX-License-Identifier: BSD-3-Clause
//! What the lock of an instance protects of the services, and their progress.
use crate::endpoint::EpInner;
use crate::error::Error;
use crate::lease::Borrowed;
use crate::memory::RegionInner;
use crate::raw;
use crate::rpc::{Arrived, RpcEvent};
use crate::state::State;
use crate::table::Outcome;
use crate::versioned::Reading;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;
use xport_sys as sys;

/// Regions that a call has lent, until the callee accesses them no longer.
pub(crate) struct Lent {
    pub(crate) _regions: Vec<Arc<RegionInner>>,
    pub(crate) released: Option<i32>,
    pub(crate) waker: Option<Waker>,
    pub(crate) orphan: bool,
}

#[derive(Default)]
pub(crate) struct Services {
    pub(crate) used: bool,
    pub(crate) max_payload: usize,
    pub(crate) requests: VecDeque<Arrived>,
    pub(crate) request_wakers: Vec<Waker>,
    /// By the number of the call.
    pub(crate) loans: HashMap<u64, Lent>,
    /// Leases that this process started or was given, by their address.
    pub(crate) borrowed: HashMap<usize, Borrowed>,
    /// Those that peers gave, and the addresses of their endpoints, until `NextGiven` returns them.
    pub(crate) given: VecDeque<(raw::Lease, usize)>,
    pub(crate) given_wakers: Vec<Waker>,
    /// Objects of peers, by the address of their handle, and how many are being read or written.
    pub(crate) readers: HashMap<usize, Reading>,
    pub(crate) reading: usize,
    /// The driver that sleeps, and until when; None: without a limit.
    pub(crate) sleeper: Option<Waker>,
    pub(crate) sleeps_until: Option<Instant>,
}

impl State {
    /// Takes the events of the services.  Returns their number.
    pub(crate) fn services_turn(&mut self, wake: &mut Vec<Waker>) -> usize {
        if !self.services.used {
            return 0;
        }
        if self.library.services_timeout() == 0 {
            self.library.services_step(None);
        }
        let mut n = self.lease_events(wake);
        while let Some(event) = self.library.rpc_next() {
            n += 1;
            self.rpc_event(event, wake);
        }
        self.wake_sleeper(wake);
        n
    }

    fn rpc_event(&mut self, event: RpcEvent, wake: &mut Vec<Waker>) {
        match event {
            RpcEvent::Done { number, status, length, called, why } => {
                let failure =
                    if status < 0 { Some(Box::new(Error::new(status, "xport_rpc_call", &why))) } else { None };
                let outcome = Outcome { status, failure, tag: 0, length: length as u64, sender: None, called };
                wake.extend(self.library.table.finish(number, outcome));
            }
            RpcEvent::Released { number, status } => self.loan_ends(number, status, wake),
            RpcEvent::Request(mut arrived) => {
                arrived.known = self.endpoints.get(&arrived.ep).cloned();
                self.services.requests.push_back(arrived);
                wake.append(&mut self.services.request_wakers);
            }
        }
    }

    pub(crate) fn loan_ends(&mut self, number: u64, status: i32, wake: &mut Vec<Waker>) {
        let orphan = match self.services.loans.get_mut(&number) {
            Some(lent) => {
                lent.released = Some(status);
                wake.extend(lent.waker.take());
                lent.orphan
            }
            None => return,
        };
        if orphan {
            self.services.loans.remove(&number);
        }
    }

    /// Nobody waits for the end of a loan any more.
    pub(crate) fn abandon_loan(&mut self, number: u64) {
        match self.services.loans.get_mut(&number) {
            Some(lent) if lent.released.is_none() => lent.orphan = true,
            _ => {
                self.services.loans.remove(&number);
            }
        }
    }

    /// A request that nobody will reply to: its caller is told.
    pub(crate) fn refuse_request(&mut self, id: u64) {
        let (status, text) = match self.library.rpc_left(id) {
            Ok(0) => (sys::XPORT_ERR_TIMEOUT, "the deadline of the call expired in its handler"),
            _ => (sys::XPORT_ERR_CANCELED, "the handler dropped the request without a reply"),
        };
        // The caller may have gone: then the request has ended.
        let _ = self.library.rpc_reply(id, status, text.as_bytes());
    }

    /// The caller of requests was accepted after them.
    pub(crate) fn know_caller(&mut self, ep: usize, inner: &Arc<EpInner>) {
        for arrived in self.services.requests.iter_mut().filter(|r| r.ep == ep && r.known.is_none()) {
            arrived.known = Some(Arc::downgrade(inner));
        }
    }

    /// The address of an endpoint may become that of another one.
    pub(crate) fn forget_caller(&mut self, ep: usize) {
        for arrived in self.services.requests.iter_mut().filter(|r| r.ep == ep) {
            arrived.ep = 0;
        }
    }

    /// Who waits for the services sees why the back end has failed.
    pub(crate) fn wake_services(&mut self, wake: &mut Vec<Waker>) {
        wake.append(&mut self.services.request_wakers);
        wake.extend(self.services.loans.values_mut().filter_map(|lent| lent.waker.take()));
        self.lease_wakers(wake);
        wake.extend(self.services.readers.values_mut().filter_map(|r| r.waker.take()));
    }

    /// Wakes the driver if it would sleep for too long.
    pub(crate) fn wake_sleeper(&mut self, wake: &mut Vec<Waker>) {
        if self.services.sleeper.is_none() {
            return;
        }
        let next = match self.timeout().and_then(|left| Instant::now().checked_add(left)) {
            Some(next) => next,
            None => return,
        };
        if self.services.sleeps_until.map_or(true, |until| next < until) {
            wake.extend(self.services.sleeper.take());
        }
    }
}
