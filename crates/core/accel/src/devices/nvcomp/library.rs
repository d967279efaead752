//! nvCOMP, `libnvcomp.so`: the entry points used, in the two forms that exist, and the search for the library.
//!
//! NVIDIA's licence keeps the library and its headers out of this repository; the operator's installation is loaded at
//! run time, with our own declarations. Only DEFLATE is used: its compress call is the same in 5.x and 6.x, unlike the
//! call for gzip, and the framing is ours anyway.
//!
//! `LONGSHORE_NVCOMP` names a file to load, or `off` disables it. Otherwise the dynamic linker is asked for
//! `libnvcomp.so.6` and `libnvcomp.so.5`; then the directories are searched where pip puts `nvidia-libnvcomp-cu13`.
//!
//! Invariants
//! - The decompressor is never used: NVIDIA's notes say that it must only see valid input.
//! - A file that another user could change is not loaded, even if the variable names it.
//!
//! Leaves to others: CUDA's own functions (`driver.rs`), and batches (`batch_memory.rs`).
//!
//! Source: nvCOMP 5.2.0.13 and 6.0.0.12, `nvcomp/deflate.h`, `nvcomp/crc32.h`, `nvcomp/shared_types.h`.

use std::env;
use std::ffi::{OsStr, OsString, c_int};
use std::path::PathBuf;

use libloading::Library as Loaded;

use super::driver::{DevicePtr, Handle, Stream};
use super::symbols::{self, functions};
use crate::devices::door::{Refusal, Trouble};

/// Names by which a system-wide installation is found, the newest first.
const SONAMES: [&str; 2] = ["libnvcomp.so.6", "libnvcomp.so.5"];

/// `nvcompSuccess`.
const SUCCESS: c_int = 0;

/// `nvcompBatchedDeflateCompressOpts_t`: passed by value, which the ABI does on the stack.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeflateOptions {
    algorithm: c_int,
    reserved: [u8; 60],
}

impl DeflateOptions {
    fn new(effort: Effort) -> DeflateOptions {
        DeflateOptions {
            algorithm: effort.0,
            reserved: [0; 60],
        }
    }
}

/// `nvcompCRC32KernelConf_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CrcKernel {
    kind: c_int,
    bytes_per_read: i32,
    blocks_per_message: i32,
    reserved: [u8; 20],
}

/// `nvcompBatchedCRC32Opts_t`: the specification of the checksum, how to compute it, and room.
#[repr(C)]
#[derive(Clone, Copy)]
struct CrcOptions {
    polynomial: u32,
    init: u32,
    reflect_in: u8,
    reflect_out: u8,
    xor_out: u32,
    spec_reserved: [u8; 16],
    kernel: CrcKernel,
    reserved: [u8; 64],
}

const _: () = assert!(size_of::<DeflateOptions>() == 64 && align_of::<DeflateOptions>() == 4);
const _: () = assert!(size_of::<CrcKernel>() == 32 && size_of::<CrcOptions>() == 128);
const _: () = assert!(std::mem::offset_of!(CrcOptions, xor_out) == 12);
const _: () = assert!(std::mem::offset_of!(CrcOptions, kernel) == 32);

functions! {
    /// Entry points of every known version.
    struct Common {
        alignments = "nvcompBatchedDeflateCompressGetRequiredAlignments" (DeflateOptions, *mut [usize; 3]) -> c_int;
        output_max = "nvcompBatchedDeflateCompressGetMaxOutputChunkSize" (usize, DeflateOptions, *mut usize) -> c_int;
        compress = "nvcompBatchedDeflateCompressAsync" (DevicePtr, DevicePtr, usize, usize, DevicePtr, usize, DevicePtr,
            DevicePtr, DeflateOptions, DevicePtr, Handle) -> c_int;
    }
}

functions! {
    struct Properties {
        properties = "nvcompGetProperties" (*mut [u32; 2]) -> c_int;
    }
}

functions! {
    /// The scratch memory of a batch, by the call of 5.x.
    struct Scratch5 {
        scratch = "nvcompBatchedDeflateCompressGetTempSizeAsync" (usize, usize, DeflateOptions, *mut usize, usize) -> c_int;
    }
}

functions! {
    /// The same by the call of 6.x.
    struct Scratch6 {
        scratch = "nvcompBatchedDeflateCompressGetTempSize" (usize, usize, DeflateOptions, *mut usize, usize, Handle)
            -> c_int;
    }
}

functions! {
    /// Checksums of the device's copy of the plain bytes; a library without them is accepted.
    struct Checksums {
        kernel = "nvcompBatchedCRC32GetHeuristicConf" (DevicePtr, usize, *mut CrcKernel, usize, Handle) -> c_int;
        crc32 = "nvcompBatchedCRC32Async" (DevicePtr, DevicePtr, usize, DevicePtr, CrcOptions, c_int, DevicePtr, Handle)
            -> c_int;
    }
}

#[derive(Clone, Copy)]
enum Scratch {
    Five(Scratch5),
    Six(Scratch6),
}

/// nvCOMP's scale: 0 entropy only, 1 fast, 2 and 3 smaller than zlib 1, 4 smaller than zlib 6, 5 smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effort(i32);

impl Effort {
    pub const FAST: Effort = Effort(1);

    /// nvCOMP's effort for a level of QAT_DEFLATE's own scale, 1 to 12.
    pub fn of_level(level: i32) -> Effort {
        match level {
            ..=1 => Effort::FAST,
            2..=3 => Effort(2),
            4..=6 => Effort(4),
            _ => Effort(5),
        }
    }

    /// One of nvCOMP's own numbers, 0 to 5.
    pub fn number(number: i32) -> Option<Effort> {
        (0..=5).contains(&number).then_some(Effort(number))
    }
}

/// A status of nvCOMP that is not success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NvcompStatus {
    pub call: &'static str,
    pub status: i32,
}

impl NvcompStatus {
    /// A smaller batch may succeed.
    pub fn batch_too_large(self) -> bool {
        self.status == 21
    }
}

impl std::fmt::Display for NvcompStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} answered {}", self.call, status_name(self.status))
    }
}

/// nvCOMP's name for a status; the statuses of a batch's chunks use the same numbers.
pub(super) fn status_name(status: i32) -> String {
    let name = match status {
        10 => "invalid value",
        11 => "not supported",
        15 => "output too small",
        17 => "wrong alignment",
        18 => "chunk too large",
        19 => "cannot compress",
        20 => "wrong input length",
        21 => "batch too large",
        1000 => "CUDA error",
        10000 => "internal error",
        _ => "an unknown status",
    };
    format!("{name} ({status})")
}

/// The loaded library.
pub(super) struct Library {
    common: Common,
    scratch: Scratch,
    checksums: Option<Checksums>,
    /// Such as `5.2.0`.
    pub version: String,
}

/// The needs of a batch of equal chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Bytes for each chunk's output.
    pub output_max: usize,
    /// Scratch memory of the whole batch, in bytes.
    pub scratch: usize,
    /// Alignment of inputs, outputs and scratch.
    pub alignments: [usize; 3],
}

/// The device addresses of a batch's parts; see `nvcomp/deflate.h`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub input_ptrs: DevicePtr,
    pub input_sizes: DevicePtr,
    pub chunk_len: usize,
    pub chunks: usize,
    pub scratch: DevicePtr,
    pub scratch_len: usize,
    pub output_ptrs: DevicePtr,
    pub output_sizes: DevicePtr,
    pub statuses: DevicePtr,
}

impl Library {
    /// Loads the library. Errors: why there is none. Touches no device.
    pub fn load(path: Option<&OsStr>) -> Result<Library, Refusal> {
        if let Some(path) = path {
            if path == "off" {
                let text = "switched off by LONGSHORE_NVCOMP=off";
                return Err(Refusal::new(Trouble::SwitchedOff, text));
            }
            return Library::open(path);
        }
        let mut refusal = Refusal::new(Trouble::LibraryNotFound, "");
        let installed = installed()
            // An entry of PATH may be relative, such as `.`; those are skipped.
            .filter(|path| path.is_absolute() && path.exists())
            .map(PathBuf::into_os_string);
        for name in SONAMES.map(OsString::from).into_iter().chain(installed) {
            match Library::open(&name) {
                Ok(library) => return Ok(library),
                Err(why) => refusal = why,
            }
        }
        refusal
            .text
            .push_str(": install nvidia-libnvcomp-cu13, or name the file in LONGSHORE_NVCOMP");
        Err(refusal)
    }

    fn open(name: &OsStr) -> Result<Library, Refusal> {
        let library = symbols::open(name)?;
        Library::of(library).map_err(|refusal| Refusal {
            text: format!("cannot use {}: {}", name.display(), refusal.text),
            ..refusal
        })
    }

    fn of(library: &'static Loaded) -> Result<Library, Refusal> {
        // SAFETY: `find` demands the declared type, which is that of nvcomp.h in 5.x and 6.x.
        let properties = unsafe { Properties::find(library) }?;
        let mut found = [0; 2];
        // SAFETY: nvcomp.h demands a pointer to a structure of two 32-bit numbers; `found` is as long and outlives the call.
        let status = unsafe { (properties.properties)(&mut found) };
        if status != SUCCESS {
            let text = format!("nvcompGetProperties answered {}", status_name(status));
            return Err(Refusal::new(Trouble::LoadFailed, text));
        }
        let [version, _runtime] = found;
        let number = format!(
            "{}.{}.{}",
            version / 1000,
            version % 1000 / 100,
            version % 100
        );
        let scratch = match version / 1000 {
            // SAFETY: `find` demands the declared type: of deflate.h in 5.x, which the library says it is.
            5 => Scratch::Five(unsafe { Scratch5::find(library) }?),
            // SAFETY: `find` demands the declared type: of deflate.h in 6.x, which the library says it is.
            6 => Scratch::Six(unsafe { Scratch6::find(library) }?),
            _ => {
                let text = format!(
                    "it is nvCOMP {number}; this program knows the interfaces of 5.x and 6.x"
                );
                return Err(Refusal::new(Trouble::VersionNotCompatible, text));
            }
        };
        // SAFETY: `find` demands the declared types: of deflate.h, the same in 5.x and 6.x.
        let common = unsafe { Common::find(library) }?;
        // SAFETY: `find` demands the declared types: of crc32.h, the same in 5.x and 6.x.
        let checksums = unsafe { Checksums::find(library) }.ok();
        Ok(Library {
            common,
            scratch,
            checksums,
            version: number,
        })
    }

    /// The needs of `chunks` chunks of `chunk_len` bytes. Touches no device.
    pub fn sizes(
        &self,
        effort: Effort,
        chunk_len: usize,
        chunks: usize,
    ) -> Result<Sizes, NvcompStatus> {
        let options = DeflateOptions::new(effort);
        let mut alignments = [0; 3];
        let (mut output_max, mut scratch) = (0, 0);
        // SAFETY: deflate.h demands pointers to three numbers or to one, which are local variables; the options go by value,
        // and a null stream is the default one. None of the calls touches device memory.
        unsafe {
            let status = (self.common.alignments)(options, &mut alignments);
            check("nvcompBatchedDeflateCompressGetRequiredAlignments", status)?;
            let status = (self.common.output_max)(chunk_len, options, &mut output_max);
            check("nvcompBatchedDeflateCompressGetMaxOutputChunkSize", status)?;
            let all = chunks * chunk_len;
            let status = match self.scratch {
                Scratch::Five(f) => (f.scratch)(chunks, chunk_len, options, &mut scratch, all),
                Scratch::Six(f) => (f.scratch)(
                    chunks,
                    chunk_len,
                    options,
                    &mut scratch,
                    all,
                    std::ptr::null_mut(),
                ),
            };
            check("nvcompBatchedDeflateCompressGetTempSize", status)?;
        }
        Ok(Sizes {
            output_max,
            scratch,
            alignments,
        })
    }

    /// Starts compressing a batch. Success means only that it was started.
    ///
    /// # Safety
    /// Every address is that of device memory of the current context, as large as the batch needs, and nothing else
    /// uses it until the stream has done the work.
    pub unsafe fn compress(
        &self,
        batch: &Batch,
        effort: Effort,
        stream: &Stream,
    ) -> Result<(), NvcompStatus> {
        // SAFETY: deflate.h demands device memory of the lengths that `batch` says, until the stream has done the work, and a
        // stream of the current context: the caller keeps the first, and the stream lives while it is borrowed.
        let status = unsafe {
            (self.common.compress)(
                batch.input_ptrs,
                batch.input_sizes,
                batch.chunk_len,
                batch.chunks,
                batch.scratch,
                batch.scratch_len,
                batch.output_ptrs,
                batch.output_sizes,
                DeflateOptions::new(effort),
                batch.statuses,
                stream.handle(),
            )
        };
        check("nvcompBatchedDeflateCompressAsync", status)
    }

    /// The best way for this device to compute checksums, if the library can compute them. Queries the device.
    pub fn checksum_kernel(&self, chunk_len: usize, chunks: usize) -> Option<CrcKernel> {
        let functions = self.checksums?;
        let mut kernel = CrcKernel {
            kind: 0,
            bytes_per_read: 0,
            blocks_per_message: 0,
            reserved: [0; 20],
        };
        // SAFETY: crc32.h demands a pointer to one structure, which is a local variable, and the lengths on the device only
        // if the greatest one is not given, which it is: so their address may be null.
        let status =
            unsafe { (functions.kernel)(0, chunks, &mut kernel, chunk_len, std::ptr::null_mut()) };
        (status == SUCCESS).then_some(kernel)
    }

    /// Starts computing the CRC-32 of each chunk of the batch into `crcs`, four bytes each.
    ///
    /// # Safety
    /// As for [`compress`](Library::compress).
    pub unsafe fn checksum(
        &self,
        batch: &Batch,
        kernel: CrcKernel,
        crcs: DevicePtr,
        stream: &Stream,
    ) -> Result<(), NvcompStatus> {
        const WHOLE_MESSAGE: c_int = 0;
        const NO_STATUSES: DevicePtr = 0;
        const CALL: &str = "nvcompBatchedCRC32Async";
        const NOT_SUPPORTED: i32 = 11;
        let functions = self.checksums.ok_or(NvcompStatus {
            call: CALL,
            status: NOT_SUPPORTED,
        })?;
        // CRC-32/ISO-HDLC: gzip's.
        let options = CrcOptions {
            polynomial: 0x04c1_1db7,
            init: !0,
            reflect_in: 1,
            reflect_out: 1,
            xor_out: !0,
            spec_reserved: [0; 16],
            kernel,
            reserved: [0; 64],
        };
        // SAFETY: crc32.h demands the inputs of `batch`, four bytes for each chunk at `crcs`, until the stream has done the
        // work, and a kernel that the library chose: the caller keeps the first two, and only `checksum_kernel` makes one.
        let status = unsafe {
            (functions.crc32)(
                batch.input_ptrs,
                batch.input_sizes,
                batch.chunks,
                crcs,
                options,
                WHOLE_MESSAGE,
                NO_STATUSES,
                stream.handle(),
            )
        };
        check(CALL, status)
    }
}

fn check(call: &'static str, status: c_int) -> Result<(), NvcompStatus> {
    if status == SUCCESS {
        Ok(())
    } else {
        Err(NvcompStatus { call, status })
    }
}

/// Where pip may have put the library: next to the programs on the search path, so that an active virtual environment
/// comes first, then in the user's and the system's own directories.
fn installed() -> impl Iterator<Item = PathBuf> {
    /// Minor versions of Python 3 that are looked for, the newest first.
    const PYTHONS: std::ops::RangeInclusive<u32> = 8..=30;
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let beside_programs = env::var_os("PATH").map(|path| {
        env::split_paths(&path)
            .filter_map(|bin| bin.parent().map(PathBuf::from))
            .collect::<Vec<_>>()
    });
    let roots = variable("VIRTUAL_ENV")
        .into_iter()
        .chain(beside_programs.into_iter().flatten())
        .chain(variable("HOME").map(|home| home.join(".local")))
        .chain(["/usr/local", "/usr"].map(PathBuf::from));
    roots.flat_map(|root| {
        let pythons = PYTHONS.rev().map(|minor| format!("python3.{minor}"));
        let pythons = pythons.chain(["python3".into()]);
        pythons.flat_map(move |python| {
            let python = root.join("lib").join(python);
            ["site-packages", "dist-packages"]
                .map(|site| python.join(site).join("nvidia/libnvcomp/lib64"))
                .into_iter()
                .flat_map(|dir| SONAMES.map(|name| dir.join(name)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_go_to_the_efforts_that_nvcomp_describes() {
        let efforts: Vec<i32> = (1..=12).map(|level| Effort::of_level(level).0).collect();
        assert_eq!(efforts, [1, 2, 2, 4, 4, 4, 5, 5, 5, 5, 5, 5]);
        assert_eq!(Effort::number(6).or(Effort::number(-1)), None);
    }

    #[test]
    fn a_library_that_is_not_nvcomp_is_refused_by_name() {
        let refusal = |name: &str| match Library::load(Some(name.as_ref())) {
            Err(refusal) => refusal.text,
            Ok(_) => panic!("{name} was taken"),
        };
        for (name, why) in [
            ("off", "LONGSHORE_NVCOMP=off"),
            (
                "/nowhere/libnvcomp.so.5",
                "cannot load /nowhere/libnvcomp.so.5: ",
            ),
            (
                "libc.so.6",
                "cannot use libc.so.6: it has no function nvcompGetProperties",
            ),
        ] {
            assert!(refusal(name).contains(why), "{}", refusal(name));
        }
    }

    /// Compares with NVIDIA's own library if it is installed: these answers need no GPU. They size the memory of a
    /// batch, so a wrong declaration would show here.
    #[test]
    fn the_real_library_answers_as_its_documentation_says() {
        let path = env::var_os("LONGSHORE_NVCOMP");
        let library = match Library::load(path.as_deref()) {
            Ok(library) => library,
            Err(refusal) => return eprintln!("skipped: no nvCOMP here: {}", refusal.text),
        };
        assert!(
            ["5", "6"].contains(&&library.version[..1]),
            "{}",
            library.version
        );
        let chunks = 1024;
        for (number, scratch_per_byte) in [
            (0, 0.0),
            (1, 5.5),
            (2, 10.0),
            (3, 10.0),
            (4, 17.0),
            (5, 18.0),
        ] {
            let effort = Effort::number(number).unwrap();
            let sizes = library.sizes(effort, 65_536, chunks).unwrap();
            assert_eq!(sizes.output_max, 148_256, "effort {number}");
            assert_eq!(sizes.alignments, [1, 8, 8], "effort {number}");
            let found = sizes.scratch as f64 / (65_536 * chunks) as f64;
            assert!(
                (found - scratch_per_byte).abs() < 0.01,
                "effort {number}: {found}"
            );
        }
        let refused = library.sizes(Effort(6), 65_536, chunks).unwrap_err();
        assert_eq!(refused.status, 11, "{refused}");
        assert!(library.checksums.is_some());
    }
}
