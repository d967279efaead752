//! `sp_configure`, RECONFIGURE and ALTER SERVER CONFIGURATION: the server settings, which are in the catalog.
//!
//! Invariants
//! - As in SQL Server, a value is configured first and in use after RECONFIGURE, or after a restart for hardware
//!   offload.
//! - Names may be shortened as long as they are unique. Advanced settings are found only if they are shown.
//! - A value outside of its range is refused before it is stored.
//!
//! Leaves to others: storing settings (`longshore-catalog`), and what they do (`pipeline`).

use longshore_accelerators::AcceleratorSettings;
use longshore_catalog::{Effect, Setting, SettingRow};

use super::arguments::Arguments;
use crate::convert::convert;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::session::Session;
use crate::settings::{refused, settings};
use crate::sink::Command;
use crate::syntax::HardwareOffload;
use crate::value::{Column, Type, Value};

/// The mode belongs to ALTER SERVER CONFIGURATION; `sp_configure` has no such option.
pub(crate) fn is_shown(row: &SettingRow, advanced: bool) -> bool {
    row.name != Setting::HardwareOffloadMode.name() && (advanced || !row.is_advanced)
}

pub(super) fn sp_configure(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [name, value] = arguments.of(["@configname", "@configvalue"])?;
    let rows = settings(&session.server)?;
    let advanced = rows
        .iter()
        .any(|r| r.name == Setting::ShowAdvancedOptions.name() && r.value_in_use == 1);
    let shown = rows.into_iter().filter(|r| is_shown(r, advanced));
    let Some(name) = name else {
        return show(shown.collect(), out);
    };
    let name = match convert(&name, Type::nvarchar(35))? {
        Value::Null => String::new(),
        name => name.to_string(),
    };
    let row = find(shown.collect(), &name)?;
    let Some(value) = value else {
        return show(vec![row], out);
    };
    let Value::Int(new) = convert(&value, Type::Int)? else {
        return Err(message::SETTING_VALUE.with(&[&"NULL", &row.name]).into());
    };
    let setting: Setting = row.name.parse().map_err(|e| refused(&e))?;
    let catalog = session.server.catalog()?;
    catalog
        .set_setting(setting, new, Effect::Later)
        .map_err(|e| refused(&e))?;
    out.say(message::SETTING_CHANGED.with(&[&row.name, &row.value, &new]))?;
    Ok(out.done(Command::Execute, None)?)
}

/// Options of SQL Server that this server does not have.
const ELSEWHERE: &[&str] = &[
    "Ad Hoc Distributed Queries",
    "affinity mask",
    "Agent XPs",
    "blocked process threshold (s)",
    "clr enabled",
    "clr strict security",
    "contained database authentication",
    "cost threshold for parallelism",
    "cross db ownership chaining",
    "Database Mail XPs",
    "default trace enabled",
    "fill factor (%)",
    "filestream access level",
    "lightweight pooling",
    "locks",
    "max degree of parallelism",
    "max server memory (MB)",
    "max worker threads",
    "min memory per query (KB)",
    "min server memory (MB)",
    "nested triggers",
    "network packet size (B)",
    "Ole Automation Procedures",
    "optimize for ad hoc workloads",
    "priority boost",
    "query governor cost limit",
    "query wait (s)",
    "recovery interval (min)",
    "remote access",
    "remote admin connections",
    "remote login timeout (s)",
    "remote query timeout (s)",
    "scan for startup procs",
    "SMO and DMO XPs",
    "tempdb metadata memory-optimized",
    "user connections",
    "user options",
    "xp_cmdshell",
];

fn is_of_sql_server(name: &str) -> bool {
    ELSEWHERE
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

/// The option of this name, or the only one that begins with it.
fn find(rows: Vec<SettingRow>, name: &str) -> Result<SettingRow, Message> {
    let begins = |row: &SettingRow| {
        let head = row.name.get(..name.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(name))
    };
    let same = rows.iter().find(|r| r.name.eq_ignore_ascii_case(name));
    if let Some(row) = same {
        return Ok(*row);
    }
    let alike: Vec<_> = rows
        .iter()
        .filter(|r| !name.is_empty() && begins(r))
        .collect();
    match alike.as_slice() {
        [row] => Ok(**row),
        [] if is_of_sql_server(name) => {
            Err(message::NOT_HERE.with(&[&format!("the configuration option {name}")]))
        }
        [] => Err(message::SETTING_UNKNOWN.with(&[&name])),
        _ => Err(message::SETTING_AMBIGUOUS.with(&[&name])),
    }
}

fn show(rows: Vec<SettingRow>, out: &mut Out) -> Flow {
    out.sink.columns(&[
        Column::new("name", Type::nvarchar(35)),
        Column::new("minimum", Type::Int),
        Column::new("maximum", Type::Int),
        Column::new("config_value", Type::Int),
        Column::new("run_value", Type::Int),
    ])?;
    for row in &rows {
        out.sink.row(&[
            Value::text(row.name),
            Value::Int(row.minimum),
            Value::Int(row.maximum),
            Value::Int(row.value),
            Value::Int(row.value_in_use),
        ])?;
    }
    Ok(out.done(Command::Execute, Some(rows.len() as u64))?)
}

pub(crate) fn reconfigure(session: &mut Session, out: &mut Out) -> Flow {
    if session.server.known_catalog().is_some() {
        let catalog = session.server.catalog()?;
        catalog.reconfigure().map_err(|e| refused(&e))?;
    }
    Ok(out.done(Command::Other, None)?)
}

/// Takes effect with the next start; the setting `hardware offload enabled` stays unchanged.
pub(crate) fn hardware_offload(
    session: &mut Session,
    offload: &HardwareOffload,
    out: &mut Out,
) -> Flow {
    let known = (session.server.setup.prober)(AcceleratorSettings::Disabled);
    let same = |name: &str| name.eq_ignore_ascii_case(&offload.accelerator);
    if !known.iter().any(|probe| same(&probe.accelerator)) {
        let names: Vec<_> = known.iter().map(|p| p.accelerator.as_str()).collect();
        let text = format!(
            "unknown accelerator {}; use {}",
            offload.accelerator,
            names.join(", ")
        );
        return Err(message::OWN.with(&[&text]).into());
    }
    let mode = match (offload.on, offload.mode.as_deref()) {
        (false, _) => 0,
        (true, None) => 1,
        (true, Some("SOFTWARE")) => 2,
        (true, Some(_)) => 3,
    };
    let catalog = session.server.catalog()?;
    let setting = Setting::HardwareOffloadMode;
    let before = catalog.setting(setting).map_err(|e| refused(&e))?.value;
    if before == mode {
        out.say(message::OFFLOAD_UNCHANGED.plain())?;
    } else {
        catalog
            .set_setting(setting, mode, Effect::Later)
            .map_err(|e| refused(&e))?;
        out.say(message::OFFLOAD_CHANGED.plain())?;
        let text = message::OFFLOAD_CHANGED.plain().text;
        session.server.write_log("Server", &text);
    }
    Ok(out.done(Command::Other, None)?)
}
