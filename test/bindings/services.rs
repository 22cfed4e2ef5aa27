// SPDX-License-Identifier: BSD-3-Clause
//! Leases and pools with the crate xport.
//!
//!     services serve             a lender: of 1 MiB, to one peer 512 KiB
//!     services ADDRESS NAME...   a borrower: prints "ok NAME" for each
use std::future::Future;
use std::time::{Duration, Instant};
use xport::{Endpoint, Form, Instance, Lease, LeaseOptions, Leases, Options, Status, VersionedOptions};

const QUOTA: u64 = 1 << 20;
const RIGHTS: u32 = xport::REMOTE_READ | xport::REMOTE_WRITE;

fn limit() -> Duration {
    let seconds = std::env::var("WAIT_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

struct Side {
    x: Instance,
    ep: Endpoint,
    leases: Leases,
}

impl Side {
    fn new(address: &str) -> Side {
        let x = Instance::open(&Options::default()).unwrap();
        let ep = x.connect_wait(address, b"", limit()).unwrap();
        let leases = x.leases(&LeaseOptions::default()).unwrap();
        Side { x, ep, leases }
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.x.block_on_for(limit(), future).expect("not complete in time")
    }

    /// Waits until this side has so many leases.
    fn borrowed(&self, n: u64) {
        let end = Instant::now() + limit();
        while self.leases.info().unwrap().borrowed != n {
            assert!(Instant::now() < end, "leases that nobody has are not returned");
            self.x.turn().unwrap();
        }
    }
}

fn leases(address: &str) {
    let s = Side::new(address);
    assert_eq!(s.x.leases(&LeaseOptions::default()).err().unwrap().status, Status::Busy);
    let lease = s.wait(s.leases.ask(&s.ep, 5000, RIGHTS)).unwrap();
    assert!(lease.key().length() == 5000 && lease.key().rights() == RIGHTS && lease.ended().is_none());
    let data: Vec<u8> = (0..5000).map(|i| i as u8).collect();
    s.wait(s.ep.put(&data[..], lease.key(), 0)).0.unwrap();
    let (done, buf) = s.wait(s.ep.get(vec![0; 5000], lease.key(), 0));
    done.unwrap();
    assert!(buf[..] == data[..]);
    let e = s.wait(s.ep.put([1; 2], lease.key(), 4999)).0.unwrap_err();
    assert_eq!(e.status, Status::Bounds);
    let key = lease.key().clone();
    s.wait(lease.give_back()).unwrap();
    let e = s.wait(s.ep.put([1], &key, 0)).0.unwrap_err();
    assert_eq!(e.status, Status::StaleKey);
    drop(key);
    let e = s.wait(s.leases.ask(&s.ep, QUOTA, RIGHTS)).unwrap_err();
    assert_eq!(e.status, Status::NoMemory);
    assert_eq!(s.wait(s.leases.ask(&s.ep, 0, RIGHTS)).unwrap_err().status, Status::Invalid);
    s.borrowed(0);
    s.ep.close(limit()).unwrap();
}

/// Whoever goes away: all is returned, and not before the operations that use it have completed.
fn dropped(address: &str) {
    let s = Side::new(address);
    for i in 0..300u64 {
        let ask = s.leases.ask(&s.ep, 100_000, RIGHTS);
        match i % 5 {
            0 => drop(ask),
            1 => drop(s.x.block_on_for(Duration::from_micros(i), ask)),
            n => {
                let lease = s.wait(ask).unwrap();
                let put = s.ep.put(vec![7; 100_000], lease.key(), 0);
                match n {
                    2 => drop((lease, put)),
                    3 => drop(lease.give_back()),
                    _ => {
                        let (lease, key) = (lease.key().clone(), lease);
                        drop(key);
                        s.wait(put).0.unwrap(); // `lease` is a key, which keeps it
                        drop(lease);
                    }
                }
            }
        }
        if i % 4 == 3 {
            s.borrowed(0); // within the quota
        }
    }
    s.wait(s.ep.flush()).unwrap();
    s.borrowed(0);
    for _ in 0..3 {
        std::mem::forget(s.wait(s.leases.ask(&s.ep, 100, RIGHTS)).unwrap());
    }
    s.borrowed(3); // until the instance ends
    s.ep.close(limit()).unwrap();
    s.borrowed(0);
}

fn lost(address: &str) {
    let s = Side::new(address);
    let lease = s.wait(s.leases.ask(&s.ep, 100, RIGHTS)).unwrap();
    s.ep.close(limit()).unwrap();
    assert_eq!(lease.ended().unwrap().status, Status::Closed);
    assert_eq!(s.wait(lease.give_back()).unwrap_err().status, Status::Closed);
    let x = Instance::open(&Options::default()).unwrap();
    let ep = x.connect_wait(address, b"", limit()).unwrap();
    let leases = x.leases(&LeaseOptions::default()).unwrap();
    let lease = x.block_on(leases.ask(&ep, 100, RIGHTS)).unwrap();
    drop((x, ep, leases, lease)); // in any order, without waiting
}

fn tasks(address: &str) {
    runtime().block_on(async {
        let x = xport::open().unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect(address, b"").await.unwrap();
        let leases = x.leases(&LeaseOptions::default()).unwrap();
        for i in 0..50u64 {
            let lease = leases.ask(&ep, 4096, RIGHTS).await.unwrap();
            ep.put(i.to_ne_bytes(), lease.key(), 8).await.0.unwrap();
            let (done, buf) = ep.get([0; 8], lease.key(), 8).await;
            done.unwrap();
            assert_eq!(buf[..], i.to_ne_bytes());
            lease.give_back().await.unwrap();
        }
        ep.close(limit()).unwrap();
    });
}

/// Nothing but the end of its owner returns a lease: the driver sleeps, and no heartbeat wakes it.
fn asleep(address: &str) {
    runtime().block_on(async {
        let x = xport::open().unwrap();
        xport::drive(&x).unwrap();
        let ep = x.connect(address, b"").await.unwrap();
        let leases = x.leases(&LeaseOptions::default()).unwrap();
        for _ in 0..5 {
            let lease = leases.ask(&ep, 4096, RIGHTS).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(lease);
            let end = Instant::now() + limit();
            while leases.info().unwrap().borrowed > 0 {
                assert!(Instant::now() < end, "a lease without an owner woke nobody");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        ep.close(limit()).unwrap();
    });
}

/// Buffers of a pool, in flight and dropped: each has one owner at a time.
fn pool(address: &str) {
    let s = Side::new(address);
    let pool = s.x.pool(100_001);
    pool.reserve(3).unwrap();
    assert_eq!((pool.buffers(), pool.in_use()), (3, 0));
    let lease = s.wait(s.leases.ask(&s.ep, 100_001, RIGHTS)).unwrap();
    for i in 0..400u64 {
        let mut buf = pool.take().unwrap();
        assert!(buf.len() == 100_001 && buf.as_ptr() as usize % 64 == 0);
        buf.fill(i as u8);
        let mut put = s.ep.put(buf, lease.key(), 0);
        match i % 4 {
            0 => drop(put),
            1 => drop(put.wait_for(Duration::from_micros(i))),
            2 => drop(s.wait(put)),
            _ => {
                let (done, buf) = s.wait(put);
                done.unwrap();
                let (done, mut got) = s.wait(s.ep.get(pool.take().unwrap(), lease.key(), 0));
                done.unwrap();
                assert!(got.iter().all(|b| *b == i as u8), "memory in flight was given out again");
                got.fill(0xdd);
                drop((buf, got));
            }
        }
        // Would reach what is in flight, if that was given out again.
        let mut junk = pool.take().unwrap();
        junk.fill(0xdd);
    }
    s.wait(s.ep.flush()).unwrap();
    let end = Instant::now() + limit();
    while pool.in_use() > 0 {
        assert!(Instant::now() < end, "buffers without an owner do not come back");
        s.x.turn().unwrap();
    }
    assert!(s.x.pool(usize::MAX).take().is_err());
    s.wait(lease.give_back()).unwrap();
    s.ep.close(limit()).unwrap();
}

// ---- regions that are given ----

/// What the lender writes at 0 says what the borrower does: writes 1 at 8, and returns the region, or keeps it.
const RETURN: u64 = 1;
const KEEP: u64 = 2;

async fn take(lease: Lease, kept: &mut Vec<Lease>) -> xport::Result<()> {
    let ep = lease.endpoint();
    let (got, order) = ep.get([0; 8], lease.key(), 0).await;
    got?;
    ep.put(1u64.to_ne_bytes(), lease.key(), 8).await.0?;
    if order[..] == RETURN.to_ne_bytes() {
        return lease.give_back().await;
    }
    kept.push(lease);
    Ok(())
}

fn given(address: &str) {
    let s = Side::new(address);
    let region = |order: u64, registered: bool| {
        let r = if registered { s.x.register(vec![0; 8192], RIGHTS) } else { s.x.alloc(8192, RIGHTS) };
        let r = r.unwrap();
        r.write_at(0, &order.to_ne_bytes()).unwrap();
        r
    };
    let number = |given: &xport::Given| {
        let mut word = [0; 8];
        given.read_at(8, &mut word).map(|()| u64::from_ne_bytes(word))
    };
    for registered in [false, true] {
        let memory = region(RETURN, registered);
        let clone = memory.clone();
        let (e, memory) = s.leases.give(&s.ep, memory).unwrap_err(); // in use
        assert_eq!(e.status, Status::Busy);
        drop(clone);
        let given = s.leases.give(&s.ep, memory).unwrap();
        assert_eq!(number(&given).unwrap(), 0);
        let end = Instant::now() + limit();
        while number(&given).is_ok() {
            assert!(Instant::now() < end, "the region is not returned");
            s.x.turn().unwrap();
        }
        assert_eq!(given.read_at(8, &mut [0]).unwrap_err().status, Status::Closed);
        let given = s.leases.give(&s.ep, region(KEEP, registered)).unwrap();
        s.wait(given.taken()).unwrap();
        let end = Instant::now() + limit();
        while number(&given).unwrap() != 1 {
            assert!(Instant::now() < end, "the region is not used");
            s.x.turn().unwrap();
        }
        assert!(given.read_at(8191, &mut [0; 2]).is_err());
        s.wait(given.revoke()).unwrap();
        drop(s.leases.give(&s.ep, region(KEEP, registered)).unwrap()); // the peer keeps it
        std::mem::forget(s.leases.give(&s.ep, region(RETURN, registered)).unwrap());
    }
    let (e, _) = s.leases.give(&s.ep, s.x.alloc(64, 0).unwrap()).unwrap_err(); // without rights
    assert_eq!(e.status, Status::Invalid);
    s.ep.close(limit()).unwrap();
}

// ---- versioned objects ----

const LENGTH: usize = 5000;
const FORMS: [Form; 3] = [Form::Checked, Form::Summed, Form::Copies];
const PLACE: u64 = 65536; // of the second object

/// One version has one byte.
fn whole(bytes: &[u8]) -> bool {
    bytes.len() == LENGTH && bytes.iter().all(|b| *b == bytes[0])
}

fn versioned(address: &str) {
    let s = Side::new(address);
    let key = s.ep.unpack(&s.ep.private_data().unwrap()).unwrap();
    for (i, form) in FORMS.iter().enumerate() {
        let options = VersionedOptions { tries: 100_000, ..VersionedOptions::new(*form, LENGTH) };
        let mut object = s.ep.versioned(&key, PLACE * i as u64, &options).unwrap();
        let mut seen = 0;
        for _ in 0..50 {
            assert!(whole(&s.wait(object.read()).unwrap()), "a torn read of {:?}", form);
            assert!(object.version() >= seen);
            seen = object.version();
        }
        assert!(whole(&object.read().wait().unwrap()) && object.retries() < 100_000);
        // One that nobody waits for ends by itself.
        drop(object.read());
        let end = Instant::now() + limit();
        loop {
            match object.read().wait() {
                Err(e) if e.status == Status::Busy => assert!(Instant::now() < end, "a read that was dropped stays"),
                read => break assert!(whole(&read.unwrap())),
            }
            s.x.turn().unwrap();
        }
        std::mem::forget(object.read());
        drop(object); // in the middle
        let mut object = s.ep.versioned(&key, PLACE * i as u64, &options).unwrap();
        assert_eq!(s.wait(object.write([1; 3])).unwrap_err().status, Status::Invalid);
        match (form, s.wait(object.write(vec![200; LENGTH]))) {
            (Form::Copies, written) => assert_eq!(written.unwrap_err().status, Status::NotSupported),
            (_, Err(e)) => assert_eq!(e.status, Status::Again), // the owner wrote
            (_, Ok(_)) => assert!(whole(&s.wait(object.read()).unwrap())),
        }
    }
    assert!(s.ep.versioned(&key, 0, &VersionedOptions::new(Form::Summed, 0)).is_err());
    assert_eq!(VersionedOptions::new(Form::Summed, 0).size(), 0);
    let mut object = s.ep.versioned(&key, 0, &VersionedOptions::new(Form::Checked, LENGTH)).unwrap();
    s.ep.close(limit()).unwrap();
    assert_eq!(s.wait(object.read()).unwrap_err().status, Status::Closed);
    starved(address);
}

/// Operations that wait do not starve a read: nothing else runs the instance, and the queue is full when the read begins.
fn starved(address: &str) {
    let x = Instance::open(&Options { queue_depth: 2, ..Default::default() }).unwrap();
    let ep = x.connect_wait(address, b"", limit()).unwrap();
    let key = ep.unpack(&ep.private_data().unwrap()).unwrap();
    for (i, form) in FORMS.iter().enumerate() {
        let options = VersionedOptions { tries: 100_000, ..VersionedOptions::new(*form, LENGTH) };
        let mut object = ep.versioned(&key, PLACE * i as u64, &options).unwrap();
        for _ in 0..2 {
            drop(ep.put(vec![0; 50_000], &key, 3 * PLACE));
        }
        drop(object.read()); // it goes on
        let end = Instant::now() + limit();
        while object.version() == 0 {
            assert!(Instant::now() < end, "a read of {:?} is starved", form);
            ep.put_wait(&mut [0; 8].into(), &key, 4 * PLACE - 8).unwrap();
        }
    }
    ep.close(limit()).unwrap();
}

#[repr(C)]
struct Mallinfo {
    unused: [usize; 7],
    used: usize,
    more: [usize; 2],
}

extern "C" {
    fn mallinfo2() -> Mallinfo;
}

/// Reads in progress when the instance ends leave nothing behind.
fn ended(address: &str) {
    const READS: usize = 300;
    let round = || {
        let s = Side::new(address);
        let key = s.ep.unpack(&s.ep.private_data().unwrap()).unwrap();
        let options = VersionedOptions::new(Form::Checked, LENGTH);
        for _ in 0..READS {
            drop(s.ep.versioned(&key, 0, &options).unwrap().read()); // no turn follows
        }
    };
    // SAFETY: it reads counters.
    let used = || unsafe { mallinfo2() }.used;
    round();
    let mut least = usize::MAX;
    for _ in 0..3 {
        let before = used();
        round();
        least = least.min(used().saturating_sub(before));
    }
    assert!(least < 100 * READS, "{} bytes are left of {} reads", least, READS);
}

async fn serve() {
    let x = xport::open().unwrap();
    xport::drive(&x).unwrap();
    let options = LeaseOptions { quota: QUOTA, peer_quota: QUOTA / 2, take: true, ..Default::default() };
    let leases = x.leases(&options).unwrap();
    let taker = leases.clone();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(lease) = taker.given().await {
            let _ = take(lease, &mut kept).await; // the lender may have gone
            kept.retain(|lease| lease.ended().is_none());
        }
    });
    let region = x.alloc(4 * PLACE as usize, RIGHTS | xport::REMOTE_ATOMIC).unwrap();
    let mut objects: Vec<_> = (0..3u64)
        .map(|i| region.versioned(PLACE * i, &VersionedOptions::new(FORMS[i as usize], LENGTH)).unwrap())
        .collect();
    assert_eq!(objects[0].write(&[1]).unwrap_err().status, Status::Invalid);
    let listener = x.listen("127.0.0.1:0", &region.key().unwrap()).unwrap();
    tokio::spawn(async move {
        for i in 0.. {
            for object in &mut objects {
                let _ = object.write(&[i as u8; LENGTH]); // Again: a peer writes
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    println!("{}", listener.address());
    loop {
        let _ep = listener.accept().await.unwrap();
        while let Ok(event) = x.event().await {
            if let xport::Event::Closed(_) | xport::Event::Lost(..) = event {
                break;
            }
        }
        let end = Instant::now() + limit();
        while leases.info().unwrap().lent > 0 {
            assert!(Instant::now() < end, "memory is lent to nobody");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
            "leases" => leases(&role),
            "given" => given(&role),
            "versioned" => versioned(&role),
            "ended" => ended(&role),
            "dropped" => dropped(&role),
            "pool" => pool(&role),
            "lost" => lost(&role),
            "asleep" => asleep(&role),
            "tasks" => tasks(&role),
            _ => panic!("no scenario {}", name),
        }
        println!("ok {}", name);
    }
}
