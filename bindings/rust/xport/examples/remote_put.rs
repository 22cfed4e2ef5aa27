// SPDX-License-Identifier: BSD-3-Clause
//! remote_put - one process writes into the memory of another, without a runtime.
//!
//!     remote_put             the target: prints its address, then waits for the put
//!     remote_put HOST:PORT   the initiator: puts a text into the target's memory
use std::time::Duration;
use xport::{Event, Result};

const LIMIT: Duration = Duration::from_secs(60);

fn target() -> Result<()> {
    let x = xport::open()?;
    let memory = x.alloc(4096, xport::REMOTE_WRITE)?;
    let listener = x.listen("127.0.0.1:0", &memory.key()?)?; // each peer gets the key
    println!("{}", listener.address());
    let _peer = x.block_on(listener.accept())?;
    loop {
        if let Event::Notify { value, .. } = x.block_on(x.event())? {
            let mut text = vec![0; value as usize];
            memory.read_at(0, &mut text)?;
            println!("{} bytes: {}", value, String::from_utf8_lossy(&text));
            return Ok(());
        }
    }
}

fn initiator(address: &str) -> Result<()> {
    let x = xport::open()?;
    let peer = x.connect_wait(address, b"", LIMIT)?;
    let key = peer.unpack(&peer.private_data()?)?;
    let text = b"written by Rust";
    let (done, _text) = peer.put_notify(text, &key, 0, text.len() as u64).wait();
    done?;
    peer.close(LIMIT)
}

fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(address) => initiator(&address),
        None => target(),
    }
}
