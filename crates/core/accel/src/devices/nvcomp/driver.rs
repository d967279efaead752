//! The CUDA driver, `libcuda.so.1`: the entry points used, and what their errors mean.
//!
//! `LONGSHORE_CUDA` names another file to load, or `off` disables it. `CUDA_VISIBLE_DEVICES` is CUDA's own way to
//! choose a device: the first visible one is used.
//!
//! Invariants
//! - The library is loaded at run time with our own declarations; a build needs no toolkit and a run needs no driver.
//! - Nothing here touches a device before [`Driver::first_device`].
//!
//! Leaves to others: nvCOMP's functions (`library.rs`), and the GPU's queues and memory (`queues.rs`, `batch_memory.rs`).
//!
//! Source: CUDA driver API 13.0, `cuda.h`; the functions and their ABI are the same since CUDA 11.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::symbols::{self, functions};
use crate::devices::door::{Refusal, Trouble};

const SONAME: &str = "libcuda.so.1";

/// An address in the device's memory.
pub(super) type DevicePtr = u64;
/// `CUstream`, `CUevent`, `CUmodule`, `CUfunction`, `CUcontext`: opaque.
pub(super) type Handle = *mut c_void;

functions! {
    struct Functions {
        init = "cuInit" (c_uint) -> c_int;
        driver_version = "cuDriverGetVersion" (*mut c_int) -> c_int;
        device_count = "cuDeviceGetCount" (*mut c_int) -> c_int;
        device = "cuDeviceGet" (*mut c_int, c_int) -> c_int;
        device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int) -> c_int;
        device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int) -> c_int;
        context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int) -> c_int;
        context_release = "cuDevicePrimaryCtxRelease_v2" (c_int) -> c_int;
        context_set_current = "cuCtxSetCurrent" (Handle) -> c_int;
        memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize) -> c_int;
        memory_alloc = "cuMemAlloc_v2" (*mut DevicePtr, usize) -> c_int;
        memory_free = "cuMemFree_v2" (DevicePtr) -> c_int;
        host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint) -> c_int;
        host_free = "cuMemFreeHost" (*mut c_void) -> c_int;
        copy_in = "cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, Handle) -> c_int;
        copy_out = "cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, Handle) -> c_int;
        fill = "cuMemsetD8Async" (DevicePtr, u8, usize, Handle) -> c_int;
        stream_create = "cuStreamCreate" (*mut Handle, c_uint) -> c_int;
        stream_destroy = "cuStreamDestroy_v2" (Handle) -> c_int;
        stream_synchronize = "cuStreamSynchronize" (Handle) -> c_int;
        stream_wait = "cuStreamWaitEvent" (Handle, Handle, c_uint) -> c_int;
        event_create = "cuEventCreate" (*mut Handle, c_uint) -> c_int;
        event_destroy = "cuEventDestroy_v2" (Handle) -> c_int;
        event_record = "cuEventRecord" (Handle, Handle) -> c_int;
        event_synchronize = "cuEventSynchronize" (Handle) -> c_int;
        event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle) -> c_int;
        module_load = "cuModuleLoadData" (*mut Handle, *const c_void) -> c_int;
        module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char) -> c_int;
        launch = "cuLaunchKernel" (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
            *mut *mut c_void, *mut *mut c_void) -> c_int;
        error_name = "cuGetErrorName" (c_int, *mut *const c_char) -> c_int;
    }
}

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream.
const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC`: a waiting thread sleeps instead of spinning on a core.
const EVENT_BLOCKING_SYNC: c_uint = 1;
/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for every context.
const HOST_PORTABLE: c_uint = 1;

const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const NOT_PERMITTED: c_int = 800;

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CudaError {
    pub call: &'static str,
    pub code: i32,
    /// The driver's own name of the code.
    pub name: String,
}

impl CudaError {
    pub fn out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    /// Errors after which every call of this process fails: an illegal access, a lost device, an uncorrectable memory
    /// error. Errors 700 to 799 leave the context unusable, with two exceptions about launches.
    pub fn is_final(&self) -> bool {
        const LAUNCH_OUT_OF_RESOURCES: i32 = 701;
        const PEER_ACCESS: std::ops::RangeInclusive<i32> = 704..=705;
        match self.code {
            LAUNCH_OUT_OF_RESOURCES => false,
            code if PEER_ACCESS.contains(&code) => false,
            // ECC, NVLink, lost or unavailable device, destroyed context, unknown.
            3 | 4 | 46 | 201 | 214 | 220 | 226 | 999 => true,
            // The MPS server has ended this client.
            810 => true,
            code => (700..800).contains(&code),
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed with {} ({})", self.call, self.name, self.code)
    }
}

/// The loaded driver library.
pub(super) struct Driver {
    functions: Functions,
}

impl Driver {
    /// Loads the library. Touches no device.
    pub fn load(path: Option<&OsStr>) -> Result<Driver, Refusal> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            let text = "only used on x86-64 Linux";
            return Err(Refusal::new(Trouble::HardwareNotFound, text));
        }
        let name = path.unwrap_or(SONAME.as_ref());
        if name == "off" {
            let text = "switched off by LONGSHORE_CUDA=off";
            return Err(Refusal::new(Trouble::SwitchedOff, text));
        }
        let library = symbols::open(name)?;
        // SAFETY: `find` demands the declared types. The table above has those of cuda.h, which are the same from CUDA 11
        // to 13; a file that is not the driver lacks the names.
        let functions = unsafe { Functions::find(library) }.map_err(|refusal| Refusal {
            text: format!("cannot use {}: {}", name.display(), refusal.text),
            ..refusal
        })?;
        Ok(Driver { functions })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: cuda.h demands a pointer to one pointer, which is a local variable; any number may be asked about.
        let known = unsafe { (self.functions.error_name)(code, &mut name) } == 0 && !name.is_null();
        let name = if known {
            // SAFETY: `from_ptr` demands a C string that lives: the call succeeded, so this is one of the library's
            // own, and the library is never closed.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        } else {
            "an unknown error".into()
        };
        Err(CudaError { call, code, name })
    }

    /// Initialises CUDA and takes the first visible device. Returns the driver's version as well, such as `13.0`.
    pub fn first_device(self: &Arc<Driver>) -> Result<Context, CudaError> {
        let f = self.functions;
        // SAFETY: cuda.h demands pointers to an int, a handle, or as many characters as the length says; all of them are
        // local variables. `cuInit` comes first and the device is of `cuDeviceGet`, as it demands too. One character less
        // than the array has is offered, so the name ends in a zero byte.
        unsafe {
            self.check("cuInit", (f.init)(0))?;
            let (mut version, mut count, mut device) = (0, 0, 0);
            self.check("cuDriverGetVersion", (f.driver_version)(&mut version))?;
            self.check("cuDeviceGetCount", (f.device_count)(&mut count))?;
            if count < 1 {
                self.check("cuDeviceGetCount", NO_DEVICE)?;
            }
            self.check("cuDeviceGet", (f.device)(&mut device, 0))?;
            let mut name: [c_char; 128] = [0; 128];
            let code = (f.device_name)(name.as_mut_ptr(), name.len() as c_int - 1, device);
            self.check("cuDeviceGetName", code)?;
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
            let mut handle = ptr::null_mut();
            let code = (f.context_retain)(&mut handle, device);
            self.check("cuDevicePrimaryCtxRetain", code)?;
            Ok(Context {
                driver: Arc::clone(self),
                device,
                handle,
                device_name: name,
                firmware_version: firmware(Path::new("/proc")),
                driver_version: format!("{}.{}", version / 1000, version % 1000 / 10),
                lost: AtomicBool::new(false),
            })
        }
    }
}

/// Whether the error says that there is no device for this process, rather than a device in trouble.
pub(super) fn means_absent(error: &CudaError) -> bool {
    const INSUFFICIENT_DRIVER: i32 = 35;
    const STUB_LIBRARY: i32 = 34;
    matches!(
        error.code,
        NO_DEVICE | NOT_PERMITTED | INSUFFICIENT_DRIVER | STUB_LIBRARY
    )
}

/// One device's primary context.
///
/// Every method first makes the context current on the calling thread: any thread may run a batch.
pub(super) struct Context {
    driver: Arc<Driver>,
    device: c_int,
    handle: Handle,
    pub device_name: String,
    pub driver_version: String,
    pub firmware_version: Option<String>,
    /// A final error was seen. From then on nothing is freed: freeing would fail or hang.
    lost: AtomicBool,
}

// SAFETY: `Send` demands that another thread may use the value: the driver lets any thread use a context that is
// current on it, and `call` makes it so.
unsafe impl Send for Context {}
// SAFETY: `Sync` demands that calls of several threads do not race: the driver documents its own as safe from several
// threads at once, and `lost` is atomic.
unsafe impl Sync for Context {}

impl Context {
    fn call(
        &self,
        name: &'static str,
        run: impl FnOnce(&Functions) -> c_int,
    ) -> Result<(), CudaError> {
        let functions = &self.driver.functions;
        // SAFETY: cuda.h demands a context that exists: `first_device` retained it, and only `drop` releases it.
        let current = unsafe { (functions.context_set_current)(self.handle) };
        let checked = self
            .driver
            .check("cuCtxSetCurrent", current)
            .and_then(|()| self.driver.check(name, run(functions)));
        if checked.as_ref().is_err_and(CudaError::is_final) {
            self.lost.store(true, Ordering::Relaxed);
        }
        checked
    }

    /// Every later call in this process fails.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Makes the context current on this thread, for a library that takes the thread's context.
    pub fn enter(&self) -> Result<(), CudaError> {
        self.call("cuCtxSetCurrent", |_| 0)
    }

    /// Major and minor compute capability.
    pub fn capability(&self) -> Result<(i32, i32), CudaError> {
        const MAJOR: c_int = 75;
        const MINOR: c_int = 76;
        Ok((self.attribute(MAJOR)?, self.attribute(MINOR)?))
    }

    fn attribute(&self, which: c_int) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: cuda.h demands a valid pointer to one int, which is a local variable, and a device of cuDeviceGet.
        self.call("cuDeviceGetAttribute", |f| unsafe {
            (f.device_attribute)(&mut value, which, self.device)
        })?;
        Ok(value)
    }

    /// Free and total bytes.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let (mut free, mut all) = (0, 0);
        // SAFETY: cuda.h demands two valid pointers to size_t, which are local variables, and a current context, which
        // `call` has set.
        self.call("cuMemGetInfo", |f| unsafe {
            (f.memory_info)(&mut free, &mut all)
        })?;
        Ok((free, all))
    }

    /// Starts copying `len_bytes` to the device.
    ///
    /// # Safety
    /// `from` is pinned memory that stays untouched, and `to` a range of the device, until the stream has done the
    /// copy.
    pub unsafe fn copy_in(
        &self,
        to: DevicePtr,
        from: *const u8,
        len_bytes: usize,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the driver demands that `from` (pinned, `len_bytes`) stays untouched and `to` reserved until the
        // stream has done the copy, which the caller owes; and a live stream of this context, which `stream` is.
        self.call("cuMemcpyHtoDAsync", |f| unsafe {
            (f.copy_in)(to, from.cast(), len_bytes, stream.handle)
        })
    }

    /// Starts copying `len_bytes` from the device.
    ///
    /// # Safety
    /// As for [`copy_in`](Context::copy_in), with the directions swapped; nobody reads `to` before the stream has done
    /// the copy.
    pub unsafe fn copy_out(
        &self,
        to: *mut u8,
        from: DevicePtr,
        len_bytes: usize,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the driver demands that `to` (pinned, `len_bytes`) stays unread and `from` unchanged until the stream
        // has done the copy, which the caller owes; and a live stream of this context, which `stream` is.
        self.call("cuMemcpyDtoHAsync", |f| unsafe {
            (f.copy_out)(to.cast(), from, len_bytes, stream.handle)
        })
    }

    /// Starts filling `len_bytes` of device memory with one byte.
    ///
    /// # Safety
    /// The range is ours and nothing else uses it until the stream has filled it.
    pub unsafe fn fill(
        &self,
        at: DevicePtr,
        byte: u8,
        len_bytes: usize,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the driver demands `len_bytes` of the device at `at` that nothing else uses until the stream has
        // filled them, which the caller owes.
        self.call("cuMemsetD8Async", |f| unsafe {
            (f.fill)(at, byte, len_bytes, stream.handle)
        })
    }

    /// Loads PTX or machine code and finds a kernel in it. Modules stay loaded as long as the context.
    pub fn kernel(&self, code: &CStr, name: &CStr) -> Result<Kernel, CudaError> {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: cuda.h demands a pointer to one handle, which is a local variable, and an image that ends where its format
        // says: PTX text ends in a zero byte, which `CStr` has.
        self.call("cuModuleLoadData", |f| unsafe {
            (f.module_load)(&mut module, code.as_ptr().cast())
        })?;
        // SAFETY: cuda.h demands a pointer to one handle, which is a local variable, a module, which the call above made,
        // and a C string.
        self.call("cuModuleGetFunction", |f| unsafe {
            (f.module_function)(&mut function, module, name.as_ptr())
        })?;
        Ok(Kernel { function })
    }

    /// Starts a kernel of `blocks` blocks with `threads` threads each.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and the memory it touches is ours until the stream has run it.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        (blocks, threads): (u32, u32),
        arguments: &mut [u64],
        stream: &Stream,
    ) -> Result<(), CudaError> {
        let mut places: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| ptr::from_mut(argument).cast())
            .collect();
        // SAFETY: cuda.h demands a pointer to each of the kernel's arguments, and copies them before it returns: `places`
        // points at `arguments`, which outlive the call and which the caller says are the kernel's. The caller also keeps
        // the memory that the kernel touches until the stream has run it.
        self.call("cuLaunchKernel", |f| unsafe {
            (f.launch)(
                kernel.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.handle,
                places.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: cuda.h demands one release for each time the context was retained: `first_device` retained it once.
            // Memory, streams and marks hold an `Arc` of this value, so none of them is left.
            unsafe { (self.driver.functions.context_release)(self.device) };
        }
    }
}

/// A kernel in a loaded module.
pub(super) struct Kernel {
    function: Handle,
}

// SAFETY: `Send` demands that another thread may use the value: a kernel's handle belongs to no thread, and lives as
// long as its context.
unsafe impl Send for Kernel {}
// SAFETY: `Sync` demands that uses by several threads do not race: nothing changes a kernel once it was found.
unsafe impl Sync for Kernel {}

/// Memory of the device, freed when dropped.
pub(super) struct DeviceMemory {
    context: Arc<Context>,
    start: DevicePtr,
    len_bytes: usize,
}

impl DeviceMemory {
    /// Aligned to at least 256 bytes. `len_bytes` 0 allocates nothing.
    pub fn new(context: &Arc<Context>, len_bytes: usize) -> Result<DeviceMemory, CudaError> {
        let mut start = 0;
        if len_bytes > 0 {
            // SAFETY: cuda.h demands a pointer to one address, which is a local variable, a length above 0, as asked above,
            // and a current context, which `call` has set.
            context.call("cuMemAlloc", |f| unsafe {
                (f.memory_alloc)(&mut start, len_bytes)
            })?;
        }
        Ok(DeviceMemory {
            context: Arc::clone(context),
            start,
            len_bytes,
        })
    }

    pub fn start(&self) -> DevicePtr {
        self.start
    }

    pub fn len(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.len_bytes > 0 && !self.context.is_lost() {
            // SAFETY: cuda.h demands memory of `cuMemAlloc` that was not freed: `new` allocated it, and nothing else frees
            // it. The call waits for work that uses it; memory that the device may use for ever is leaked.
            let freed = self
                .context
                .call("cuMemFree", |f| unsafe { (f.memory_free)(self.start) });
            if let Err(e) = freed {
                tracing::debug!(%e, "device memory is lost");
            }
        }
    }
}

/// Page-locked memory of this process, which the device copies from and to on its own.
pub(super) struct PinnedMemory {
    context: Arc<Context>,
    start: *mut u8,
    len_bytes: usize,
}

// SAFETY: `Send` demands that another thread may own and free the bytes: they belong to this value alone, like those of
// a `Box<[u8]>`, and `call` makes the context current on any thread.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    pub fn new(context: &Arc<Context>, len_bytes: usize) -> Result<PinnedMemory, CudaError> {
        let mut start = ptr::null_mut();
        // SAFETY: cuda.h demands a pointer to one address, which is a local variable, and a current context, which `call`
        // has set.
        context.call("cuMemHostAlloc", |f| unsafe {
            (f.host_alloc)(&mut start, len_bytes, HOST_PORTABLE)
        })?;
        // SAFETY: `write_bytes` demands `len_bytes` that are ours to write: the call above gave them, and nobody else
        // knows of them yet. Their content is open before this.
        unsafe { ptr::write_bytes(start.cast::<u8>(), 0, len_bytes) };
        Ok(PinnedMemory {
            context: Arc::clone(context),
            start: start.cast(),
            len_bytes,
        })
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start
    }

    /// The bytes.
    ///
    /// # Safety
    /// No copy to this memory is queued or running while the slice lives.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: `from_raw_parts` demands bytes that are initialised, live and not written: `new` allocated and zeroed
        // `len_bytes`, which only `drop` frees. The caller keeps the device from writing them, and `&self` everybody
        // else.
        unsafe { std::slice::from_raw_parts(self.start, self.len_bytes) }
    }

    /// The bytes, to write.
    ///
    /// # Safety
    /// No copy from or to this memory is queued or running while the slice lives.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `from_raw_parts_mut` demands bytes that are initialised, live and nobody else's: `new` allocated and
        // zeroed `len_bytes`, which only `drop` frees. The caller keeps the device from using them, and `&mut self`
        // everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len_bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if !self.context.is_lost() {
            // SAFETY: cuda.h demands memory of `cuMemHostAlloc` that was not freed: `new` allocated it, and nothing else
            // frees it. The call waits for copies; memory that the device may use for ever is leaked.
            let freed = self.context.call("cuMemFreeHost", |f| unsafe {
                (f.host_free)(self.start.cast())
            });
            if let Err(e) = freed {
                tracing::debug!(%e, "pinned memory is lost");
            }
        }
    }
}

/// A queue of the device's work.
pub(super) struct Stream {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: `Send` demands that another thread may use the value: a stream belongs to a context, not to a thread.
unsafe impl Send for Stream {}
// SAFETY: `Sync` demands that uses by several threads do not race: the driver locks the queue of a stream.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(context: &Arc<Context>) -> Result<Stream, CudaError> {
        let mut handle = ptr::null_mut();
        // SAFETY: cuda.h demands a valid pointer to one handle, which is a local variable, and a current context, which
        // `call` has set.
        context.call("cuStreamCreate", |f| unsafe {
            (f.stream_create)(&mut handle, STREAM_NON_BLOCKING)
        })?;
        Ok(Stream {
            context: Arc::clone(context),
            handle,
        })
    }

    /// For a library that takes CUDA's own handle; valid while the stream is borrowed.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Waits, possibly for ever, until the queue is empty.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the driver demands a live stream: the handle is of `new` and destroyed only by `drop`, so it is valid
        // while `self` is borrowed.
        self.context.call("cuStreamSynchronize", |f| unsafe {
            (f.stream_synchronize)(self.handle)
        })
    }

    /// Work queued from now on starts after `event`, which must have been recorded.
    pub fn wait_for(&self, event: &StreamMark) -> Result<(), CudaError> {
        // SAFETY: the driver demands a live stream and a live event: both handles are of `new` and destroyed only by
        // `drop`, so they are valid while they are borrowed.
        self.context.call("cuStreamWaitEvent", |f| unsafe {
            (f.stream_wait)(self.handle, event.handle, 0)
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.context.is_lost() {
            // SAFETY: the driver demands a live stream that is not used afterwards: the handle is of `new`, and nothing
            // uses it after `drop`; the driver keeps the stream until queued work has ended.
            let gone = self.context.call("cuStreamDestroy", |f| unsafe {
                (f.stream_destroy)(self.handle)
            });
            if let Err(e) = gone {
                tracing::debug!(%e, "stream is lost");
            }
        }
    }
}

/// A mark in a stream.
pub(super) struct StreamMark {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: `Send` demands that another thread may use the value: an event belongs to a context, not to a thread.
unsafe impl Send for StreamMark {}
// SAFETY: `Sync` demands that uses by several threads do not race: the driver locks an event that several threads
// record, await or read.
unsafe impl Sync for StreamMark {}

impl StreamMark {
    pub fn new(context: &Arc<Context>) -> Result<StreamMark, CudaError> {
        let mut handle = ptr::null_mut();
        // SAFETY: cuda.h demands a valid pointer to one handle, which is a local variable, and a current context, which
        // `call` has set.
        context.call("cuEventCreate", |f| unsafe {
            (f.event_create)(&mut handle, EVENT_BLOCKING_SYNC)
        })?;
        Ok(StreamMark {
            context: Arc::clone(context),
            handle,
        })
    }

    /// Puts the mark after the work queued so far.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: the driver demands a live event and a live stream: both handles are of `new` and destroyed only by
        // `drop`, so they are valid while they are borrowed. A stream of another context makes the call fail and does
        // no harm.
        self.context.call("cuEventRecord", |f| unsafe {
            (f.event_record)(self.handle, stream.handle)
        })
    }

    /// Waits, possibly for ever, until the stream has reached the mark.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the driver demands a live event: the handle is of `new` and destroyed only by `drop`, so it is valid
        // while `self` is borrowed.
        self.context.call("cuEventSynchronize", |f| unsafe {
            (f.event_synchronize)(self.handle)
        })
    }

    /// Nanoseconds of the device's clock from `earlier` to this mark; both must have been reached.
    pub fn ns_since(&self, earlier: &StreamMark) -> Result<u64, CudaError> {
        let mut ms = 0.0;
        // SAFETY: the driver demands room for one number and two live events: the pointer is to a local variable; both
        // handles are of `new` and destroyed only by `drop`. An event that was not reached yet makes the call fail and
        // does no harm.
        self.context.call("cuEventElapsedTime", |f| unsafe {
            (f.event_elapsed)(&mut ms, earlier.handle, self.handle)
        })?;
        Ok((f64::from(ms) * 1e6) as u64)
    }
}

impl Drop for StreamMark {
    fn drop(&mut self) {
        if !self.context.is_lost() {
            // SAFETY: the driver demands a live event that is not used afterwards: the handle is of `new`, and nothing
            // uses it after `drop`; the driver keeps the event until queued work has passed it.
            let gone = self.context.call("cuEventDestroy", |f| unsafe {
                (f.event_destroy)(self.handle)
            });
            if let Err(e) = gone {
                tracing::debug!(%e, "event is lost");
            }
        }
    }
}

/// The firmware's version of the machine's only GPU, as the kernel's driver shows it below `proc`; `None` with several,
/// because nothing says which of them is used.
fn firmware(proc: &Path) -> Option<String> {
    let mut gpus = std::fs::read_dir(proc.join("driver/nvidia/gpus")).ok()?;
    let (Some(Ok(gpu)), None) = (gpus.next(), gpus.next()) else {
        return None;
    };
    let text = longshore_facts::small_text(&gpu.path().join("information")).ok()?;
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let mut ours = pairs.filter(|(name, _)| name.trim() == "GPU Firmware");
    let version = ours.next().map(|(_, value)| value.trim().to_owned())?;
    (!version.is_empty() && version != "N/A").then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> CudaError {
        CudaError {
            call: "cuEventSynchronize",
            code,
            name: "CUDA_ERROR".into(),
        }
    }

    #[test]
    fn errors_that_end_a_context_are_distinguished_from_others() {
        for code in [
            700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 214, 46, 810, 999,
        ] {
            assert!(error(code).is_final(), "{code}");
        }
        for code in [
            1, 2, 35, 100, 101, 200, 209, 218, 400, 500, 600, 701, 704, 705, 800, 801,
        ] {
            assert!(!error(code).is_final(), "{code}");
        }
    }

    #[test]
    fn the_firmware_of_the_only_gpu_is_known_and_of_two_nobody_knows_which() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(firmware(proc.path()), None);
        let put = |address: &str, version: &str| {
            let gpu = proc.path().join("driver/nvidia/gpus").join(address);
            std::fs::create_dir_all(&gpu).unwrap();
            let text = format!("Model: \t\t NVIDIA H200\nGPU Firmware: \t {version}\n");
            std::fs::write(gpu.join("information"), text).unwrap();
        };
        put("0000:18:00.0", "N/A");
        assert_eq!(firmware(proc.path()), None);
        put("0000:18:00.0", "580.95.05");
        assert_eq!(firmware(proc.path()).as_deref(), Some("580.95.05"));
        put("0000:2a:00.0", "580.95.05");
        assert_eq!(firmware(proc.path()), None);
    }

    #[test]
    fn a_library_that_is_not_the_driver_is_refused_by_name() {
        let refusal = |name: &str| match Driver::load(Some(name.as_ref())) {
            Err(refusal) => refusal.text,
            Ok(_) => panic!("{name} was taken"),
        };
        for (name, why) in [
            ("off", "LONGSHORE_CUDA=off"),
            (
                "/nowhere/libcuda.so.1",
                "cannot load /nowhere/libcuda.so.1: ",
            ),
            ("libc.so.6", "libc.so.6: it has no function cuInit"),
        ] {
            assert!(refusal(name).contains(why), "{}", refusal(name));
        }
    }
}
