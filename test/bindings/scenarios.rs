// SPDX-License-Identifier: BSD-3-Clause
//! The scenarios of scenarios.txt with the crate xport.
//!
//!     scenarios serve             the target, as peer.c
//!     scenarios ADDRESS NAME...   the initiator: prints "ok NAME" for each
//!     scenarios ADDRESS wakeups   not in the table: WAKEUPS messages and answers under tokio, with pauses
use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use xport::{Atomic, Buf, ConnOptions, Endpoint, Event, Instance, Message, Operation, Options, RemoteKey, Status};

const REGION: usize = 1 << 20;
const MESSAGE: usize = 1 << 18;
const ALL: u32 = xport::REMOTE_READ | xport::REMOTE_WRITE | xport::REMOTE_ATOMIC;

// ---- freed memory is poisoned, and blocks of one size are counted ----

const WATCHED: usize = 12345;
static FREED: AtomicUsize = AtomicUsize::new(0);

struct Poison;

unsafe impl GlobalAlloc for Poison {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if layout.size() == WATCHED {
            FREED.fetch_add(1, Ordering::SeqCst);
        }
        std::ptr::write_bytes(p, 0xdd, layout.size());
        System.dealloc(p, layout)
    }
}

#[global_allocator]
static POISON: Poison = Poison;

extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}
const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

fn limit() -> Duration {
    let seconds = std::env::var("WAIT_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn pattern(seed: usize, n: usize) -> Vec<u8> {
    (0..n).map(|i| (seed + i * 7 + i / 251) as u8).collect()
}

fn word(n: u64) -> [u8; 8] {
    n.to_ne_bytes()
}

/// One connection to the target.
struct Side {
    x: Instance,
    ep: Endpoint,
    key: RemoteKey,
}

impl Side {
    fn new(address: &str) -> Side {
        Side::with(address, &Options::default())
    }

    fn with(address: &str, options: &Options) -> Side {
        let x = Instance::open(options).unwrap();
        let ep = x.connect_wait(address, b"", limit()).unwrap();
        let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
        Side { x, ep, key }
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.x.block_on_for(limit(), future).expect("not complete in time")
    }

    fn ask(&self, message: &[u8]) -> (Message, Vec<u8>) {
        let answer = self.ep.recv(Buf::zeroed(MESSAGE), 2);
        let (sent, _) = self.wait(self.ep.send(message, 1));
        sent.unwrap();
        let (got, buf) = self.wait(answer);
        let got = got.unwrap();
        let mut bytes = buf.into_vec();
        bytes.truncate(got.length);
        (got, bytes)
    }

    fn end(self) {
        self.ep.close(limit()).unwrap();
        assert_eq!((self.x.orphans(), self.x.in_flight()), (0, 0));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn connect(address: &str) {
    let s = Side::new(address);
    let info = s.ep.info().unwrap();
    assert!(info.is_open && info.peer_pid > 1 && s.key.length() == REGION as u64);
    assert!(!info.backend.is_empty() && !info.provider.is_empty() && info.passed_over.is_empty());
    let e = s.x.connect_wait("127.0.0.1:1", b"", limit()).unwrap_err();
    assert_eq!(e.status, Status::Refused);
    assert!(e.operation == "xport_connect" && !e.hint.is_empty() && e.to_string().contains(&e.text));
    assert_eq!(io::Error::from(e).kind(), io::ErrorKind::ConnectionRefused);
    let e = s.x.block_on(s.x.connect("127.0.0.1:1", b"")).unwrap_err();
    assert_eq!(e.status, Status::Refused);
    let own = format!("{}:{}", info.backend, info.provider);
    let over = |names| ConnOptions { transports: Some(names), ..Default::default() };
    let e = s.x.block_on(s.x.connect_with(address, &over("nowhere"))).unwrap_err();
    assert!(e.status == Status::Invalid && e.text.contains("nowhere"), "{}", e);
    assert_eq!(s.x.listen_with("127.0.0.1:0", &over("nowhere")).err().unwrap().status, Status::Invalid);
    let ep = s.ep.clone();
    s.end();
    assert!(!ep.info().unwrap().is_open);
    drop(ep);
    runtime().block_on(async {
        let x = xport::open().unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect_with(address, &over(&own)).await.unwrap();
        assert!(ep.info().unwrap().is_open);
        let e = x.connect("127.0.0.1:1", b"").await.unwrap_err();
        assert_eq!((e.status, &e.operation[..]), (Status::Refused, "xport_connect"));
        let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
        ep.close(limit()).unwrap();
        let (result, buf) = ep.put(b"1", &key, 0).await;
        assert_eq!((result.unwrap_err().status, &buf[..]), (Status::Closed, &b"1"[..]));
    });
}

fn put(address: &str) {
    let s = Side::new(address);
    let (done, back) = s.wait(s.ep.put(pattern(1, 300001), &s.key, 17));
    done.unwrap();
    assert_eq!(back.into_vec(), pattern(1, 300001));
    s.ep.fence().unwrap();
    let mut buf = s.x.buffer(8).unwrap(); // registered
    buf.copy_from_slice(&pattern(2, 8));
    s.ep.put(buf, &s.key, 400000).wait().0.unwrap();
    s.wait(s.ep.flush()).unwrap();
    let (done, buf) = s.wait(s.ep.get(Buf::zeroed(300001), &s.key, 17));
    done.unwrap();
    assert!(buf[..] == pattern(1, 300001)[..]);
    let (done, buf) = s.wait(s.ep.get(Buf::zeroed(8), &s.key, 400000));
    done.unwrap();
    assert!(buf[..] == pattern(2, 8)[..]);
    s.end();
    runtime().block_on(async {
        let x = xport::open().unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect(address, b"").await.unwrap();
        let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
        let many: Vec<_> = (0..50).map(|i| ep.put(pattern(9, 5000), &key, 5000 * i)).collect();
        for one in many {
            one.await.0.unwrap();
        }
        for i in 0..100 {
            ep.put(word(i), &key, 8).await.0.unwrap();
        }
        let (done, buf) = ep.get([0; 8], &key, 8).await;
        done.unwrap();
        assert_eq!(buf[..], word(99));
        ep.flush().await.unwrap();
        ep.close(limit()).unwrap();
    });
}

fn get(address: &str) {
    let s = Side::new(address);
    let data = pattern(3, 70001);
    s.wait(s.ep.put(&data[..], &s.key, 5)).0.unwrap();
    let (done, buf) = s.wait(s.ep.get(Buf::zeroed(data.len()), &s.key, 5));
    done.unwrap();
    assert!(buf[..] == data[..]);
    for region in [s.x.alloc(100000, 0).unwrap(), s.x.register(vec![0; 100000], ALL).unwrap()] {
        let part = region.part(7, data.len()).unwrap();
        s.wait(s.ep.get_part(part, &s.key, 5)).unwrap();
        let mut got = vec![0; data.len()];
        region.read_at(7, &mut got).unwrap();
        assert!(got == data);
        region.write_at(3, &pattern(4, 999)).unwrap();
        let part = region.part(3, 999).unwrap();
        s.wait(s.ep.put_part(part.clone(), &s.key, 90000)).unwrap();
        let (done, buf) = s.wait(s.ep.get(Buf::zeroed(999), &s.key, 90000));
        done.unwrap();
        assert!(buf[..] == pattern(4, 999)[..]);
        let out = region.read_at(region.len() - 7, &mut [0; 8]);
        assert_eq!(out.unwrap_err().status, Status::Bounds);
        assert!(region.atomic_u64(4).is_err() && region.part(1, 100000).is_err());
        region.atomic_u64(8).unwrap().store(1, Ordering::Relaxed);
        let e = region.clone().close().unwrap_err();
        assert_eq!(e.status, Status::Busy);
        drop(part);
        region.close().unwrap();
    }
    s.end();
}

fn notify(address: &str) {
    let s = Side::new(address);
    let put = s.ep.put_notify(pattern(4, 4099), &s.key, 1000, 0xfeed_face_cafe_beef);
    s.wait(put).0.unwrap();
    assert_eq!(s.ask(b"N").1, word(0xfeed_face_cafe_beef));
    s.end();
}

fn atomics(address: &str) {
    let s = Side::new(address);
    s.wait(s.ep.put(word(100), &s.key, 800)).0.unwrap();
    s.ep.fence().unwrap();
    let atomic = |a| s.wait(s.ep.atomic(a, &s.key, 800)).unwrap();
    assert_eq!(atomic(Atomic::Add(41)), 100);
    let swap = |expected, new| Atomic::CompareAndSwap { expected, new };
    assert_eq!(atomic(swap(141, 7)), 141);
    assert_eq!(atomic(swap(141, 8)), 7);
    assert_eq!(atomic(Atomic::Or(8)), 7);
    assert_eq!(atomic(Atomic::And(9)), 15);
    assert_eq!(atomic(Atomic::Xor(1)), 9);
    assert_eq!(atomic(Atomic::Swap(1)), 8);
    let e = s.wait(s.ep.atomic(Atomic::Add(1), &s.key, 801)).unwrap_err();
    assert_eq!(e.status, Status::Invalid);
    s.end();
}

fn messages(address: &str) {
    let s = Side::new(address);
    for n in [1, 100, 0, 5000, 200003] {
        let mut data = pattern(5, n);
        let (m, bytes) = s.ask(&data);
        data.reverse();
        assert!(bytes == data);
        assert!(m.tag == 2 && m.endpoint.unwrap() == s.ep);
    }
    s.end();
}

fn watched() -> Vec<u8> {
    vec![0; WATCHED]
}

fn cancel(address: &str) {
    let s = Side::new(address);
    let mut operation = s.x.recv(watched(), 99, u64::MAX);
    assert!(!operation.is_done() && operation.cancel());
    let (result, buf) = operation.wait_for(limit()).unwrap();
    assert_eq!((result.unwrap_err().status, buf.len()), (Status::Canceled, WATCHED));
    // None of these takes the answer below.
    let before = FREED.load(Ordering::SeqCst);
    let mut late = s.ep.recv(watched(), 2);
    assert!(late.wait_for(Duration::from_millis(1)).is_none());
    drop(late);
    assert!(s.x.block_on_for(Duration::from_millis(1), s.ep.recv(watched(), 2)).is_none());
    drop(s.ep.recv(watched(), 2));
    let (m, bytes) = s.ask(b"ab");
    assert!(m.length == 2 && bytes == b"ba");
    s.wait(s.ep.flush()).unwrap();
    assert_eq!(s.x.orphans(), 0);
    assert_eq!(FREED.load(Ordering::SeqCst) - before, 3);
    // Dropped and forgotten in the middle: the memory is poisoned when it is freed, which must be after its use.
    for i in 0..1000u64 {
        let data = pattern(i as usize, WATCHED);
        let mut operation = s.ep.put(data, &s.key, 0);
        let get = s.ep.get(watched(), &s.key, 0);
        match i % 4 {
            0 => drop(operation),
            1 => drop(operation.wait_for(Duration::from_micros(i % 50))),
            2 => drop(s.x.block_on_for(Duration::from_micros(i % 50), operation)),
            _ => std::mem::forget(operation),
        }
        drop(get);
        if i % 100 == 99 {
            s.wait(s.ep.flush()).unwrap();
            let (done, buf) = s.wait(s.ep.get(watched(), &s.key, 0));
            done.unwrap();
            assert!(buf[..] == pattern(i as usize, WATCHED)[..]);
        }
    }
    s.wait(s.ep.flush()).unwrap();
    assert_eq!(s.x.orphans(), 0);
    s.end();
    runtime().block_on(cancel_async(address));
}

/// Operations that the peer never matches.
fn deadline(address: &str) {
    let s = Side::new(address);
    let soon = s.ep.within(Duration::from_millis(50));
    let begun = Instant::now();
    let (result, buf) = s.wait(soon.recv(watched(), 99));
    assert_eq!((result.unwrap_err().status, buf.len()), (Status::Timeout, WATCHED));
    let (result, _) = s.wait(s.x.recv_within(watched(), 99, u64::MAX, Duration::from_millis(1)));
    assert_eq!(result.unwrap_err().status, Status::Timeout);
    let (result, buf) = s.wait(soon.send(pattern(1, 3 << 20), 99)); // longer than eager_max
    assert_eq!((result.unwrap_err().status, &buf[..]), (Status::Timeout, &pattern(1, 3 << 20)[..]));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    let (result, _) = s.wait(s.ep.within(limit()).put([1], &s.key, 0));
    result.unwrap();
    // The peer takes none of these either.
    let send = s.ep.cancelable().send(pattern(2, 3 << 20), 99);
    assert!(send.cancel());
    assert_eq!(s.wait(send).0.unwrap_err().status, Status::Canceled);
    drop(s.ep.cancelable().send(pattern(3, 3 << 20), 99));
    let end = Instant::now() + limit();
    while s.x.in_flight() > 0 {
        assert!(Instant::now() < end, "a send without a caller is not cancelled");
        s.x.turn().unwrap();
    }
    let (result, _) = s.wait(s.ep.within(Duration::MAX).put([1], &s.key, 0));
    result.unwrap();
    assert!(s.ep.info().unwrap().is_open);
    s.end();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(queued_deadline(address));
}

/// Operations that wait for space, which never comes.
async fn queued_deadline(address: &str) {
    let x = Instance::open(&Options { queue_depth: 4, ..Default::default() }).unwrap();
    xport::drive(&x).unwrap();
    let ep = x.connect(address, b"").await.unwrap();
    let _held: Vec<_> = (0..8).map(|i| ep.send(pattern(i, 3 << 20), 99)).collect();
    tokio::time::sleep(Duration::from_millis(20)).await; // the driver sleeps without a limit
    let begun = Instant::now();
    let late = ep.within(Duration::from_millis(50)).send(pattern(1, 100), 99);
    let (result, buf) = tokio::time::timeout(limit(), late).await.expect("a deadline woke nobody");
    assert_eq!((result.unwrap_err().status, &buf[..]), (Status::Timeout, &pattern(1, 100)[..]));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    let other = ep.send(pattern(2, 100), 99);
    assert!(other.cancel());
    let (result, buf) = tokio::time::timeout(limit(), other).await.expect("cancelled, and goes on");
    assert_eq!((result.unwrap_err().status, &buf[..]), (Status::Canceled, &pattern(2, 100)[..]));
}

async fn cancel_async(address: &str) {
    let x = xport::open().unwrap();
    xport::drive(&x).unwrap();
    let ep = x.connect(address, b"").await.unwrap();
    let waiting = ep.recv(watched(), 2);
    assert!(tokio::time::timeout(Duration::from_millis(10), waiting).await.is_err());
    let other = ep.clone();
    let task = tokio::spawn(async move { other.recv(watched(), 2).await });
    tokio::task::yield_now().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    ep.flush().await.unwrap();
    assert_eq!(x.orphans(), 0);
    ep.close(limit()).unwrap();
}

fn wrong_key(address: &str) {
    let s = Side::new(address);
    let e = s.ep.unpack(&[0; 64]).err().unwrap();
    assert!(e.status == Status::BadKey && !e.text.is_empty());
    let (result, buf) = s.wait(s.ep.put([7; 8], &s.key, REGION as u64 - 7));
    let e = result.unwrap_err();
    assert!(e.status == Status::Bounds && !e.text.is_empty() && e.operation == "xport_put");
    assert_eq!(buf[..], [7; 8]);
    s.end();
}

fn again(address: &str) {
    let options = Options { queue_depth: 4, ..Options::default() };
    let s = Side::with(address, &options);
    let mut posted = Vec::new();
    let (e, buf) = loop {
        match s.ep.try_put([7], &s.key, 8) {
            Ok(operation) => posted.push(operation),
            Err(refused) => break refused,
        }
        assert!(posted.len() < 100);
    };
    assert!(e.is_retryable() && posted.len() == 4 && buf[..] == [7]);
    assert_eq!(io::Error::from(e).kind(), io::ErrorKind::WouldBlock);
    posted.extend((0..200).map(|i| s.ep.put(word(i), &s.key, 8)));
    assert_eq!(s.x.in_flight(), 204);
    drop(posted.remove(100)); // it waits, and is never posted
    assert_eq!((s.x.in_flight(), s.x.orphans()), (203, 0));
    for operation in posted {
        s.wait(operation).0.unwrap();
    }
    let (done, buf) = s.wait(s.ep.get([0; 8], &s.key, 8));
    done.unwrap();
    assert_eq!(buf[..], word(199));
    s.end();
    runtime().block_on(async {
        let x = Instance::open(&options).unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect(address, b"").await.unwrap();
        let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
        let many: Vec<_> = (0..200).map(|i| ep.put(word(i), &key, 8)).collect();
        for one in many {
            one.await.0.unwrap();
        }
        ep.close(limit()).unwrap();
    });
}

fn forked(address: &str) {
    let s = Side::new(address);
    // SAFETY: one thread.
    let child = unsafe { fork() };
    if child == 0 {
        let (result, _) = s.ep.put([1], &s.key, 0).wait();
        let good = result.map_err(|e| e.status) == Err(Status::Fork);
        // SAFETY: ends the child.
        unsafe { _exit(if good { 0 } else { 1 }) }
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    s.end();
}

fn lost(address: &str, signal: i32) {
    let s = Side::new(address);
    let pid = s.ep.info().unwrap().peer_pid as i32;
    let mut waiting = s.ep.recv(Buf::zeroed(100), 2);
    let before = FREED.load(Ordering::SeqCst);
    let freed = || FREED.load(Ordering::SeqCst) - before;
    // SAFETY: the peer, which run.sh has started.
    assert_eq!(unsafe { kill(pid, signal) }, 0);
    let count: usize = std::env::var("ABANDONED").ok().and_then(|s| s.parse().ok()).unwrap_or(100);
    for _ in 0..count {
        drop(s.ep.get(watched(), &s.key, 0));
    }
    assert_eq!((s.x.orphans(), freed()), (count, 0));
    let (result, _) = waiting.wait_for(limit()).unwrap();
    let e = result.unwrap_err();
    assert!(e.status == Status::PeerLost && !e.text.is_empty(), "{:?}", e);
    assert_eq!(io::Error::from(e).kind(), io::ErrorKind::ConnectionReset);
    let end = Instant::now() + limit();
    while s.x.orphans() > 0 && Instant::now() < end {
        s.x.turn().unwrap();
    }
    assert_eq!((s.x.in_flight(), freed()), (0, count));
    match s.wait(s.x.event()).unwrap() {
        Event::Lost(ep, e) => assert!(ep == s.ep && e.status == Status::PeerLost),
        other => panic!("{:?}", other),
    }
    let (result, _) = s.wait(s.ep.put([1], &s.key, 0));
    assert_eq!(result.unwrap_err().status, Status::PeerLost);
    // SAFETY: it may have ended already.
    unsafe { kill(pid, SIGKILL) };
}

/// A wake-up that is lost shows as a message without an answer.
fn wakeups(address: &str) {
    let n = std::env::var("WAKEUPS").ok().and_then(|s| s.parse().ok());
    let n: u64 = n.unwrap_or(10_000);
    runtime().block_on(async {
        let x = xport::open().unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect(address, b"").await.unwrap();
        let mut random = 1u64;
        for i in 0..n {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            match random >> 60 {
                0 => tokio::time::sleep(Duration::from_micros(random >> 32 & 511)).await,
                1 => std::thread::sleep(Duration::from_micros(random >> 32 & 127)),
                2..=4 => tokio::task::yield_now().await,
                _ => {}
            }
            let exchange = async {
                let answer = ep.recv([0; 8], 2);
                ep.send(word(i), 1).await.0.unwrap();
                let (got, mut buf) = answer.await;
                got.unwrap();
                buf.reverse();
                assert_eq!(buf[..], word(i));
            };
            // The timer itself polls the future, which is complete if a wake-up was lost: so the time counts.
            let begun = Instant::now();
            let _ = tokio::time::timeout(limit(), exchange).await;
            assert!(begun.elapsed() < limit(), "no answer to message {}", i);
        }
        ep.close(limit()).unwrap();
    });
}

// ---- the target ----

enum Either<A, B> {
    A(A),
    B(B),
}

/// The first of two futures; the first one may be missing.
struct Select<'a, A, B>(&'a mut Option<A>, &'a mut B);

impl<A: Future + Unpin, B: Future + Unpin> Future for Select<'_, A, B> {
    type Output = Either<A::Output, B::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(a) = self.0.as_mut() {
            if let Poll::Ready(got) = Pin::new(a).poll(cx) {
                *self.0 = None;
                return Poll::Ready(Either::A(got));
            }
        }
        Pin::new(&mut *self.1).poll(cx).map(Either::B)
    }
}

fn receive(ep: &Endpoint) -> Operation<(xport::Result<Message>, Buf)> {
    ep.recv(Buf::zeroed(MESSAGE), 1)
}

async fn serve_one(x: &Instance, ep: &Endpoint) {
    let mut request = Some(receive(ep));
    let (mut wanted, mut value) = (false, None);
    let mut event = x.event();
    loop {
        let mut answer = None;
        match Select(&mut request, &mut event).await {
            Either::A((Ok(m), buf)) => {
                let mut bytes = buf.into_vec();
                bytes.truncate(m.length);
                bytes.reverse();
                wanted = bytes == b"N";
                if !wanted {
                    answer = Some(bytes);
                }
            }
            Either::A((Err(_), _)) => {} // the event of its end follows
            Either::B(Ok(Event::Notify { value: v, .. })) => value = Some(v),
            Either::B(Ok(Event::Closed(e) | Event::Lost(e, _))) if e == *ep => return,
            Either::B(Ok(_)) => {}
            Either::B(Err(e)) => panic!("{}", e),
        }
        if wanted && value.is_some() {
            wanted = false;
            answer = value.take().map(|v| word(v).to_vec());
        }
        if let Some(bytes) = answer {
            let _ = ep.send(bytes, 2).await;
            request = Some(receive(ep));
        }
    }
}

async fn serve() {
    let x = xport::open().unwrap();
    xport::drive(&x).unwrap();
    let region = x.alloc(REGION, ALL).unwrap();
    let listener = x.listen("127.0.0.1:0", &region.key().unwrap()).unwrap();
    println!("{}", listener.address());
    loop {
        let ep = listener.accept().await.unwrap();
        serve_one(&x, &ep).await;
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let role = args.next().expect("serve, or an address");
    if role == "serve" {
        runtime().block_on(serve());
    }
    for name in args {
        match &name[..] {
            "connect" => connect(&role),
            "put" => put(&role),
            "get" => get(&role),
            "notify" => notify(&role),
            "atomics" => atomics(&role),
            "messages" => messages(&role),
            "cancel" => cancel(&role),
            "deadline" => deadline(&role),
            "wrong_key" => wrong_key(&role),
            "again" => again(&role),
            "fork" => forked(&role),
            "kill" => lost(&role, SIGKILL),
            "stop" => lost(&role, SIGSTOP),
            "wakeups" => wakeups(&role),
            _ => panic!("no scenario {}", name),
        }
        println!("ok {}", name);
    }
}
