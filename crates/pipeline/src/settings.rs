//! What the server settings say to backups: one reading of the catalog for the command line and for T-SQL.

use std::path::Path;

use longshore_catalog::{Catalog, Error, Setting};
use longshore_codec::Algorithm;
use longshore_codec::dispatch::InService;
use longshore_io::Storage;

use crate::{Configured, House, Offload, OffloadMode};

/// The settings in use; `None` where nobody has chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// T-SQL compresses unless told otherwise.
    pub compress: bool,
    pub algorithm: Option<Algorithm>,
    pub retain_days: Option<u32>,
    pub offload: Option<OffloadMode>,
}

impl ServerSettings {
    /// Reads the catalog. One that is missing is not made here, and says nothing.
    pub fn read(storage: &dyn Storage, catalog: Option<&Path>) -> Result<ServerSettings, Error> {
        let Some(path) = catalog.filter(|p| storage.stat(p).is_ok()) else {
            return Ok(ServerSettings::default());
        };
        let catalog = Catalog::open(path)?;
        let value = |setting| Ok::<_, Error>(catalog.setting(setting)?.value_in_use);
        let configured = Configured::of(
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
                _ => None,
            },
            retain_days: u32::try_from(value(Setting::MediaRetention)?).ok(),
            offload: match configured {
                Configured::Mode(mode) => Some(mode),
                Configured::Disabled | Configured::NoMode => None,
            },
        })
    }
}

impl House {
    /// The house, with its accelerators if they may be used: looking for them loads libraries.
    pub fn equipped(mut self, offload: &Offload) -> House {
        if offload.mode != OffloadMode::Software {
            self.accelerators = InService::all();
        }
        self
    }
}
