//! miniz_oxide: deflate in pure Rust, for builds and hosts that have nothing faster. Also the
//! judge in ISA-L's self-test, because it shares no code with it.

use miniz_oxide::deflate::core as enc;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core as dec;

pub(crate) const NAME: &str = "miniz_oxide";

pub(crate) struct Deflater {
    state: Box<enc::CompressorOxide>,
}

impl Deflater {
    /// `level` 1 to 12; beyond 10 there is nothing more to gain here.
    pub(crate) fn new(level: i32) -> Deflater {
        const RAW: i32 = -15;
        const DEFAULT_STRATEGY: i32 = 0;
        let flags = enc::create_comp_flags_from_zip_params(level.min(10), RAW, DEFAULT_STRATEGY);
        Deflater {
            state: Box::new(enc::CompressorOxide::new(flags)),
        }
    }

    pub(crate) fn deflate(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        self.state.reset();
        let (status, _, len) = enc::compress(&mut self.state, plain, out, enc::TDEFLFlush::Finish);
        (status == enc::TDEFLStatus::Done).then_some(len)
    }
}

pub(crate) struct Inflater {
    state: Box<dec::DecompressorOxide>,
}

impl Inflater {
    pub(crate) fn new() -> Inflater {
        Inflater {
            state: Box::default(),
        }
    }

    /// True when `deflate` was consumed whole and filled `plain` exactly.
    pub(crate) fn inflate(&mut self, deflate: &[u8], plain: &mut [u8]) -> bool {
        self.state.init();
        let flags = dec::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, read, written) = dec::decompress(&mut self.state, deflate, plain, 0, flags);
        status == TINFLStatus::Done && read == deflate.len() && written == plain.len()
    }
}
