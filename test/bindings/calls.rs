// SPDX-License-Identifier: BSD-3-Clause
//! Remote procedure calls with the crate xport.
//!
//!     calls serve             a callee under tokio
//!     calls serve_plain       a callee without a runtime
//!     calls ADDRESS NAME...   the caller: prints "ok NAME" for each
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xport::{CallError, CallOptions, Endpoint, Instance, Ran, Region, Request, Rpc, RpcOptions, Status};

static WAITING: AtomicUsize = AtomicUsize::new(0);

fn limit() -> Duration {
    let seconds = std::env::var("WAIT_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn pattern(seed: usize, n: usize) -> Vec<u8> {
    (0..n).map(|i| (seed + i * 7 + i / 251) as u8).collect()
}

fn reversed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().rev().copied().collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

struct Side {
    x: Instance,
    ep: Endpoint,
    rpc: Rpc,
}

impl Side {
    fn new(address: &str) -> Side {
        Side::with(address, &RpcOptions::default())
    }

    fn with(address: &str, options: &RpcOptions) -> Side {
        let x = xport::open().unwrap();
        let ep = x.connect_wait(address, b"", limit()).unwrap();
        let rpc = x.rpc(options).unwrap();
        Side { x, ep, rpc }
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.x.block_on_for(limit(), future).expect("not complete in time")
    }

    fn call(&self, method: &str, payload: &[u8]) -> Result<Vec<u8>, CallError> {
        self.wait(self.rpc.call(&self.ep, method, payload, limit()))
    }

    /// No handler waits for its caller any more.
    fn idle(&self) {
        let end = Instant::now() + limit();
        while self.call("waiting", b"").unwrap() != b"0" {
            assert!(Instant::now() < end, "a handler whose caller has gone still waits");
        }
    }

    fn end(self) {
        assert_eq!((self.x.orphans(), self.x.in_flight()), (0, 0));
        self.ep.close(limit()).unwrap();
    }
}

fn replies(address: &str) {
    let s = Side::new(address);
    assert_eq!(s.x.rpc(&RpcOptions::default()).err().unwrap().status, Status::Busy);
    for n in [0, 1, 3000, s.rpc.max_payload()] {
        assert_eq!(s.call("reverse", &pattern(n, n)).unwrap(), reversed(&pattern(n, n)));
    }
    // More than a peer takes at a time, and more than may be in progress.
    let many: Vec<_> = (0..1500).map(|i| s.rpc.call(&s.ep, "reverse", &pattern(i, 99), limit())).collect();
    for (i, one) in many.into_iter().enumerate() {
        assert_eq!(one.wait().unwrap(), reversed(&pattern(i, 99)));
    }
    let options = CallOptions { one_way: true, trace: [7; 24] };
    assert_eq!(s.wait(s.rpc.call_with(&s.ep, "keep", b"one way", limit(), &options)).unwrap(), b"");
    let kept = s.call("kept", b"").unwrap();
    assert_eq!(kept, [&b"one way"[..], &[7; 24][..], &b"true"[..]].concat());
    s.end();
}

fn errors(address: &str) {
    let s = Side::new(address);
    let e = s.call("fail", b"why not").unwrap_err();
    assert_eq!((e.error.status, e.ran, &e.error.text[..]), (Status::Bounds, Ran::Yes, "why not"));
    let e = s.call("nothing", b"").unwrap_err();
    assert_eq!((e.error.status, e.ran), (Status::NotSupported, Ran::No));
    let e = s.call("drop", b"").unwrap_err();
    assert_eq!((e.error.status, e.ran), (Status::Canceled, Ran::Yes));
    let e = s.call("long", b"").unwrap_err();
    assert_eq!((e.error.status, e.ran), (Status::Bounds, Ran::Yes));
    let e = s.call("reverse", &vec![0; s.rpc.max_payload() + 1]).unwrap_err();
    assert!(e.error.status == Status::Bounds && e.ran == Ran::No && !e.error.text.is_empty(), "{:?}", e);
    for name in ["not a name", "nul\0", ""] {
        let e = s.call(name, b"").unwrap_err();
        assert_eq!((e.error.status, e.ran), (Status::Invalid, Ran::No), "{:?}", name);
    }
    assert_eq!(s.rpc.register("xport.mine").unwrap_err().status, Status::Invalid);
    s.rpc.register("mine").unwrap();
    assert_eq!(s.rpc.register("mine").unwrap_err().status, Status::Busy);
    s.end();
}

fn deadlines(address: &str) {
    let s = Side::new(address);
    let begun = Instant::now();
    let e = s.wait(s.rpc.call(&s.ep, "never", b"", Duration::from_millis(50))).unwrap_err();
    assert_eq!(e.error.status, Status::Timeout);
    // The callee counts as well, and may report it first.
    assert!(begun.elapsed() >= Duration::from_millis(30));
    // Dropped, cancelled, forgotten: the callee is told, but of the last.
    drop(s.rpc.call(&s.ep, "never", b"", limit()));
    let call = s.rpc.call(&s.ep, "never", b"", limit());
    assert!(call.cancel());
    let e = s.wait(call).unwrap_err();
    assert_eq!(e.error.status, Status::Canceled);
    assert!(s.x.block_on_for(Duration::from_millis(1), s.rpc.call(&s.ep, "never", b"", limit())).is_none());
    s.idle();
    for i in 0..500u64 {
        let mut call = s.rpc.call(&s.ep, "reverse", &pattern(i as usize, 3000), limit());
        match i % 3 {
            0 => drop(call),
            1 => drop(call.wait_for(Duration::from_micros(i))),
            _ => std::mem::forget(call),
        }
    }
    assert_eq!(s.call("reverse", b"ab").unwrap(), b"ba");
    let end = Instant::now() + limit();
    while s.x.in_flight() > 0 {
        s.x.turn().unwrap();
        assert!(Instant::now() < end, "calls without a caller do not end");
    }
    s.end();
}

/// The callee writes into memory that the caller has lent.
fn loans(address: &str) {
    let s = Side::new(address);
    let region = s.x.alloc(4096, xport::REMOTE_WRITE).unwrap();
    let (call, loan) = s.rpc.lend(&s.ep, "fill", &region.key().unwrap(), limit(), &[&region]);
    assert_eq!(s.wait(call).unwrap(), b"");
    s.wait(loan).unwrap();
    let mut got = [0; 8];
    region.read_at(0, &mut got).unwrap();
    assert_eq!(&got, b"filled!!");
    // A call that is over, whose handler is at work: the loan is not over.
    let (call, mut loan) = s.rpc.lend(&s.ep, "hold", b"", Duration::from_millis(50), &[&region]);
    assert_eq!(s.wait(call).unwrap_err().error.status, Status::Timeout);
    assert!(s.x.block_on_for(Duration::from_millis(20), &mut loan).is_none());
    assert_eq!(region.clone().close().unwrap_err().status, Status::Busy);
    s.call("let go", b"").unwrap_err(); // a malformed name
    s.call("let-go", b"").unwrap();
    s.wait(&mut loan).unwrap();
    drop(loan);
    // A loan of a call that was refused, and one that nobody waits for.
    let (call, loan) = s.rpc.lend(&s.ep, "no name", b"", limit(), &[&region]);
    assert_eq!(s.wait(call).unwrap_err().error.status, Status::Invalid);
    s.wait(loan).unwrap();
    let (call, loan) = s.rpc.lend(&s.ep, "fill", &region.key().unwrap(), limit(), &[&region]);
    drop(loan);
    s.wait(call).unwrap();
    close(&s, region);
    s.end();
}

fn close(s: &Side, region: Region) {
    let end = Instant::now() + limit();
    while let Err(e) = region.clone().close() {
        // `region` itself is the other handle, until the loan is over.
        assert!(e.status == Status::Busy && Instant::now() < end);
        s.x.turn().unwrap();
        if s.x.in_flight() == 0 {
            break;
        }
    }
    drop(region);
}

fn tasks(address: &str) {
    runtime().block_on(async {
        let x = xport::open().unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect(address, b"").await.unwrap();
        let rpc = x.rpc(&RpcOptions::default()).unwrap();
        let tasks: Vec<_> = (0..50)
            .map(|g| {
                let (rpc, ep) = (rpc.clone(), ep.clone());
                tokio::spawn(async move {
                    for i in 0..40 {
                        let data = pattern(g * i, 100);
                        loop {
                            match rpc.call(&ep, "reverse", &data, limit()).await {
                                Ok(reply) => break assert_eq!(reply, reversed(&data)),
                                Err(e) if e.error.status == Status::Busy && e.ran == Ran::No => {
                                    tokio::time::sleep(e.retry_after).await
                                }
                                Err(e) => panic!("{}", e),
                            }
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // The driver sleeps without a limit: a call brings its deadline forward.  The callee says nothing.
        let late = rpc.call(&ep, "silent", b"", limit());
        tokio::time::sleep(Duration::from_millis(20)).await;
        for _ in 0..2 {
            let call = rpc.call(&ep, "silent", b"", Duration::from_millis(50));
            let result = tokio::time::timeout(limit() / 2, call).await;
            assert_eq!(result.expect("a deadline woke nobody").unwrap_err().error.status, Status::Timeout);
        }
        assert!(tokio::time::timeout(Duration::from_millis(20), late).await.is_err());
        // The other way round.
        rpc.register("here").unwrap();
        let callee = rpc.clone();
        tokio::spawn(async move {
            let request = callee.request().await.unwrap();
            assert_eq!(request.method(), "here");
            let reply = [request.payload(), b" and back"].concat();
            request.reply(&reply).unwrap();
        });
        assert_eq!(rpc.call(&ep, "back", b"there", limit()).await.unwrap(), b"there and back");
        ep.close(limit()).unwrap();
        let e = rpc.call(&ep, "reverse", b"", limit()).await.unwrap_err();
        assert_eq!((e.error.status, e.ran), (Status::Closed, Ran::No));
    });
}

/// The driver sleeps, and no heartbeat wakes it.
fn asleep(address: &str) {
    runtime().block_on(async {
        let x = xport::open().unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect(address, b"").await.unwrap();
        let rpc = x.rpc(&RpcOptions { max_calls: 2, ..Default::default() }).unwrap();
        let moment = Duration::from_millis(20);
        let mut calls: Vec<_> = (0..2).map(|_| rpc.call(&ep, "silent", b"", limit())).collect();
        assert!(tokio::time::timeout(moment, &mut calls[0]).await.is_err());
        let queued = rpc.call(&ep, "silent", b"", Duration::from_millis(50));
        let result = tokio::time::timeout(limit() / 2, queued).await.expect("a deadline in the queue woke nobody");
        let e = result.unwrap_err();
        assert_eq!((e.error.status, e.ran), (Status::Timeout, Ran::No));
        let mut queued = rpc.call(&ep, "silent", b"", limit());
        assert!(tokio::time::timeout(moment, &mut queued).await.is_err());
        for (call, ran) in [(queued, Ran::No), (calls.remove(0), Ran::Unknown)] {
            assert!(call.cancel());
            let result = tokio::time::timeout(limit() / 2, call).await.expect("a cancelled call woke nobody");
            let e = result.unwrap_err();
            assert_eq!((e.error.status, e.ran), (Status::Canceled, ran));
        }
        drop(calls);
        ep.close(limit()).unwrap();
    });
}

/// Calls beside an end of the instance.
fn ends(address: &str) {
    for i in 0..20 {
        let s = Side::new(address);
        let call = s.rpc.call(&s.ep, "never", b"", limit());
        s.x.turn().unwrap();
        match i % 3 {
            0 => drop(call),
            1 => std::mem::forget(call),
            _ => {
                s.ep.close(limit()).unwrap();
                let e = s.wait(call).unwrap_err();
                assert_eq!(e.error.status, Status::Closed);
            }
        }
    }
}

/// Against rpc_echo.c.
/// Of scenarios.txt: the callee may be that in C.
fn call(address: &str) {
    let s = Side::new(address);
    assert_eq!(s.call("echo", b"from Rust").unwrap(), b"from Rust");
    let e = s.call("nothing", b"").unwrap_err();
    assert_eq!((e.error.status, e.ran), (Status::NotSupported, Ran::No));
    assert_eq!(s.call("echo", b"").unwrap(), b"");
    s.end();
}

fn echo(address: &str) {
    let s = Side::new(address);
    assert_eq!(s.call("echo", b"from Rust").unwrap(), b"from Rust");
    assert_eq!(s.call("length", &[0; 12]).unwrap(), b"12 bytes");
    s.end();
}

// ---- the callee ----

#[derive(Default)]
struct Callee {
    kept: Vec<u8>,
    held: Vec<Request>,
}

/// Replies at once, or returns the request.
fn handle(c: &mut Callee, request: Request) -> Option<Request> {
    let payload = request.payload().to_vec();
    let _ = match request.method() {
        "echo" => request.reply(&payload),
        "reverse" => request.reply(&reversed(&payload)),
        "fail" => request.fail(Status::Bounds, std::str::from_utf8(&payload).unwrap()),
        "drop" => Ok(drop(request)),
        "long" => {
            let e = request.reply(&vec![0; 1 << 20]).unwrap_err();
            assert_eq!(e.status, Status::Bounds);
            Ok(())
        }
        "keep" => {
            c.kept = [&payload[..], &request.trace()[..], request.is_one_way().to_string().as_bytes()].concat();
            request.reply(b"")
        }
        "kept" => request.reply(&c.kept),
        "hold" | "silent" => {
            assert_eq!(request.is_lent(), request.method() == "hold");
            c.held.push(request);
            Ok(())
        }
        "let-go" => {
            for held in c.held.drain(..) {
                assert_eq!(held.reply(b"").unwrap_err().status, Status::Canceled);
            }
            request.reply(b"")
        }
        "waiting" => request.reply(WAITING.load(Ordering::SeqCst).to_string().as_bytes()),
        _ => return Some(request),
    };
    None
}

async fn later(rpc: Rpc, request: Request) {
    let ep = request.endpoint().unwrap().clone();
    match request.method() {
        "fill" => {
            let key = ep.unpack(request.payload()).unwrap();
            ep.put(b"filled!!", &key, 0).await.0.unwrap();
            request.reply(b"").unwrap();
        }
        "back" => {
            let reply = rpc.call(&ep, "here", request.payload(), request.deadline()).await.unwrap();
            request.reply(&reply).unwrap();
        }
        "never" => {
            WAITING.fetch_add(1, Ordering::SeqCst);
            while request.left().map_or(false, |left| !left.is_zero()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            WAITING.fetch_sub(1, Ordering::SeqCst);
        }
        other => panic!("no method {}", other),
    }
}

const METHODS: [&str; 13] =
    ["echo", "silent", "reverse", "fail", "drop", "long", "keep", "kept", "hold", "let-go", "waiting", "fill", "back"];

async fn serve() {
    let x = xport::open().unwrap();
    xport::drive(&x).unwrap();
    let rpc = x.rpc(&RpcOptions::default()).unwrap();
    METHODS.iter().chain(&["never"]).for_each(|m| rpc.register(m).unwrap());
    let listener = x.listen("127.0.0.1:0", b"").unwrap();
    println!("{}", listener.address());
    let keeper = Arc::new(listener);
    tokio::spawn(async move {
        let mut peers = Vec::new();
        loop {
            peers.push(keeper.accept().await.unwrap());
        }
    });
    let mut callee = Callee::default();
    loop {
        let request = rpc.request().await.unwrap();
        if let Some(request) = handle(&mut callee, request) {
            tokio::spawn(later(rpc.clone(), request));
        }
    }
}

fn serve_plain() {
    let x = xport::open().unwrap();
    let rpc = x.rpc(&RpcOptions::default()).unwrap();
    METHODS[..11].iter().for_each(|m| rpc.register(m).unwrap());
    let listener = x.listen("127.0.0.1:0", b"").unwrap();
    println!("{}", listener.address());
    let mut callee = Callee::default();
    let mut peers = vec![x.block_on(listener.accept()).unwrap()];
    loop {
        if let Some(Ok(request)) = x.block_on_for(Duration::from_millis(20), rpc.request()) {
            assert!(handle(&mut callee, request).is_none());
        }
        if let Some(Ok(peer)) = x.block_on_for(Duration::ZERO, listener.accept()) {
            peers.push(peer);
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let role = args.next().expect("serve, serve_plain or an address");
    match &role[..] {
        "serve" => runtime().block_on(serve()),
        "serve_plain" => serve_plain(),
        _ => {}
    }
    for name in args {
        match &name[..] {
            "replies" => replies(&role),
            "errors" => errors(&role),
            "deadlines" => deadlines(&role),
            "loans" => loans(&role),
            "tasks" => tasks(&role),
            "asleep" => asleep(&role),
            "ends" => ends(&role),
            "call" => call(&role),
            "echo" => echo(&role),
            _ => panic!("no scenario {}", name),
        }
        println!("ok {}", name);
    }
}
