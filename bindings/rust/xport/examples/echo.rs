// SPDX-License-Identifier: BSD-3-Clause
//! echo - a server and a client of messages, with tokio.
//!
//!     echo             the server: prints its address, and ends after its first client
//!     echo HOST:PORT   the client: sends three lines, and prints the answers
use std::time::Duration;
use xport::{Buf, Result, Status};

const REQUEST: u64 = 1;
const ANSWER: u64 = 2;

async fn server() -> Result<()> {
    let x = xport::open()?;
    xport::drive(&x).expect("no tokio");
    let listener = x.listen("127.0.0.1:0", b"")?;
    println!("{}", listener.address());
    let peer = listener.accept().await?;
    loop {
        let (got, buf) = peer.recv(Buf::zeroed(100), REQUEST).await;
        match got {
            Ok(message) => peer.send(&buf[..message.length], ANSWER).await.0?,
            Err(e) if e.status == Status::PeerClosed => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

async fn client(address: String) -> Result<()> {
    let x = xport::open()?;
    xport::drive(&x).expect("no tokio");
    let peer = x.connect(&address, b"").await?;
    for line in ["one", "two", "three"] {
        let answer = peer.recv(Buf::zeroed(100), ANSWER);
        peer.send(line.as_bytes(), REQUEST).await.0?;
        let (got, buf) = answer.await;
        println!("{}", String::from_utf8_lossy(&buf[..got?.length]));
    }
    peer.close(Duration::from_secs(5))
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("no runtime");
    match std::env::args().nth(1) {
        Some(address) => runtime.block_on(client(address)),
        None => runtime.block_on(server()),
    }
}
