// SPDX-License-Identifier: BSD-3-Clause
//! Operations: futures that own no memory.  The memory belongs to the slot.
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::memory::{Buf, Hold};
use crate::state::{Dead, Shared};
use crate::table::{Flight, Outcome, Slot, Stage};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What a receive took.
#[derive(Debug)]
pub struct Message {
    pub tag: u64,
    /// The length of the message.
    pub length: usize,
    /// The sender; None: it is gone, or no call has returned it yet.
    pub endpoint: Option<Endpoint>,
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// What an operation returns.
pub trait Output: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn of(finished: Finished<'_>) -> Self;
}

#[doc(hidden)]
pub struct Finished<'a> {
    pub(crate) outcome: Outcome,
    pub(crate) hold: Hold,
    pub(crate) shared: &'a Arc<Shared>,
}

impl Finished<'_> {
    pub(crate) fn result(&mut self) -> Result<()> {
        if self.outcome.status >= 0 {
            return Ok(());
        }
        let status = self.outcome.status;
        let failure = self.outcome.failure.take();
        Err(failure.map_or_else(|| Error::new(status, "completion", ""), |e| *e))
    }
}

impl sealed::Sealed for Result<()> {}
impl Output for Result<()> {
    fn of(mut f: Finished<'_>) -> Self {
        f.result()
    }
}

impl sealed::Sealed for Result<u64> {}
impl Output for Result<u64> {
    fn of(mut f: Finished<'_>) -> Self {
        f.result()?;
        match &f.hold {
            Hold::Word(word) => Ok(word.load(Ordering::Relaxed)),
            _ => Ok(0),
        }
    }
}

impl sealed::Sealed for (Result<()>, Buf) {}
impl Output for (Result<()>, Buf) {
    fn of(mut f: Finished<'_>) -> Self {
        (f.result(), Buf::from_hold(f.hold, f.shared))
    }
}

impl sealed::Sealed for (Result<Message>, Buf) {}
impl Output for (Result<Message>, Buf) {
    fn of(mut f: Finished<'_>) -> Self {
        let result = f.result().map(|()| Message {
            tag: f.outcome.tag,
            length: f.outcome.length as usize,
            endpoint: f
                .outcome
                .sender
                .take()
                .and_then(|w| w.upgrade())
                .map(|inner| Endpoint::new(inner, f.shared.clone())),
        });
        (result, Buf::from_hold(f.hold, f.shared))
    }
}

/// A posted operation: await it, or call `wait`.
///
/// If the queue was full, it is posted as soon as there is space, behind earlier ones of its endpoint.
///
/// If it is dropped, or forgotten, the operation goes on without it: its buffer stays with the slot until the completion,
/// and is then freed.  A receive that is dropped is cancelled, and takes no message.
#[must_use = "an operation that is dropped is abandoned"]
pub struct Operation<T: Output> {
    shared: Arc<Shared>,
    number: u64,
    turned: bool,
    taken: bool,
    _output: PhantomData<fn() -> T>,
}

impl<T: Output> Operation<T> {
    pub(crate) fn submit(shared: &Arc<Shared>, flight: Flight) -> Operation<T> {
        Operation::of(shared, shared.submit(flight))
    }

    pub(crate) fn of(shared: &Arc<Shared>, number: u64) -> Operation<T> {
        Operation { shared: shared.clone(), number, turned: false, taken: false, _output: PhantomData }
    }

    fn finished(&mut self, slot: Box<Slot>) -> T {
        self.taken = true;
        T::of(slot.finished(&self.shared))
    }

    /// Whether the operation has completed.
    pub fn is_done(&self) -> bool {
        let mut state = self.shared.lock();
        match state.library.table.get(self.number) {
            Some(slot) => matches!(slot.stage, Stage::Done(_)),
            None => true,
        }
    }

    /// Runs the instance until the operation completes.
    pub fn wait(mut self) -> T {
        let taken = self.shared.wait(None, self.number).expect("without a limit there is a result");
        self.finished(taken)
    }

    /// The same for at most `limit`.  None: it is still in flight, and may be waited for again.
    pub fn wait_for(&mut self, limit: Duration) -> Option<T> {
        let taken = self.shared.wait(Some(limit), self.number)?;
        Some(self.finished(taken))
    }

    /// Cancels a receive, a call or a send of `Endpoint::cancelable`, which then completes with the status `Canceled`.  False: it has matched or ended already.
    pub fn cancel(&self) -> bool {
        self.shared.cancel(self.number)
    }
}

impl<T: Output> Future for Operation<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let first = !std::mem::replace(&mut self.turned, true);
        match self.shared.poll(self.number, first, cx) {
            Some(taken) => Poll::Ready(self.finished(taken)),
            None => Poll::Pending,
        }
    }
}

impl<T: Output> Drop for Operation<T> {
    fn drop(&mut self) {
        if !self.taken {
            self.shared.abandon(Dead::Operation(self.number));
        }
    }
}
