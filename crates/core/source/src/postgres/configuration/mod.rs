//! The server's configuration, where that is outside the data directory, as Debian and Ubuntu have it.
//!
//! The copies are entries of the set below `longshore-config` (`longshore_pg::set_notes`). They are read once, when the
//! backup begins.
//!
//! Invariants
//! - A file counts if the server would read it at its start: the three that its settings name, and what these include.
//!   Symbolic links are followed, as the server follows them.
//! - As root, only files are read that the owner of the data directory may read: otherwise an `include` that this user
//!   wrote would bring any file of the machine into the set.
//! - The number, the size and the depth of the files are bounded.
//! - Nothing here fails a backup: a file that cannot be taken along is a warning that names it.
//!
//! Leaves to others: which files a text includes (`includes.rs`), and telling how to start a server with the copies
//! (`longshore-landing`).

mod includes;

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Stat, Storage, Via};
use longshore_pg::set_notes::{CONFIG_DIR, CONFIG_FACTS, ConfigFacts, copy_of};

use super::session::Session;
use super::tree::held;
use crate::{Entry, EntryKind};
use includes::{Include, TextKind};

/// A larger file is left out, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Bytes of all files, which are in memory during the backup.
const TOTAL_MAX: u64 = 8 << 20;
const FILES_MAX: usize = 1000;
/// As deep as the server follows includes (`CONF_FILE_MAX_DEPTH`).
const DEPTH_MAX: usize = 10;
/// How often a file is read that changes meanwhile.
const READINGS_MAX: usize = 3;
/// Room for the directory of the copies in front of a path.
const PATH_LEN_MAX: usize = 4000;
/// A server's user is never taken for a member of it.
const ROOT_GROUP: u32 = 0;
/// Files of Debian's `pg_ctlcluster` next to `postgresql.conf`.
const NEIGHBOURS: [&str; 3] = ["environment", "pg_ctl.conf", "start.conf"];

/// The configuration outside the data directory.
#[derive(Default)]
pub(super) struct Configuration {
    /// Directories before what they hold.
    pub(super) entries: Vec<Entry>,
    pub(super) notices: Vec<String>,
    /// Files that are not in the set.
    pub(super) warnings: Vec<String>,
    /// Bytes of the files.
    pub(super) bytes: u64,
}

/// Looks for the configuration of the server whose data directory is `data`. `wanted`: whether it is to be in the set.
pub(super) fn look(
    storage: &dyn Storage,
    session: &Session,
    data: &Path,
    wanted: bool,
) -> Configuration {
    let facts = match session.configuration(data) {
        Ok(facts) => facts,
        Err(error) => {
            tracing::info!(%error, "the server does not say where its configuration is");
            return Configuration::default();
        }
    };
    let Ok(root) = storage.stat(data) else {
        return Configuration::default();
    };
    let is_root = rustix::process::geteuid().is_root() && root.uid != 0;
    // The server made this file, so its group is the server's; who made the directory is not known.
    let group = storage.stat(&data.join("postmaster.pid"));
    let group = group.map_or(ROOT_GROUP, |stat| stat.gid);
    let reader = Reader {
        storage,
        data,
        user: is_root.then_some((root.uid, group)),
    };
    let mut search = Search::new(&reader);
    search.begin(&facts);
    let copies = storage.canonical(&data.join(CONFIG_DIR)).ok();
    for path in [&facts.config_file, &facts.hba_file, &facts.ident_file] {
        let real = storage.canonical(path).ok();
        if real
            .zip(copies.as_ref())
            .is_some_and(|(real, copies)| real.starts_with(copies))
        {
            search.warnings.push(format!(
                "the server runs on {path:?}, a copy that an earlier restore left, which no backup has: move it to a place \
                 of its own"
            ));
        }
    }
    search.run();
    // The server may know the includes of a file that is not readable here. It reads all files for that answer.
    if search.denied {
        for path in session.setting_files().unwrap_or_default() {
            search.add(&path, TextKind::Settings, 0, true);
        }
        search.run();
    }
    collect(search, &facts, &root, wanted)
}

fn collect(search: Search, facts: &ConfigFacts, root: &Stat, wanted: bool) -> Configuration {
    let reader = search.reader;
    let outside = |path: &&PathBuf| !reader.is_inside(path);
    let named: Vec<&PathBuf> = [&facts.config_file, &facts.hba_file, &facts.ident_file]
        .into_iter()
        .filter(outside)
        .collect();
    if named.is_empty() && search.found.is_empty() {
        return Configuration {
            warnings: if wanted { search.warnings } else { Vec::new() },
            ..Configuration::default()
        };
    }
    let places = match named
        .first()
        .or(search.found.first().map(|f| &f.path).as_ref())
    {
        Some(path) => path.display().to_string(),
        None => String::new(),
    };
    if !wanted {
        let text = format!(
            "the server's configuration is outside its data directory ({places}), and is left out of the backup as asked"
        );
        return Configuration {
            notices: vec![text],
            ..Configuration::default()
        };
    }
    let count = search.found.len();
    let text = format!(
        "the server's configuration is outside its data directory ({places}): the backup has {count} files of it in {CONFIG_DIR}"
    );
    Configuration {
        bytes: search.bytes,
        notices: vec![text],
        entries: entries(&search, facts, root),
        warnings: search.warnings,
    }
}

/// The entries of the set: directories, the facts, and the copies.
fn entries(search: &Search, facts: &ConfigFacts, root: &Stat) -> Vec<Entry> {
    let storage = search.reader.storage;
    let top = Path::new(CONFIG_DIR);
    let mut entries = vec![
        Entry::named(top.into(), EntryKind::Dir, root),
        held(
            CONFIG_FACTS.into(),
            facts.format(),
            &Stat {
                mode: root.mode & 0o666,
                ..root.clone()
            },
        ),
    ];
    let mut known = BTreeSet::from([top.to_owned()]);
    let mut add_dirs = |entries: &mut Vec<Entry>, copy: &Path| {
        let above: Vec<PathBuf> = copy.ancestors().map(Path::to_owned).collect();
        for dir in above.iter().rev() {
            if !dir.starts_with(top) || !known.insert(dir.clone()) {
                continue;
            }
            let original = longshore_pg::set_notes::original_of(dir);
            let stat = original.and_then(|path| storage.stat(&path).ok());
            let stat = stat.map_or_else(
                || root.clone(),
                |stat| Stat {
                    mode: stat.mode & 0o777,
                    ..stat
                },
            );
            entries.push(Entry::named(dir.clone(), EntryKind::Dir, &stat));
        }
    };
    for dir in &search.dirs {
        if let Some(copy) = copy_of(dir) {
            add_dirs(&mut entries, &copy);
        }
    }
    for file in &search.found {
        let Some(copy) = copy_of(&file.path) else {
            continue;
        };
        if let Some(parent) = copy.parent() {
            add_dirs(&mut entries, parent);
        }
        let stat = Stat {
            mode: file.stat.mode & 0o777,
            ..file.stat.clone()
        };
        entries.push(held(copy, file.bytes.clone(), &stat));
    }
    entries
}

/// A file that was read.
struct FoundFile {
    /// The path by which the server knows it.
    path: PathBuf,
    bytes: Vec<u8>,
    stat: Stat,
}

/// Something that is still to be read.
struct Wanted {
    path: PathBuf,
    kind: TextKind,
    depth: usize,
    /// Whether the server misses it if it does not exist.
    needed: bool,
}

/// The walk through the files and what they include.
struct Search<'a> {
    reader: &'a Reader<'a>,
    waiting: Vec<Wanted>,
    seen: BTreeSet<PathBuf>,
    /// Outside the data directory.
    found: Vec<FoundFile>,
    /// Included directories outside the data directory.
    dirs: BTreeSet<PathBuf>,
    bytes: u64,
    /// Whether this process, which is not root, may not read a file.
    denied: bool,
    warnings: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(reader: &'a Reader<'a>) -> Search<'a> {
        Search {
            reader,
            waiting: Vec::new(),
            seen: BTreeSet::new(),
            found: Vec::new(),
            dirs: BTreeSet::new(),
            bytes: 0,
            denied: false,
            warnings: Vec::new(),
        }
    }

    /// The files that the server's settings name, and those of Debian's tools next to them.
    fn begin(&mut self, facts: &ConfigFacts) {
        self.add(&facts.config_file, TextKind::Settings, 0, true);
        self.add(&facts.hba_file, TextKind::Access, 0, true);
        self.add(&facts.ident_file, TextKind::Access, 0, true);
        let dir = facts.config_file.parent();
        if let Some(dir) = dir.filter(|dir| !self.reader.is_inside(dir)) {
            for name in NEIGHBOURS {
                self.add(&dir.join(name), TextKind::Plain, 0, false);
            }
        }
    }

    fn add(&mut self, path: &Path, kind: TextKind, depth: usize, needed: bool) {
        self.waiting.push(Wanted {
            path: path.to_owned(),
            kind,
            depth,
            needed,
        });
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        // Of the data directory the backup itself says what it lacks.
        if self.reader.is_inside(path) {
            return;
        }
        self.warnings.push(format!(
            "the configuration file {path:?} is not in the backup: {why}"
        ));
    }

    fn run(&mut self) {
        while let Some(wanted) = self.waiting.pop() {
            if !self.seen.insert(wanted.path.clone()) {
                continue;
            }
            if wanted.depth > DEPTH_MAX {
                self.leave_out(&wanted.path, "its includes are too deep");
                continue;
            }
            if self.seen.len() > FILES_MAX {
                self.leave_out(&wanted.path, "too many files include one another");
                let more = self.waiting.len();
                if more > 0 {
                    let text = format!("nor are {more} further paths that are included");
                    self.warnings.push(text);
                }
                return;
            }
            match self.reader.read(&wanted.path) {
                Ok(read) => self.take(&wanted, read),
                Err(e) if e.kind() == io::ErrorKind::NotFound && !wanted.needed => {}
                Err(e) => {
                    self.denied |=
                        e.kind() == io::ErrorKind::PermissionDenied && self.reader.user.is_none();
                    self.leave_out(&wanted.path, &e.to_string());
                }
            }
        }
    }

    fn take(&mut self, wanted: &Wanted, read: ReadFile) {
        let dir = wanted.path.parent().unwrap_or(Path::new("/"));
        for include in includes::of(wanted.kind, &read.bytes) {
            self.include(wanted, dir, &include);
        }
        // A file inside is in the backup with all others; a link inside may lead to one that is not.
        let path = match (
            self.reader.is_inside(&wanted.path),
            self.reader.is_inside(&read.real),
        ) {
            (true, true) => return,
            (true, false) => read.real,
            (false, _) => wanted.path.clone(),
        };
        let len = read.bytes.len() as u64;
        if copy_of(&path).is_none() || path.as_os_str().len() > PATH_LEN_MAX {
            return self.leave_out(&path, "its path has `..` in it, or is too long");
        }
        if self.bytes + len > TOTAL_MAX {
            return self.leave_out(&path, "all files together are too large");
        }
        if read.changing {
            self.warnings.push(format!(
                "the configuration file {path:?} changed while it was read"
            ));
        }
        if self.found.iter().any(|found| found.path == path) {
            return;
        }
        self.bytes += len;
        self.found.push(FoundFile {
            path,
            bytes: read.bytes,
            stat: read.stat,
        });
    }

    fn include(&mut self, from: &Wanted, dir: &Path, include: &Include) {
        let depth = from.depth + 1;
        let path = plain(&dir.join(&include.path));
        if !include.is_dir {
            return self.add(&path, include.kind, depth, include.needed);
        }
        match self.reader.list(&path) {
            Ok(names) => {
                if !self.reader.is_inside(&path) {
                    self.dirs.insert(path.clone());
                }
                for name in names {
                    self.add(&path.join(name), include.kind, depth, true);
                }
            }
            Err(e) => self.leave_out(&path, &e.to_string()),
        }
    }
}

/// Without `.` and `..`, as the server itself shortens such paths.
fn plain(path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                short.pop();
            }
            Component::CurDir => {}
            part => short.push(part),
        }
    }
    short
}

struct ReadFile {
    bytes: Vec<u8>,
    stat: Stat,
    /// Without links.
    real: PathBuf,
    changing: bool,
}

/// Reads files as the server would.
struct Reader<'a> {
    storage: &'a dyn Storage,
    /// The data directory, without links.
    data: &'a Path,
    /// The server's user and group, if this process could read more than that user.
    user: Option<(u32, u32)>,
}

const READ: u32 = 4;
const SEARCH: u32 = 1;

impl Reader<'_> {
    /// Whether a name is in the data directory, or leads into it.
    fn is_inside(&self, path: &Path) -> bool {
        let is_in = |real: io::Result<PathBuf>| real.is_ok_and(|real| real.starts_with(self.data));
        let parent = path.parent().unwrap_or(path);
        is_in(self.storage.canonical(parent)) || is_in(self.storage.canonical(path))
    }

    fn check(&self, stat: &Stat, right: u32) -> io::Result<()> {
        let Some((uid, gid)) = self.user else {
            return Ok(());
        };
        let shift = match (stat.uid == uid, stat.gid == gid && gid != ROOT_GROUP) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        match stat.mode >> shift & right {
            0 => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the server's user may not read it",
            )),
            _ => Ok(()),
        }
    }

    /// The directory at `real`, a path without links, if the server's user may look into each directory on the way.
    fn dir(&self, real: &Path) -> io::Result<Arc<dyn Dir>> {
        if self.user.is_none() {
            return self.storage.dir(real);
        }
        let mut dir = self.storage.dir(Path::new("/"))?;
        for part in real.components() {
            self.check(&dir.stat(Path::new(""))?, SEARCH)?;
            if let Component::Normal(name) = part {
                dir = dir.dir(Path::new(name))?;
            }
        }
        self.check(&dir.stat(Path::new(""))?, SEARCH)?;
        Ok(dir)
    }

    fn read(&self, path: &Path) -> io::Result<ReadFile> {
        let real = self.storage.canonical(path)?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let dir = self.dir(parent)?;
        let name = Path::new(name);
        if dir.stat(name)?.kind != FileKind::File {
            return Err(io::Error::other("it is no file"));
        }
        let mut readings = 0;
        loop {
            readings += 1;
            let file = dir.open(name, longshore_io::OpenHow::Read)?;
            let stat = file.stat()?;
            self.check(&stat, READ)?;
            if stat.len > FILE_MAX {
                return Err(io::Error::other("it is larger than 1 MiB"));
            }
            let mut bytes = vec![0; FILE_MAX as usize + 1];
            let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            bytes.shrink_to_fit();
            let now = file.stat()?;
            let changing =
                (len as u64, now.len, now.mtime_ns) != (stat.len, stat.len, stat.mtime_ns);
            if !changing || readings == READINGS_MAX {
                return match len as u64 > FILE_MAX {
                    true => Err(io::Error::other("it is larger than 1 MiB")),
                    false => Ok(ReadFile {
                        bytes,
                        stat,
                        real,
                        changing,
                    }),
                };
            }
        }
    }

    /// The names that the server takes from an included directory.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let real = self.storage.canonical(path)?;
        let dir = self.dir(&real)?;
        self.check(&dir.stat(Path::new(""))?, READ)?;
        let mut names = Vec::new();
        for name in dir.list()? {
            let name = PathBuf::from(name?);
            let text = name.as_os_str().as_encoded_bytes();
            if !text.starts_with(b".") && text.ends_with(b".conf") {
                names.push(name);
            }
            if names.len() > FILES_MAX {
                return Err(io::Error::other("it holds too many files"));
            }
        }
        Ok(names)
    }
}
