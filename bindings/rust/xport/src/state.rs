// SPDX-License-Identifier: BSD-3-Clause
//! What the lock of an instance protects; progress; and what ends behind the back of its owner.
use crate::endpoint::{Accepting, Endpoint, EpInner, ListenerInner};
use crate::error::{Error, Result};
pub(crate) use crate::grave::{Dead, Grave};
use crate::memory::{self, Hold, RegionInner};
use crate::raw::{self, Library};
use crate::services::Services;
use crate::table::{Called, Completion, Flight, Outcome, Slot, Stage};
use std::collections::{HashMap, VecDeque};
use std::os::unix::io::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use xport_sys as sys;

/// An event as it was reaped.  An endpoint that no call has returned yet has its address alone.
pub(crate) struct Happened {
    pub(crate) kind: u32,
    pub(crate) status: i32,
    pub(crate) known: Option<Weak<EpInner>>,
    pub(crate) ep: usize,
    pub(crate) value: u64,
    pub(crate) region: Option<Weak<RegionInner>>,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

pub(crate) struct State {
    pub(crate) library: Library,
    pub(crate) queued: VecDeque<u64>,
    /// No queued operation has an earlier deadline; None: none has one.
    pub(crate) queue_end: Option<Instant>,
    pub(crate) events: VecDeque<Happened>,
    pub(crate) event_wakers: Vec<Waker>,
    pub(crate) accept_wakers: Vec<Waker>,
    pub(crate) endpoints: HashMap<usize, Weak<EpInner>>,
    pub(crate) regions: HashMap<usize, Weak<RegionInner>>,
    /// Closed endpoints, whose events are not all reaped.
    pub(crate) closing: Vec<raw::Ep>,
    /// Regions that cannot be deregistered without waiting.
    pub(crate) kept: Vec<Dead>,
    pub(crate) services: Services,
}

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) grave: Arc<Grave>,
    pub(crate) fd: RawFd,
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) at_end: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// The thread that has an `Exclusive`, by the address of its HERE; 0: none.
    pub(crate) holder: AtomicUsize,
    /// The process that opened it.
    pub(crate) pid: u32,
}

thread_local! { static HERE: u8 = 0; }

pub(crate) fn this_thread() -> usize {
    HERE.with(|here| here as *const u8 as usize)
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
        state.free(&self.grave, &mut Vec::new()); // closes endpoints, so that the services end without waiting
        state.end_reading(&self.grave);
        let ends = self.at_end.get_mut().unwrap_or_else(|e| e.into_inner());
        ends.drain(..).for_each(|end| end());
    }
}

impl Shared {
    /// Panics in a forked child if a thread of the parent had the lock.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        match self.try_lock() {
            Some(state) => state,
            None => panic!("{}", forked()),
        }
    }

    /// None: in a forked child, where nobody gives the lock back.
    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => self.lock_busy(),
        }
    }

    #[cold]
    fn lock_busy(&self) -> Option<MutexGuard<'_, State>> {
        let mine = self.holder.load(Ordering::Relaxed) == this_thread();
        assert!(!mine, "this thread has the instance exclusively: drop that, or use it");
        let here = std::process::id() == self.pid;
        here.then(|| self.state.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Makes progress.  Returns the number of completions and events.
    pub(crate) fn turn(&self) -> Result<usize> {
        let mut wake = Vec::new();
        let result = self.try_lock().ok_or_else(forked)?.turn(&self.grave, &mut wake);
        for waker in wake {
            waker.wake();
        }
        result
    }

    /// Posts an operation, or queues it if there is no space.
    pub(crate) fn submit(&self, flight: Flight) -> u64 {
        let mut wake = Vec::new();
        let number = self.lock().submit(flight, &mut wake);
        for waker in wake {
            waker.wake();
        }
        number
    }

    /// Cancels an operation.  False: it has matched or ended already.
    pub(crate) fn cancel(&self, number: u64) -> bool {
        let mut wake = Vec::new();
        let mut state = self.lock();
        let done = state.cancel(number, &mut wake);
        state.services_turn(&mut wake); // the call is over now, and nothing else reports it
        drop(state);
        for waker in wake {
            waker.wake();
        }
        done
    }

    /// Posts an operation, or returns why that cannot be done now.
    pub(crate) fn try_submit(&self, flight: Flight) -> std::result::Result<u64, (Error, Hold)> {
        let mut state = self.lock();
        if let Some(why) = flight.foreign() {
            return Err((Error::new(sys::XPORT_ERR_INVALID, flight.post.name(), why), flight.hold));
        }
        let number = state.library.table.insert(flight);
        let status = if state.must_queue(number) { sys::XPORT_ERR_AGAIN } else { state.library.post(number) };
        if status >= 0 {
            return Ok(number);
        }
        let failure = state.library.refusal(number, status);
        state.library.table.finish(number, failed(status, failure.clone()));
        let hold = state.library.table.take(number);
        Err((failure, hold.map_or(Hold::Nothing, |slot| slot.flight.hold)))
    }

    /// The owner of something is gone.  Waits for nothing: without the lock, the next turn does it.
    pub(crate) fn abandon(&self, dead: Dead) {
        let mut wake = Vec::new();
        match self.state.try_lock() {
            Ok(mut state) => {
                state.bury(dead, &mut wake);
                state.services_turn(&mut wake);
            }
            Err(_) => self.grave.bury(dead),
        }
        for waker in wake {
            waker.wake();
        }
    }

    /// Runs the instance until the operation completes, or the time is over.
    pub(crate) fn wait(&self, limit: Option<Duration>, number: u64) -> Option<Box<Slot>> {
        let mut wake = Vec::new();
        let taken = self.lock().turn_for(number, &self.grave, &mut wake);
        for waker in wake {
            waker.wake();
        }
        taken.or_else(|| self.run(limit, || self.lock().library.table.take(number)))
    }

    /// Takes the operation if it has completed, or wakes the task when it does.  The first call makes progress.
    pub(crate) fn poll(&self, number: u64, first: bool, cx: &mut Context<'_>) -> Option<Box<Slot>> {
        let (mut wake, mut earlier) = (Vec::new(), None);
        let mut state = self.lock();
        let taken = match first {
            true => state.turn_for(number, &self.grave, &mut wake),
            false => state.library.table.take(number),
        };
        if taken.is_none() {
            let slot = state.library.table.get(number).expect("polled after it was ready");
            earlier = slot.waker.replace(cx.waker().clone());
        }
        drop(state);
        drop(earlier); // may run a destructor of the caller
        for waker in wake {
            waker.wake();
        }
        taken
    }

    /// Runs the instance until `until` returns something, or the time is over.
    pub(crate) fn run<T>(&self, limit: Option<Duration>, mut until: impl FnMut() -> Option<T>) -> Option<T> {
        let end = limit.and_then(|d| Instant::now().checked_add(d));
        let mut idle = 0;
        loop {
            let turned = self.turn();
            if let Some(result) = until() {
                return Some(result);
            }
            let mut left = Duration::from_millis(100);
            if let Some(end) = end {
                match end.checked_duration_since(Instant::now()) {
                    Some(d) if !d.is_zero() => left = left.min(d),
                    _ => return None,
                }
            }
            idle = if turned.as_ref().map_or(0, |n| *n) > 0 { 0 } else { idle + 1 };
            if turned.is_err() {
                std::thread::sleep(Duration::from_millis(1));
            } else if idle > 20 {
                // Another thread may reap what this one waits for: it does not sleep for longer than `left`.
                let left = self.lock().timeout().map_or(left, |timer| left.min(timer));
                memory::readable(self.fd, (left + Duration::from_micros(999)).as_millis() as i32);
            }
        }
    }
}

fn forked() -> Error {
    let text = "Another thread had the instance when this process was forked: a child may only call exec or _exit.";
    Error::new(sys::XPORT_ERR_FORK, "Instance", text)
}

/// A task that is polled again waits once.
pub(crate) fn add_waker(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|w| w.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}

/// The lesser of the two that there are.
fn earlier<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn failed(status: i32, failure: Error) -> Outcome {
    Outcome { status, failure: Some(Box::new(failure)), tag: 0, length: 0, sender: None, called: Called::default() }
}

impl State {
    /// Whether earlier operations of the endpoint wait for space.
    fn must_queue(&mut self, number: u64) -> bool {
        self.library.table.get(number).and_then(|s| s.queue()).map_or(false, |ep| ep.waiting() > 0)
    }

    /// Ends an operation at once: its handles do not belong together.
    pub(crate) fn refuse(&mut self, flight: Flight, why: &str) -> u64 {
        let failure = Error::new(sys::XPORT_ERR_INVALID, flight.post.name(), why);
        let number = self.library.table.insert(flight);
        self.library.table.finish(number, failed(sys::XPORT_ERR_INVALID, failure));
        number
    }

    pub(crate) fn submit(&mut self, flight: Flight, wake: &mut Vec<Waker>) -> u64 {
        if let Some(why) = flight.foreign() {
            return self.refuse(flight, why);
        }
        let number = self.library.table.insert(flight);
        let status = if self.must_queue(number) { sys::XPORT_ERR_AGAIN } else { self.library.post(number) };
        if status == sys::XPORT_ERR_AGAIN {
            self.enqueue(number);
            self.wake_sleeper(wake);
        } else if status < 0 {
            let failure = self.library.refusal(number, status);
            self.library.table.finish(number, failed(status, failure));
        }
        number
    }

    fn enqueue(&mut self, number: u64) {
        if let Some(slot) = self.library.table.get(number) {
            self.queue_end = earlier(self.queue_end, slot.flight.end);
            if let Some(ep) = slot.queue() {
                ep.add_waiting(1);
            }
        }
        self.queued.push_back(number);
    }

    /// The time after which a turn must be made; None: no limit.
    pub(crate) fn timeout(&mut self) -> Option<Duration> {
        let services = u64::try_from(self.library.services_timeout()).ok().map(Duration::from_millis);
        let queue = self.queue_end.map(|end| end.saturating_duration_since(Instant::now()));
        earlier(services, queue)
    }

    /// Ends an operation that waits for space in the queue.
    fn end_queued(&mut self, number: u64, status: i32, failure: Error, wake: &mut Vec<Waker>) {
        if let Some(ep) = self.library.table.get(number).and_then(|s| s.queue()) {
            ep.add_waiting(-1);
        }
        wake.extend(self.library.table.finish(number, failed(status, failure)));
        self.loan_ends(number, sys::XPORT_OK, wake);
    }

    fn cancel(&mut self, number: u64, wake: &mut Vec<Waker>) -> bool {
        let name = match self.library.table.get(number) {
            Some(slot) if matches!(slot.stage, Stage::Queued) => slot.flight.post.name(),
            _ => return self.library.cancel(number),
        };
        let failure = Error::new(sys::XPORT_ERR_CANCELED, name, "");
        self.end_queued(number, sys::XPORT_ERR_CANCELED, failure, wake);
        true
    }

    fn post_queued(&mut self, wake: &mut Vec<Waker>) {
        let mut refused: Vec<usize> = Vec::new();
        let now = Instant::now();
        self.queue_end = None;
        for _ in 0..self.queued.len() {
            let number = match self.queued.pop_front() {
                Some(number) => number,
                None => return,
            };
            let (ep, call, end, name) = match self.library.table.get(number) {
                Some(slot) if matches!(slot.stage, Stage::Queued) => {
                    (slot.queue().cloned(), slot.is_call(), slot.flight.end, slot.flight.post.name())
                }
                _ => continue, // abandoned or cancelled
            };
            if end.map_or(false, |end| end <= now) {
                let why = "the deadline expired while the operation waited for space in the queue";
                let failure = Error::new(sys::XPORT_ERR_TIMEOUT, name, why);
                self.end_queued(number, sys::XPORT_ERR_TIMEOUT, failure, wake);
                continue;
            }
            let queue = ep.as_ref().map_or(call as usize, |ep| ep.ep().address());
            let status = if refused.contains(&queue) { sys::XPORT_ERR_AGAIN } else { self.library.post(number) };
            if status == sys::XPORT_ERR_AGAIN {
                if !refused.contains(&queue) {
                    refused.push(queue);
                }
                self.queue_end = earlier(self.queue_end, end);
                self.queued.push_back(number);
                continue;
            }
            if status < 0 {
                let failure = self.library.refusal(number, status);
                self.end_queued(number, status, failure, wake);
            } else if let Some(ep) = &ep {
                ep.add_waiting(-1);
            }
        }
    }

    fn abandon(&mut self, number: u64, wake: &mut Vec<Waker>) {
        if let Some(slot) = self.library.table.get(number) {
            if matches!(slot.stage, Stage::Queued) {
                if let Some(ep) = slot.queue() {
                    ep.add_waiting(-1);
                }
                self.loan_ends(number, sys::XPORT_OK, wake);
            }
        }
        if self.library.table.abandon(number) {
            self.library.cancel(number);
        }
    }

    /// Whether a poll does all that a turn does.
    #[inline]
    pub(crate) fn is_plain(&self, grave: &Grave) -> bool {
        let idle = self.queued.is_empty() && self.closing.is_empty() && self.services.reading == 0;
        idle && !self.services.used && !grave.used.load(Ordering::Acquire)
    }

    /// Takes the operation, after a turn if it has not completed.
    fn turn_for(&mut self, number: u64, grave: &Grave, wake: &mut Vec<Waker>) -> Option<Box<Slot>> {
        let taken = self.library.table.take(number);
        taken.or_else(|| {
            let _ = self.turn(grave, wake);
            self.library.table.take(number)
        })
    }

    pub(crate) fn turn(&mut self, grave: &Grave, wake: &mut Vec<Waker>) -> Result<usize> {
        self.free(grave, wake);
        if !self.queued.is_empty() {
            self.post_queued(wake);
        }
        let polled = self.library.poll();
        self.polled(polled, wake)
    }

    /// Takes what a poll has reaped.
    pub(crate) fn polled(&mut self, polled: Result<usize>, wake: &mut Vec<Waker>) -> Result<usize> {
        let n = match polled {
            Ok(n) => n,
            Err(e) => {
                self.fail(&e, wake);
                return Err(e);
            }
        };
        for i in 0..n {
            let c = self.library.completion(i);
            if self.services.used && self.library.services_step(Some(i)) {
                continue; // it belongs to them
            }
            if c.kind < sys::XPORT_EVENT_NOTIFY && c.number & 1 == 0 {
                self.reader_step(c.number as usize, Some(i), wake);
            } else if c.kind < sys::XPORT_EVENT_NOTIFY {
                self.complete(c, wake);
            } else {
                self.event(c, wake);
            }
        }
        if self.services.reading > 0 {
            self.readers_continue(wake);
        }
        if !self.closing.is_empty() && Library::reaped_all(n) {
            for ep in std::mem::take(&mut self.closing) {
                self.endpoints.remove(&ep.address());
                self.forget_caller(ep.address());
                self.library.services_forget(&ep);
                self.library.ep_destroy(ep);
            }
        }
        Ok(n + self.services_turn(wake))
    }

    /// The back end has failed: no turn follows.
    fn fail(&mut self, e: &Error, wake: &mut Vec<Waker>) {
        for number in std::mem::take(&mut self.queued) {
            if self.library.table.get(number).map_or(false, |slot| matches!(slot.stage, Stage::Queued)) {
                self.end_queued(number, e.status.code(), e.clone(), wake);
            }
        }
        self.queue_end = None;
        self.readers_continue(wake); // those that wait for space end
        wake.append(&mut self.event_wakers);
        wake.append(&mut self.accept_wakers);
        self.wake_services(wake);
        for ep in self.endpoints.values().filter_map(|ep| ep.upgrade()) {
            wake.extend(ep.connected(sys::XPORT_EVENT_LOST, e.status.code(), &e.text).flatten());
        }
    }

    /// Frees what destructors left.
    fn free(&mut self, grave: &Grave, wake: &mut Vec<Waker>) {
        for dead in grave.take() {
            self.bury(dead, wake);
        }
    }

    fn bury(&mut self, dead: Dead, wake: &mut Vec<Waker>) {
        match dead {
            Dead::Ep(ep) => {
                let _ = self.library.ep_close(&ep, 0);
                self.closing.push(ep);
            }
            Dead::Key(key) => self.library.rkey_destroy(key),
            Dead::Listener(listener) => self.library.listener_close(listener),
            Dead::Operation(number) => self.abandon(number, wake),
            Dead::Request(id) => self.refuse_request(id),
            Dead::Loan(number) => self.abandon_loan(number),
            Dead::Lease(lease) => self.lease_dies(lease),
            Dead::Reader(address) => self.reader_dies(address),
            Dead::Region { mr, waits, _memory } => {
                self.regions.remove(&mr.address());
                if waits {
                    self.kept.push(Dead::Region { mr, waits, _memory });
                } else if let Err((_, mr)) = self.library.mr_dereg(mr) {
                    self.kept.push(Dead::Region { mr, waits: true, _memory });
                }
            }
        }
    }

    /// Why an operation failed; None: nobody knows the operation.
    fn failure(&mut self, c: &Completion) -> Option<Box<Error>> {
        let flight = &self.library.table.get(c.number)?.flight;
        let (ep, operation) = (flight.ep().cloned(), flight.post.name());
        let info = ep.and_then(|ep| self.library.ep_info(ep.ep()).ok());
        let why = info.map_or_else(String::new, |i| i.why);
        Some(Box::new(Error::new(c.status, operation, &why)))
    }

    fn complete(&mut self, c: Completion, wake: &mut Vec<Waker>) {
        let failure = if c.status < 0 { self.failure(&c) } else { None };
        let outcome = Outcome {
            status: c.status,
            failure,
            tag: c.tag,
            length: c.length,
            sender: if c.kind == sys::XPORT_OP_RECV { self.endpoints.get(&c.ep).cloned() } else { None },
            called: Called::default(),
        };
        wake.extend(self.library.table.finish(c.number, outcome));
    }

    fn event(&mut self, c: Completion, wake: &mut Vec<Waker>) {
        if c.kind == sys::XPORT_EVENT_INCOMING {
            wake.append(&mut self.accept_wakers);
            return;
        }
        let known = self.endpoints.get(&c.ep).cloned();
        if let Some(ep) = known.as_ref().and_then(|ep| ep.upgrade()) {
            let why = if c.kind == sys::XPORT_EVENT_LOST {
                self.library.ep_info(ep.ep()).map_or(String::new(), |i| i.why)
            } else {
                String::new()
            };
            if let Some(waker) = ep.connected(c.kind, c.status, &why) {
                wake.extend(waker);
                return;
            }
        } else if known.is_none() && c.kind == sys::XPORT_EVENT_LOST && c.ep != 0 {
            // Named by a message or a notification, and lost before it was accepted.
            self.events.retain(|e| e.ep != c.ep);
            self.forget_caller(c.ep);
            self.library.ep_destroy_unaccepted(c.ep);
            return;
        }
        self.events.push_back(Happened {
            kind: c.kind,
            status: c.status,
            known,
            ep: c.ep,
            value: c.tag,
            region: self.regions.get(&c.mr).cloned(),
            offset: c.offset,
            length: c.length,
        });
        wake.append(&mut self.event_wakers);
    }

    pub(crate) fn adopt(&mut self, ep: raw::Ep, grave: &Arc<Grave>, connecting: bool) -> Arc<EpInner> {
        let address = ep.address();
        let inner = Arc::new(EpInner::new(ep, grave.clone(), connecting));
        self.endpoints.insert(address, Arc::downgrade(&inner));
        // Events that came before it was accepted.
        for e in self.events.iter_mut().filter(|e| e.ep == address) {
            e.known = Some(Arc::downgrade(&inner));
        }
        self.know_caller(address, &inner);
        inner
    }
}

impl Accepting for Shared {
    fn try_accept(self: &Arc<Self>, inner: &ListenerInner, waker: &Waker) -> Result<Option<Endpoint>> {
        let mut state = self.lock();
        match state.library.accept(inner.raw())? {
            Some(ep) => {
                let inner = state.adopt(ep, &self.grave, false);
                let wakers = std::mem::take(&mut state.services.given_wakers); // it may have given regions before
                drop(state);
                wakers.into_iter().for_each(Waker::wake);
                Ok(Some(Endpoint::new(inner, self.clone())))
            }
            None => {
                add_waker(&mut state.accept_wakers, waker);
                Ok(None)
            }
        }
    }
}
