//! The functions of `libcuda.so.1`, and the functions with which a test controls the double.
//!
//! Callers keep the duties of cuda.h: a pointer for an answer is valid for one value of its type, a name is a C string, and
//! a launch has an argument for each parameter of its kernel. Numbers that a caller may get wrong are looked up instead:
//! addresses of memory, streams and events. A panic in one of these functions aborts the test's process.
//!
//! Invariants
//! - Each function keeps the name and the C signature of cuda.h, and counts its calls, except `cuGetErrorName` and
//!   those that tests call (`double_*`).
//! - A handle that names no stream or event is refused with a CUDA error; it is never used as an address.
//!
//! Leaves to others: the device's state and work (`world.rs`), the functions of nvCOMP (`nvcomp.rs`), and the faults
//! (`script.rs`).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::script::Script;
use crate::world::{self, Guard, Kind, Work};

/// Streams and events are numbers here, offset by one so that none is null.
fn handle(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number + 1)
}

/// Null becomes a number that is no stream: calls answer that the handle is invalid.
fn number(handle: *mut c_void) -> usize {
    handle.addr().wrapping_sub(1)
}

/// The context, the module and the kernel: one of each exists.
const THE_ONE: *mut c_void = std::ptr::without_provenance_mut(0x10);

const INVALID_DEVICE: c_int = 101;
const INVALID_IMAGE: c_int = 200;
const INVALID_HANDLE: c_int = 400;
const NOT_FOUND: c_int = 500;

fn code(result: Result<(), i32>) -> c_int {
    result.err().unwrap_or(0)
}

/// Runs a call on the world and returns its code.
fn call(name: &str, run: impl FnOnce(&mut Guard) -> Result<(), i32>) -> c_int {
    code(world::enter_current(name).and_then(|mut world| run(&mut world)))
}

/// Writes an answer where the caller wants it.
///
/// # Safety
/// `place` must be aligned and valid for writing one `T`.
unsafe fn put<T>(place: *mut T, value: T) {
    // SAFETY: the caller of `put` owes a `place` that may be written with a `T`.
    unsafe { place.write(value) }
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    const NO_DEVICE: i32 = 100;
    code(world::enter("cuInit").and_then(|world| {
        if world.script.gpus < 1 {
            return Err(NO_DEVICE);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: cuda.h obliges the caller: `version` is valid for writing a number.
    code(world::enter("cuDriverGetVersion").map(|_| unsafe { put(version, 13_000) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: cuda.h obliges the caller: `count` is valid for writing a number.
    code(world::enter("cuDeviceGetCount").map(|w| unsafe { put(count, w.script.gpus) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    code(world::enter("cuDeviceGet").and_then(|world| {
        if !(0..world.script.gpus).contains(&ordinal) {
            return Err(INVALID_DEVICE);
        }
        // SAFETY: cuda.h obliges the caller: `device` is valid for writing a number.
        unsafe { put(device, ordinal) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) -> c_int {
    const NAME: &CStr = c"a double of a GPU";
    code(world::enter("cuDeviceGetName").map(|_| {
        assert!(len as usize > NAME.count_bytes());
        // SAFETY: cuda.h obliges the caller: `name` is valid for writing `len` bytes, which are enough, as asserted.
        unsafe { NAME.as_ptr().copy_to(name, NAME.count_bytes() + 1) };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    which: c_int,
    _device: c_int,
) -> c_int {
    let found = match which {
        75 => 9,
        76 => 0,
        _ => 1,
    };
    // SAFETY: cuda.h obliges the caller: `value` is valid for writing a number.
    code(world::enter("cuDeviceGetAttribute").map(|_| unsafe { put(value, found) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) -> c_int {
    // SAFETY: cuda.h obliges the caller: `context` is valid for writing a handle.
    code(world::enter("cuDevicePrimaryCtxRetain").map(|_| unsafe { put(context, THE_ONE) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    code(world::enter("cuDevicePrimaryCtxRelease_v2").map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    code(world::enter("cuCtxSetCurrent").map(|_| world::set_current(context == THE_ONE)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, all: *mut usize) -> c_int {
    call("cuMemGetInfo_v2", |world| {
        let (f, a) = world.memory();
        // SAFETY: cuda.h obliges the caller: `free` is valid for writing a number.
        unsafe { put(free, f) };
        // SAFETY: cuda.h obliges the caller: `all` is valid for writing a number.
        unsafe { put(all, a) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(start: *mut u64, len: usize) -> c_int {
    call("cuMemAlloc_v2", |world| {
        let made = world.allocate(len, Kind::Device)?;
        // SAFETY: cuda.h obliges the caller: `start` is valid for writing an address.
        unsafe { put(start, made) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(start: u64) -> c_int {
    call("cuMemFree_v2", |world| world.free(start, Kind::Device))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(start: *mut *mut c_void, len: usize, _flags: c_uint) -> c_int {
    call("cuMemHostAlloc", |world| {
        let made = world.allocate(len, Kind::Pinned)?;
        // SAFETY: cuda.h obliges the caller: `start` is valid for writing an address.
        unsafe { put(start, made as *mut c_void) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(start: *mut c_void) -> c_int {
    call("cuMemFreeHost", |world| {
        world.free(start as u64, Kind::Pinned)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    len: usize,
    stream: *mut c_void,
) -> c_int {
    call("cuMemcpyHtoDAsync_v2", |world| {
        world.copy(number(stream), to, from as u64, len, true)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    len: usize,
    stream: *mut c_void,
) -> c_int {
    call("cuMemcpyDtoHAsync_v2", |world| {
        world.copy(number(stream), to as u64, from, len, false)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(at: u64, byte: u8, len: usize, stream: *mut c_void) -> c_int {
    call("cuMemsetD8Async", |world| {
        world.queue(number(stream), Work::Fill { at, byte, len })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> c_int {
    call("cuStreamCreate", |world| {
        let made = world.new_stream();
        // SAFETY: cuda.h obliges the caller: `stream` is valid for writing a handle.
        unsafe { put(stream, handle(made)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> c_int {
    call("cuStreamDestroy_v2", |world| {
        world.end_stream(number(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_int {
    call("cuStreamSynchronize", |world| {
        world.run(number(stream), u64::MAX)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> c_int {
    call("cuStreamWaitEvent", |world| {
        world.wait(number(stream), number(event))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_int {
    call("cuEventCreate", |world| {
        let made = world.new_event();
        // SAFETY: cuda.h obliges the caller: `event` is valid for writing a handle.
        unsafe { put(event, handle(made)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(_event: *mut c_void) -> c_int {
    call("cuEventDestroy_v2", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int {
    call("cuEventRecord", |world| {
        world.record(number(event), number(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: *mut c_void) -> c_int {
    call("cuEventSynchronize", |world| world.reach(number(event)))
}

/// One millisecond for each piece of work: a value for calculations, not a measurement.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(
    ms: *mut f32,
    start: *mut c_void,
    end: *mut c_void,
) -> c_int {
    call("cuEventElapsedTime", |world| {
        let pieces = world.between(number(start), number(end))?;
        // SAFETY: cuda.h obliges the caller: `ms` is valid for writing a number.
        unsafe { put(ms, pieces as f32) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_int {
    call("cuModuleLoadData", |world| {
        // SAFETY: cuda.h obliges the caller: PTX ends with a zero byte, and `image` lives during the call.
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
        world.load_kernel(&text).ok_or(INVALID_IMAGE)?;
        // SAFETY: cuda.h obliges the caller: `module` is valid for writing a handle.
        unsafe { put(module, THE_ONE) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    _module: *mut c_void,
    name: *const c_char,
) -> c_int {
    call("cuModuleGetFunction", |world| {
        // SAFETY: cuda.h obliges the caller: `name` is a C string that lives during the call.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        if world.kernel().is_none_or(|kernel| kernel.name() != name) {
            return Err(NOT_FOUND);
        }
        // SAFETY: cuda.h obliges the caller: `function` is valid for writing a handle.
        unsafe { put(function, THE_ONE) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
// The signature is the library's.
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cuLaunchKernel(
    _function: *mut c_void,
    blocks: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    threads: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: *mut c_void,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    call("cuLaunchKernel", |world| {
        let kernel = world.kernel().ok_or(INVALID_HANDLE)?;
        // SAFETY: cuda.h obliges the caller: `arguments` has a pointer to a value for each of the kernel's parameters,
        // all of which have eight bytes.
        let argument = |n: usize| unsafe { arguments.add(n).read().cast::<u64>().read() };
        let work = Work::Kernel {
            arguments: (0..kernel.parameters()).map(argument).collect(),
            grid: (blocks, threads),
            kernel,
        };
        world.queue(number(stream), work)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    let text = match code {
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        100 => c"CUDA_ERROR_NO_DEVICE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        214 => c"CUDA_ERROR_ECC_UNCORRECTABLE",
        400 => c"CUDA_ERROR_INVALID_HANDLE",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        _ => return 1,
    };
    // SAFETY: cuda.h obliges the caller: `name` is valid for writing an address.
    unsafe { put(name, text.as_ptr()) };
    0
}

/// Replaces the script; 0 if it was understood.
///
/// # Safety
/// `text` must be a C string that lives during the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn double_script(text: *const c_char) -> c_int {
    // SAFETY: the caller of `double_script` owes a C string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    match Script::parse(&text) {
        Ok(script) => {
            world::lock().script = script;
            0
        }
        Err(_) => 1,
    }
}

/// Lets hanging calls continue.
#[unsafe(no_mangle)]
extern "C" fn double_release() {
    world::release();
}

/// How often a function was called.
///
/// # Safety
/// `name` must be a C string that lives during the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn double_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller of `double_calls` owes a C string that lives during the call.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    world::lock().calls(&name)
}

/// Allocated bytes, on the device and pinned.
#[unsafe(no_mangle)]
extern "C" fn double_used() -> u64 {
    let world = world::lock();
    (world.used(Kind::Device) + world.used(Kind::Pinned)) as u64
}
