//! The server settings, which live in the catalog.

use longshore_catalog::{Error, Setting, SettingRow};

use crate::message::{self, Message};
use crate::server::Server;

pub(crate) fn refused(error: &Error) -> Message {
    match error {
        Error::SettingRange { name, value, .. } => message::SETTING_VALUE.with(&[value, name]),
        Error::UnknownSetting { name } => message::SETTING_UNKNOWN.with(&[name]),
        error => message::OWN.with(&[error]),
    }
}

/// Every setting in its order; without a catalog, their initial values.
pub(crate) fn settings(server: &Server) -> Result<Vec<SettingRow>, Message> {
    match server.known_catalog() {
        Some(_) => server.catalog()?.settings().map_err(|e| refused(&e)),
        None => Ok(Setting::ALL.iter().map(|s| s.untouched()).collect()),
    }
}
