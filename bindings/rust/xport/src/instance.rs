// SPDX-License-Identifier: BSD-3-Clause
//! Instances, and the loop that runs one without a runtime.
use crate::endpoint::{Connect, Endpoint, Listener, ListenerInner};
use crate::error::{Error, Result};
use crate::memory::{self, Buf, RegionInner};
use crate::operation::{Message, Operation};
use crate::options::{ConnOptions, Info, Options};
use crate::pool::Pool;
use crate::raw::Library;
use crate::region::Region;
use crate::services::Services;
use crate::state::{add_waker, Shared, State};
use crate::table::{Flight, Post};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::os::unix::io::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use xport_sys as sys;

/// What happened on an instance.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A peer's put with a notification has arrived.
    Notify { endpoint: Option<Endpoint>, value: u64, region: Option<Region>, offset: u64, length: u64 },
    /// The peer closed the endpoint.
    Closed(Endpoint),
    /// The endpoint is lost.
    Lost(Endpoint, Error),
}

/// An opened back end.  It ends when the last of its objects is dropped.
///
/// All objects may be used by any thread: a lock is held for each call.
#[derive(Clone)]
pub struct Instance {
    pub(crate) shared: Arc<Shared>,
}

/// Opens an instance as the environment says: the variable XPORT_BACKEND selects the transport.
pub fn open() -> Result<Instance> {
    Instance::open(&Options::default())
}

impl Instance {
    pub fn open(options: &Options) -> Result<Instance> {
        let mut library = Library::open(options)?;
        let fd = library.fd();
        let state = State {
            library,
            queued: VecDeque::new(),
            queue_end: None,
            events: VecDeque::new(),
            event_wakers: Vec::new(),
            accept_wakers: Vec::new(),
            endpoints: HashMap::new(),
            regions: HashMap::new(),
            closing: Vec::new(),
            kept: Vec::new(),
            services: Services::default(),
        };
        Ok(Instance {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                grave: Arc::default(),
                fd,
                at_end: Mutex::default(),
                holder: AtomicUsize::new(0),
                pid: std::process::id(),
            }),
        })
    }

    pub fn info(&self) -> Result<Info> {
        self.shared.lock().library.info()
    }

    // ---- connections ----

    /// Listens at "host:port".  Each peer gets the private data with its connection.
    pub fn listen(&self, address: &str, private_data: &[u8]) -> Result<Listener> {
        self.listen_with(address, &ConnOptions { private_data, ..Default::default() })
    }

    /// Listens; each connection gets what the options say.
    pub fn listen_with(&self, address: &str, options: &ConnOptions) -> Result<Listener> {
        let mut state = self.shared.lock();
        let raw = state.library.listen(address, options)?;
        let name = state.library.listener_name(&raw);
        let inner = ListenerInner::new(raw, self.shared.grave.clone());
        Ok(Listener { inner, address: name?, shared: self.shared.clone() })
    }

    /// Connects to a listener.  The future fails within 30 s.
    pub fn connect(&self, address: &str, private_data: &[u8]) -> Connect {
        self.connect_with(address, &ConnOptions { private_data, ..Default::default() })
    }

    /// Connects as the options say.  The future fails within 30 s.
    pub fn connect_with(&self, address: &str, options: &ConnOptions) -> Connect {
        let mut state = self.shared.lock();
        let ep = state.library.connect(address, options, 0);
        Connect::new(ep.map(|ep| Endpoint::new(state.adopt(ep, &self.shared.grave, true), self.shared.clone())))
    }

    /// Connects, and waits up to `limit` with the lock of the instance held.  Its errors have hints.
    pub fn connect_wait(&self, address: &str, private_data: &[u8], limit: Duration) -> Result<Endpoint> {
        let mut state = self.shared.lock();
        let options = ConnOptions { private_data, ..Default::default() };
        let ep = state.library.connect(address, &options, milliseconds(limit).max(1))?;
        Ok(Endpoint::new(state.adopt(ep, &self.shared.grave, false), self.shared.clone()))
    }

    // ---- memory ----

    /// Zeroed, registered memory, the fastest that the back end offers.
    pub fn alloc(&self, len: usize, rights: u32) -> Result<Region> {
        let mut state = self.shared.lock();
        let grave = self.shared.grave.clone();
        let inner = RegionInner::alloc(&mut state.library, len, rights, grave)?;
        Ok(self.region(&mut state, inner))
    }

    /// Registers the memory of a Vec, which belongs to the region from now on.
    pub fn register(&self, memory: Vec<u8>, rights: u32) -> Result<Region> {
        let mut state = self.shared.lock();
        let grave = self.shared.grave.clone();
        let inner = RegionInner::register(&mut state.library, memory, rights, grave)?;
        Ok(self.region(&mut state, inner))
    }

    fn region(&self, state: &mut State, inner: RegionInner) -> Region {
        let inner = Arc::new(inner);
        let address = inner.mr().address();
        state.regions.insert(address, Arc::downgrade(&inner));
        Region { inner, shared: self.shared.clone() }
    }

    /// A buffer of registered memory without rights.  To make one takes long: keep it.
    pub fn buffer(&self, len: usize) -> Result<Buf> {
        let mut state = self.shared.lock();
        let grave = self.shared.grave.clone();
        let inner = RegionInner::alloc(&mut state.library, len, 0, grave)?;
        Ok(Buf::from_region(Arc::new(inner), self.shared.clone()))
    }

    /// A pool of registered buffers of this length.
    pub fn pool(&self, len: usize) -> Pool {
        Pool::new(len, self.shared.clone())
    }

    // ---- messages ----

    /// Posts a receive for a message from any peer whose tag equals `tag` in the bits of `mask`.
    pub fn recv(&self, buf: impl Into<Buf>, tag: u64, mask: u64) -> Operation<(Result<Message>, Buf)> {
        let (post, hold) = (Post::Recv { tag, mask }, buf.into().into_hold(&self.shared));
        Operation::submit(&self.shared, Flight::new(post, hold, None, None))
    }

    /// The same with a deadline, as `Endpoint::within`.
    pub fn recv_within(
        &self,
        buf: impl Into<Buf>,
        tag: u64,
        mask: u64,
        deadline: Duration,
    ) -> Operation<(Result<Message>, Buf)> {
        let (post, hold) = (Post::Recv { tag, mask }, buf.into().into_hold(&self.shared));
        let end = Instant::now().checked_add(deadline);
        Operation::submit(&self.shared, Flight { end, ..Flight::new(post, hold, None, None) })
    }

    // ---- progress ----

    /// Makes progress once.  Returns the number of completions and events.
    pub fn turn(&self) -> Result<usize> {
        self.shared.turn()
    }

    /// The time after which `turn` must be called, even if the descriptor does not become readable.  None: no limit.
    pub fn turn_within(&self) -> Option<Duration> {
        if !self.shared.grave.is_empty() {
            return Some(Duration::ZERO);
        }
        self.shared.lock().timeout()
    }

    /// Runs the instance until the future is ready.
    ///
    /// For futures of this instance.  One that waits for something else as well is polled at least every 100 ms.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.run_future(None, Box::pin(future)).expect("without a limit there is a result")
    }

    /// The same for at most `limit`.  After that the future is dropped: its operations are orphans.
    pub fn block_on_for<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        self.run_future(Some(limit), Box::pin(future))
    }

    fn run_future<F: Future>(&self, limit: Option<Duration>, mut future: Pin<Box<F>>) -> Option<F::Output> {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut polled = Instant::now();
        self.shared.run(limit, || {
            if !flag.0.swap(false, Ordering::AcqRel) && polled.elapsed() < Duration::from_millis(90) {
                return None;
            }
            polled = Instant::now();
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            }
        })
    }

    /// The next event.
    pub fn event(&self) -> NextEvent {
        NextEvent { shared: self.shared.clone() }
    }

    /// The next event if one has come.
    pub fn try_event(&self) -> Option<Event> {
        let mut state = self.shared.lock();
        while let Some(e) = state.events.pop_front() {
            let endpoint = e.known.as_ref().and_then(|w| w.upgrade());
            let endpoint = endpoint.map(|inner| Endpoint::new(inner, self.shared.clone()));
            let region = e.region.and_then(|w| w.upgrade()).map(|inner| Region { inner, shared: self.shared.clone() });
            match (e.kind, endpoint) {
                (sys::XPORT_EVENT_NOTIFY, endpoint) => {
                    return Some(Event::Notify { endpoint, value: e.value, region, offset: e.offset, length: e.length })
                }
                (sys::XPORT_EVENT_CLOSED, Some(ep)) => return Some(Event::Closed(ep)),
                (sys::XPORT_EVENT_LOST, Some(ep)) => {
                    let why = state.library.ep_info(ep.inner.ep());
                    let why = why.map_or(String::new(), |i| i.why);
                    return Some(Event::Lost(ep, Error::new(e.status, "xport_poll", &why)));
                }
                _ => {} // the endpoint is gone
            }
        }
        None
    }

    /// Operations in flight that nobody waits for any more.
    pub fn orphans(&self) -> usize {
        self.shared.lock().library.table.orphans
    }

    /// Operations that have not completed, those without space in the queue included.
    pub fn in_flight(&self) -> usize {
        self.shared.lock().library.table.in_flight
    }
}

impl AsFd for Instance {
    /// Readable, level-triggered, when `turn` should be called.
    fn as_fd(&self) -> BorrowedFd<'_> {
        memory::borrow_fd(self, self.shared.fd)
    }
}

impl AsRawFd for Instance {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.fd
    }
}

pub(crate) fn milliseconds(d: Duration) -> i32 {
    d.as_millis().min(i32::MAX as u128) as i32
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// The future of `Instance::event`.
pub struct NextEvent {
    shared: Arc<Shared>,
}

impl Future for NextEvent {
    type Output = Result<Event>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Event>> {
        let turned = self.shared.turn();
        let instance = Instance { shared: self.shared.clone() };
        loop {
            if let Some(event) = instance.try_event() {
                return Poll::Ready(Ok(event));
            }
            if let Err(e) = turned {
                return Poll::Ready(Err(e));
            }
            let mut state = self.shared.lock();
            if state.events.is_empty() {
                add_waker(&mut state.event_wakers, cx.waker());
                return Poll::Pending;
            }
        }
    }
}
