//! libdeflate: the engine for ratio, and for hosts without ISA-L.

use std::ptr::NonNull;

use libdeflate_sys as sys;

pub(crate) const NAME: &str = "libdeflate";
/// The version bundled by the crate; the library does not report it at run time.
pub(crate) const VERSION: &str = "1.26";

pub struct Deflater {
    state: NonNull<sys::libdeflate_compressor>,
}

// SAFETY: `Send` demands that another thread may use the value: a compressor is plain memory without ties to a thread,
// used only through `&mut`.
unsafe impl Send for Deflater {}

impl Deflater {
    /// `level` 1 to 12. `None` if memory is short.
    pub(crate) fn new(level: i32) -> Option<Deflater> {
        // SAFETY: the call demands nothing: a level out of range gives null.
        let state = unsafe { sys::libdeflate_alloc_compressor(level) };
        NonNull::new(state).map(|state| Deflater { state })
    }

    pub(crate) fn deflate(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY: libdeflate.h demands a compressor that one thread uses, and ranges valid for their lengths: `new` made
        // the first, `&mut self` has it alone, and the ranges are slices.
        let len = unsafe {
            sys::libdeflate_deflate_compress(
                self.state.as_ptr(),
                plain.as_ptr().cast(),
                plain.len(),
                out.as_mut_ptr().cast(),
                out.len(),
            )
        };
        (len != 0).then_some(len)
    }
}

impl Drop for Deflater {
    fn drop(&mut self) {
        // SAFETY: libdeflate.h demands what its own function allocated: `new` did, and only this frees it.
        unsafe { sys::libdeflate_free_compressor(self.state.as_ptr()) }
    }
}

pub(crate) struct Inflater {
    state: NonNull<sys::libdeflate_decompressor>,
}

// SAFETY: `Send` demands that another thread may use the value: a decompressor is plain memory without ties to a
// thread, used only through `&mut`.
unsafe impl Send for Inflater {}

impl Inflater {
    pub(crate) fn new() -> Option<Inflater> {
        // SAFETY: the call demands nothing; null, its answer without memory, is looked for below.
        let state = unsafe { sys::libdeflate_alloc_decompressor() };
        NonNull::new(state).map(|state| Inflater { state })
    }

    /// True if `deflate` was consumed whole and filled `plain` exactly.
    pub(crate) fn inflate(&mut self, deflate: &[u8], plain: &mut [u8]) -> bool {
        let (mut read, mut written) = (0, 0);
        // SAFETY: libdeflate.h demands a decompressor that one thread uses, ranges valid for their lengths, and two places
        // for numbers: `new` made the first, `&mut self` has it alone, and the others are slices and local variables.
        let result = unsafe {
            sys::libdeflate_deflate_decompress_ex(
                self.state.as_ptr(),
                deflate.as_ptr().cast(),
                deflate.len(),
                plain.as_mut_ptr().cast(),
                plain.len(),
                &mut read,
                &mut written,
            )
        };
        result == sys::libdeflate_result_LIBDEFLATE_SUCCESS
            && read == deflate.len()
            && written == plain.len()
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: libdeflate.h demands what its own function allocated: `new` did, and only this frees it.
        unsafe { sys::libdeflate_free_decompressor(self.state.as_ptr()) }
    }
}
