//! miniz_oxide: deflate in pure Rust, for builds and hosts without a faster engine. Also the judge in ISA-L's
//! self-test, because it shares no code with ISA-L.

use miniz_oxide::deflate::core as enc;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core as dec;

pub(crate) const NAME: &str = "miniz_oxide";

pub struct Deflater {
    state: Box<enc::CompressorOxide>,
}

impl Deflater {
    /// `level` 1 to 12; numbers above 10 gain nothing more here.
    pub fn new(level: i32) -> Deflater {
        const RAW: i32 = -15;
        const DEFAULT_STRATEGY: i32 = 0;
        let flags = enc::create_comp_flags_from_zip_params(level.min(10), RAW, DEFAULT_STRATEGY);
        Deflater {
            state: Box::new(enc::CompressorOxide::new(flags)),
        }
    }

    pub fn deflate(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        self.state.reset();
        let (status, _, len) = enc::compress(&mut self.state, plain, out, enc::TDEFLFlush::Finish);
        (status == enc::TDEFLStatus::Done).then_some(len)
    }
}

#[derive(Default)]
pub struct Inflater {
    state: Box<dec::DecompressorOxide>,
}

impl Inflater {
    pub fn new() -> Inflater {
        Inflater::default()
    }

    /// True if `deflate` was consumed whole and filled `plain` exactly.
    pub fn inflate(&mut self, deflate: &[u8], plain: &mut [u8]) -> bool {
        self.state.init();
        let flags = dec::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, read, written) = dec::decompress(&mut self.state, deflate, plain, 0, flags);
        status == TINFLStatus::Done && read == deflate.len() && written == plain.len()
    }
}
