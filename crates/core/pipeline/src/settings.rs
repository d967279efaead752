//! The server settings for backups: one reading of the catalog for the command line and for T-SQL.

use std::path::Path;

use longshore_accel::dispatch::InService;
use longshore_accelerators::AcceleratorSettings;
use longshore_catalog::{Catalog, Error, Setting};
use longshore_codec::Algorithm;
use longshore_io::Storage;

use crate::{Offload, OffloadMode, RunContext};

/// The settings in use; `None` if not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// T-SQL compresses by default if this is set.
    pub compress: bool,
    pub algorithm: Option<Algorithm>,
    pub retain_days: Option<u32>,
    pub offload: Option<OffloadMode>,
}

impl ServerSettings {
    /// Reads the catalog. A missing catalog is not created; it means the defaults.
    pub fn read(storage: &dyn Storage, catalog: Option<&Path>) -> Result<ServerSettings, Error> {
        let Some(path) = catalog.filter(|p| storage.stat(p).is_ok()) else {
            return Ok(ServerSettings::default());
        };
        let catalog = Catalog::open(path)?;
        let value = |setting| Ok::<_, Error>(catalog.setting(setting)?.value_in_use);
        let configured = AcceleratorSettings::of(
            value(Setting::HardwareOffloadEnabled)?,
            value(Setting::HardwareOffloadMode)?,
        );
        Ok(ServerSettings {
            compress: value(Setting::BackupCompressionDefault)? == 1,
            algorithm: match value(Setting::BackupCompressionAlgorithm)? {
                1 => Some(Algorithm::MsXpress),
                2 => Some(Algorithm::QatDeflate),
                3 => Some(Algorithm::Zstd),
                4 => Some(Algorithm::Lz4),
                5 => Some(Algorithm::Pages),
                _ => None,
            },
            retain_days: u32::try_from(value(Setting::MediaRetention)?).ok(),
            offload: match configured {
                AcceleratorSettings::Mode(mode) => Some(mode),
                AcceleratorSettings::Disabled | AcceleratorSettings::NoMode => None,
            },
        })
    }
}

impl RunContext {
    /// The context with this machine's accelerators, if `offload` may use them: finding them loads their libraries.
    pub fn equipped(mut self, offload: &Offload) -> RunContext {
        if offload.mode != OffloadMode::Software {
            self.accelerators = InService::all();
        }
        self
    }
}
