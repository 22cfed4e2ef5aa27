// SPDX-License-Identifier: BSD-3-Clause
//! Operations that wait, and `Exclusive`.
//!
//!     waits ADDRESS NAME...   the target is that of scenarios.rs: prints "ok NAME" for each; `stopped` ends the target
use std::time::{Duration, Instant};
use xport::{Buf, Endpoint, Instance, Options, RemoteKey, Status};

extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}
const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;
const LONG: usize = 200_001;

fn limit() -> Duration {
    let seconds = std::env::var("WAIT_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn connected(address: &str, options: &Options) -> (Instance, Endpoint, RemoteKey) {
    let x = Instance::open(options).unwrap();
    let ep = x.connect_wait(address, b"", limit()).unwrap();
    let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
    (x, ep, key)
}

fn filled(seed: usize, n: usize) -> Buf {
    let bytes: Vec<u8> = (0..n).map(|i| (seed + i * 3) as u8).collect();
    bytes.into()
}

fn end(x: &Instance, ep: &Endpoint) {
    ep.close(limit()).unwrap();
    assert_eq!((x.orphans(), x.in_flight()), (0, 0));
}

fn waits(address: &str) {
    let (x, ep, key) = connected(address, &Options::default());
    let mut registered = x.buffer(LONG).unwrap();
    for n in [1, 8, 5000, LONG] {
        let (mut out, mut back) = (filled(n, n), Buf::zeroed(n));
        let place = out.as_ptr();
        ep.put_wait(&mut out, &key, 3).unwrap();
        ep.get_wait(&mut back, &key, 3).unwrap();
        assert!(out[..] == back[..] && out.as_ptr() == place);
        ep.within(limit()).get_wait(&mut registered, &key, 3).unwrap();
        assert!(registered[..n] == out[..]);
    }
    let e = ep.put_wait(&mut registered, &key, 1 << 20).unwrap_err();
    assert_eq!((e.status, registered.len()), (Status::Bounds, LONG));
    let (other, other_ep, _) = connected(address, &Options::default());
    assert_eq!(x.exclusive().put(&other_ep, &mut registered, &key, 0).unwrap_err().status, Status::Invalid);
    end(&other, &other_ep);

    // Completions of other operations in between.
    let mut held = x.exclusive();
    held.send(&ep, &mut filled(1, 100), 1).unwrap();
    drop(held);
    let answer = ep.recv(Buf::zeroed(100), 2);
    let mut held = x.exclusive();
    let (mut small, mut back) = (filled(0, 8), Buf::zeroed(8));
    for i in 0..2000u64 {
        small.copy_from_slice(&i.to_ne_bytes());
        held.put(&ep, &mut small, &key, 8).unwrap();
        held.get(&ep, &mut back, &key, 8).unwrap();
        assert_eq!(small[..], back[..]);
    }
    drop(held);
    let (got, reversed) = answer.wait();
    assert_eq!(got.unwrap().length, 100);
    assert!(reversed.iter().rev().eq(filled(1, 100).iter()));
    end(&x, &ep);
}

/// Behind operations that wait for space, and beside another thread.
fn shared(address: &str) {
    let (x, ep, key) = connected(address, &Options { queue_depth: 2, ..Default::default() });
    let many: Vec<_> = (0..200).map(|i| ep.put(filled(i, 3000), &key, 3000 * i as u64)).collect();
    let mut back = Buf::zeroed(3000);
    ep.put_wait(&mut filled(7, 3000), &key, 0).unwrap();
    for put in many {
        put.wait().0.unwrap();
    }
    ep.get_wait(&mut back, &key, 0).unwrap();
    assert!(back[..] == filled(7, 3000)[..]);
    std::thread::scope(|scope| {
        for t in 0..2u64 {
            let (x, ep, key) = (&x, &ep, &key);
            scope.spawn(move || {
                let (mut out, mut back) = (Buf::zeroed(8), Buf::zeroed(8));
                for i in 0..500u64 {
                    out.copy_from_slice(&(i << 8 | t).to_ne_bytes());
                    if i % 2 == t {
                        let mut held = x.exclusive();
                        held.put(ep, &mut out, key, 8 * t).unwrap();
                        held.get(ep, &mut back, key, 8 * t).unwrap();
                    } else {
                        ep.put(&out[..], key, 8 * t).wait().0.unwrap();
                        ep.get_wait(&mut back, key, 8 * t).unwrap();
                    }
                    assert_eq!(out[..], back[..]);
                }
            });
        }
    });
    // A call that would wait for its own thread for ever.
    let held = x.exclusive();
    std::panic::set_hook(Box::new(|_| {}));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| x.in_flight())).unwrap_err();
    let _ = std::panic::take_hook();
    assert!(panicked.downcast_ref::<&str>().map_or(false, |text| text.contains("exclusively")));
    drop(held);
    end(&x, &ep);
}

/// Beside a stopped peer they end with it, and the buffer is the caller's again.
fn stopped(address: &str) {
    let (x, ep, key) = connected(address, &Options::default());
    let pid = ep.info().unwrap().peer_pid as i32;
    assert!(pid > 1);
    let mut buf = filled(5, LONG);
    let place = buf.as_ptr();
    // SAFETY: a process of the test.
    unsafe { kill(pid, SIGSTOP) };
    let begin = Instant::now();
    let e = loop {
        // The first may fit into the memory of the network.
        if let Err(e) = ep.send_wait(&mut buf, 1) {
            break e;
        }
        assert!(begin.elapsed() < limit(), "sends to a stopped peer complete");
    };
    assert_eq!(e.status, Status::PeerLost);
    assert!(buf.as_ptr() == place && buf[..] == filled(5, LONG)[..]);
    assert_eq!(ep.put_wait(&mut buf, &key, 0).unwrap_err().status, Status::PeerLost);
    assert_eq!((x.orphans(), x.in_flight()), (0, 0));
    // SAFETY: as above.
    unsafe { kill(pid, SIGKILL) };
}

fn main() {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("an address");
    for name in args {
        match &name[..] {
            "waits" => waits(&address),
            "shared" => shared(&address),
            "stopped" => stopped(&address),
            _ => panic!("no scenario {}", name),
        }
        println!("ok {}", name);
    }
}
