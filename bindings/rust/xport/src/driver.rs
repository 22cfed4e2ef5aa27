// SPDX-License-Identifier: BSD-3-Clause
//! Progress under tokio.
use crate::instance::Instance;
use crate::memory;
use crate::state::Shared;
use std::future::Future;
use std::io;
use std::os::unix::io::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::time::Sleep;

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
            if busy > 0 || memory::readable(fd.as_raw_fd(), 0) {
                // Others run before the next turn.
                tokio::task::yield_now().await;
                continue;
            }
            if (Idle { fd: &fd, shared: &weak, sleep: None, begun: false }).await.is_err() {
                return;
            }
        }
    });
    instance.shared.at_end.lock().unwrap_or_else(|e| e.into_inner()).push(Box::new(move || task.abort()));
    Ok(())
}

/// Sleeps until the instance must be turned: the descriptor is readable, the services have a deadline, or a call has brought
/// their deadline forward.
struct Idle<'a> {
    fd: &'a AsyncFd<OwnedFd>,
    shared: &'a Weak<Shared>,
    sleep: Option<Pin<Box<Sleep>>>,
    begun: bool,
}

impl Idle<'_> {
    /// Returns whether to wake now: the deadline was brought forward, or the owner of something has gone.
    fn watch(&mut self, cx: &mut Context<'_>) -> bool {
        let shared = match self.shared.upgrade() {
            Some(shared) => shared,
            None => return true,
        };
        let mut state = shared.lock();
        if self.begun && state.services.sleeper.is_none() {
            return true;
        }
        if !self.begun {
            self.begun = true;
            let left = state.timeout();
            // The timer of tokio counts milliseconds, and may be early by a part of one.
            let sleep = left.map(|left| left.saturating_add(Duration::from_millis(1)));
            state.services.sleeps_until = sleep.and_then(|d| Instant::now().checked_add(d));
            self.sleep = sleep.map(|d| Box::pin(tokio::time::sleep(d)));
        }
        state.services.sleeper = Some(cx.waker().clone());
        !shared.grave.watch(cx.waker())
    }
}

impl Future for Idle<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.watch(cx) {
            return Poll::Ready(Ok(()));
        }
        if let Some(sleep) = &mut self.sleep {
            if sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
        }
        loop {
            match self.fd.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Ready(Ok(mut guard)) => {
                    if memory::readable(self.fd.as_raw_fd(), 0) {
                        return Poll::Ready(Ok(()));
                    }
                    guard.clear_ready();
                    // What came in between is seen here, or is a new edge.
                    if memory::readable(self.fd.as_raw_fd(), 0) {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}
