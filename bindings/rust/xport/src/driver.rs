// SPDX-License-Identifier: BSD-3-Clause
//! Progress under tokio.
use crate::instance::Instance;
use crate::raw;
use std::io;
use std::os::unix::io::{AsFd, AsRawFd};
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

/// Turns the instance in a task of the current runtime, until the instance ends.
///
/// xport_fd is level-triggered, and tokio registers it edge-triggered.  So the task sleeps only if the descriptor is not
/// readable after its readiness was cleared: a wake-up that comes later is a new edge.
pub fn drive(instance: &Instance) -> io::Result<()> {
    // A copy: it is deregistered after the library has closed its own.
    let fd = instance.as_fd().try_clone_to_owned()?;
    let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
    let weak = Arc::downgrade(&instance.shared);
    let task = tokio::spawn(async move {
        let mut busy = 0;
        loop {
            let turned = match weak.upgrade() {
                Some(shared) => shared.turn(),
                None => return,
            };
            match turned {
                Err(_) => return, // each operation has its error by now
                Ok(0) => busy = 0,
                Ok(_) => busy += 1,
            }
            if busy > 0 || raw::readable(fd.as_raw_fd(), 0) {
                // Others run before the next turn.
                tokio::task::yield_now().await;
                continue;
            }
            match fd.readable().await {
                Ok(mut guard) => {
                    if !raw::readable(fd.as_raw_fd(), 0) {
                        guard.clear_ready();
                        // What came in between is seen here, or is a new edge.
                        if raw::readable(fd.as_raw_fd(), 0) {
                            continue;
                        }
                    }
                }
                Err(_) => return,
            }
        }
    });
    instance.shared.at_end.lock().unwrap_or_else(|e| e.into_inner()).push(Box::new(move || task.abort()));
    Ok(())
}
