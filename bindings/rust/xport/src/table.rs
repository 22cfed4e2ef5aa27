// SPDX-License-Identifier: BSD-3-Clause
//! The table of operations: a slot owns what its operation needs, until the completion.
use crate::endpoint::{EpInner, KeyInner};
use crate::error::Error;
use crate::instance::milliseconds;
use crate::memory::Hold;
use crate::rpc::Call;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

/// What is posted, without its memory.
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
    pub(crate) ep: Option<Arc<EpInner>>,
    pub(crate) key: Option<Arc<KeyInner>>,
    /// When it must have ended.
    pub(crate) end: Option<Instant>,
    pub(crate) flags: u32,
}

impl Flight {
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

pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) failure: Option<Error>,
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
    slots: Vec<(u32, Option<Slot>)>,
    free: Vec<u32>,
    pub(crate) orphans: usize,
    pub(crate) in_flight: usize,
}

fn index(number: u64) -> usize {
    (number as u32 >> 1) as usize
}

impl Table {
    pub(crate) fn insert(&mut self, flight: Flight) -> u64 {
        let slot = Slot { flight, stage: Stage::Queued, orphan: false, waker: None, receive: 0 };
        self.in_flight += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[index as usize];
        entry.0 = entry.0.wrapping_add(1);
        entry.1 = Some(slot);
        u64::from(entry.0) << 32 | u64::from(index) << 1 | 1
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Slot> {
        match self.slots.get_mut(index(number)) {
            Some((generation, slot)) if *generation == (number >> 32) as u32 => slot.as_mut(),
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

    pub(crate) fn name(&mut self, number: u64) -> &'static str {
        self.get(number).map_or("xport", |s| s.flight.post.name())
    }

    fn remove(&mut self, number: u64) -> Option<Slot> {
        self.get(number)?;
        self.free.push(index(number) as u32);
        self.slots[index(number)].1.take()
    }

    /// Takes a finished operation out of the table.
    pub(crate) fn take(&mut self, number: u64) -> Option<(Outcome, Flight)> {
        match self.get(number)?.stage {
            Stage::Done(_) => {}
            _ => return None,
        }
        match self.remove(number)? {
            Slot { stage: Stage::Done(outcome), flight, .. } => Some((outcome, flight)),
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
    pub(crate) fn ep(&self) -> Option<&Arc<EpInner>> {
        self.flight.ep.as_ref()
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
        self.ep()
    }
}
