// SPDX-License-Identifier: BSD-3-Clause
//! The table of operations: a slot owns what its operation needs, until the completion.
use crate::endpoint::{EpInner, KeyInner};
use crate::error::Error;
use crate::instance::milliseconds;
use crate::memory::Hold;
use crate::operation::Finished;
use crate::rpc::Call;
use crate::state::Shared;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

/// What is posted, without its memory.
#[derive(Clone)]
pub(crate) enum Post {
    Put { offset: u64, notify: Option<u64> },
    Get { offset: u64 },
    Send { tag: u64 },
    Recv { tag: u64, mask: u64 },
    Atomic { op: u32, width: i32, operand: u64, compare: u64, offset: u64 },
    Flush,
    Call(Box<Call>),
}

impl Post {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Post::Put { notify: None, .. } => "xport_put",
            Post::Put { .. } => "xport_put_notify",
            Post::Get { .. } => "xport_get",
            Post::Send { .. } => "xport_send",
            Post::Recv { .. } => "xport_recv",
            Post::Atomic { .. } => "xport_atomic",
            Post::Flush => "xport_flush",
            Post::Call(_) => "xport_rpc_call",
        }
    }
}

/// What an operation needs until its completion.
pub(crate) struct Flight {
    pub(crate) post: Post,
    pub(crate) hold: Hold,
    /// None: that of the key, which keeps it.
    pub(crate) ep: Option<Arc<EpInner>>,
    pub(crate) key: Option<Arc<KeyInner>>,
    /// When it must have ended.
    pub(crate) end: Option<Instant>,
    pub(crate) flags: u32,
}

impl Flight {
    pub(crate) fn new(post: Post, hold: Hold, ep: Option<&Arc<EpInner>>, key: Option<&Arc<KeyInner>>) -> Flight {
        // One count of references less: a key keeps its endpoint.
        let ep = match (ep, key) {
            (Some(ep), Some(key)) if Arc::ptr_eq(ep, key.ep()) => None,
            _ => ep.cloned(),
        };
        Flight { post, hold, ep, key: key.cloned(), end: None, flags: 0 }
    }

    /// Why the handles do not belong together; None: they do.
    pub(crate) fn foreign(&self) -> Option<&'static str> {
        if self.hold.is_foreign() {
            return Some("The memory is registered with another instance.");
        }
        match (&self.ep, &self.key) {
            (Some(_), Some(_)) => Some("The key belongs to another endpoint."),
            _ => None,
        }
    }

    pub(crate) fn ep(&self) -> Option<&Arc<EpInner>> {
        self.ep.as_ref().or_else(|| self.key.as_ref().map(|key| key.ep()))
    }

    /// For xport_opt.deadline_ms; 0: none.
    pub(crate) fn deadline_ms(&self) -> u32 {
        self.end.map_or(0, |end| left_ms(end, i32::MAX))
    }
}

/// The time until then, rounded up: at least 1.
pub(crate) fn left_ms(end: Instant, max: i32) -> u32 {
    let left = end.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    milliseconds(left).clamp(1, max) as u32
}

/// One completion or event.  `ep` and `mr` are addresses, to be looked up only.
pub(crate) struct Completion {
    pub(crate) status: i32,
    pub(crate) kind: u32,
    pub(crate) number: u64,
    pub(crate) ep: usize,
    pub(crate) mr: usize,
    pub(crate) tag: u64,
    pub(crate) length: u64,
    pub(crate) offset: u64,
}

pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) failure: Option<Box<Error>>,
    pub(crate) tag: u64,
    pub(crate) length: u64,
    pub(crate) sender: Option<Weak<EpInner>>,
    /// Of a call.
    pub(crate) called: Called,
}

/// Whether the handler of a call ran (enum xport_rpc_ran), and when to call again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Called {
    pub(crate) ran: u32,
    pub(crate) retry_after_ms: u32,
}

pub(crate) enum Stage {
    /// Waits for space in the queue.
    Queued,
    Posted,
    Done(Outcome),
}

pub(crate) struct Slot {
    pub(crate) flight: Flight,
    pub(crate) stage: Stage,
    pub(crate) orphan: bool,
    pub(crate) waker: Option<Waker>,
    /// The id of a posted receive or call.
    pub(crate) receive: u64,
}

/// The slots.  A number is the index and the generation of a slot, and is never used again.  It is odd: contexts of the
/// services are addresses, which are even.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<(u32, Option<Box<Slot>>)>,
    free: Vec<u32>,
    pub(crate) orphans: usize,
    pub(crate) in_flight: usize,
}

#[inline]
fn index(number: u64) -> usize {
    (number as u32 >> 1) as usize
}

impl Table {
    /// The number that the next `insert` returns.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let index = match self.free.last() {
            Some(index) => *index,
            None => {
                let index = self.slots.len() as u32;
                self.slots.push((0, None));
                self.free.push(index);
                index
            }
        };
        let generation = self.slots[index as usize].0.wrapping_add(1);
        u64::from(generation) << 32 | u64::from(index) << 1 | 1
    }

    pub(crate) fn insert(&mut self, flight: Flight) -> u64 {
        let number = self.next();
        let slot = Box::new(Slot { flight, stage: Stage::Queued, orphan: false, waker: None, receive: 0 });
        self.in_flight += 1;
        self.free.pop();
        self.slots[index(number)] = ((number >> 32) as u32, Some(slot));
        number
    }

    /// The same for an operation that was posted with the number of `next`.
    pub(crate) fn insert_posted(&mut self, flight: Flight) {
        let number = self.insert(flight);
        if let Some(slot) = self.get(number) {
            slot.stage = Stage::Posted;
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Slot> {
        match self.slots.get_mut(index(number)) {
            Some((generation, slot)) if *generation == (number >> 32) as u32 => slot.as_deref_mut(),
            _ => None,
        }
    }

    /// Ends an operation that was refused, or that has completed.
    pub(crate) fn finish(&mut self, number: u64, outcome: Outcome) -> Option<Waker> {
        let slot = self.get(number)?;
        slot.stage = Stage::Done(outcome);
        let (waker, orphan) = (slot.waker.take(), slot.orphan);
        self.in_flight -= 1;
        if orphan {
            self.orphans -= 1;
            self.remove(number);
        }
        waker
    }

    #[inline]
    fn remove(&mut self, number: u64) -> Option<Box<Slot>> {
        self.get(number)?;
        self.free.push(index(number) as u32);
        self.slots[index(number)].1.take()
    }

    /// Takes a finished operation out of the table.
    #[inline]
    pub(crate) fn take(&mut self, number: u64) -> Option<Box<Slot>> {
        match self.get(number)?.stage {
            Stage::Done(_) => self.remove(number),
            _ => None,
        }
    }

    /// The caller of an operation is gone.  Returns true if the operation is in flight and therefore stays.
    pub(crate) fn abandon(&mut self, number: u64) -> bool {
        let slot = match self.get(number) {
            Some(slot) => slot,
            None => return false,
        };
        match slot.stage {
            Stage::Posted => {
                slot.orphan = true;
                self.orphans += 1;
                return true;
            }
            Stage::Queued => self.in_flight -= 1,
            Stage::Done(_) => {}
        }
        self.remove(number);
        false
    }
}

impl Slot {
    /// Of an operation that has completed, what it returns.
    pub(crate) fn finished(self, shared: &Arc<Shared>) -> Finished<'_> {
        let outcome = match self.stage {
            Stage::Done(outcome) => outcome,
            _ => unreachable!("an operation that has not completed"),
        };
        Finished { outcome, hold: self.flight.hold, shared }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done(_))
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(self.flight.post, Post::Call(_))
    }

    /// The endpoint whose queue it takes space in.
    pub(crate) fn queue(&self) -> Option<&Arc<EpInner>> {
        if self.is_call() {
            return None;
        }
        self.flight.ep()
    }
}
