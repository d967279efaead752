//! The C entry points, as `qatzip.h` of QATzip 1.3 declares them.
//!
//! Invariants
//! - The structures have the layout of `qatzip.h`.
//! - A null pointer or a value out of range is answered with `QZ_PARAMS` by every function that takes sessions or
//!   lengths; it is not read through.
//! - Compression and decompression write no bytes beyond the length that the caller gave.
//!
//! Leaves to others: service, faults and memory (`device.rs`), and the members' layout (`members.rs`).
use std::ffi::{c_int, c_uchar, c_uint, c_ulong, c_void};
use std::slice;

use crate::device::{Answer, code, device, holds_exit};
use crate::script::Defaults;

#[repr(C)]
pub struct Session {
    hw_session_stat: i64,
    thd_sess_stat: c_int,
    internal: *mut Params,
    total_in: c_ulong,
    total_out: c_ulong,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Params {
    direction: c_uint,
    comp_lvl: c_uint,
    comp_algorithm: c_uchar,
    max_forks: c_uint,
    sw_backup: c_uchar,
    hw_buff_sz: c_uint,
    strm_buff_sz: c_uint,
    input_sz_thrshold: c_uint,
    req_cnt_thrshold: c_uint,
    wait_cnt_thrshold: c_uint,
    polling_mode: c_uint,
    is_sensitive_mode: c_uint,
    huffman_hdr: c_uint,
    data_fmt: c_uint,
}

const GZIP_EXT: c_uint = 2;

const DEFAULTS: Params = Params {
    direction: 2,
    comp_lvl: 1,
    comp_algorithm: 8,
    max_forks: 3,
    sw_backup: 1,
    hw_buff_sz: 65_536,
    strm_buff_sz: 65_536,
    input_sz_thrshold: 1024,
    req_cnt_thrshold: 32,
    wait_cnt_thrshold: 8,
    polling_mode: 0,
    is_sensitive_mode: 0,
    huffman_hdr: 0,
    data_fmt: GZIP_EXT,
};

impl Params {
    /// The ranges of `qzCheckParams`.
    fn in_range(&self) -> bool {
        self.direction <= 2
            && (1..=12).contains(&self.comp_lvl)
            && self.comp_algorithm == 8
            && self.sw_backup <= 1
            && self.hw_buff_sz.is_power_of_two()
            && (1 << 10..=512 << 10).contains(&self.hw_buff_sz)
            && (1 << 10..=(2 << 20) - (5 << 10)).contains(&self.strm_buff_sz)
            && self.input_sz_thrshold >= 128
            && (1..=32).contains(&self.req_cnt_thrshold)
            && self.polling_mode <= 1
            && self.is_sensitive_mode <= 1
            && self.huffman_hdr <= 1
            && self.data_fmt == GZIP_EXT
    }
}

/// # Safety
/// None is needed here: `session` is only compared with null. `qatzip.h` requires a valid session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzInit(session: *mut Session, sw_backup: c_uchar) -> c_int {
    if session.is_null() || sw_backup > 1 {
        return code::PARAMS;
    }
    match (device().init(), sw_backup) {
        // Software would serve the call.
        (..0, 1) => code::OK,
        (answer, _) => answer,
    }
}

/// # Safety
/// `defaults` must be valid for writing the structure, and for two more words where the script asks for `Wide`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzGetDefaultsDeflate(defaults: *mut Params) -> c_int {
    let mut values = DEFAULTS;
    match device().defaults() {
        Defaults::Documented => {}
        Defaults::Other => values.comp_lvl = 6,
        // SAFETY: a caller whose script asks for this answer owes room for two more words after the structure.
        Defaults::Wide => unsafe { defaults.add(1).cast::<[usize; 2]>().write_unaligned([0; 2]) },
    }
    // SAFETY: qatzip.h obliges the caller: `defaults` is valid for writing the structure.
    unsafe { defaults.write(values) };
    code::OK
}

/// # Safety
/// `session` and `params` must be null or point to valid structures that nobody else uses during the call. `internal`
/// must be null, or made by this function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzSetupSessionDeflate(
    session: *mut Session,
    params: *mut Params,
) -> c_int {
    // SAFETY: qatzip.h obliges the caller: `session` and `params` are null or point to valid structures, which nobody
    // else uses during the call.
    let (session, params) = unsafe { (session.as_mut(), params.as_ref()) };
    let Some(session) = session else {
        return code::PARAMS;
    };
    let params = params.copied().unwrap_or(DEFAULTS);
    if !params.in_range() {
        return code::PARAMS;
    }
    if !session.internal.is_null() {
        return code::DUPLICATE;
    }
    let answer = device().setup();
    session.hw_session_stat = answer.into();
    if answer == code::OK {
        session.internal = Box::into_raw(Box::new(params));
    }
    answer
}

/// # Safety
/// `session` must be null or point to a session that nobody else uses during the call, and whose `internal` is null or
/// made by `qzSetupSessionDeflate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzTeardownSession(session: *mut Session) -> c_int {
    // SAFETY: qatzip.h obliges the caller: `session` is null or points to a session that nobody else uses during the
    // call.
    let Some(session) = (unsafe { session.as_mut() }) else {
        return code::PARAMS;
    };
    if !session.internal.is_null() {
        // SAFETY: `qzSetupSessionDeflate` made the box, the caller must not change the pointer, and it becomes null
        // below.
        drop(unsafe { Box::from_raw(session.internal) });
        session.internal = std::ptr::null_mut();
    }
    code::OK
}

/// # Safety
/// None is needed here: `session` is only compared with null. `qatzip.h` requires a valid session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzClose(session: *mut Session) -> c_int {
    if session.is_null() {
        code::PARAMS
    } else {
        code::OK
    }
}

/// # Safety
/// Each pointer must be null or valid: `session` for a session that was set up, `src` for reading `*src_len` bytes,
/// `dest` for writing `*dest_len` bytes, which do not overlap. Nobody else may use them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzCompress(
    session: *mut Session,
    src: *const c_uchar,
    src_len: *mut c_uint,
    dest: *mut c_uchar,
    dest_len: *mut c_uint,
    last: c_uint,
) -> c_int {
    if last > 1 {
        return code::PARAMS;
    }
    // SAFETY: qatzip.h obliges our caller to what `call` demands: each pointer is null or valid, and nobody else uses the
    // memory that it points to during the call.
    unsafe {
        call(session, src, src_len, dest, dest_len, |params, src, out| {
            let (level, chunk_len) = (params.comp_lvl, params.hw_buff_sz as usize);
            let mut answer = device().compress(src, level, chunk_len, out);
            if answer.code != code::OK && params.sw_backup == 1 {
                answer = device().in_software(src, level, chunk_len, out);
            }
            if last == 0 {
                // A stream that continues: the end of its last member is still to come.
                answer.reported = answer.reported.saturating_sub(8);
            }
            answer
        })
    }
}

/// # Safety
/// Each pointer must be null or valid: `session` for a session that was set up, `src` for reading `*src_len` bytes,
/// `dest` for writing `*dest_len` bytes, which do not overlap. Nobody else may use them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzDecompress(
    session: *mut Session,
    src: *const c_uchar,
    src_len: *mut c_uint,
    dest: *mut c_uchar,
    dest_len: *mut c_uint,
) -> c_int {
    // SAFETY: qatzip.h obliges our caller to what `call` demands: each pointer is null or valid, and nobody else uses the
    // memory that it points to during the call.
    unsafe {
        call(session, src, src_len, dest, dest_len, |params, src, out| {
            // Members that hardware cannot take go to software, or are refused if software is not allowed.
            let large = |m: crate::members::Member| m.plain_len > params.hw_buff_sz as usize;
            if crate::members::Member::read(src).is_some_and(large) && params.sw_backup == 0 {
                return Answer {
                    code: code::FAIL,
                    taken: 0,
                    reported: 0,
                };
            }
            device().decompress(src, out)
        })
    }
}

/// The common part of both directions: a session that was set up, lengths that go in and out.
///
/// # Safety
/// The pointers are null or as `qatzip.h` requires, and nobody else uses their targets during the call.
unsafe fn call(
    session: *mut Session,
    src: *const c_uchar,
    src_len: *mut c_uint,
    dest: *mut c_uchar,
    dest_len: *mut c_uint,
    work: impl FnOnce(&Params, &[u8], &mut [u8]) -> Answer,
) -> c_int {
    if session.is_null()
        || src.is_null()
        || src_len.is_null()
        || dest.is_null()
        || dest_len.is_null()
    {
        return code::PARAMS;
    }
    // SAFETY: `session` is not null, and the caller owes one that nobody else uses during the call. Its `internal` is
    // null or was made by `qzSetupSessionDeflate`.
    let (session, params) = unsafe { (&mut *session, (*session).internal.as_ref()) };
    let Some(params) = params else {
        return code::PARAMS;
    };
    // SAFETY: none of the pointers is null. The caller owes `*src_len` readable bytes at `src` and `*dest_len` writable
    // ones at `dest`, which do not overlap and which nobody else uses during the call.
    let (from, to) = unsafe {
        (
            slice::from_raw_parts(src, *src_len as usize),
            slice::from_raw_parts_mut(dest, *dest_len as usize),
        )
    };
    let answer = work(params, from, to);
    // SAFETY: neither pointer is null, and the caller owes that both are valid for writing a length.
    unsafe {
        *src_len = answer.taken;
        *dest_len = answer.reported;
    }
    session.thd_sess_stat = answer.code;
    session.total_in += c_ulong::from(answer.taken);
    session.total_out += c_ulong::from(answer.reported);
    answer.code
}

#[unsafe(no_mangle)]
pub extern "C" fn qzMalloc(len: usize, _numa: c_int, _pinned: c_int) -> *mut c_void {
    device().allocate(len)
}

/// # Safety
/// `place` must be null or a place that `qzMalloc` gave, and it must no longer be used. Other addresses are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qzFree(place: *mut c_void) {
    device().free(place);
}

#[unsafe(no_mangle)]
pub extern "C" fn qzMemFindAddr(place: *mut c_uchar) -> c_int {
    device().is_pinned(place.cast()).into()
}

/// Not supported, as in QATzip on Linux.
#[unsafe(no_mangle)]
pub extern "C" fn qzGetSoftwareComponentVersionList(
    _list: *mut c_void,
    _count: *mut c_uint,
) -> c_int {
    code::FAIL
}

#[unsafe(no_mangle)]
pub extern "C" fn qzSetLogLevel(level: c_uint) -> c_uint {
    level
}

/// For tests: waits until that many calls have begun.
#[unsafe(no_mangle)]
pub extern "C" fn double_wait_until_begun(calls: u64) {
    device().wait_until_begun(calls);
}

/// QATzip's destructor waits for its threads and frees memory that calls in flight still use. A process that runs it
/// then does not end.
extern "C" fn wait_for_calls() {
    while holds_exit() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = wait_for_calls;
