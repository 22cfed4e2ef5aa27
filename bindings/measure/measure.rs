// SPDX-License-Identifier: BSD-3-Clause
//! measure ADDRESS ROUNDS [plain]: the program of bindings/measure/run in Rust, under tokio or without a runtime.
use std::future::Future;
use std::time::{Duration, Instant};
use xport::{Buf, Endpoint, Instance, Region, RemoteKey, Result};

const DEPTH: usize = 64;
const MIB: usize = 1 << 20;

/// Seconds of a step: a future of it is awaited, or run by the instance.
macro_rules! seconds {
    ($rounds:expr, $step:expr) => {{
        for _ in 0..$rounds / 10 + 1 {
            $step;
        }
        let begin = Instant::now();
        for _ in 0..$rounds {
            $step;
        }
        begin.elapsed().as_secs_f64() / $rounds as f64
    }};
}

struct Side {
    x: Instance,
    ep: Endpoint,
    key: RemoteKey,
    memory: Region,
}

impl Side {
    fn new(address: &str) -> Result<Side> {
        let x = xport::open()?;
        let ep = x.connect_wait(address, b"", Duration::from_secs(60))?;
        let key = ep.unpack(&ep.private_data()?)?;
        let memory = x.alloc(MIB, 0)?;
        Ok(Side { x, ep, key, memory })
    }
}

/// Each operation is waited for by `wait`: `run` makes the program for each kind of waiting.
macro_rules! run {
    ($s:expr, $rounds:expr, |$operation:ident| $wait:expr) => {{
        macro_rules! wait {
            ($o:expr) => {{
                let $operation = $o;
                $wait
            }};
        }
        let (s, rounds) = ($s, $rounds);
        let mut buf = Some(Buf::zeroed(8));
        let mut answer = Some(Buf::zeroed(8));
        let echo = seconds!(rounds, {
            let got = s.ep.recv(answer.take().unwrap(), 2);
            let (sent, back) = wait!(s.ep.send(buf.take().unwrap(), 1));
            sent?;
            buf = Some(back);
            let (got, back) = wait!(got);
            got?;
            answer = Some(back);
        });
        let mut many: Vec<Buf> = (0..DEPTH).map(|_| Buf::zeroed(8)).collect();
        let deep = seconds!(rounds / DEPTH + 1, {
            let puts: Vec<_> = many.drain(..).map(|buf| s.ep.put(buf, &s.key, 0)).collect();
            for put in puts {
                let (done, buf) = wait!(put);
                done?;
                many.push(buf);
            }
        });
        let big = seconds!(rounds / 50 + 1, wait!(s.ep.get_part(s.memory.part(0, MIB)?, &s.key, 0))?);
        print!("{:.2} {:.0} {:.2} ", echo * 1e6, DEPTH as f64 / deep / 1e3, 1.0 / big / 1024.0);
        Ok(())
    }};
}

async fn with_tokio(s: &Side, rounds: usize) -> Result<()> {
    xport::drive(&s.x).expect("no tokio");
    let mut buf = Some(Buf::zeroed(8));
    let put = seconds!(rounds, {
        let (done, back) = s.ep.put(buf.take().unwrap(), &s.key, 0).await;
        done?;
        buf = Some(back);
    });
    print!("{:.3} ", put * 1e6);
    run!(s, rounds, |operation| operation.await)
}

fn plain(s: &Side, rounds: usize) -> Result<()> {
    let mut buf = Buf::zeroed(8);
    let mut held = s.x.exclusive();
    print!("{:.3} ", seconds!(rounds, held.put(&s.ep, &mut buf, &s.key, 0)?) * 1e6);
    drop(held);
    run!(s, rounds, |operation| operation.wait())
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("no runtime").block_on(future)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let rounds = args[2].parse().expect("a number of rounds");
    let s = Side::new(&args[1])?;
    if args.len() > 3 {
        plain(&s, rounds)?;
    } else {
        block_on(with_tokio(&s, rounds))?;
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("no /proc");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("no VmHWM");
    let kib: f64 = kib.trim().trim_end_matches(" kB").parse().expect("a number");
    println!("{:.1}", kib / 1024.0);
    s.ep.close(Duration::from_secs(5))
}
