//! Goal: each invariant of the feed holds for all sources, workers and orders.
//! Method: random scripted sources are handed out in random orders. A run records all events, and each test checks one
//! invariant on the record.
//! Not covered: several threads at once.

mod handed;

use std::collections::{BTreeMap, HashMap, HashSet};

use longshore_io::Via;
use longshore_media::manifest;
use longshore_source::{Description, SourceKind, SourceSummary, Volume};
use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const BUFFER: usize = 64 << 10;
const PAGE: u64 = 4096;
/// The unit of holes: some file systems have blocks smaller than a page.
const UNIT: u64 = 1024;

/// The entries that a source provides.
#[derive(Debug, Clone)]
struct Given {
    kind: GivenKind,
    len: u64,
    has_pages: bool,
    /// For a whole file, holes in units of [`UNIT`]. For a based file, ranges certain to equal the base's, in pages.
    gaps: Vec<(u64, u64)>,
    /// Pages that the base has.
    held: Option<u64>,
    /// Additional bytes in its name, and the length of its one attribute's value, if any.
    name_bytes: usize,
    xattr_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenKind {
    File,
    Dir,
}

fn given() -> impl Strategy<Value = Given> {
    let len = prop_oneof![
        1 => Just(0u64),
        4 => 1u64..BUFFER as u64,
        2 => (1u64..60).prop_map(|pages| pages * PAGE),
        1 => Just(BUFFER as u64),
        2 => BUFFER as u64..12 * BUFFER as u64,
        1 => (16u64..400).prop_map(|pages| pages * PAGE),
    ];
    let gaps = vec((0u64..200, 1u64..40), 0..3);
    let held = proptest::option::of(0u64..400);
    let kind = prop_oneof![9 => Just(GivenKind::File), 1 => Just(GivenKind::Dir)];
    (kind, len, any::<bool>(), gaps, held).prop_map(|(kind, len, has_pages, gaps, held)| Given {
        kind,
        len: if kind == GivenKind::File { len } else { 0 },
        has_pages,
        gaps,
        held: held.filter(|pages| *pages > 0),
        name_bytes: 0,
        xattr_bytes: 0,
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    /// The source was asked for an entry.
    Asked(PathBuf),
    /// A job was handed out.
    Job {
        sequence: u64,
        named: Vec<PathBuf>,
        plain_len: usize,
        /// File, offset, length, position.
        pieces: Vec<(PathBuf, u64, usize, usize)>,
        /// The same, from its manifest.
        extents: Vec<(PathBuf, u64, usize)>,
        /// Room for sums, from its manifest.
        sums: Vec<(PathBuf, u64, u64)>,
    },
    Scan(PathBuf, u64, u64, Look),
    /// A piece or run was read.
    Read(PathBuf),
    Settled(PathBuf),
}

type Log = Arc<Mutex<Vec<Event>>>;

struct Scripted {
    description: Description,
    volumes: Vec<Mutex<VecDeque<(PathBuf, Given)>>>,
    log: Log,
}

struct ScriptedContent {
    path: PathBuf,
    given: Given,
    log: Log,
}

impl ScriptedContent {
    /// The first run outside of gaps that are counted in units of `unit`.
    fn outside(&self, offset: u64, unit: u64) -> Option<Range<u64>> {
        let len = self.given.len;
        let steps = || (offset / unit..len.div_ceil(unit)).map(|number| number * unit);
        let is_in_gap = |at: u64| self.given.is_in_gap(at / unit);
        let start = steps().find(|at| !is_in_gap(*at))?;
        let end = steps().find(|at| *at > start && is_in_gap(*at));
        let range = start.max(offset)..end.unwrap_or(len);
        (!range.is_empty()).then_some(range)
    }
}

impl Given {
    fn is_in_gap(&self, number: u64) -> bool {
        let mut gaps = self.gaps.iter();
        gaps.any(|(start, len)| (*start..start + len).contains(&number))
    }

    fn has_whole_pages(&self) -> bool {
        self.has_pages && self.len.is_multiple_of(PAGE)
    }

    /// Whether the byte is stored, for a file that is not based: in a file of pages, every page with data is.
    fn is_stored(&self, at: u64) -> bool {
        let (first, units) = match self.has_whole_pages() {
            true => (at / PAGE * PAGE / UNIT, PAGE / UNIT),
            false => (at / UNIT, 1),
        };
        self.len < SPARSE_FROM || (first..first + units).any(|unit| !self.is_in_gap(unit))
    }
}

impl Content for ScriptedContent {
    /// Zeros in holes, and nothing but other bytes elsewhere.
    fn read_at(&self, buf: &mut [u8], offset: u64, _: Via) -> Result<(), source::Error> {
        for (at, byte) in (offset..).zip(buf) {
            *byte = u8::from(!self.given.is_in_gap(at / UNIT));
        }
        Ok(())
    }

    fn next_doubtful(&self, offset: u64) -> Result<Option<Range<u64>>, source::Error> {
        Ok(self.outside(offset, PAGE))
    }

    fn is_cached(&self, _: Range<u64>) -> bool {
        true
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, source::Error> {
        Ok(self.outside(offset, UNIT))
    }

    fn settle(&self) -> Result<Option<Change>, source::Error> {
        self.log.lock().push(Event::Settled(self.path.clone()));
        Ok(Some(Change::Modified))
    }
}

impl Source for Scripted {
    fn description(&self) -> &Description {
        &self.description
    }

    fn next(&self, volume: usize) -> Result<Option<source::Entry>, source::Error> {
        let queue = self.volumes.get(volume);
        let Some((path, given)) = queue.and_then(|queue| queue.lock().pop_front()) else {
            return Ok(None);
        };
        self.log.lock().push(Event::Asked(path.clone()));
        let kind = match given.kind {
            GivenKind::File => source::EntryKind::File,
            GivenKind::Dir => source::EntryKind::Dir,
        };
        let content = (given.len > 0).then(|| {
            Arc::new(ScriptedContent {
                path: path.clone(),
                given: given.clone(),
                log: self.log.clone(),
            }) as Arc<dyn Content>
        });
        Ok(Some(source::Entry {
            path,
            kind,
            mode: 0o600,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            len: given.len,
            xattrs: (given.xattr_bytes > 0)
                .then(|| Xattr {
                    name: b"user.x".to_vec(),
                    value: vec![1; given.xattr_bytes],
                })
                .into_iter()
                .collect(),
            page_bytes: (given.kind == GivenKind::File && given.has_whole_pages())
                .then_some(PAGE as u32),
            layout: None,
            content,
        }))
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, source::Error> {
        Ok(SourceSummary::default())
    }
}

/// The events, and the files that existed.
struct Run {
    events: Vec<Event>,
    files: BTreeMap<PathBuf, Given>,
    based: HashSet<PathBuf>,
    /// Files whose change was reported, to the feed's owner or to the worker that ended the last piece.
    changed: Vec<PathBuf>,
}

/// The files that a source has.
type Files = BTreeMap<PathBuf, Given>;

/// The files that a base has, with the sums of their pages.
type HeldFiles = Vec<(PathBuf, Vec<u64>)>;

/// A source of these entries, with the files it has and those that the base has.
fn scripted(volumes: Vec<Vec<Given>>) -> (Scripted, Files, HeldFiles) {
    let mut files = BTreeMap::new();
    let mut held = Vec::new();
    let mut queues = Vec::new();
    for (volume, entries) in volumes.into_iter().enumerate() {
        let mut queue = VecDeque::new();
        for (number, given) in entries.into_iter().enumerate() {
            let more = "n".repeat(given.name_bytes);
            let path = PathBuf::from(format!("v{volume}/f{number}{more}"));
            held.extend(
                given
                    .held
                    .map(|pages| (path.clone(), vec![1; pages as usize])),
            );
            files.insert(path.clone(), given.clone());
            queue.push_back((path, given));
        }
        queues.push(Mutex::new(queue));
    }
    let volume = |number: usize| Volume {
        path: number.to_string().into(),
    };
    let source = Scripted {
        description: Description {
            kind: SourceKind::Postgres,
            database: String::new(),
            log: None,
            history: None,
            lineage: None,
            own_log: None,
            page_bytes: PAGE as u32,
            expected_bytes: None,
            about_bytes: None,
            memory_bytes: 0,
            differing: None,
            layouts: None,
            server_started_us: None,
            trees: Vec::new(),
            volumes: (0..queues.len()).map(volume).collect(),
            notices: Vec::new(),
        },
        volumes: queues,
        log: Log::default(),
    };
    (source, files, held)
}

/// Hands everything out; `choices` decide which task ends next, how many are in progress, and which are put back.
fn run(volumes: Vec<Vec<Given>>, choices: &[u8]) -> Run {
    let (source, files, held) = scripted(volumes);
    let log = source.log.clone();
    let held: Vec<(&Path, Vec<u64>)> = held.iter().map(|(p, s)| (&**p, s.clone())).collect();
    let base = PageSums::of(&held);
    let mut feed = Feed::new(&source, BUFFER, true, Some(&base));
    let mut in_hand: Vec<Work> = Vec::new();
    let (mut based, mut changed) = (HashSet::new(), Vec::new());
    let mut choices = choices.iter().copied().cycle();
    let mut choose = |below: usize| usize::from(choices.next().unwrap_or(0)) % below.max(1);
    let (mut ended, mut was_put_back) = (false, false);
    while !ended || !in_hand.is_empty() {
        if !ended && in_hand.len() <= choose(6) {
            match feed.next().unwrap() {
                None => ended = true,
                // A worker that cannot begin now returns the task; the task counts when it is handed out again.
                Some(work) if !was_put_back && choose(5) == 0 => {
                    was_put_back = true;
                    feed.put_back(work);
                }
                Some(work) => {
                    was_put_back = false;
                    log.lock().push(event(&work));
                    if let Work::Scan(scan) = &work {
                        based.insert(scan.based.entry.path.clone());
                    }
                    in_hand.push(work);
                }
            }
            continue;
        }
        if in_hand.is_empty() {
            continue;
        }
        match in_hand.swap_remove(choose(in_hand.len())) {
            Work::Job(job) => {
                assert_eq!(job.parts.len(), job.plain_len);
                for piece in &job.pieces {
                    log.lock().push(Event::Read(piece.file.path.clone()));
                    let told = piece.file.piece_done().unwrap();
                    changed.extend(told.map(|_| piece.file.path.clone()));
                }
                feed.done(job.volume);
            }
            Work::Scan(scan) => {
                let path = scan.based.file.path.clone();
                log.lock().push(Event::Read(path.clone()));
                feed.done(scan.volume);
                changed.extend(scan.based.file.piece_done().unwrap().map(|_| path));
            }
        }
        // The task that seemed the last may have been put back.
        ended = false;
    }
    assert!(feed.next().unwrap().is_none());
    changed.extend(feed.changes.drain(..).map(|(path, _)| path));
    drop(feed);
    let events = std::mem::take(&mut *log.lock());
    Run {
        events,
        files,
        based,
        changed,
    }
}

fn event(work: &Work) -> Event {
    let job = match work {
        Work::Scan(scan) => {
            let path = scan.based.entry.path.clone();
            return Event::Scan(path, scan.offset, scan.len_bytes as u64, scan.look);
        }
        Work::Job(job) => job,
    };
    assert!(job.manifest.len() <= MANIFEST_PLAIN_MAX && job.plain_len <= BUFFER);
    let mut filled = job.manifest.clone();
    for place in job
        .pieces
        .iter()
        .filter_map(|piece| Some((piece.sums?, piece.len_bytes)))
    {
        let (SumsPlace { at, page_bytes }, len) = place;
        let pages = len / page_bytes as usize;
        assert!(
            filled[at..at + pages * SUM_LEN]
                .iter()
                .all(|byte| *byte == 0)
        );
        filled[at..at + pages * SUM_LEN].fill(1);
    }
    let (mut named, mut extents, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    let mut path = PathBuf::new();
    // A sum that no piece fills in would be 0, and refused.
    for item in manifest::decode(&filled, job.plain_len as u32).unwrap() {
        match item {
            Item::Entry(entry) => {
                path.clone_from(&entry.path);
                named.push(entry.path);
            }
            Item::Extent(extent) => {
                extents.push((path.clone(), extent.offset, extent.len as usize));
            }
            Item::Sums(item) => {
                sums.push((path.clone(), item.offset, item.sums.len() as u64 * PAGE));
            }
            Item::Mark(_) => unreachable!(),
        }
    }
    let piece = |p: &Piece| (p.file.path.clone(), p.offset, p.len_bytes, p.at);
    Event::Job {
        sequence: job.sequence,
        named,
        plain_len: job.plain_len,
        pieces: job.pieces.iter().map(piece).collect(),
        extents,
        sums,
    }
}

fn sources() -> impl Strategy<Value = (Vec<Vec<Given>>, Vec<u8>)> {
    (vec(vec(given(), 0..12), 1..3), vec(any::<u8>(), 1..60))
}

fn jobs(run: &Run) -> impl Iterator<Item = &Event> {
    let is_job = |event: &&Event| matches!(event, Event::Job { .. });
    run.events.iter().filter(is_job)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Goal: what holds for the double's feed holds for a real source's.
    #[test]
    fn the_scripted_source_keeps_the_contract_of_all_sources((volumes, _) in sources()) {
        let (source, files, _) = scripted(volumes);
        let kept = crate::source_suite::keeps_its_contract(Box::new(source));
        let lens = kept.files.iter().map(|(path, bytes)| (path, bytes.len() as u64));
        let given = files.iter().filter(|(_, given)| given.kind == GivenKind::File);
        prop_assert!(lens.eq(given.map(|(path, given)| (path, given.len))));
    }
}

proptest! {
    #[test]
    fn jobs_are_numbered_without_gaps((volumes, choices) in sources()) {
        let run = run(volumes, &choices);
        let mut found: Vec<u64> = jobs(&run)
            .map(|job| match job {
                Event::Job { sequence, .. } => *sequence,
                _ => unreachable!(),
            })
            .collect();
        found.sort_unstable();
        prop_assert_eq!(&found, &(0..found.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_small_file_is_not_split_and_a_large_one_begins_a_block((volumes, choices) in sources()) {
        let run = run(volumes, &choices);
        let mut blocks: HashMap<&PathBuf, usize> = HashMap::new();
        for job in jobs(&run) {
            let Event::Job { pieces, .. } = job else { unreachable!() };
            let files: HashSet<&PathBuf> = pieces.iter().map(|(path, ..)| path).collect();
            for path in &files {
                *blocks.entry(path).or_default() += 1;
                if run.files[*path].len >= BUFFER as u64 {
                    prop_assert_eq!(files.len(), 1, "{} shares a block", path.display());
                }
            }
        }
        for (path, count) in blocks {
            let len = run.files[path].len;
            prop_assert!(len >= BUFFER as u64 || count == 1, "{} of {len} bytes in {count} blocks", path.display());
        }
    }

    #[test]
    fn a_based_file_is_looked_through_once_and_after_it_was_named((volumes, choices) in sources()) {
        let run = run(volumes, &choices);
        let mut named = HashSet::new();
        let mut runs: BTreeMap<&PathBuf, Vec<(u64, u64, Look)>> = BTreeMap::new();
        for event in &run.events {
            match event {
                Event::Job { named: more, .. } => named.extend(more.iter()),
                Event::Scan(path, offset, len, look) => {
                    prop_assert!(named.contains(path), "{} is not named", path.display());
                    runs.entry(path).or_default().push((*offset, *len, *look));
                }
                _ => {}
            }
        }
        let is_based = |given: &Given| {
            given.has_pages && given.held.is_some() && given.len > 0 && given.len.is_multiple_of(PAGE)
        };
        for (path, given) in &run.files {
            prop_assert_eq!(is_based(given), runs.contains_key(path), "{}", path.display());
        }
        for (path, mut runs) in runs {
            let given = &run.files[path];
            let held = given.held.unwrap_or(0) * PAGE;
            // A task that was put back comes later.
            runs.sort_unstable_by_key(|(offset, ..)| *offset);
            let mut at = 0;
            for (offset, len, look) in runs {
                prop_assert_eq!(offset, at, "{}", path.display());
                at += len;
                prop_assert!(len > 0 && len % PAGE == 0);
                let certain = |at: u64| at < held && given.is_in_gap(at / PAGE);
                let mut pages = (offset..at).step_by(PAGE as usize);
                match look {
                    Look::Compare => prop_assert!(pages.all(|at| !certain(at)), "read for nothing"),
                    Look::Sample => prop_assert!(len == PAGE && certain(offset)),
                    Look::Carry => prop_assert!(pages.all(certain), "not read"),
                }
            }
            prop_assert_eq!(at, given.len, "{}", path.display());
        }
    }

    #[test]
    fn files_that_wait_to_be_looked_through_are_of_one_job((volumes, choices) in sources()) {
        // Nothing is put back here: for the feed, a returned task has been handed out.
        let choices: Vec<u8> = choices.iter().map(|choice| choice.min(&249) / 5 * 5 + 1).collect();
        let run = run(volumes, &choices);
        // Based files that were named, and the bytes of each not yet handed out.
        let mut waiting: HashMap<&PathBuf, u64> = HashMap::new();
        for event in &run.events {
            match event {
                Event::Job { named, .. } => {
                    let based = named.iter().filter(|path| run.based.contains(*path));
                    waiting.extend(based.map(|path| (path, run.files[path].len)));
                }
                Event::Scan(path, _, len, _) => {
                    let left = waiting.get_mut(path).unwrap();
                    *left -= len;
                    if *left == 0 {
                        waiting.remove(path);
                    }
                }
                Event::Asked(path) => {
                    prop_assert!(waiting.is_empty(), "{} is asked for, {waiting:?} wait", path.display());
                }
                Event::Read(_) | Event::Settled(_) => {}
            }
        }
    }

    #[test]
    fn pieces_fill_a_job_in_the_order_of_its_extents_and_sums_follow((volumes, choices) in sources()) {
        let run = run(volumes, &choices);
        let mut stored: HashMap<&PathBuf, Vec<(u64, u64)>> = HashMap::new();
        for job in jobs(&run) {
            let Event::Job { plain_len, pieces, extents, sums, .. } = job else { unreachable!() };
            let mut at = 0;
            for (path, offset, len, place) in pieces {
                prop_assert_eq!(*place, at, "{}", path.display());
                at += len;
                stored.entry(path).or_default().push((*offset, *len as u64));
            }
            prop_assert_eq!(at, *plain_len);
            let of_pieces: Vec<_> = pieces.iter().map(|(p, o, l, _)| (p.clone(), *o, *l)).collect();
            prop_assert_eq!(&of_pieces, extents);
            let summed = |path: &PathBuf| {
                run.files[path].has_whole_pages()
            };
            let expected: Vec<_> = extents
                .iter()
                .filter(|(path, ..)| summed(path))
                .map(|(path, offset, len)| (path.clone(), *offset, *len as u64))
                .collect();
            prop_assert_eq!(sums, &expected);
        }
        // Everything except holes is stored, once.
        for (path, given) in run.files.iter().filter(|(path, _)| !run.based.contains(*path)) {
            let mut found = stored.remove(path).unwrap_or_default();
            found.sort_unstable();
            let mut covered = found.iter().flat_map(|(offset, len)| *offset..offset + len);
            let expected = (0..given.len).filter(|at| given.is_stored(*at));
            for at in expected {
                prop_assert_eq!(covered.next(), Some(at), "{}", path.display());
            }
            prop_assert_eq!(covered.next(), None, "{}", path.display());
        }
    }

    #[test]
    fn every_content_is_settled_once_after_its_last_read((volumes, choices) in sources()) {
        let run = run(volumes, &choices);
        for (path, given) in &run.files {
            let settled: Vec<usize> = run
                .events
                .iter()
                .enumerate()
                .filter(|(_, event)| **event == Event::Settled(path.clone()))
                .map(|(i, _)| i)
                .collect();
            prop_assert_eq!(settled.len(), usize::from(given.len > 0), "{}", path.display());
            let last = run.events.iter().rposition(|event| *event == Event::Read(path.clone()));
            if let (Some(settled), Some(last)) = (settled.first(), last) {
                prop_assert!(*settled > last, "{}", path.display());
            }
        }
        // Each change is reported once.
        let mut changed = run.changed;
        changed.sort_unstable();
        let mut read: Vec<_> = run.files.iter().filter(|(_, given)| given.len > 0).map(|(path, _)| path.clone()).collect();
        read.sort_unstable();
        prop_assert_eq!(changed, read);
    }
}

#[test]
fn names_that_readers_refuse_are_refused_before_they_are_written() {
    for name in ["a", "a/b", "a b/\u{e9}"] {
        assert!(check_name(Path::new(name)).is_ok(), "{name}");
    }
    for name in ["", "/a", "a/", "a//b", "./a", "a/../b"] {
        let refused = check_name(Path::new(name));
        assert!(matches!(refused, Err(Error::EntryName { .. })), "{name}");
    }
}

/// About one page in `every` of those said to equal the base's is read, unpredictably.
#[test]
fn samples_are_taken_at_random_all_over() {
    let mut gaps = 0;
    let mut firsts = HashSet::new();
    for _ in 0..200 {
        let mut samples = Samples::new(0);
        let first = samples.next(0, 8192) / 8192;
        firsts.insert(first);
        gaps += first;
        assert!((1..2 * SAMPLE_EVERY).contains(&first));
    }
    assert!(firsts.len() > 40, "{}", firsts.len());
    assert!((40 * 200..90 * 200).contains(&gaps), "{gaps}");
    assert_eq!(Samples::new(1 << 30).every, (1 << 30) / SAMPLES);
}

/// Even if no page of a file needs to be read, samples from all parts of it are.
#[test]
fn pages_that_are_said_to_be_the_bases_are_sampled_all_over_a_file() {
    let given = Given {
        gaps: vec![(0, 400)],
        held: Some(400),
        ..plain(400 * PAGE)
    };
    for _ in 0..20 {
        let run = run(vec![vec![given.clone()]], &[1]);
        let sampled: Vec<u64> = run
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Scan(_, offset, _, Look::Sample) => Some(offset / PAGE),
                _ => None,
            })
            .collect();
        let ends = std::iter::once(0).chain(sampled.iter().copied());
        let next = sampled.iter().copied().chain(std::iter::once(400));
        for (from, to) in ends.zip(next) {
            assert!(to - from <= 2 * SAMPLE_EVERY, "{sampled:?}");
        }
    }
}

/// A file of pages that are read completely.
fn plain(len: u64) -> Given {
    Given {
        kind: GivenKind::File,
        len,
        has_pages: true,
        gaps: Vec::new(),
        held: None,
        name_bytes: 0,
        xattr_bytes: 0,
    }
}

/// Goal: names, attributes and sums never exceed a manifest, and do not split a small file.
/// Method: a manifest is filled with names up to each position near its end; then follows an entry that needs more
/// room than is left. Every job's manifest length is checked.
#[test]
fn a_manifest_that_runs_full_splits_no_small_file_and_holds_every_name_once() {
    let name = |name_bytes| Given {
        kind: GivenKind::Dir,
        name_bytes,
        ..plain(0)
    };
    let file = plain(15 * PAGE);
    let attributed = Given {
        xattr_bytes: 48_000,
        ..name(0)
    };
    for more in (0..4000).step_by(50) {
        // From here to beyond the position where another name of any length would not fit.
        let mut names = vec![name(200); (MANIFEST_PLAIN_MAX - 10_000) / 250];
        names.push(name(more));
        for last in [&file, &attributed, &name(PATH_MAX - 20)] {
            let mut given = names.clone();
            given.extend([last, last, last, &file].map(Given::clone));
            let count = given.len();
            let run = run(vec![given], &[1]);
            let mut blocks = HashMap::<&PathBuf, usize>::new();
            let mut named = 0;
            for job in jobs(&run) {
                let Event::Job {
                    named: names,
                    pieces,
                    ..
                } = job
                else {
                    unreachable!()
                };
                named += names.len();
                let files: HashSet<_> = pieces.iter().map(|(path, ..)| path).collect();
                files
                    .into_iter()
                    .for_each(|path| *blocks.entry(path).or_default() += 1);
            }
            assert_eq!(named, count, "{more}");
            assert!(blocks.values().all(|blocks| *blocks == 1), "{more}");
        }
    }
}

#[test]
fn a_file_that_is_nothing_but_a_hole_is_settled_and_its_change_is_told() {
    let hole = Given {
        gaps: vec![(0, 400)],
        ..plain(20 * PAGE)
    };
    let run = run(vec![vec![hole, plain(PAGE)]], &[1]);
    let path = PathBuf::from("v0/f0");
    assert!(run.events.contains(&Event::Settled(path.clone())));
    assert!(run.changed.contains(&path));
}
