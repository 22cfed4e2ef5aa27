// SPDX-License-Identifier: BSD-3-Clause
//! What few programs do: handles of two instances in one call, forks, and what nobody takes or waits for.
//!
//!     edges NAME...   both sides are in this process: prints "ok NAME" for each
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use xport::*;

const RIGHTS: u32 = REMOTE_READ | REMOTE_WRITE;
const LENGTH: usize = 1000;

fn limit() -> Duration {
    let seconds = std::env::var("WAIT_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// A target with a region and an object in it, and an initiator.
struct Sides {
    ep: Endpoint,
    key: RemoteKey,
    x: Instance,
    /// None: not accepted.
    accepted: Option<Endpoint>,
    listener: Listener,
    _object: Versioned,
    target: Instance,
}

impl Sides {
    fn new(options: &Options, accepts: bool) -> Sides {
        let target = open().unwrap();
        let region = target.alloc(1 << 20, RIGHTS | REMOTE_ATOMIC).unwrap();
        let object = region.versioned(0, &VersionedOptions::new(Form::Checked, LENGTH)).unwrap();
        let listener = target.listen("127.0.0.1:0", &region.key().unwrap()).unwrap();
        let x = Instance::open(options).unwrap();
        let ep = beside(&target, || x.connect_wait(listener.address(), b"", limit()).unwrap());
        let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
        let accepted = accepts.then(|| target.block_on(listener.accept()).unwrap());
        Sides { ep, key, x, accepted, listener, _object: object, target }
    }

    fn turn(&self) {
        self.x.turn().unwrap();
        self.target.turn().unwrap();
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + limit();
        while !done() {
            assert!(Instant::now() < end, "not in time: {}", what);
            self.turn();
        }
    }
}

/// Calls `f` while a thread runs the instance.
fn beside<T>(x: &Instance, f: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                x.turn().unwrap();
            }
        });
        let result = f();
        over.store(true, Ordering::Relaxed);
        result
    })
}

fn is_foreign(e: &Error) {
    assert!(e.status == Status::Invalid && e.text.contains("another"), "{}", e);
}

/// Registered memory of another instance is refused, comes back, and stays when that instance ends otherwise.
fn memory() {
    let s = Sides::new(&Options::default(), true);
    let (ep, key) = (&s.ep, &s.key);
    let calls: [&dyn Fn(Buf) -> (Error, Buf); 9] = [
        &|buf| ep.put(buf, key, 0).wait().refused(),
        &|buf| ep.get(buf, key, 0).wait().refused(),
        &|buf| ep.send(buf, 1).wait().refused(),
        &|buf| ep.recv(buf, 1).wait().refused(),
        &|buf| s.x.recv(buf, 1, 1).wait().refused(),
        &|buf| ep.within(limit()).put(buf, key, 0).wait().refused(),
        &|buf| ep.try_put(buf, key, 0).map(|_| ()).unwrap_err(),
        &|mut buf| (ep.put_wait(&mut buf, key, 0).unwrap_err(), buf),
        &|mut buf| (ep.within(limit()).get_wait(&mut buf, key, 0).unwrap_err(), buf),
    ];
    for (i, call) in calls.iter().enumerate() {
        let foreign = open().unwrap();
        let mut buf = if i % 2 == 0 { foreign.buffer(1 << 20) } else { foreign.pool(1 << 20).take() }.unwrap();
        buf.fill(7);
        let (e, mut buf) = call(buf);
        is_foreign(&e);
        drop(foreign);
        assert!(buf.len() == 1 << 20 && buf.iter().all(|b| *b == 7));
        buf.fill(8);
        assert!(buf.into_vec().iter().all(|b| *b == 8));
    }
    let foreign = open().unwrap();
    let region = foreign.alloc(LENGTH, RIGHTS).unwrap();
    is_foreign(&ep.put_part(region.part(0, 8).unwrap(), key, 0).wait().unwrap_err());
    is_foreign(&ep.get_part(region.part(0, 8).unwrap(), key, 0).wait().unwrap_err());
    let mut object = ep.versioned(key, 0, &VersionedOptions::new(Form::Checked, LENGTH)).unwrap();
    is_foreign(&object.write(foreign.buffer(LENGTH).unwrap()).wait().unwrap_err());
    let own = s.x.buffer(LENGTH).unwrap();
    let back = beside(&s.target, || object.write(own).wait().unwrap());
    assert_eq!(back.len(), LENGTH);
    // A key of another endpoint: also behind operations that wait for space, when that endpoint and its instance are gone.
    let other = Sides::new(&Options { queue_depth: 2, ..Default::default() }, true);
    let many: Vec<_> = (0..50).map(|i| other.ep.put(vec![1; 5000], &other.key, i)).collect();
    let Sides { key, x, ep, .. } = s;
    let put = other.ep.put([1], &key, 0);
    drop((object, key, ep, x));
    is_foreign(&beside(&other.target, || put.wait()).refused().0);
    beside(&other.target, || many.into_iter().for_each(|put| put.wait().0.unwrap()));
}

trait Refused {
    fn refused(self) -> (Error, Buf);
}

impl<T> Refused for (Result<T>, Buf) {
    fn refused(self) -> (Error, Buf) {
        match self {
            (Err(e), buf) => (e, buf),
            _ => panic!("accepted"),
        }
    }
}

/// Services refuse the endpoint of another instance.
fn endpoints() {
    let s = Sides::new(&Options::default(), true);
    let other = open().unwrap();
    let leases = other.leases(&LeaseOptions::default()).unwrap();
    is_foreign(&other.block_on(leases.ask(&s.ep, 4096, RIGHTS)).unwrap_err());
    let (e, region) = leases.give(&s.ep, other.alloc(4096, RIGHTS).unwrap()).unwrap_err();
    is_foreign(&e);
    let rpc = other.rpc(&RpcOptions::default()).unwrap();
    let e = rpc.call(&s.ep, "method", b"", limit()).wait().unwrap_err();
    is_foreign(&e.error);
    assert_eq!(e.ran, Ran::No);
    let (call, loan) = rpc.lend(&s.ep, "method", b"", limit(), &[&region]);
    is_foreign(&call.wait().unwrap_err().error);
    other.block_on(loan).unwrap();
    let rpc = s.x.rpc(&RpcOptions::default()).unwrap();
    is_foreign(&rpc.lend(&s.ep, "method", b"", limit(), &[&region]).0.wait().unwrap_err().error);
    assert_eq!((other.in_flight(), s.x.in_flight()), (0, 0));
    region.close().unwrap();
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A region that comes before its endpoint is accepted: accept wakes who waits for it.
fn late() {
    let s = Sides::new(&Options::default(), false);
    let taker = s.target.leases(&LeaseOptions { take: true, ..Default::default() }).unwrap();
    let leases = s.x.leases(&LeaseOptions::default()).unwrap();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    let mut given = taker.given();
    let mut poll = || Pin::new(&mut given).poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    let lent = leases.give(&s.ep, s.x.alloc(4096, RIGHTS).unwrap()).unwrap();
    s.until("the region wakes the task", || flag.0.swap(false, Ordering::Relaxed));
    assert!(poll().is_pending());
    let _accepted = s.target.block_on(s.listener.accept()).unwrap();
    s.until("accept wakes the task", || flag.0.swap(false, Ordering::Relaxed));
    match poll() {
        Poll::Ready(lease) => assert_eq!(lease.unwrap().key().length(), 4096),
        Poll::Pending => panic!("not given"),
    }
    drop(lent);
}

#[repr(C)]
struct Mallinfo {
    unused: [usize; 7],
    used: usize,
    more: [usize; 2],
}

extern "C" {
    fn mallinfo2() -> Mallinfo;
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

fn used() -> usize {
    // SAFETY: it reads counters.
    unsafe { mallinfo2() }.used
}

/// Leases that end before anybody takes them leave nothing behind.
fn untaken() {
    const LEASES: usize = 10;
    let s = Sides::new(&Options::default(), true);
    let patience = limit();
    let taker = s.target.leases(&LeaseOptions { take: true, patience, ..Default::default() }).unwrap();
    let leases = s.x.leases(&LeaseOptions { patience, ..Default::default() }).unwrap();
    let round = || {
        let regions = (0..LEASES).map(|_| s.x.alloc(4096, RIGHTS).unwrap());
        let given: Vec<_> = regions.map(|region| leases.give(&s.ep, region).unwrap()).collect();
        s.until("the regions come", || taker.info().unwrap().borrowed == LEASES as u64);
        drop(given.into_iter().map(|given| given.revoke()).collect::<Vec<_>>());
        let over = || taker.info().unwrap().borrowed == 0 && leases.info().unwrap().lent == 0;
        s.until("the leases end", over);
        s.turn();
    };
    let rounds = || beside(&s.target, || (0..20).for_each(|_| round())); // to deregister waits for the peer
    rounds();
    let before = used();
    rounds();
    rounds();
    let left = used().saturating_sub(before);
    assert!(left < 100 * 40 * LEASES, "{} bytes are left of {} leases", left, 40 * LEASES);
}

/// What is forgotten is lent until its lease ends.
fn forgotten() {
    let s = Sides::new(&Options::default(), true);
    let taker = s.target.leases(&LeaseOptions { take: true, ..Default::default() }).unwrap();
    let leases = s.x.leases(&LeaseOptions::default()).unwrap();
    for registered in [false, true] {
        let region = if registered { s.x.register(vec![7; 8192], RIGHTS) } else { s.x.alloc(8192, RIGHTS) };
        std::mem::forget(leases.give(&s.ep, region.unwrap()).unwrap());
        let lease = beside(&s.x, || s.target.block_on_for(limit(), taker.given())).unwrap().unwrap();
        let peer = s.accepted.as_ref().unwrap();
        beside(&s.x, || peer.put([8; 8192], lease.key(), 0).wait()).0.unwrap(); // the memory is there
        assert_eq!(leases.info().unwrap().lent, 1);
        beside(&s.x, || s.target.block_on_for(limit(), lease.give_back())).unwrap().unwrap();
        s.until("the lease ends", || leases.info().unwrap().lent == 0);
    }
}

/// Runs a function in a forked child, which must end in time.
fn in_child(f: impl FnOnce() -> bool) {
    // SAFETY: the child has one thread, and ends by _exit or SIGALRM.
    let status = unsafe {
        match fork() {
            0 => {
                alarm(10);
                let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(false);
                _exit(if good { 0 } else { 1 })
            }
            pid => {
                let mut status = -1;
                waitpid(pid, &mut status, 0);
                status
            }
        }
    };
    assert_eq!(status, 0, "the child failed, or waits for ever");
}

/// The back end fails, here by a fork: whoever waits for a read gets the error, in flight or before it is posted.
fn fails() {
    let s = Sides::new(&Options { queue_depth: 2, ..Default::default() }, true);
    for full in [false, true] {
        let mut object = s.ep.versioned(&s.key, 0, &VersionedOptions::new(Form::Checked, LENGTH)).unwrap();
        let puts: Vec<_> = (0..if full { 2 } else { 0 }).map(|_| s.ep.put(vec![1; 500_000], &s.key, 8192)).collect();
        let read = object.read();
        in_child(|| read.wait().map_or_else(|e| e.status == Status::Fork, |_| false));
        beside(&s.target, || puts.into_iter().for_each(|put| put.wait().0.unwrap()));
        s.until("the queue is empty", || s.x.in_flight() == 0);
    }
}

/// Fork while another thread has the instance.
fn forked() {
    let s = Sides::new(&Options::default(), true);
    let (held, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _exclusive = s.x.exclusive();
            held.store(true, Ordering::Release);
            while !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        while !held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        in_child(|| {
            std::panic::set_hook(Box::new(|_| {}));
            let call = std::panic::AssertUnwindSafe(|| s.ep.put([1; 8], &s.key, 0).wait());
            let panicked = std::panic::catch_unwind(call).unwrap_err();
            let text = panicked.downcast_ref::<String>().map_or(false, |text| text.contains("forked"));
            text && s.x.turn().unwrap_err().status == Status::Fork
        });
        over.store(true, Ordering::Relaxed);
    });
    s.x.turn().unwrap();
}

/// Errors of versioned objects have the text and the hint of the library.
fn texts() {
    let s = Sides::new(&Options::default(), true);
    let copies = VersionedOptions { copies: 2, grace: Some(limit()), ..VersionedOptions::new(Form::Copies, 100) };
    let region = s.target.alloc(copies.size(), RIGHTS | REMOTE_ATOMIC).unwrap();
    let mut own = region.versioned(0, &copies).unwrap();
    let e = (0..10).find_map(|_| own.write(&[1; 100]).err()).unwrap(); // no copy is free
    assert!(e.status == Status::Again && e.operation == "xport_versioned_write" && e.text.contains("cop"), "{:?}", e);
    let mut object = s.ep.versioned(&s.key, 8192, &copies).unwrap();
    let e = object.write(vec![1; 100]).wait().unwrap_err();
    assert!(e.status == Status::NotSupported && !e.hint.is_empty(), "{:?}", e);
    let mut object = s.ep.versioned(&s.key, (1 << 20) - 64, &VersionedOptions::new(Form::Summed, LENGTH)).unwrap();
    let e = beside(&s.target, || object.read().wait().unwrap_err());
    assert!(e.status == Status::Bounds && e.operation.contains("versioned") && e.text.len() > 40, "{:?}", e);
    // It changes each time that it is read.
    let summed = VersionedOptions { tries: 1, ..VersionedOptions::new(Form::Summed, LENGTH) };
    let mut object = s.ep.versioned(&s.key, 16384, &summed).unwrap();
    beside(&s.target, || s.ep.put(vec![9; 4096], &s.key, 16384).wait()).0.unwrap();
    let e = beside(&s.target, || object.read().wait().unwrap_err());
    assert!(e.status == Status::Again && !e.hint.is_empty(), "{:?}", e);
}

fn main() {
    for name in std::env::args().skip(1) {
        match &name[..] {
            "memory" => memory(),
            "endpoints" => endpoints(),
            "late" => late(),
            "untaken" => untaken(),
            "forgotten" => forgotten(),
            "fails" => fails(),
            "forked" => forked(),
            "texts" => texts(),
            _ => panic!("no scenario {}", name),
        }
        println!("ok {}", name);
    }
}
