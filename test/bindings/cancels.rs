// SPDX-License-Identifier: BSD-3-Clause
//! Many operations without a caller beside a stopped peer.
//!
//!     cancels ADDRESS cancels   the target is that of scenarios.rs: prints "ok cancels"
//!
//! Until its completion, the memory of an operation must be in no other buffer.  So the memory that is free again gets other
//! bytes, and the peer then goes on: neither the operations nor that memory may have changed.
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use xport::{Buf, Endpoint, Event, Instance, Operation, Options, Output, Pool, RemoteKey};

const PIECE: usize = 4099;

// ---- blocks of that size are counted ----

static IN_USE: AtomicUsize = AtomicUsize::new(0);

struct Counted;

unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() == PIECE {
            IN_USE.fetch_add(1, Ordering::SeqCst);
        }
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if layout.size() == PIECE {
            IN_USE.fetch_sub(1, Ordering::SeqCst);
        }
        System.dealloc(p, layout)
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

fn limit() -> Duration {
    let seconds = std::env::var("WAIT_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn signal(pid: i32, number: i32) {
    // SAFETY: the peer, which run.sh has started.
    assert_eq!(unsafe { kill(pid, number) }, 0);
}

/// Whether each thread of a process has stopped.
fn is_stopped(pid: i32) -> bool {
    std::fs::read_dir(format!("/proc/{}/task", pid)).unwrap().all(|task| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    })
}

/// kill only asks for it.
fn stop(pid: i32) {
    let end = Instant::now() + limit();
    signal(pid, SIGSTOP);
    while !is_stopped(pid) {
        assert!(Instant::now() < end, "the process does not stop");
    }
}

/// The caller goes away.
fn give_up<T: Output>(mut operation: Operation<T>, way: usize) {
    match way % 3 {
        0 => drop(operation),
        1 => drop(operation.cancel()),
        _ => drop(operation.wait_for(Duration::ZERO)),
    }
}

struct Side {
    x: Instance,
    ep: Endpoint,
    key: RemoteKey,
    pool: Pool,
    bytes: Vec<u8>,
}

impl Side {
    /// The bytes of message or put i.
    fn piece(&self, i: usize) -> &[u8] {
        &self.bytes[i % 250..i % 250 + PIECE]
    }

    /// Every other one is registered.
    fn buffer(&self, i: usize) -> Buf {
        match i % 2 {
            0 => self.pool.take().unwrap(),
            _ => Buf::zeroed(PIECE),
        }
    }

    fn filled(&self, i: usize) -> Buf {
        let mut buf = self.buffer(i);
        buf.copy_from_slice(self.piece(i));
        buf
    }

    /// Buffers in use.
    fn held(&self) -> usize {
        self.pool.in_use() + IN_USE.load(Ordering::SeqCst)
    }

    /// Gives up operations of each kind.  Returns the memory that is free again.
    fn batch(&self, each: usize, cancelable: bool) -> Vec<Buf> {
        let (ep, key, before) = (&self.ep, &self.key, self.held());
        let mut fetched = HashSet::new();
        for i in 0..each {
            let get = self.buffer(i + 1);
            fetched.insert(get.as_ptr());
            give_up(ep.put(self.filled(i), key, (i % 250 * PIECE) as u64), i);
            let send = self.filled(i);
            give_up(if cancelable { ep.cancelable().send(send, 1) } else { ep.send(send, 1) }, i / 2);
            give_up(ep.get(get, key, 0), i / 4);
            give_up(ep.recv(self.buffer(i), 2), i / 8);
        }
        self.x.turn().unwrap();
        let (orphans, held) = (self.x.orphans(), self.held() - before);
        let others: Vec<_> = (0..4 * each).map(|i| self.buffer(i)).collect();
        assert!(others.iter().all(|buf| !fetched.contains(&buf.as_ptr())), "memory in flight is in another buffer");
        assert!(orphans >= each && held == orphans, "{} orphans have {} buffers", orphans, held);
        others.into_iter().map(junk).collect()
    }

    /// The peer goes on: so do the operations, with the bytes that they had.
    fn resumed(&self, pid: i32, each: usize) {
        signal(pid, SIGCONT);
        for i in 0..each {
            let (got, mut buf) = self.ep.recv(Buf::zeroed(PIECE), 2).wait_for(limit()).expect("no answer");
            assert_eq!(got.unwrap().length, PIECE);
            buf.reverse();
            assert!(buf[..] == *self.piece(i), "message {}", i);
        }
        self.x.block_on_for(limit(), self.ep.flush()).expect("not complete in time").unwrap();
        let end = Instant::now() + limit();
        while self.x.in_flight() > 0 {
            assert!(Instant::now() < end, "{} orphans", self.x.orphans());
            self.x.turn().unwrap();
        }
        let (got, buf) = self.ep.get(vec![0; each * PIECE], &self.key, 0).wait();
        got.unwrap();
        assert!((0..each).all(|i| buf[i * PIECE..(i + 1) * PIECE] == *self.piece(i)));
    }

    /// Waits for the loss of the peer, after at most 1.5 peer timeouts; longer, if this process itself did not run.
    fn lost(&self, begun: Instant) {
        let longest = Duration::from_millis(self.x.info().unwrap().peer_timeout_ms as u64) * 3 / 2;
        let mut gap = Duration::ZERO;
        while self.x.in_flight() > 0 {
            let last = Instant::now();
            let _ = self.x.block_on_for(Duration::from_millis(20), std::future::pending::<()>());
            gap = gap.max(last.elapsed());
            assert!(begun.elapsed() < limit(), "{} orphans", self.x.orphans());
        }
        let took = begun.elapsed();
        assert!(took < longest || gap > Duration::from_millis(500) && took < 2 * longest, "{:?}, {:?}", took, gap);
    }
}

fn junk(mut buf: Buf) -> Buf {
    buf.copy_from_slice(&[0xdd; PIECE]); // much faster than fill, where nothing is optimized
    buf
}

fn intact(others: &[Buf]) -> bool {
    others.iter().all(|buf| buf[..] == [0xdd; PIECE])
}

fn cancels(address: &str) {
    // Else a get from memory that is mapped here completes beside a stopped peer.
    let mapped = std::env::var("XPORT_BACKEND").map_or(false, |name| name.ends_with("shm"));
    let emulate = mapped.then(|| "get".to_string());
    let x = Instance::open(&Options { emulate, ..Default::default() }).unwrap();
    let ep = x.connect_wait(address, b"", limit()).unwrap();
    let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
    let (pool, pid) = (x.pool(PIECE), ep.info().unwrap().peer_pid as i32);
    let bytes = (0..2 * PIECE).map(|i| (i * 7 + i / 251) as u8).collect();
    let s = Side { x, ep, key, pool, bytes };
    for _ in 0..4 {
        stop(pid);
        let others = s.batch(125, false);
        s.resumed(pid, 125);
        assert!(intact(&others));
    }
    assert_eq!((s.x.orphans(), s.held()), (0, 0));
    stop(pid);
    let others = s.batch(2000, true);
    s.lost(Instant::now());
    signal(pid, SIGCONT);
    let _ = s.x.block_on_for(Duration::from_millis(200), std::future::pending::<()>());
    assert!(intact(&others));
    drop(others);
    assert_eq!((s.x.orphans(), s.held()), (0, 0));
    match s.x.block_on_for(limit(), s.x.event()).unwrap().unwrap() {
        Event::Lost(ep, _) => assert!(ep == s.ep),
        other => panic!("{:?}", other),
    }
    signal(pid, SIGKILL);
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    assert!(args.len() == 2 && args[1] == "cancels", "cancels ADDRESS cancels");
    cancels(&args[0]);
    println!("ok cancels");
}
