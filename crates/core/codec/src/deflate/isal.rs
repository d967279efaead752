//! ISA-L (igzip), the fast deflate for CPUs, loaded at run time.
//!
//! The library is bound by dlopen, so no build needs it and any host may lack it. Its two state structures are opaque,
//! aligned memory here; only the public fields are accessed, by offset. Sizes and offsets are those of ISA-L 2.30.0 to
//! 2.32.1 on x86-64 Linux (`igzip_lib.h`).
//!
//! Invariants
//! - No function is offered before the self-test has passed: another implementation inflates what ISA-L deflates, and
//!   the reverse, and nothing is written outside the structures.
//! - The library is never unloaded.
//!
//! Leaves to others: which engine serves which level (`deflate.rs`), and framing (`gzext.rs`).
//!
//! `LONGSHORE_ISAL` names another file to load, or `off` disables it.

use std::env;
use std::ffi::{OsStr, c_int, c_void};
use std::sync::OnceLock;

use longshore_io::loaded::{because, file_of, vetted};

use super::miniz;

pub(crate) const NAME: &str = "isa-l";

const SONAME: &str = "libisal.so.2";

type Init = unsafe extern "C" fn(*mut c_void);
type Run = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The entry points used.
#[derive(Debug, Clone, Copy)]
struct Functions {
    deflate_init: Init,
    deflate: Run,
    inflate_init: Init,
    inflate: Run,
}

/// The loaded and tested library.
#[derive(Debug)]
pub struct Isal {
    functions: Functions,
    /// The version in its file name, for example `2.30`.
    pub(crate) version: String,
}

impl Isal {
    /// The library, loaded and tested on first use, or why there is none. The answer holds for the life of the
    /// process.
    pub fn load() -> Result<&'static Isal, &'static str> {
        static LOADED: OnceLock<Result<Isal, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            let name = env::var_os("LONGSHORE_ISAL").unwrap_or_else(|| SONAME.into());
            let loaded = Isal::open(&name);
            match &loaded {
                Ok(isal) => tracing::debug!(version = isal.version, "ISA-L loaded"),
                Err(why) => tracing::debug!(why, "ISA-L not used"),
            }
            loaded
        });
        loaded.as_ref().map_err(String::as_str)
    }

    fn open(name: &OsStr) -> Result<Isal, String> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err("only used on x86-64 Linux".into());
        }
        if name == "off" {
            return Err("switched off by LONGSHORE_ISAL=off".into());
        }
        let failed = |e| format!("cannot load {}: {}", name.display(), because(&e));
        let vetted = vetted(name).map_err(|e| format!("cannot load {}: {e}", name.display()))?;
        // SAFETY: `new` demands a file whose initialisers may run in this process: it is the host's own ISA-L, or a
        // file that the operator named for this purpose.
        let library = unsafe { libloading::Library::new(&vetted) }.map_err(failed)?;
        // SAFETY: the declared types must be those of the functions. In igzip_lib.h each takes one pointer to a structure; the
        // self-test below refuses a library that writes more of it than this program knows.
        let functions = unsafe {
            Functions {
                deflate_init: *library
                    .get(c"isal_deflate_stateless_init")
                    .map_err(failed)?,
                deflate: *library.get(c"isal_deflate_stateless").map_err(failed)?,
                inflate_init: *library.get(c"isal_inflate_init").map_err(failed)?,
                inflate: *library.get(c"isal_inflate_stateless").map_err(failed)?,
            }
        };
        // Code that has run once is never unmapped.
        std::mem::forget(library);
        match functions.self_test() {
            Ok(()) => Ok(Isal {
                functions,
                version: version_of(functions.deflate),
            }),
            Err(what) => Err(format!("{} failed its self-test: {what}", name.display())),
        }
    }
}

impl Functions {
    /// Tests both directions against an independent implementation, at every level.
    fn self_test(self) -> Result<(), &'static str> {
        const OUTSIDE: &str = "it writes outside the structures that this program knows";
        let plain = test_pattern();
        let mut deflated = vec![0; plain.len() + 1024];
        let mut inflated = vec![0; plain.len()];
        for level in 1..=3 {
            let mut deflater = Deflater::of(self, level);
            let len = deflater
                .deflate(&plain, &mut deflated)
                .ok_or("it does not compress")?;
            if !deflater.state.intact() || !deflater.level_buffer.intact() {
                return Err(OUTSIDE);
            }
            inflated.fill(0);
            let whole = miniz::Inflater::new().inflate(&deflated[..len], &mut inflated);
            if !whole || inflated != plain {
                return Err("its compressed output does not inflate to the original");
            }
        }
        let len = miniz::Deflater::new(6)
            .deflate(&plain, &mut deflated)
            .ok_or("no room")?;
        let mut inflater = Inflater::of(self);
        inflated.fill(0);
        if !inflater.inflate(&deflated[..len], &mut inflated) || inflated != plain {
            return Err("it does not inflate other programs' data");
        }
        if inflater.state.intact() {
            Ok(())
        } else {
            Err(OUTSIDE)
        }
    }
}

/// 64 KiB of literals, runs, and matches near and far, so that every path of a codec is taken.
pub fn test_pattern() -> Vec<u8> {
    const LEN: usize = 65_536;
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut pattern = Vec::with_capacity(LEN + 300);
    while pattern.len() < LEN {
        let number = next();
        let len = (number >> 32) as usize % 300 + 3;
        match (number >> 60, pattern.len()) {
            (0..5, 1024..) => {
                let back = (number >> 8) as usize % pattern.len().min(32_768) + 1;
                for _ in 0..len {
                    pattern.push(pattern[pattern.len() - back]);
                }
            }
            (5, _) => pattern.resize(pattern.len() + len, 0),
            (6..11, _) => pattern.extend((0..len / 8).flat_map(|_| next().to_le_bytes())),
            _ => pattern.extend((0..len / 8).map(|_| b'a' + (next() >> 60) as u8)),
        }
    }
    pattern.truncate(LEN);
    pattern
}

/// ISA-L has no function that returns its version; its file name contains it: `libisal.so.2.0.30` is 2.30.
fn version_of(function: Run) -> String {
    let Some(real) = file_of(function as usize) else {
        return "unknown".into();
    };
    let name = real
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    match name.strip_prefix("libisal.so.2.0.") {
        Some(minor) if minor.bytes().all(|b| b.is_ascii_digit()) => format!("2.{minor}"),
        _ => "unknown".into(),
    }
}

/// Memory that ISA-L writes to: zeroed, 64-byte aligned, followed by a canary that shows whether a library with
/// another layout wrote too far.
struct Opaque {
    lines: Vec<Line>,
    len: usize,
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Types of fields: without padding.
trait Field {}
impl Field for u16 {}
impl Field for u32 {}
impl Field for *const u8 {}
impl Field for *mut u8 {}
impl Field for *mut c_void {}

const CANARY: u8 = 0xa5;
const CANARY_LINES: usize = 16;

impl Opaque {
    fn new(len: usize) -> Opaque {
        let used = len.div_ceil(64);
        let mut lines = vec![Line([0; 64]); used + CANARY_LINES];
        lines[used..].fill(Line([CANARY; 64]));
        Opaque { lines, len }
    }

    fn as_mut_ptr(&mut self) -> *mut c_void {
        self.lines.as_mut_ptr().cast()
    }

    fn intact(&self) -> bool {
        let used = self.len.div_ceil(64);
        self.lines[used..].iter().all(|line| line.0 == [CANARY; 64])
    }

    /// Sets the field at `offset`, which must be inside and aligned for `T`.
    fn set<T: Field>(&mut self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: `write` demands an aligned place of ours, which `offset` is, as asserted. A field has no padding, so
        // all bytes of `lines` stay initialised, and any bytes make a `Line`.
        unsafe { self.as_mut_ptr().byte_add(offset).cast::<T>().write(value) }
    }

    fn u32_at(&self, offset: usize) -> u32 {
        assert!(offset + 4 <= self.len && offset.is_multiple_of(4));
        // SAFETY: a read demands that the four bytes are inside the allocation, aligned for u32 and initialised. The
        // first two are asserted; all bytes of `lines` are initialised, and any bytes make a u32.
        unsafe { self.lines.as_ptr().byte_add(offset).cast::<u32>().read() }
    }
}

/// `struct isal_zstream`.
mod zstream {
    pub const LEN: usize = 82_384;
    pub const NEXT_IN: usize = 0;
    pub const AVAIL_IN: usize = 8;
    pub const NEXT_OUT: usize = 16;
    pub const AVAIL_OUT: usize = 24;
    pub const LEVEL: usize = 40;
    pub const LEVEL_BUF_SIZE: usize = 44;
    pub const LEVEL_BUF: usize = 48;
    pub const END_OF_STREAM: usize = 56;
}

/// `ISAL_DEF_LVL*_DEFAULT`: memory for levels 1 to 3.
const LEVEL_BUFFER_LEN: [usize; 3] = [282_624, 331_776, 348_160];

/// One worker's compressor: the stream and its level buffer, reused for every member.
pub struct Deflater {
    functions: Functions,
    state: Opaque,
    level_buffer: Opaque,
    level: u32,
}

impl Deflater {
    /// `level` 1 to 3.
    pub(crate) fn new(isal: &Isal, level: u32) -> Deflater {
        Deflater::of(isal.functions, level)
    }

    fn of(functions: Functions, level: u32) -> Deflater {
        Deflater {
            functions,
            state: Opaque::new(zstream::LEN),
            level_buffer: Opaque::new(LEVEL_BUFFER_LEN[level as usize - 1]),
            level,
        }
    }

    pub(crate) fn deflate(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let (plain_len, room) = (
            u32::try_from(plain.len()).ok()?,
            u32::try_from(out.len()).ok()?,
        );
        // SAFETY: igzip_lib.h demands memory for an isal_zstream. `state` is as large and aligned, and followed by a canary
        // that no library that passed the self-test has touched.
        unsafe { (self.functions.deflate_init)(self.state.as_mut_ptr()) };
        let level_buffer = self.level_buffer.as_mut_ptr();
        self.state.set(zstream::LEVEL, self.level);
        self.state
            .set(zstream::LEVEL_BUF_SIZE, self.level_buffer.len as u32);
        self.state.set(zstream::LEVEL_BUF, level_buffer);
        self.state.set(zstream::END_OF_STREAM, 1_u16);
        self.state.set(zstream::NEXT_IN, plain.as_ptr());
        self.state.set(zstream::AVAIL_IN, plain_len);
        self.state.set(zstream::NEXT_OUT, out.as_mut_ptr());
        self.state.set(zstream::AVAIL_OUT, room);
        // SAFETY: igzip_lib.h demands an initialised stream whose pointers are valid for the lengths next to them: they are
        // those of `plain`, `out` and the level buffer, set above. All of them outlive the call, and nobody else holds
        // `out` or the level buffer.
        let code = unsafe { (self.functions.deflate)(self.state.as_mut_ptr()) };
        let left = self.state.u32_at(zstream::AVAIL_OUT);
        let whole = code == 0 && self.state.u32_at(zstream::AVAIL_IN) == 0;
        whole
            .then(|| room.checked_sub(left))
            .flatten()
            .map(|len| len as usize)
    }
}

/// `struct inflate_state`.
mod inflate_state {
    pub const LEN: usize = 87_368;
    pub const NEXT_OUT: usize = 0;
    pub const AVAIL_OUT: usize = 8;
    pub const NEXT_IN: usize = 16;
    pub const AVAIL_IN: usize = 32;
    pub const BLOCK_STATE: usize = 21_160;
}

/// `ISAL_BLOCK_FINISH`: the final block has ended.
const BLOCK_FINISH: u32 = 5;

/// One worker's decompressor.
pub struct Inflater {
    functions: Functions,
    state: Opaque,
}

impl Inflater {
    pub fn new(isal: &Isal) -> Inflater {
        Inflater::of(isal.functions)
    }

    fn of(functions: Functions) -> Inflater {
        Inflater {
            functions,
            state: Opaque::new(inflate_state::LEN),
        }
    }

    /// True if `deflate` was consumed whole and filled `plain` exactly.
    pub fn inflate(&mut self, deflate: &[u8], plain: &mut [u8]) -> bool {
        let (Ok(len), Ok(room)) = (u32::try_from(deflate.len()), u32::try_from(plain.len())) else {
            return false;
        };
        // SAFETY: igzip_lib.h demands memory for an inflate_state. `state` is as large and aligned, and followed by a canary
        // that no library that passed the self-test has touched.
        unsafe { (self.functions.inflate_init)(self.state.as_mut_ptr()) };
        self.state.set(inflate_state::NEXT_IN, deflate.as_ptr());
        self.state.set(inflate_state::AVAIL_IN, len);
        self.state.set(inflate_state::NEXT_OUT, plain.as_mut_ptr());
        self.state.set(inflate_state::AVAIL_OUT, room);
        // SAFETY: igzip_lib.h demands an initialised state whose pointers are valid for the lengths next to them: they are
        // those of `deflate` and `plain`, set above. Both outlive the call, and nobody else holds `plain`.
        let code = unsafe { (self.functions.inflate)(self.state.as_mut_ptr()) };
        code == 0
            && self.state.u32_at(inflate_state::AVAIL_IN) == 0
            && self.state.u32_at(inflate_state::AVAIL_OUT) == 0
            && self.state.u32_at(inflate_state::BLOCK_STATE) == BLOCK_FINISH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_isal_is_refused_with_its_name() {
        for (name, why) in [
            ("off", "switched off"),
            ("/nowhere/libisal.so.2", "cannot load /nowhere/libisal.so.2"),
            ("libc.so.6", "isal_deflate_stateless_init"),
        ] {
            let refusal = Isal::open(name.as_ref()).unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    unsafe extern "C" fn init_nothing(_: *mut c_void) {}
    unsafe extern "C" fn run_nothing(_: *mut c_void) -> c_int {
        0
    }
    unsafe extern "C" fn run_and_claim_all_read(state: *mut c_void) -> c_int {
        // SAFETY: `write` demands a place for one number, which the caller owes: an isal_zstream.
        unsafe { state.byte_add(zstream::AVAIL_IN).cast::<u32>().write(0) };
        0
    }
    unsafe extern "C" fn init_of_a_larger_structure(state: *mut c_void) {
        // SAFETY: `write` demands a place of ours: the canary after the structure is. The write breaks the rules of the
        // declared structure, on purpose.
        unsafe {
            state
                .byte_add(zstream::LEN.next_multiple_of(64) + 8)
                .cast::<u64>()
                .write(0)
        };
    }

    const DOUBLE: Functions = Functions {
        deflate_init: init_nothing,
        deflate: run_nothing,
        inflate_init: init_nothing,
        inflate: run_nothing,
    };

    #[test]
    fn the_self_test_refuses_a_library_that_does_nothing() {
        assert_eq!(DOUBLE.self_test(), Err("it does not compress"));
    }

    #[test]
    fn the_self_test_refuses_a_library_that_lies() {
        let liar = Functions {
            deflate: run_and_claim_all_read,
            ..DOUBLE
        };
        assert_eq!(
            liar.self_test(),
            Err("its compressed output does not inflate to the original")
        );
    }

    #[test]
    fn the_self_test_refuses_a_library_with_larger_structures() {
        let other = Functions {
            deflate_init: init_of_a_larger_structure,
            deflate: run_and_claim_all_read,
            ..DOUBLE
        };
        assert!(
            other
                .self_test()
                .unwrap_err()
                .contains("outside the structures")
        );
    }

    #[test]
    fn the_self_test_refuses_a_library_that_compresses_but_does_not_inflate() {
        // Half of this needs the real library.
        let Ok(isal) = Isal::load() else { return };
        let half = Functions {
            inflate: run_nothing,
            ..isal.functions
        };
        assert_eq!(
            half.self_test(),
            Err("it does not inflate other programs' data")
        );
    }

    #[test]
    fn the_test_pattern_exercises_literals_runs_and_distant_matches() {
        let pattern = test_pattern();
        let mut out = vec![0; 70_000];
        let len = miniz::Deflater::new(9).deflate(&pattern, &mut out).unwrap();
        assert_eq!(pattern.len(), 65_536);
        assert!((8_000..40_000).contains(&len), "{len}");
    }
}
