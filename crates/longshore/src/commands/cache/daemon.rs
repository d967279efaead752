//! `longshore cache`: creates a cache, serves through it, and queries a running one.
//!
//! Invariants
//! - Serving becomes nbdkit (exec), so signals and exit codes are nbdkit's own; a plugin that other users could have
//!   written is refused.
//! - Queries go over the control socket, and never touch the cache's files.
//!
//! Leaves to others: the cache itself (`blockcache`), what the plugin does (`serving`), and policies (`policy`).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_blockcache::TRACE_HEAD;
use longshore_blockcache::control::{self, Request};
use longshore_blockcache::format;
use longshore_io::child::{self, NotStarted};
use longshore_io::{File, OpenHow, Via, trusted};
use longshore_policy::calibrate::model_at;
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::options::{
    CacheAttach, CacheDetach, CachePolicy, CacheResize, CacheShadow, CacheStatus, CacheTrace,
    CacheVerify, CacheWhy, CreateCache, ServeCache,
};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::{self, Table};

/// The plugin's file name, as Cargo makes it.
const PLUGIN: &str = "liblongshore_nbd.so";

/// The variable that names systemd's socket to a service of `Type=notify`.
const MANAGER: &str = "NOTIFY_SOCKET";

pub fn create(options: &CreateCache, context: &Context) -> Result<Exit, Failure> {
    let slot_bytes = u32::try_from(options.slot).unwrap_or(0);
    let made = longshore_blockcache::create(
        &*context.storage,
        &options.path,
        options.size,
        slot_bytes,
        options.force,
    );
    let geometry = made.map_err(|e| Failure::of(exit(&e), &e, numbers::CACHE, e.hint()))?;
    let capacity_bytes = geometry.capacity_bytes();
    context.output.say(&format!(
        "{} holds up to {} in {} slots of {}\n",
        options.path.display(),
        output::bytes(capacity_bytes),
        geometry.slots,
        output::bytes(geometry.slot_bytes.into())
    ));
    let answer = json!({"capacity_bytes": capacity_bytes, "slots": geometry.slots,
        "slot_bytes": geometry.slot_bytes});
    Ok(told("cache_create", Exit::Done, answer, context))
}

fn exit(error: &longshore_blockcache::Error) -> Exit {
    use longshore_blockcache::Error;
    match error {
        Error::SlotSize { .. }
        | Error::TooSmall { .. }
        | Error::Beyond { .. }
        | Error::SmallStep { .. }
        | Error::Policy { .. }
        | Error::NoGuard { .. }
        | Error::NotAGuard { .. }
        | Error::GuardNames { .. }
        | Error::GuardOnCache { .. } => Exit::Usage,
        Error::NotEmpty { .. }
        | Error::InUse { .. }
        | Error::Attached
        | Error::Hangs
        | Error::Detached
        | Error::GivenUp
        | Error::NotRecording
        | Error::Ending => Exit::Conflict,
        Error::Io { .. }
        | Error::NoCache { .. }
        | Error::NewerCache { .. }
        | Error::Memory { .. } => Exit::Media,
    }
}

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    #[serde(flatten)]
    members: Value,
}

/// Gives the answer of a command as JSON, if that was requested.
fn told(action: &'static str, exit: Exit, members: Value, context: &Context) -> Exit {
    context.output.json(exit, Answer { action, members });
    exit
}

/// Becomes nbdkit, so that signals and exit codes are its own.
pub fn serve(options: &ServeCache, context: &Context) -> Result<Exit, Failure> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|e| {
            Failure::of(
                Exit::Usage,
                &e,
                numbers::FILE_UNUSABLE,
                "give a path that exists",
            )
        })
    };
    let socket = absolute(&options.socket)?;
    free(&socket, context)?;
    let plugin = plugin(options.plugin.as_deref(), context)?;
    // nbdkit would run it with our rights.
    let plugin = trusted(&plugin, &[]).map_err(|why| {
        let what = format!("the plugin for nbdkit is not loaded: {why}");
        Failure::usage(what, "install it where only root can write")
            .numbered(numbers::PROGRAM_MISSING)
    })?;
    let models = models(options, context)?;
    let mut command = child::installed("nbdkit").map_err(|e| {
        let failure = match e {
            NotStarted::NotFound { .. } => Failure::usage(
                "cannot start nbdkit: it is in no directory of PATH",
                "install it: apt-get install nbdkit",
            ),
            why => Failure::usage(
                format!("cannot start nbdkit: {why}"),
                "install it where only root can write: apt-get install nbdkit",
            ),
        };
        failure.numbered(numbers::PROGRAM_MISSING)
    })?;
    command.args(["--foreground", "--threads"]);
    command
        .arg(options.threads.to_string())
        .arg("--unix")
        .arg(&socket)
        .arg(&plugin);
    let mut set = |key: &str, value: OsString| {
        let mut setting = OsString::from(key);
        setting.push("=");
        setting.push(value);
        command.arg(setting);
    };
    // A plugin of another version would serve without the cache, or overwrite it.
    set("form", format::FORM.into());
    set("backend", absolute(&options.backend)?.into());
    if let Some(cache) = &options.cache {
        set("cache", absolute(cache)?.into());
    }
    if let Some(guard) = &options.guard {
        set("guard", absolute(guard)?.into());
    }
    if let Some(policy) = &options.policy {
        set("policy", policy.into());
    }
    if let Some(pair) = &options.pair {
        set("pair", pair.into());
    }
    for (key, model) in models {
        set(key, absolute(model)?.into());
    }
    set("buffered", options.buffered.to_string().into());
    set("clients", options.threads.to_string().into());
    set("control", beside(&socket).into());
    // The plugin tells systemd when clients are answered.
    if let Some(manager) = std::env::var_os(MANAGER) {
        command.env(MANAGER, manager);
    }
    let error = command.exec();
    Err(failed(
        Exit::Usage,
        "cannot start nbdkit",
        &error,
        "install it: apt-get install nbdkit",
    ))
}

fn failed(exit: Exit, text: impl Into<String>, error: &std::io::Error, hint: &str) -> Failure {
    Failure::new(exit, numbers::CACHE, text, hint).because(error)
}

/// Checks that a socket can be created there.
fn free(socket: &Path, context: &Context) -> Result<(), Failure> {
    let dir = socket.parent().unwrap_or(Path::new("/"));
    context.storage.dir(dir).map_err(|error| {
        let text = format!("cannot open the directory of {}", socket.display());
        failed(
            Exit::Usage,
            text,
            &error,
            "create the directory, or correct the path",
        )
    })?;
    control::remove_dead(socket);
    if context.storage.stat(socket).is_ok() {
        let text = format!("{} already exists", socket.display());
        let hint = "if a cache is running there, `longshore cache status` shows it; otherwise choose another path";
        return Err(Failure::new(Exit::Conflict, numbers::CACHE, text, hint));
    }
    Ok(())
}

/// The plugin's settings that name models; checks that each file is readable.
fn models<'a>(
    options: &'a ServeCache,
    context: &Context,
) -> Result<Vec<(&'static str, &'a Path)>, Failure> {
    let sides = [
        ("fast_model", options.fast_model.as_deref()),
        ("slow_model", options.slow_model.as_deref()),
    ];
    let named = sides.into_iter();
    let named: Vec<_> = named.filter_map(|(key, path)| Some((key, path?))).collect();
    if named.len() == 1 && options.pair.is_none() {
        return Err(Failure::usage(
            "a model of one device does not describe the other",
            "give both --fast-model and --slow-model, or --pair with one of them",
        ));
    }
    for (_, path) in &named {
        model_at(path, &*context.storage)
            .map_err(|e| Failure::of(Exit::Usage, &e, numbers::FILE_UNUSABLE, e.hint()))?;
    }
    Ok(named)
}

/// The control socket of the daemon that serves `socket`.
fn beside(socket: &Path) -> PathBuf {
    let mut path = socket.to_owned().into_os_string();
    path.push(".control");
    path.into()
}

fn plugin(named: Option<&Path>, context: &Context) -> Result<PathBuf, Failure> {
    let places = match named {
        Some(path) => vec![path.to_owned()],
        None => {
            let program = std::env::current_exe().unwrap_or_default();
            let dir = program.parent().unwrap_or(Path::new("."));
            vec![dir.join(PLUGIN), dir.join("../lib/longshore").join(PLUGIN)]
        }
    };
    let found = places
        .iter()
        .find(|path| context.storage.stat(path).is_ok());
    let found = found.and_then(|path| std::path::absolute(path).ok());
    found.ok_or_else(|| {
        Failure::usage(
            format!("the plugin for nbdkit is not at {}", places[0].display()),
            "build it with `make build`, or name its path with --plugin",
        )
        .numbered(numbers::PROGRAM_MISSING)
    })
}

fn ask(socket: &Path, request: &Request) -> Result<Value, Failure> {
    let control = beside(socket);
    let answer = control::ask(&control, request).map_err(|error| {
        let text = format!("cannot reach the cache at {}", control.display());
        let hint = "check that the cache is running, and that this is the socket given to `longshore cache serve`";
        failed(Exit::Target, text, &error, hint)
    })?;
    match answer.get("error").and_then(Value::as_str) {
        None => Ok(answer),
        Some(text) => {
            let hint = answer
                .get("hint")
                .and_then(Value::as_str)
                .unwrap_or("`longshore cache status` shows what the cache does");
            Err(Failure::new(Exit::Conflict, numbers::CACHE, text, hint))
        }
    }
}

pub fn status(options: &CacheStatus, context: &Context) -> Result<Exit, Failure> {
    if options.prometheus {
        let answer = ask(&options.socket, &Request::Prometheus)?;
        let text = answer
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or_default();
        context.output.say(text);
        return Ok(told("cache_metrics", Exit::Done, answer, context));
    }
    let mut answer = ask(&options.socket, &Request::Status)?;
    // Every answer has a `status` of its own.
    if let Some(members) = answer.as_object_mut()
        && let Some(state) = members.remove("status")
    {
        members.insert("cache_state".to_owned(), state);
    }
    let mut table = Table::new(&["", ""]);
    for part in ["cache_state", "counters", "reasons"] {
        for (name, value) in answer
            .get(part)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => shown(name, number),
                // Histograms, and values that a policy does not report, are for programs.
                _ => continue,
            };
            table.row(vec![name.replace('_', " "), text]);
        }
    }
    context.output.say(&table.to_string());
    Ok(told("cache_status", Exit::Done, answer, context))
}

fn shown(name: &str, number: &serde_json::Number) -> String {
    match number.as_u64() {
        Some(count) if name.ends_with("bytes") => output::bytes(count),
        _ => number.to_string(),
    }
}

pub fn why(options: &CacheWhy, context: &Context) -> Result<Exit, Failure> {
    let answer = ask(
        &options.socket,
        &Request::Why {
            count: options.last,
        },
    )?;
    let mut table = Table::new(&[
        "Asked", "Offset", "Bytes", "Held", "By cache", "Reason", "us",
    ]);
    for line in answer
        .get("lines")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let cell = |name: &str| match line.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let names = [
            "asked",
            "offset",
            "len",
            "held_bytes",
            "fast_bytes",
            "reason",
            "took_us",
        ];
        table.row(names.map(cell).to_vec());
    }
    context.output.say(&table.to_string());
    Ok(told("cache_why", Exit::Done, answer, context))
}

/// The interval at which a recording is fetched: far shorter than the time until it is full.
const FETCH_EVERY: Duration = Duration::from_millis(100);

pub fn trace(options: &CacheTrace, context: &Context) -> Result<Exit, Failure> {
    let path = &options.to;
    let full = |e: io::Error| {
        let text = format!("cannot write {}", path.display());
        let hint = "give the path of a new file, in an existing directory with enough free space";
        failed(Exit::Target, text, &e, hint)
    };
    let file = create_new(path, context).map_err(full)?;
    let number = ask(&options.socket, &Request::Record)?;
    let number = number.get("number").and_then(Value::as_u64).unwrap_or(0);
    let end = context.clock.now() + Duration::from_secs_f64(options.seconds);
    let (mut at, mut requests) = (0, 0);
    let mut put = |text: &str| -> Result<(), Failure> {
        file.write_all_at(text.as_bytes(), at, Via::Cache)
            .map_err(full)?;
        at += text.len() as u64;
        Ok(())
    };
    put(TRACE_HEAD)?;
    loop {
        let left = end.saturating_sub(context.clock.now());
        context.clock.sleep(left.min(FETCH_EVERY));
        let end = left.is_zero();
        let taken = ask(&options.socket, &Request::Recorded { number, end })?;
        put(taken.get("lines").and_then(Value::as_str).unwrap_or(""))?;
        requests += taken.get("requests").and_then(Value::as_u64).unwrap_or(0);
        let more = taken.get("more").and_then(Value::as_bool) == Some(true);
        if end && !more {
            break;
        }
    }
    file.sync().map_err(full)?;
    context.output.say(&format!(
        "{requests} requests in {} s, in {}\n",
        options.seconds,
        path.display()
    ));
    let answer = json!({"requests": requests, "seconds": options.seconds, "trace": path});
    Ok(told("cache_trace", Exit::Done, answer, context))
}

/// A file that is not there yet.
fn create_new(path: &Path, context: &Context) -> io::Result<Arc<dyn File>> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let dir = context.storage.dir(parent)?;
            let file = dir.open(Path::new(name), OpenHow::CreateNew)?;
            dir.sync(Path::new(""))?;
            Ok(file)
        }
        _ => Err(io::ErrorKind::IsADirectory.into()),
    }
}

pub fn policy(options: &CachePolicy, context: &Context) -> Result<Exit, Failure> {
    let name = options.name.clone();
    let answer = ask(&options.socket, &Request::Policy { name })?;
    context
        .output
        .say(&format!("the policy is {}\n", options.name));
    Ok(told("cache_policy", Exit::Done, answer, context))
}

pub fn attach(options: &CacheAttach, context: &Context) -> Result<Exit, Failure> {
    let path = std::path::absolute(&options.cache).unwrap_or_else(|_| options.cache.clone());
    let answer = ask(&options.socket, &Request::Attach { path })?;
    context.output.say("attached\n");
    Ok(told("cache_attach", Exit::Done, answer, context))
}

pub fn detach(options: &CacheDetach, context: &Context) -> Result<Exit, Failure> {
    let answer = ask(&options.socket, &Request::Detach)?;
    context
        .output
        .say("detached; the backend serves everything\n");
    Ok(told("cache_detach", Exit::Done, answer, context))
}

pub fn resize(options: &CacheResize, context: &Context) -> Result<Exit, Failure> {
    let bytes = options.size;
    let answer = ask(&options.socket, &Request::Resize { bytes })?;
    let capacity = answer.get("capacity_bytes").and_then(Value::as_u64);
    context.output.say(&format!(
        "the cache holds up to {}\n",
        output::bytes(capacity.unwrap_or(0))
    ));
    Ok(told("cache_resize", Exit::Done, answer, context))
}

pub fn shadow(options: &CacheShadow, context: &Context) -> Result<Exit, Failure> {
    let change = options.off || options.name.is_some();
    let request = match change {
        true => Request::Shadow {
            name: options.name.clone(),
        },
        false => Request::Status,
    };
    let answer = ask(&options.socket, &request)?;
    let shadow = answer.get("shadow").cloned().unwrap_or_default();
    let policy = shadow.get("policy").and_then(Value::as_str);
    match (policy, change) {
        (None, _) => context.output.say("no shadow policy is running\n"),
        (Some(policy), true) => context.output.say(&format!("{policy} watches\n")),
        (Some(policy), false) => {
            context.output.say(&format!("{policy} watches\n"));
            let mut table = Table::new(&["", "Would", "Did"]);
            for name in ["reads", "hits", "fast_bytes", "fill_bytes"] {
                let cell = |side: &str| match &shadow[side][name] {
                    Value::Number(number) => shown(name, number),
                    _ => String::new(),
                };
                table.row(vec![name.replace('_', " "), cell("would"), cell("did")]);
            }
            context.output.say(&table.to_string());
        }
    }
    let answer = json!({"shadow": shadow});
    Ok(told("cache_shadow", Exit::Done, answer, context))
}

pub fn verify(options: &CacheVerify, context: &Context) -> Result<Exit, Failure> {
    let repair = options.repair;
    let answer = ask(&options.socket, &Request::Verify { repair })?;
    let count = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (differing, unreadable) = (count("differing"), count("unreadable_lines"));
    let is_sound = differing == 0 && unreadable == 0;
    let exit = if is_sound { Exit::Done } else { Exit::No };
    let dropped = |lines: u64| match repair && lines > 0 {
        true => " and were dropped",
        false => "",
    };
    context.output.say(&format!(
        "{} lines of 4 KiB compared, {differing} differ{}\n",
        count("compared"),
        dropped(differing)
    ));
    if unreadable > 0 {
        context.output.say(&format!(
            "{unreadable} lines cannot be read from the cache device as they were written{}\n",
            dropped(unreadable)
        ));
    }
    if count("overtaken") > 0 {
        context.output.say(&format!(
            "{} lines changed meanwhile and were not judged\n",
            count("overtaken")
        ));
    }
    Ok(told("cache_verify", exit, answer, context))
}
