//! The status of accelerators: the configuration, the devices that were found, and why they are used or not.
//!
//! Invariants
//! - The rows are those of SQL Server's `sys.dm_server_accelerator_status`, with its reason codes where they apply and
//!   ours above 100.
//! - Without a library or a device, software still serves the algorithm, unlike in SQL Server.
//!
//! Leaves to others: what a machine lacks, and the commands that fix it (`doctor`).

use std::path::Path;

use longshore_accel::{Message, Trouble};
use longshore_catalog::{Catalog, Effect, Error, Setting};
use longshore_io::Storage;
use serde::Serialize;

use crate::mode::OffloadMode;
use crate::probe::Probe;

/// The server settings about accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceleratorSettings {
    /// `hardware offload enabled` is 0.
    Disabled,
    /// The setting is 1, but no mode was chosen.
    NoMode,
    Mode(OffloadMode),
}

impl AcceleratorSettings {
    /// Combines the values of the two settings.
    pub fn of(enabled: i64, mode: i64) -> AcceleratorSettings {
        match (enabled, mode) {
            (1, 1) => AcceleratorSettings::Mode(OffloadMode::Hardware),
            (1, 2) => AcceleratorSettings::Mode(OffloadMode::Software),
            (1, 3) => AcceleratorSettings::Mode(OffloadMode::Hybrid),
            (1, _) => AcceleratorSettings::NoMode,
            _ => AcceleratorSettings::Disabled,
        }
    }

    pub fn read(catalog: &Catalog) -> Result<AcceleratorSettings, Error> {
        let value = |setting| Ok::<_, Error>(catalog.setting(setting)?.value_in_use);
        Ok(AcceleratorSettings::of(
            value(Setting::HardwareOffloadEnabled)?,
            value(Setting::HardwareOffloadMode)?,
        ))
    }

    /// Whether backups will look for accelerators.
    pub fn wants_hardware(self) -> bool {
        !matches!(
            self,
            AcceleratorSettings::Disabled
                | AcceleratorSettings::NoMode
                | AcceleratorSettings::Mode(OffloadMode::Software)
        )
    }
}

/// Sets the mode; `None` disables accelerators. Takes effect with the next backup. The message is 17412, or 17411 if
/// nothing changed.
pub fn configure(catalog: &Catalog, mode: Option<OffloadMode>) -> Result<Message, Error> {
    let number = |mode| match mode {
        OffloadMode::Hardware | OffloadMode::Auto => 1,
        OffloadMode::Software => 2,
        OffloadMode::Hybrid => 3,
    };
    let wanted = match mode {
        None => AcceleratorSettings::Disabled,
        Some(mode) => AcceleratorSettings::of(1, number(mode)),
    };
    let unchanged = AcceleratorSettings::read(catalog)? == wanted;
    if !unchanged {
        // Disabling keeps the mode, as in SQL Server.
        if let Some(mode) = mode {
            catalog.set_setting(Setting::HardwareOffloadMode, number(mode), Effect::Now)?;
        }
        let enabled = mode.is_some().into();
        catalog.set_setting(Setting::HardwareOffloadEnabled, enabled, Effect::Now)?;
    }
    let text = match unchanged {
        true => "The hardware offload configuration is unchanged.",
        false => {
            "The hardware offload configuration has changed; it takes effect with the next backup."
        }
    };
    Ok(Message {
        number: if unchanged { 17411 } else { 17412 },
        warning: false,
        text: text.to_owned(),
    })
}

/// The settings in the catalog; `Disabled` if there is no catalog.
pub fn configured(
    storage: &dyn Storage,
    catalog: Option<&Path>,
) -> Result<AcceleratorSettings, Error> {
    match catalog {
        // A query does not create a catalog.
        Some(path) if storage.stat(path).is_ok() => {
            AcceleratorSettings::read(&Catalog::open(path)?)
        }
        _ => Ok(AcceleratorSettings::Disabled),
    }
}

/// Why an accelerator is in its mode: `mode_reason_desc`. SQL Server's codes 1 (Linux) and 11 (edition) do not occur
/// here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Reason {
    HardwareOffloadNotEnabled = 0,
    ConfigNotEnabled = 2,
    LoadFailed = 3,
    ProcFailed = 4,
    VersionNotCompatible = 7,
    InitializationFailed = 8,
    SessionFailed = 9,
    LibraryNotFound = 10,
    HardwareNotFound = 12,
    SoftwareForced = 13,
    Hardware = 14,
    Hybrid = 101,
    SelfTestFailed = 102,
    ProcessWithoutDevice = 103,
    MemoryLost = 104,
    SwitchedOff = 105,
    NotTested = 106,
    NoAnswer = 107,
    NotAvailable = 108,
    Suspended = 109,
    Off = 110,
}

impl Reason {
    fn of(configured: AcceleratorSettings, trouble: Option<Trouble>) -> Reason {
        let mode = match configured {
            AcceleratorSettings::Disabled => return Reason::HardwareOffloadNotEnabled,
            AcceleratorSettings::NoMode => return Reason::ConfigNotEnabled,
            AcceleratorSettings::Mode(OffloadMode::Software) => return Reason::SoftwareForced,
            AcceleratorSettings::Mode(mode) => mode,
        };
        match trouble {
            None if mode == OffloadMode::Hybrid => Reason::Hybrid,
            None => Reason::Hardware,
            Some(Trouble::HardwareNotFound | Trouble::HardwareNotServing) => {
                Reason::HardwareNotFound
            }
            Some(Trouble::LibraryNotFound) => Reason::LibraryNotFound,
            Some(Trouble::LoadFailed) => Reason::LoadFailed,
            Some(Trouble::EntryPointMissing) => Reason::ProcFailed,
            Some(Trouble::VersionNotCompatible) => Reason::VersionNotCompatible,
            Some(Trouble::InitializationFailed) => Reason::InitializationFailed,
            Some(Trouble::SessionFailed) => Reason::SessionFailed,
            Some(Trouble::SelfTestFailed) => Reason::SelfTestFailed,
            Some(Trouble::ProcessWithoutDevice) => Reason::ProcessWithoutDevice,
            Some(Trouble::MemoryLost) => Reason::MemoryLost,
            Some(Trouble::SwitchedOff) => Reason::SwitchedOff,
            Some(Trouble::NotTested) => Reason::NotTested,
            Some(Trouble::NoAnswer) => Reason::NoAnswer,
            Some(Trouble::NotAvailable) => Reason::NotAvailable,
            Some(Trouble::Failed) => Reason::Suspended,
            Some(Trouble::FailedForGood) => Reason::Off,
        }
    }

    pub fn code(self) -> u16 {
        self as u16
    }

    /// `mode_reason_desc` without the mode at its start.
    fn suffix(self) -> &'static str {
        match self {
            Reason::HardwareOffloadNotEnabled => "HARDWARE_OFFLOAD_NOT_ENABLED",
            Reason::ConfigNotEnabled => "ACCELERATOR_CONFIG_NOT_ENABLED",
            Reason::LoadFailed => "ACCELERATOR_LOAD_FAILED",
            Reason::ProcFailed => "ACCELERATOR_PROC_FAILED",
            Reason::VersionNotCompatible => "ACCELERATOR_VERSION_NOT_COMPATIBLE",
            Reason::InitializationFailed => "ACCELERATOR_INITIALIZATION_FAILED",
            Reason::SessionFailed => "ACCELERATOR_SESSION_FAILED",
            Reason::LibraryNotFound => "ACCELERATOR_LIBRARY_NOT_FOUND",
            Reason::HardwareNotFound => "ACCELERATOR_HARDWARE_NOT_FOUND",
            Reason::SoftwareForced => "SOFTWARE_FORCE_OVERRIDE",
            Reason::Hardware => "ENTERPRISE_SKU",
            Reason::Hybrid => "ENABLED",
            Reason::SelfTestFailed => "ACCELERATOR_SELF_TEST_FAILED",
            Reason::ProcessWithoutDevice => "PROCESS_WITHOUT_DEVICE",
            Reason::MemoryLost => "ACCELERATOR_MEMORY_LOST",
            Reason::SwitchedOff => "ACCELERATOR_SWITCHED_OFF",
            Reason::NotTested => "ACCELERATOR_NOT_TESTED",
            Reason::NoAnswer => "ACCELERATOR_NO_ANSWER",
            Reason::NotAvailable => "ACCELERATOR_NOT_AVAILABLE",
            Reason::Suspended => "ACCELERATOR_SUSPENDED",
            Reason::Off => "ACCELERATOR_OFF",
        }
    }

    /// `mode_desc`.
    pub fn mode(self) -> &'static str {
        match self {
            Reason::Hardware => "HARDWARE",
            Reason::Hybrid => "HYBRID",
            Reason::HardwareNotFound
            | Reason::SoftwareForced
            | Reason::SelfTestFailed
            | Reason::ProcessWithoutDevice
            | Reason::MemoryLost
            | Reason::NotTested
            | Reason::NoAnswer
            | Reason::Suspended
            | Reason::Off => "SOFTWARE",
            Reason::HardwareOffloadNotEnabled
            | Reason::ConfigNotEnabled
            | Reason::LoadFailed
            | Reason::ProcFailed
            | Reason::VersionNotCompatible
            | Reason::InitializationFailed
            | Reason::SessionFailed
            | Reason::LibraryNotFound
            | Reason::SwitchedOff
            | Reason::NotAvailable => "NONE",
        }
    }

    /// `mode_reason_desc`: `SOFTWARE_MODE_ACCELERATOR_HARDWARE_NOT_FOUND`.
    pub fn text(self) -> String {
        let mode = self.mode();
        let between = if mode == "NONE" { "" } else { "_MODE" };
        format!("{mode}{between}_{}", self.suffix())
    }
}

/// A row of the status view: SQL Server's columns, then ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AcceleratorStatus {
    pub accelerator: String,
    pub accelerator_desc: String,
    pub mode_desc: &'static str,
    pub mode_reason: u16,
    pub mode_reason_desc: String,
    pub accelerator_hardware_detected: u8,
    pub accelerator_library_version: Option<String>,
    pub accelerator_driver_version: Option<String>,
    /// The name of the hardware.
    pub hardware: Option<String>,
    /// The number of concurrent calls, if the system reports it.
    pub calls_max: usize,
    /// Why it is not used, and what to do; empty if it is used.
    pub advice: String,
}

/// One row for each accelerator, present or not.
pub fn status(configured: AcceleratorSettings, probes: &[Probe]) -> Vec<AcceleratorStatus> {
    let row = |probe: &Probe| {
        let reason = Reason::of(configured, probe.trouble());
        AcceleratorStatus {
            accelerator: probe.accelerator.clone(),
            accelerator_desc: probe.description.clone(),
            mode_desc: reason.mode(),
            mode_reason: reason.code(),
            mode_reason_desc: reason.text(),
            accelerator_hardware_detected: probe.hardware_detected.into(),
            accelerator_library_version: probe.library_version.clone(),
            accelerator_driver_version: probe.driver_version.clone(),
            hardware: probe.hardware.clone(),
            calls_max: probe.calls_max,
            advice: match configured {
                AcceleratorSettings::Disabled | AcceleratorSettings::NoMode => {
                    "run `longshore accelerator enable`".to_owned()
                }
                AcceleratorSettings::Mode(OffloadMode::Software) => {
                    "run `longshore accelerator enable --mode hardware`".to_owned()
                }
                AcceleratorSettings::Mode(_) => probe.reason.clone(),
            },
        }
    };
    probes.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::Host;

    #[test]
    fn reasons_have_sql_servers_codes_and_names() {
        // sys.dm_server_accelerator_status, SQL Server 2022.
        for (reason, code, text) in [
            (
                Reason::HardwareOffloadNotEnabled,
                0,
                "NONE_HARDWARE_OFFLOAD_NOT_ENABLED",
            ),
            (
                Reason::ConfigNotEnabled,
                2,
                "NONE_ACCELERATOR_CONFIG_NOT_ENABLED",
            ),
            (Reason::LoadFailed, 3, "NONE_ACCELERATOR_LOAD_FAILED"),
            (Reason::ProcFailed, 4, "NONE_ACCELERATOR_PROC_FAILED"),
            (
                Reason::VersionNotCompatible,
                7,
                "NONE_ACCELERATOR_VERSION_NOT_COMPATIBLE",
            ),
            (
                Reason::InitializationFailed,
                8,
                "NONE_ACCELERATOR_INITIALIZATION_FAILED",
            ),
            (Reason::SessionFailed, 9, "NONE_ACCELERATOR_SESSION_FAILED"),
            (
                Reason::LibraryNotFound,
                10,
                "NONE_ACCELERATOR_LIBRARY_NOT_FOUND",
            ),
            (
                Reason::HardwareNotFound,
                12,
                "SOFTWARE_MODE_ACCELERATOR_HARDWARE_NOT_FOUND",
            ),
            (
                Reason::SoftwareForced,
                13,
                "SOFTWARE_MODE_SOFTWARE_FORCE_OVERRIDE",
            ),
            (Reason::Hardware, 14, "HARDWARE_MODE_ENTERPRISE_SKU"),
            (Reason::Hybrid, 101, "HYBRID_MODE_ENABLED"),
        ] {
            assert_eq!((reason.code(), reason.text().as_str()), (code, text));
        }
    }

    #[test]
    fn the_configured_accelerator_is_shown_before_others() {
        let hardware = AcceleratorSettings::of(1, 1);
        let reason = |configured, trouble| Reason::of(configured, trouble).code();
        assert_eq!(reason(AcceleratorSettings::of(0, 3), None), 0);
        assert_eq!(reason(AcceleratorSettings::of(1, 0), None), 2);
        assert_eq!(
            reason(AcceleratorSettings::of(1, 2), Some(Trouble::LoadFailed)),
            13
        );
        assert_eq!(reason(hardware, None), 14);
        assert_eq!(reason(AcceleratorSettings::of(1, 3), None), 101);
        for trouble in Trouble::ALL {
            let code = reason(hardware, Some(trouble));
            assert!(code > 2 && !matches!(code, 13 | 14 | 101), "{trouble:?}");
        }
    }

    #[test]
    fn changing_the_mode_says_whether_anything_changed_and_keeps_it_when_switched_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        assert_eq!(
            configured(&Host::new(), Some(&path)).unwrap(),
            AcceleratorSettings::Disabled
        );
        assert!(!path.exists(), "asking creates nothing");
        let catalog = Catalog::open(&path).unwrap();
        let number = |mode| configure(&catalog, mode).unwrap().number;
        assert_eq!(number(None), 17411);
        assert_eq!(number(Some(OffloadMode::Hybrid)), 17412);
        assert_eq!(number(Some(OffloadMode::Hybrid)), 17411);
        assert_eq!(
            AcceleratorSettings::read(&catalog).unwrap(),
            AcceleratorSettings::of(1, 3)
        );
        assert_eq!(number(None), 17412);
        let mode = catalog.setting(Setting::HardwareOffloadMode).unwrap();
        assert_eq!(mode.value, 3);
        assert_eq!(
            configured(&Host::new(), None).unwrap(),
            AcceleratorSettings::Disabled
        );
    }
}
