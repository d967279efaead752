//! The declarations of `qatzip.h`: structures, parameters, return codes.
//!
//! Invariants
//! - Sizes and offsets of the structures are asserted when this is compiled, and compared with the library's own when
//!   it is loaded: a library built with other members is refused ([`Params::read_by`]).
//! - Every return code of the header has a name and a fault; an unknown one is a failure of the device.
//! - After a code that is not clean, the device counts as still writing ([`is_clean`]).
//!
//! Leaves to others: loading the library and calling it (`library.rs`).
//!
//! Source: QATzip 1.1.2 to 1.3.1, x86-64 Linux. `QzSession_T` and `QzSessionParamsDeflate_T` have one layout in all of
//! them; a library built with `ERR_INJECTION` has another.

use std::ffi::{c_int, c_uchar, c_uint, c_ulong, c_void};

use longshore_codec::Level;

use crate::Fault;

pub type Init = unsafe extern "C" fn(*mut Session, c_uchar) -> c_int;
pub type Setup = unsafe extern "C" fn(*mut Session, *mut Params) -> c_int;
pub type Defaults = unsafe extern "C" fn(*mut Params) -> c_int;
pub type Compress = unsafe extern "C" fn(
    *mut Session,
    *const c_uchar,
    *mut c_uint,
    *mut c_uchar,
    *mut c_uint,
    c_uint,
) -> c_int;
pub type Decompress = unsafe extern "C" fn(
    *mut Session,
    *const c_uchar,
    *mut c_uint,
    *mut c_uchar,
    *mut c_uint,
) -> c_int;
pub type Teardown = unsafe extern "C" fn(*mut Session) -> c_int;
pub type Malloc = unsafe extern "C" fn(usize, c_int, c_int) -> *mut c_void;
pub type Free = unsafe extern "C" fn(*mut c_void);
pub type SetLogLevel = unsafe extern "C" fn(c_uint) -> c_uint;

/// `QzSession_T`. The library keeps pointers to it: it must not move while it is set up.
#[repr(C)]
#[derive(Debug)]
pub struct Session {
    pub hw_session_stat: i64,
    pub thd_sess_stat: c_int,
    pub internal: *mut c_void,
    pub total_in: c_ulong,
    pub total_out: c_ulong,
}

impl Session {
    pub const EMPTY: Session = Session {
        hw_session_stat: 0,
        thd_sess_stat: 0,
        internal: std::ptr::null_mut(),
        total_in: 0,
        total_out: 0,
    };
}

/// `QzSessionParamsDeflate_T`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Params {
    pub direction: c_uint,
    pub comp_lvl: c_uint,
    pub comp_algorithm: c_uchar,
    pub max_forks: c_uint,
    pub sw_backup: c_uchar,
    pub hw_buff_sz: c_uint,
    pub strm_buff_sz: c_uint,
    pub input_sz_thrshold: c_uint,
    pub req_cnt_thrshold: c_uint,
    pub wait_cnt_thrshold: c_uint,
    pub polling_mode: c_uint,
    pub is_sensitive_mode: c_uint,
    pub huffman_hdr: c_uint,
    pub data_fmt: c_uint,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<GuardPage>() == 256);
    assert!(size_of::<Session>() == 40 && offset_of!(Session, internal) == 16);
    assert!(size_of::<Params>() == 56 && offset_of!(Params, data_fmt) == 52);
    assert!(offset_of!(Params, hw_buff_sz) == 20 && offset_of!(Params, is_sensitive_mode) == 44);
};

/// Plain bytes of one member: the amount that the library gives to the hardware in one request.
pub const CHUNK_LEN: usize = 64 << 10;
/// Shorter inputs go to the library's own software, which is zlib. The smallest number it accepts.
pub const INPUT_LEN_MIN: usize = 128;
/// `QZ_DEFLATE_GZIP_EXT`.
pub const GZIP_EXT: c_uint = 2;
/// `QZ_DIR_BOTH`.
const BOTH: c_uint = 2;
/// `QZ_DEFLATE`.
const DEFLATE: c_uchar = 8;

#[repr(C)]
struct GuardPage {
    params: Params,
    canary: [u8; 200],
}

const CANARY: u8 = 0xa5;

impl Params {
    /// The library's defaults, read by `defaults`. `None` if the structure differs from the one declared here: the
    /// library was built with other members, or has other defaults than documented.
    ///
    /// # Safety
    /// `defaults` is `qzGetDefaultsDeflate`, which writes at most 256 bytes.
    pub unsafe fn read_by(defaults: Defaults) -> Option<Params> {
        let mut guarded = GuardPage {
            params: Params::default(),
            canary: [CANARY; 200],
        };
        // SAFETY: `defaults` demands room for what it writes: at most 256 bytes, as the caller says, and `guarded` has
        // as many.
        let code = unsafe { defaults((&raw mut guarded).cast()) };
        let params = guarded.params;
        let documented = (1, DEFLATE, CHUNK_LEN as u32, GZIP_EXT, 8);
        let found = (
            params.comp_lvl,
            params.comp_algorithm,
            params.hw_buff_sz,
            params.data_fmt,
            params.wait_cnt_thrshold,
        );
        let whole = guarded.canary.iter().all(|byte| *byte == CANARY);
        (code == code::OK && whole && found == documented).then_some(params)
    }

    /// For our sessions: both directions, whole members, no software fallback, no choice between them by latency.
    pub fn for_session(self, level: u32) -> Params {
        Params {
            direction: BOTH,
            comp_lvl: level,
            sw_backup: 0,
            hw_buff_sz: CHUNK_LEN as u32,
            input_sz_thrshold: INPUT_LEN_MIN as u32,
            req_cnt_thrshold: 32,
            is_sensitive_mode: 0,
            data_fmt: GZIP_EXT,
            ..self
        }
    }
}

/// The library's level that serves `level`. Hardware has three depths: 1 to 5, 6 to 8, 9 to 12; devices before the
/// 4xxx have fewer, and levels from 9 up would go to the library's software.
pub fn level_number(level: Level, deepest: u32) -> u32 {
    let number = u32::try_from(longshore_codec::deflate::number(level)).unwrap_or(1);
    number.clamp(1, deepest)
}

/// Bytes that hold any result of `plain_len` bytes: 9/8 of each chunk and 1 KiB, and header and footer.
pub const fn bound(plain_len: usize) -> usize {
    plain_len.div_ceil(CHUNK_LEN) * (CHUNK_LEN / 8 * 9 + 1024 + 32)
}

/// `qatzip.h`, return codes.
pub mod code {
    use std::ffi::c_int;

    pub const OK: c_int = 0;
    pub const DUPLICATE: c_int = 1;
    pub const NO_INST_ATTACH: c_int = 13;
    pub const LOW_MEM: c_int = 14;
    pub const LOW_DEST_MEM: c_int = 15;
    pub const NONE: c_int = 100;
    pub const PARAMS: c_int = -1;
    pub const BUF_ERROR: c_int = -3;
    pub const INTEG: c_int = -100;
    pub const NOSW_NO_HW: c_int = -101;
    pub const NOSW_NO_MDRV: c_int = -102;
    pub const NOSW_NO_INST_ATTACH: c_int = -103;
    pub const NOSW_LOW_MEM: c_int = -104;

    const NAMES: [(c_int, &str); 26] = [
        (OK, "QZ_OK"),
        (DUPLICATE, "QZ_DUPLICATE"),
        (2, "QZ_FORCE_SW"),
        (11, "QZ_NO_HW"),
        (12, "QZ_NO_MDRV"),
        (NO_INST_ATTACH, "QZ_NO_INST_ATTACH"),
        (LOW_MEM, "QZ_LOW_MEM"),
        (LOW_DEST_MEM, "QZ_LOW_DEST_MEM"),
        (16, "QZ_UNSUPPORTED_FMT"),
        (NONE, "QZ_NONE"),
        (PARAMS, "QZ_PARAMS"),
        (-2, "QZ_FAIL"),
        (BUF_ERROR, "QZ_BUF_ERROR"),
        (-4, "QZ_DATA_ERROR"),
        (-5, "QZ_TIMEOUT"),
        (INTEG, "QZ_INTEG"),
        (NOSW_NO_HW, "QZ_NOSW_NO_HW"),
        (NOSW_NO_MDRV, "QZ_NOSW_NO_MDRV"),
        (NOSW_NO_INST_ATTACH, "QZ_NOSW_NO_INST_ATTACH"),
        (NOSW_LOW_MEM, "QZ_NOSW_LOW_MEM"),
        (-105, "QZ_NO_SW_AVAIL"),
        (-116, "QZ_NOSW_UNSUPPORTED_FMT"),
        (-117, "QZ_POST_PROCESS_ERROR"),
        (-118, "QZ_METADATA_OVERFLOW"),
        (-119, "QZ_OUT_OF_RANGE"),
        (-200, "QZ_NOT_SUPPORTED"),
    ];

    /// For messages: `QZ_FAIL (-2)`.
    pub fn text(code: c_int) -> String {
        let known = NAMES.iter().find(|known| known.0 == code);
        match known {
            Some((_, name)) => format!("{name} ({code})"),
            None => format!("code {code}"),
        }
    }
}

/// The fault that a call's return code means for its job; `None` for success.
pub fn fault_of(code: c_int) -> Option<Fault> {
    Some(match code {
        code::OK => return None,
        // All instances are taken, or dead: the library does not distinguish the two.
        code::NO_INST_ATTACH | code::NOSW_NO_INST_ATTACH => Fault::Busy,
        code::LOW_MEM | code::NOSW_LOW_MEM => Fault::Memory,
        code::BUF_ERROR | code::LOW_DEST_MEM => Fault::NoRoom,
        code::INTEG => Fault::Corrupt,
        code::NONE | 11 | 12 | code::NOSW_NO_HW | code::NOSW_NO_MDRV => Fault::Down,
        // Failure, time-out, wrong parameters, and codes of later versions.
        code => Fault::Device { code },
    })
}

/// Whether the library is known to be done with its buffers when it returns this code: it refused the call, or every
/// request had been answered. After other codes a device may still write.
pub fn is_clean(code: c_int) -> bool {
    match code {
        code::OK | code::BUF_ERROR | code::PARAMS | code::NONE => true,
        _ => matches!(
            fault_of(code),
            Some(Fault::Busy | Fault::Memory | Fault::NoRoom | Fault::Down)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_return_code_of_the_header_has_its_fault() {
        // QATzip 1.3.1, include/qatzip.h.
        for (code, fault) in [
            (1, Fault::Device { code: 1 }),
            (2, Fault::Device { code: 2 }),
            (11, Fault::Down),
            (12, Fault::Down),
            (13, Fault::Busy),
            (14, Fault::Memory),
            (15, Fault::NoRoom),
            (16, Fault::Device { code: 16 }),
            (100, Fault::Down),
            (-1, Fault::Device { code: -1 }),
            (-2, Fault::Device { code: -2 }),
            (-3, Fault::NoRoom),
            (-4, Fault::Device { code: -4 }),
            (-5, Fault::Device { code: -5 }),
            (-100, Fault::Corrupt),
            (-101, Fault::Down),
            (-102, Fault::Down),
            (-103, Fault::Busy),
            (-104, Fault::Memory),
            (-105, Fault::Device { code: -105 }),
            (-116, Fault::Device { code: -116 }),
            (-117, Fault::Device { code: -117 }),
            (-118, Fault::Device { code: -118 }),
            (-119, Fault::Device { code: -119 }),
            (-200, Fault::Device { code: -200 }),
        ] {
            assert_eq!(fault_of(code), Some(fault), "{}", code::text(code));
            assert!(code::text(code).starts_with("QZ_"), "{code}");
        }
        assert_eq!(fault_of(0), None);
        assert_eq!(fault_of(-7777), Some(Fault::Device { code: -7777 }));
    }

    #[test]
    fn levels_stay_within_what_hardware_does() {
        assert_eq!(level_number(Level::Low, 12), 1);
        assert_eq!(level_number(Level::High, 12), 6);
        assert_eq!(level_number(Level::Number(12), 12), 12);
        assert_eq!(level_number(Level::Number(12), 8), 8);
    }

    #[test]
    fn the_bound_grows_with_every_chunk() {
        assert_eq!(bound(1), 74_784);
        assert_eq!(bound(65_536), 74_784);
        assert_eq!(bound(65_537), 149_568);
        assert!(bound(1 << 20) < (2 << 20) - (5 << 10));
    }
}
