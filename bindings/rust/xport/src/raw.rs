// SPDX-License-Identifier: BSD-3-Clause
//! Each call of the C library.
//!
//! Safety.  A `Library` is behind the lock of its instance, and each call needs `&mut Library`: so one thread at a time is in
//! the C library, and xport_last_error belongs to the call before it.  Handles are neither Copy nor Clone, and the functions
//! that end them take them by value.  An instance outlives its handles: `Shared` closes it when no object of it is left.
//!
//! A buffer in flight belongs to its `Slot`, which belongs to the table, which belongs to the `Library`.  A slot gives its
//! buffer back after the completion only.  Drop of the `Library` calls xport_close before it frees the table: nothing
//! accesses the buffers after that.
#![allow(unsafe_code)]
use crate::endpoint::{EpInner, KeyInner};
use crate::error::{Error, Result};
use crate::options::{bytes, c_string, conn_attr, text, ConnOptions, EndpointInfo, Info, Options};
use crate::rpc::{RpcEvent, RpcOptions};
use crate::table::{Completion, Post, Slot, Stage, Table};
use std::ffi::{c_void, CStr};
use std::os::raw::{c_char, c_int};
use std::os::unix::io::RawFd;
use std::ptr::{null, null_mut, NonNull};
use xport_sys as sys;

const BATCH: usize = 256;

/// A handle of the C library, or an address of memory, which one owner has.
pub(crate) struct Handle<T>(pub(crate) NonNull<T>);
pub(crate) type Ep = Handle<sys::xport_ep>;
pub(crate) type Listener = Handle<sys::xport_listener>;
pub(crate) type Mr = Handle<sys::xport_mr>;
pub(crate) type Key = Handle<sys::xport_rkey>;
pub(crate) type Lease = Handle<sys::xport_lease>;

// SAFETY: handles are used under the lock of the instance alone, by any thread.  The thread of the library that
// Options::progress starts takes locks of its own.  Memory has one owner, as that of a Vec, or is accessed by atomics alone.
unsafe impl<T> Send for Handle<T> {}
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// What completions and events name the object by.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

pub(crate) struct Library {
    pub(crate) x: NonNull<sys::xport>,
    pub(crate) list: Vec<sys::xport_completion>,
    rpcs: *mut sys::xport_rpcs,                // NULL: none
    pub(crate) leases: *mut sys::xport_leases, // NULL: none
    pub(crate) table: Table,
}

// SAFETY: the thread rule of xport.h: one thread at a time, whichever.
unsafe impl Send for Library {}

pub(crate) fn strerror(status: i32) -> String {
    // SAFETY: a static string that is never NULL.
    let s = unsafe { CStr::from_ptr(sys::xport_strerror(status)) };
    s.to_string_lossy().into_owned()
}

/// The version of the library that is loaded, such as "0.1.0".
pub fn version() -> String {
    // SAFETY: as above.
    let s = unsafe { CStr::from_ptr(sys::xport_version()) };
    s.to_string_lossy().into_owned()
}

/// Where the last failure is described: of the instance, or of the calling thread in libxport_services.
enum Source {
    Instance(*const sys::xport),
    Services,
}

/// The error of a call of libxport_services that has just failed on this thread.
pub(crate) fn service_error(status: i32, operation: &str) -> Error {
    last_error(Source::Services, status, operation)
}

fn last_error(source: Source, status: i32, operation: &str) -> Error {
    let mut e = sys::xport_error { size: std::mem::size_of::<sys::xport_error>(), ..Default::default() };
    // SAFETY: x is NULL or open, and the size of e is set.
    let got = unsafe {
        match source {
            Source::Instance(x) => sys::xport_last_error(x, &mut e),
            Source::Services => sys::xport_services_last_error(&mut e),
        }
    };
    if got < 0 || e.status != status {
        return Error::new(status, operation, "");
    }
    Error::from(&e)
}

/// The options of an operation with this number.
#[inline]
fn option(number: u64, mr: Option<&Mr>) -> sys::xport_opt {
    sys::xport_opt {
        size: std::mem::size_of::<sys::xport_opt>(),
        context: number as usize as *mut c_void,
        mr: mr.map_or(null_mut(), |mr| mr.0.as_ptr()),
        ..Default::default()
    }
}

type Handles = (*mut sys::xport, *mut sys::xport_rpcs, *mut sys::xport_ep, *mut sys::xport_rkey);

/// Calls the function that posts.
///
/// # Safety
/// As that of `post_lent`.  Options and arguments are read during the call only; a receive or a call writes its id.
#[inline(always)]
unsafe fn call(post: &Post, memory: (*mut u8, usize), to: Handles, opt: &mut sys::xport_opt, id: &mut u64) -> i32 {
    let ((memory, length), (x, rpcs, ep, key)) = (memory, to);
    let memory = memory as *mut c_void;
    match *post {
        Post::Put { offset, notify: None } => sys::xport_put(ep, memory, length, key, offset, opt),
        Post::Put { offset, notify: Some(value) } => {
            opt.value = value;
            sys::xport_put_notify(ep, memory, length, key, offset, opt)
        }
        Post::Get { offset } => sys::xport_get(ep, memory, length, key, offset, opt),
        Post::Send { tag } => sys::xport_send(ep, memory, length, tag, opt),
        Post::Recv { tag, mask } => {
            opt.source = ep;
            opt.id = id;
            sys::xport_recv(x, memory, length, tag, mask, opt)
        }
        Post::Atomic { op, width, operand, compare, offset } => {
            let size = std::mem::size_of::<sys::xport_atomic_args>();
            let args = sys::xport_atomic_args { size, op: op as c_int, width, operand, compare, result: memory };
            sys::xport_atomic(ep, &args, key, offset, opt)
        }
        Post::Flush => sys::xport_flush(ep, opt),
        Post::Call(ref call) => {
            let args = call.args(memory, length, opt.context, id);
            sys::xport_rpc_call(rpcs, ep, call.method.as_ptr(), &args)
        }
    }
}

impl Library {
    pub(crate) fn open(options: &Options) -> Result<Library> {
        let name = "xport_open";
        let strings = [&options.backend, &options.require, &options.emulate, &options.progress]
            .iter()
            .map(|s| s.as_ref().map(|s| c_string(s, name)).transpose())
            .collect::<Result<Vec<_>>>()?;
        let pointer = |i: usize| strings[i].as_ref().map_or(null(), |s| s.as_ptr());
        let attr = sys::xport_attr {
            size: std::mem::size_of::<sys::xport_attr>(),
            backend: pointer(0),
            require: pointer(1),
            emulate: pointer(2),
            progress: pointer(3),
            peer_timeout_ms: options.peer_timeout_ms,
            op_timeout_ms: options.op_timeout_ms,
            queue_depth: options.queue_depth,
            ..Default::default()
        };
        let mut x = null_mut();
        // SAFETY: attr and its strings live until the call returns.
        let status = unsafe { sys::xport_open(&attr, &mut x) };
        match NonNull::new(x) {
            Some(x) if status >= 0 => Ok(Library {
                x,
                list: vec![sys::xport_completion::default(); BATCH],
                rpcs: null_mut(),
                leases: null_mut(),
                table: Table::default(),
            }),
            _ => Err(last_error(Source::Instance(null()), status, name)),
        }
    }

    pub(crate) fn fd(&mut self) -> RawFd {
        // SAFETY: x is open.
        unsafe { sys::xport_fd(self.x.as_ptr()) }
    }

    pub(crate) fn info(&mut self) -> Result<Info> {
        let mut i = sys::xport_info { size: std::mem::size_of::<sys::xport_info>(), ..Default::default() };
        // SAFETY: x is open, and the size of i is set.
        let status = unsafe { sys::xport_query(self.x.as_ptr(), &mut i) };
        self.must(status, "xport_query")?;
        Ok(Info::from(&i))
    }

    pub(crate) fn failure(&mut self, status: i32, operation: &str) -> Error {
        last_error(Source::Instance(self.x.as_ptr()), status, operation)
    }

    /// Why the operation of a slot was refused.
    pub(crate) fn refusal(&mut self, number: u64, status: i32) -> Error {
        match self.table.get(number).map(|slot| &slot.flight.post) {
            Some(Post::Call(_)) => service_error(status, "xport_rpc_call"),
            _ => self.failure(status, "xport"),
        }
    }

    fn must(&mut self, status: i32, operation: &str) -> Result<()> {
        if status < 0 {
            return Err(self.failure(status, operation));
        }
        Ok(())
    }

    /// Returns the object that a call has made.
    fn made<T>(&mut self, status: i32, out: *mut T, operation: &str) -> Result<NonNull<T>> {
        self.must(status, operation)?;
        NonNull::new(out).ok_or_else(|| Error::new(sys::XPORT_ERR_INVALID, operation, ""))
    }

    // ---- connections ----

    pub(crate) fn listen(&mut self, address: &str, options: &ConnOptions) -> Result<Listener> {
        let name = "xport_listen";
        let address = c_string(address, name)?;
        let (attr, _names) = conn_attr(options, name)?;
        let mut out = null_mut();
        // SAFETY: address, attr and what it points to live until the call returns.
        let status = unsafe { sys::xport_listen(self.x.as_ptr(), address.as_ptr(), &attr, &mut out) };
        self.made(status, out, name).map(Handle)
    }

    pub(crate) fn listener_name(&mut self, listener: &Listener) -> Result<String> {
        let mut buf = [0 as c_char; 128];
        // SAFETY: the handle is valid, and the length is that of buf.
        let status = unsafe { sys::xport_listener_name(listener.0.as_ptr(), buf.as_mut_ptr(), buf.len()) };
        self.must(status, "xport_listener_name")?;
        Ok(text(&buf))
    }

    /// Takes a connection that is ready, without waiting.
    pub(crate) fn accept(&mut self, listener: &Listener) -> Result<Option<Ep>> {
        let mut out = null_mut();
        // SAFETY: the handle is valid.
        let status = unsafe { sys::xport_accept(listener.0.as_ptr(), 0, &mut out) };
        if status == sys::XPORT_ERR_TIMEOUT {
            return Ok(None);
        }
        self.made(status, out, "xport_accept").map(|p| Some(Handle(p)))
    }

    pub(crate) fn listener_close(&mut self, listener: Listener) {
        // SAFETY: the handle is valid, and it is consumed.
        unsafe { sys::xport_listener_close(listener.0.as_ptr()) }
    }

    pub(crate) fn connect(&mut self, address: &str, options: &ConnOptions, timeout_ms: i32) -> Result<Ep> {
        let name = "xport_connect";
        let address = c_string(address, name)?;
        let (attr, _names) = conn_attr(options, name)?;
        let mut out = null_mut();
        // SAFETY: address, attr and what it points to live until the call returns.
        let status = unsafe { sys::xport_connect(self.x.as_ptr(), address.as_ptr(), &attr, timeout_ms, &mut out) };
        self.made(status, out, name).map(Handle)
    }

    pub(crate) fn ep_close(&mut self, ep: &Ep, timeout_ms: i32) -> Result<()> {
        // SAFETY: the handle is valid, and stays so.
        let status = unsafe { sys::xport_ep_close(ep.0.as_ptr(), timeout_ms) };
        self.must(status, "xport_ep_close")
    }

    pub(crate) fn ep_destroy(&mut self, ep: Ep) {
        // SAFETY: the handle is valid, and it is consumed.
        unsafe { sys::xport_ep_destroy(ep.0.as_ptr()) }
    }

    /// Frees an endpoint that was lost before a listener returned it.  No `Ep` has this address.
    pub(crate) fn ep_destroy_unaccepted(&mut self, lost: usize) {
        // SAFETY: XPORT_EVENT_LOST of an endpoint without an owner: xport_accept says that the application frees it.
        unsafe { sys::xport_ep_destroy(lost as *mut sys::xport_ep) }
    }

    fn ep_query(&mut self, ep: &Ep) -> Result<sys::xport_ep_info> {
        let mut i = sys::xport_ep_info { size: std::mem::size_of::<sys::xport_ep_info>(), ..Default::default() };
        // SAFETY: the handle is valid, and the size of i is set.
        let status = unsafe { sys::xport_ep_query(ep.0.as_ptr(), &mut i) };
        self.must(status, "xport_ep_query")?;
        Ok(i)
    }

    pub(crate) fn ep_info(&mut self, ep: &Ep) -> Result<EndpointInfo> {
        let i = self.ep_query(ep)?;
        Ok(EndpointInfo::from(&i))
    }

    pub(crate) fn private_data(&mut self, ep: &Ep) -> Result<Vec<u8>> {
        let i = self.ep_query(ep)?;
        if i.private_data.is_null() || i.private_len == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the bytes are valid until the endpoint is destroyed, and nothing changes them.
        let bytes = unsafe { std::slice::from_raw_parts(i.private_data as *const u8, i.private_len) };
        Ok(bytes.to_vec())
    }

    // ---- memory ----

    pub(crate) fn mr_alloc(&mut self, length: usize, rights: u32) -> Result<Mr> {
        let mut out = null_mut();
        // SAFETY: x is open.
        let status = unsafe { sys::xport_mr_alloc(self.x.as_ptr(), length, rights, &mut out) };
        self.made(status, out, "xport_mr_alloc").map(Handle)
    }

    /// Registers memory that its caller keeps until the registration has ended: `RegionInner` owns both.
    pub(crate) fn mr_reg(&mut self, memory: &crate::memory::RawBuf, rights: u32) -> Result<Mr> {
        let (base, length) = memory.parts();
        let mut out = null_mut();
        // SAFETY: the memory is mapped and writable, and RegionInner frees it after the registration.
        let status = unsafe { sys::xport_mr_reg(self.x.as_ptr(), base as *mut c_void, length, rights, &mut out) };
        self.made(status, out, "xport_mr_reg").map(Handle)
    }

    pub(crate) fn mr_base(&mut self, mr: &Mr) -> Result<NonNull<u8>> {
        let mut i = sys::xport_mr_info { size: std::mem::size_of::<sys::xport_mr_info>(), ..Default::default() };
        // SAFETY: the handle is valid, and the size of i is set.
        let status = unsafe { sys::xport_mr_query(mr.0.as_ptr(), &mut i) };
        self.made(status, i.base as *mut u8, "xport_mr_query")
    }

    /// Ends a registration.  Waits until no peer can access the memory.  Returns the handle if the region is in use.
    pub(crate) fn mr_dereg(&mut self, mr: Mr) -> std::result::Result<(), (Error, Mr)> {
        // SAFETY: the handle is valid, and it is consumed unless the call fails.
        let status = unsafe { sys::xport_mr_dereg(mr.0.as_ptr()) };
        if status < 0 {
            return Err((self.failure(status, "xport_mr_dereg"), mr));
        }
        Ok(())
    }

    pub(crate) fn rkey_pack(&mut self, mr: &Mr) -> Result<Vec<u8>> {
        let mut buf = vec![0u8; 1024];
        let mut len = buf.len();
        // SAFETY: the handle is valid, and len is the size of buf.
        let status = unsafe { sys::xport_rkey_pack(mr.0.as_ptr(), buf.as_mut_ptr() as *mut c_void, &mut len) };
        self.must(status, "xport_rkey_pack")?;
        buf.truncate(len);
        Ok(buf)
    }

    pub(crate) fn rkey_unpack(&mut self, ep: &Ep, bytes: &[u8]) -> Result<Key> {
        let mut out = null_mut();
        // SAFETY: the handle is valid; any bytes may be passed.
        let status =
            unsafe { sys::xport_rkey_unpack(ep.0.as_ptr(), bytes.as_ptr() as *const c_void, bytes.len(), &mut out) };
        self.made(status, out, "xport_rkey_unpack").map(Handle)
    }

    /// Length and rights.
    pub(crate) fn rkey_query(&mut self, key: &Key) -> Result<(u64, u32)> {
        let mut i = sys::xport_rkey_info { size: std::mem::size_of::<sys::xport_rkey_info>(), ..Default::default() };
        // SAFETY: the handle is valid, and the size of i is set.
        let status = unsafe { sys::xport_rkey_query(key.0.as_ptr(), &mut i) };
        self.must(status, "xport_rkey_query")?;
        Ok((i.length, i.rights))
    }

    pub(crate) fn rkey_destroy(&mut self, key: Key) {
        // SAFETY: the handle is valid, and it is consumed; the endpoint need not exist any more.
        unsafe { sys::xport_rkey_destroy(key.0.as_ptr()) }
    }

    // ---- operations ----

    /// Posts the operation of a slot.  The table keeps the slot until the completion.
    pub(crate) fn post(&mut self, number: u64) -> i32 {
        let (x, rpcs) = (self.x.as_ptr(), self.rpcs);
        let slot = match self.table.get(number) {
            Some(slot) => slot,
            None => return sys::XPORT_ERR_INVALID,
        };
        let Slot { flight, receive, .. } = &mut *slot;
        let ep = flight.ep().map_or(null_mut(), |e| e.ep().0.as_ptr());
        let key = flight.key.as_ref().map_or(null_mut(), |k| k.key().0.as_ptr());
        let mut opt = option(number, flight.hold.mr());
        opt.deadline_ms = flight.deadline_ms();
        opt.flags = flight.flags;
        if flight.flags != 0 {
            opt.id = receive;
        }
        // SAFETY: the handles are those of the flight, which the slot keeps; so does it keep the memory, at a fixed address.
        let status = unsafe { call(&flight.post, flight.hold.parts(), (x, rpcs, ep, key), &mut opt, receive) };
        if status >= 0 {
            slot.stage = Stage::Posted;
        }
        status
    }

    /// Posts a put, get or send.
    ///
    /// # Safety
    /// Until its completion the memory stays where it is, with one owner, and the handles are valid.
    #[inline]
    pub(crate) unsafe fn post_lent(
        &mut self,
        post: &Post,
        memory: (*mut u8, usize),
        mr: Option<&Mr>,
        ep: &EpInner,
        key: Option<&KeyInner>,
        number: u64,
    ) -> i32 {
        let handles = (self.x.as_ptr(), self.rpcs, ep.ep().0.as_ptr(), key.map_or(null_mut(), |k| k.key().0.as_ptr()));
        call(post, memory, handles, &mut option(number, mr), &mut 0)
    }

    /// Cancels a receive or a call that is posted.  False: it has matched or ended, or it is another operation.
    pub(crate) fn cancel(&mut self, number: u64) -> bool {
        let (x, rpcs) = (self.x.as_ptr(), self.rpcs);
        match self.table.get(number) {
            Some(Slot { stage: Stage::Posted, flight, receive, .. }) => {
                // SAFETY: x and rpcs are open; an id that is not valid any more is refused.
                let status = unsafe {
                    match flight.post {
                        Post::Recv { .. } | Post::Send { .. } => sys::xport_cancel(x, *receive),
                        Post::Call(_) => sys::xport_rpc_cancel(rpcs, *receive),
                        _ => sys::XPORT_ERR_INVALID,
                    }
                };
                status == sys::XPORT_OK
            }
            _ => false,
        }
    }

    pub(crate) fn fence(&mut self, ep: &Ep) -> Result<()> {
        // SAFETY: the handle is valid.
        let status = unsafe { sys::xport_fence(ep.0.as_ptr()) };
        self.must(status, "xport_fence")
    }

    /// Makes progress.  Returns the number of completions, which `completion` returns.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<usize> {
        // SAFETY: the list has BATCH entries.
        let n = unsafe { sys::xport_poll(self.x.as_ptr(), self.list.as_mut_ptr(), BATCH as c_int) };
        self.must(n, "xport_poll")?;
        Ok(n as usize)
    }

    /// Whether a poll of `n` completions has reaped all.
    pub(crate) fn reaped_all(n: usize) -> bool {
        n < BATCH
    }

    #[inline]
    pub(crate) fn completion(&self, i: usize) -> Completion {
        let c = &self.list[i];
        Completion {
            status: c.status,
            kind: c.type_,
            number: c.context as usize as u64,
            ep: c.ep as usize,
            mr: c.mr as usize,
            tag: c.tag,
            length: c.length,
            offset: c.offset,
        }
    }
}

// ---- remote procedure calls ----

impl Library {
    /// Makes the calls of the instance.  Returns the length of the longest payload.
    pub(crate) fn rpcs_create(&mut self, options: &RpcOptions) -> Result<usize> {
        let (name, text) = ("xport_rpcs_create", "The instance has an Rpc already: clone that one.");
        if !self.rpcs.is_null() {
            return Err(Error::new(sys::XPORT_ERR_BUSY, name, text));
        }
        let attr = options.attr();
        let mut info = sys::xport_rpcs_info { size: std::mem::size_of::<sys::xport_rpcs_info>(), ..Default::default() };
        // SAFETY: x is open, and the sizes of the structs are set.
        let status = unsafe {
            match sys::xport_rpcs_create(self.x.as_ptr(), &attr, &mut self.rpcs) {
                sys::XPORT_OK => sys::xport_rpcs_query(self.rpcs, &mut info),
                status => status,
            }
        };
        self.service_must(status, name)?;
        Ok(info.max_payload as usize)
    }

    pub(crate) fn service_must(&mut self, status: i32, operation: &str) -> Result<()> {
        if status < 0 {
            return Err(service_error(status, operation));
        }
        Ok(())
    }

    /// Gives the services a completion of the last poll, or lets them continue.  Returns whether it belongs to them.
    pub(crate) fn services_step(&mut self, i: Option<usize>) -> bool {
        let c = i.map_or(null(), |i| &self.list[i] as *const _);
        // SAFETY: both are open, or NULL, which is refused; c is NULL or an entry that the last poll has filled.
        unsafe {
            (!self.rpcs.is_null() && sys::xport_rpcs_step(self.rpcs, c) == 1)
                || (!self.leases.is_null() && sys::xport_leases_step(self.leases, c) == 1)
        }
    }

    /// Milliseconds until the services must continue; -1: no limit.
    pub(crate) fn services_timeout(&mut self) -> i32 {
        // SAFETY: both are open if they are not NULL.
        let (a, b) = unsafe {
            (
                if self.rpcs.is_null() { -1 } else { sys::xport_rpcs_timeout(self.rpcs) },
                if self.leases.is_null() { -1 } else { sys::xport_leases_timeout(self.leases) },
            )
        };
        (a as u32).min(b as u32) as i32
    }

    /// Tells the services that an endpoint has ended.
    pub(crate) fn services_forget(&mut self, ep: &Ep) {
        // SAFETY: the handle is valid; both are open, or NULL, which is ignored.
        unsafe {
            sys::xport_rpcs_forget(self.rpcs, ep.0.as_ptr());
            sys::xport_leases_forget(self.leases, ep.0.as_ptr());
        }
    }

    /// Registers a method without a handler: its requests are events.
    pub(crate) fn rpc_register(&mut self, method: &str) -> Result<()> {
        let name = "xport_rpc_register";
        let method = c_string(method, name)?;
        // SAFETY: rpcs is open, and the name is read during the call only.
        let status = unsafe { sys::xport_rpc_register(self.rpcs, method.as_ptr(), None, null_mut()) };
        self.service_must(status, name)
    }

    pub(crate) fn rpc_next(&mut self) -> Option<RpcEvent> {
        let mut e = sys::xport_rpc_event { size: std::mem::size_of::<sys::xport_rpc_event>(), ..Default::default() };
        // SAFETY: rpcs is open or NULL, which is refused.  The strings of an event are never NULL, and valid like the
        // payload until the next call.
        let (method, why, payload) = unsafe {
            if sys::xport_rpcs_next(self.rpcs, &mut e) != 1 {
                return None;
            }
            let string = |p: *const c_char| {
                if p.is_null() {
                    String::new()
                } else {
                    CStr::from_ptr(p).to_string_lossy().into_owned()
                }
            };
            let request = e.type_ as u32 == sys::XPORT_RPC_REQUEST && !e.payload.is_null();
            let payload = if request { std::slice::from_raw_parts(e.payload as *const u8, e.len) } else { &[] };
            (string(e.method), string(e.why), payload.to_vec())
        };
        Some(RpcEvent::new(&e, method, why, payload))
    }

    /// Ends a request, unless the status is XPORT_ERR_BOUNDS, _INVALID or _NO_MEMORY.
    pub(crate) fn rpc_reply(&mut self, id: u64, status: i32, payload: &[u8]) -> Result<()> {
        // SAFETY: rpcs is open, the payload is read during the call only, and an id that is not valid is refused.
        let status = unsafe { sys::xport_rpc_reply(self.rpcs, id, status, bytes(payload), payload.len()) };
        self.service_must(status, "xport_rpc_reply")
    }

    /// Milliseconds that a request has left.
    pub(crate) fn rpc_left(&mut self, id: u64) -> Result<u64> {
        // SAFETY: rpcs is open, and an id that is not valid is refused.
        let left = unsafe { sys::xport_rpc_left(self.rpcs, id) };
        self.service_must(left, "xport_rpc_left")?;
        Ok(left as u64)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: no object of the instance is left but those that `table` keeps, which is freed after this.  Services whose
        // messages cannot be ended without waiting stay allocated: nothing accesses them after xport_close.
        unsafe {
            for _ in 0..100 {
                let mut status = sys::xport_rpcs_destroy(self.rpcs, None, null_mut(), 0);
                if status == sys::XPORT_OK {
                    self.rpcs = null_mut();
                    status = sys::xport_leases_destroy(self.leases, None, null_mut(), 0);
                }
                if status != sys::XPORT_ERR_TIMEOUT {
                    break;
                }
            }
            sys::xport_close(self.x.as_ptr())
        }
    }
}
