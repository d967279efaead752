//! Branches: which backups at a target follow one another, and which only seem to.
//!
//! A target may hold backups of several clusters under one name, and of several branches of one cluster: production and
//! a copy of it, the time before a recovery and after it. Each branch is a line of backups in the order of their LSNs.
//!
//! A backup continues a line if that is proved ([`longshore_pg::lineage`]), or if nothing contradicts it and both
//! backups come from the same place: the same host, data directory and inode, with times or earlier listings in the
//! same order as the LSNs. The second case is reported as unproved. Any other backup begins a new line, so that
//! nothing is mixed: retention then keeps more, and a restore asks which line is meant.
//!
//! Sources without WAL (SQLite databases, trees) are identified by the kind of source, the machine and the path, or by
//! a name that the user gives ([`Origin`]). Two sources may agree in all of these. So backups also store when the file
//! was created, and which files were backed up before it. A file that replaces another one, as `VACUUM INTO` and a
//! rename do, proves nothing. A file that is backed up again after another one, according to the lists in the sets,
//! proves that both exist; from then on they are two branches. A new file continues the branch of the file that its
//! set lists last, unless that file is one of such a pair.
//!
//! Invariants
//! - The times in labels never order the backups of a cluster, because a clock may be wrong.
//!
//! Leaves to others: comparing two lineages (`longshore-pg`), and which backups are removed (`retention.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_media::header::BIRTHS_MAX;
use longshore_media::{SetHeader, SetTrailer};
use longshore_pg::lineage::LineageVerdict;
use longshore_pg::{Earlier, Lineage, Lsn, Relation, Timeline};

use crate::chain::SetFacts;
use crate::identity::Origin;

/// A set in the form with which a server or a later backup is compared; `None` for sources without WAL.
pub fn earlier(header: &SetHeader, trailer: &SetTrailer) -> Option<Earlier> {
    let timeline = Timeline::new(header.log.timeline)?;
    let end = (
        Timeline::new(trailer.log.timeline)?,
        Lsn(trailer.log.last_lsn),
    );
    let lineage = Lineage::decode(&header.lineage).unwrap_or_else(|| {
        Lineage::unrecorded(header.log.system, timeline, Lsn(header.log.first_lsn))
    });
    Some(Earlier {
        set: *header.set.as_bytes(),
        lineage,
        end,
    })
}

/// Backups that follow one another, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// PostgreSQL's system identifier; `None` for sources without WAL.
    pub system: Option<u64>,
    /// Indexes of its sets. Branches that fork share the older ones.
    pub sets: Vec<usize>,
    /// Whether each step from set to set is proved.
    pub proved: bool,
    /// The index of the branch that the same server continued instead, e.g. after a recovery to an earlier time.
    pub given_up_for: Option<usize>,
}

impl Branch {
    /// Its newest set.
    pub fn tip(&self) -> usize {
        self.sets[self.sets.len() - 1]
    }
}

/// The relation of a set to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tie {
    Proved,
    /// Nothing contradicts it, and both come from the same place.
    Presumed,
    None,
    Refuted,
}

/// The branches that these sets form. Sets that are not whole are in none: their headers may be unknown.
pub fn branches(sets: &[SetFacts]) -> Vec<Branch> {
    let whole = || (0..sets.len()).filter(|i| sets[*i].is_whole());
    let mut found = Vec::new();
    for plain in plain(sets) {
        found.extend(plain_lines(sets, &plain));
    }
    let mut systems: Vec<u64> = whole().filter_map(|i| Some(sets[i].log?.system)).collect();
    systems.sort_unstable();
    systems.dedup();
    for system in systems {
        let of_system = |i: &usize| sets[*i].log.is_some_and(|log| log.system == system);
        found.extend(lines(sets, whole().filter(of_system).collect(), system));
    }
    let given_up = given_up(sets, &found);
    for (branch, by) in found.iter_mut().zip(given_up) {
        branch.given_up_for = by;
    }
    found
}

/// The whole sets without WAL: those of each [`Origin`], sorted by time.
fn plain(sets: &[SetFacts]) -> Vec<Vec<usize>> {
    let is_plain = |i: &usize| sets[*i].is_whole() && sets[*i].log.is_none();
    let mut order: Vec<usize> = (0..sets.len()).filter(is_plain).collect();
    order.sort_by_key(|i| (sets[*i].start_us, sets[*i].label.clone()));
    let mut places: HashMap<(u8, &str), usize> = HashMap::new();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for i in order {
        let origin = &sets[i].identity.origin;
        let place = *places
            .entry((origin.kind, &origin.name))
            .or_insert(found.len());
        match found.get_mut(place) {
            Some(line) => line.push(i),
            None => found.push(vec![i]),
        }
    }
    found
}

/// The files from which the backups of one [`Origin`] were made, identified by their creation times ("births").
///
/// A file that a set lists existed when the set was made. The sets' times order only files that no set lists: times
/// prove nothing.
#[derive(Default)]
struct Files {
    /// In the order of their last backups.
    seen: Vec<i64>,
    /// Pairs of files of which one was backed up again after the other: both exist.
    apart: BTreeSet<(i64, i64)>,
    /// The files that are in one of the pairs.
    paired: BTreeSet<i64>,
    /// For each file, the one that it replaced.
    before: BTreeMap<i64, i64>,
}

impl Files {
    /// Combines the lists in the backups, which are given in the order of their times.
    fn of<'a>(origins: impl Iterator<Item = &'a Origin>) -> Files {
        let mut files = Files::default();
        for origin in origins {
            if let Some((own, earlier)) = origin.births_ns.split_last() {
                files.add(*own, earlier);
            }
        }
        files
    }

    fn set_apart(&mut self, one: i64, other: i64) {
        self.apart.insert((one.min(other), one.max(other)));
        self.paired.extend([one, other]);
    }

    /// Adds a backup and the list of files that it found at the target. Some of their backups may be gone since; a
    /// backup that was being written at that time is missing from the list.
    fn add(&mut self, own: i64, earlier: &[i64]) {
        let is_first = !earlier.contains(&own);
        // Its clock was ahead, or a later one's behind: the order learned since must not change.
        let is_late = is_first && self.seen.contains(&own);
        self.recall(earlier, !is_late);
        let after_own = earlier.iter().skip_while(|birth| **birth != own).skip(1);
        for other in after_own.filter(|other| **other != own) {
            self.set_apart(own, *other);
        }
        // If both files of a pair exist, it is unknown which one was replaced.
        let last = earlier.last().filter(|last| !self.paired.contains(last));
        if let Some(last) = last.filter(|_| is_first) {
            self.before.insert(own, *last);
        }
        match self.seen.iter().position(|birth| *birth == own) {
            None => self.seen.push(own),
            Some(_) if is_late => {}
            // After those in its list. Files that are not in the list may be younger.
            Some(at) => {
                let last = self.seen.iter().rposition(|seen| earlier.contains(seen));
                let last = last.unwrap_or(at).max(at);
                self.seen[at..=last].rotate_left(1);
            }
        }
        // As many as a backup stores: a target may hold thousands, each of a different file.
        let excess = self.seen.len().saturating_sub(BIRTHS_MAX);
        self.seen.drain(..excess);
    }

    /// `is_newer`: whether the list is newer than what is known.
    fn recall(&mut self, earlier: &[i64], is_newer: bool) {
        let place = |of: i64| earlier.iter().position(|birth| *birth == of);
        let both: Vec<(usize, usize)> = (0..self.seen.len())
            .filter_map(|at| Some((at, place(self.seen[at])?)))
            .collect();
        // If two lists have different orders, one of the two files was backed up again.
        for (n, (_, one)) in both.iter().enumerate() {
            for (_, other) in both[n + 1..].iter().filter(|(_, other)| other < one) {
                self.set_apart(earlier[*one], earlier[*other]);
            }
        }
        if is_newer {
            let mut places: Vec<usize> = both.iter().map(|(_, place)| *place).collect();
            places.sort_unstable();
            for ((at, _), place) in both.iter().zip(places) {
                self.seen[*at] = earlier[place];
            }
        }
        // A new file goes before the file that followed it in the list.
        let mut end = self.seen.len();
        for birth in earlier.iter().rev() {
            end = match self.seen.iter().position(|seen| seen == birth) {
                Some(at) => at,
                None => {
                    self.seen.insert(end, *birth);
                    end
                }
            };
        }
        // For files whose first backup is gone. A file that was backed up again is in another position now.
        for pair in earlier.windows(2) {
            if pair.iter().all(|birth| !self.paired.contains(birth)) {
                self.before.entry(pair[1]).or_insert(pair[0]);
            }
        }
    }

    /// The file and those that it replaced, one after another, up to the first that is one of a pair.
    fn way(&self, birth: i64, partners: &HashMap<i64, Vec<i64>>) -> Vec<i64> {
        let (mut way, mut ended) = (Vec::new(), BTreeSet::<i64>::new());
        let mut next = Some(birth);
        while let Some(at) = next.filter(|at| !ended.contains(at)) {
            way.push(at);
            // Stored lists are not trusted to be free of cycles.
            ended.insert(at);
            ended.extend(partners.get(&at).into_iter().flatten());
            next = self.before.get(&at).copied();
        }
        way
    }

    /// For each file, the number of files before it.
    fn depths(&self, births: &[i64]) -> HashMap<i64, usize> {
        let mut depths: HashMap<i64, usize> = HashMap::new();
        for birth in births {
            let (mut way, mut on_way) = (Vec::new(), BTreeSet::new());
            let mut next = Some(*birth);
            while let Some(at) = next.filter(|at| !depths.contains_key(at) && on_way.insert(*at)) {
                way.push(at);
                next = self.before.get(&at).copied();
            }
            let known = next
                .and_then(|at| depths.get(&at))
                .map_or(0, |depth| depth + 1);
            depths.extend(way.into_iter().rev().zip(known..));
        }
        depths
    }
}

/// The branches that the sets of one [`Origin`], sorted by time, form.
fn plain_lines(sets: &[SetFacts], order: &[usize]) -> Vec<Branch> {
    let birth = |i: &usize| sets[*i].identity.origin.birth();
    let files = Files::of(order.iter().map(|i| &sets[*i].identity.origin));
    let branch = |of: &[usize]| {
        let first = of.first().and_then(birth);
        Branch {
            system: None,
            sets: of.to_vec(),
            proved: first.is_some() && of.iter().all(|i| birth(i) == first),
            given_up_for: None,
        }
    };
    if files.apart.is_empty() {
        return vec![branch(order)];
    }
    let mut partners: HashMap<i64, Vec<i64>> = HashMap::new();
    for (one, other) in &files.apart {
        partners.entry(*one).or_default().push(*other);
        partners.entry(*other).or_default().push(*one);
    }
    let mut kept: HashMap<Option<i64>, Vec<usize>> = HashMap::new();
    let mut first: Vec<i64> = Vec::new();
    for i in order {
        let of_file = kept.entry(birth(i)).or_default();
        first.extend(birth(i).filter(|_| of_file.is_empty()));
        of_file.push(*i);
    }
    // Each file is among those that a later one replaced, or ends a branch.
    let depths = files.depths(&first);
    first.reverse();
    first.sort_by_key(|birth| std::cmp::Reverse(depths.get(birth)));
    let mut placed: BTreeSet<i64> = BTreeSet::new();
    let mut lines: Vec<Vec<usize>> = Vec::new();
    for tip in first {
        if placed.contains(&tip) {
            continue;
        }
        let way = files.way(tip, &partners);
        let of_way = way.iter().filter_map(|birth| kept.get(&Some(*birth)));
        lines.push(of_way.flatten().copied().collect());
        placed.extend(way);
    }
    // It is unknown to which file these belong.
    let unknown = kept.remove(&None);
    let in_time = |i: &usize| (sets[*i].start_us, &sets[*i].label);
    let mut found: Vec<Branch> = lines
        .into_iter()
        .chain(unknown)
        .map(|mut sets| {
            sets.sort_by_key(in_time);
            branch(&sets)
        })
        .collect();
    found.sort_by_key(|branch| in_time(&branch.sets[0]));
    found
}

/// The other backups that a new backup of a source without WAL finds at a target.
#[derive(Debug, Default)]
pub struct Others {
    /// To be stored in the backup.
    pub births_ns: Vec<i64>,
    /// The newest backups of other sources with the same name, from branches with a backup after the source's own
    /// newest; all of them if the source has none.
    pub newer: Vec<usize>,
    /// Whether the target has a backup of the source.
    pub has_own: bool,
    /// Whether the source's file was backed up before another file that was backed up as the same source.
    pub came_back: bool,
}

/// Compares a source without WAL with the backups under its name. `birth_ns`: the creation time of its file.
pub fn others(sets: &[SetFacts], origin: &Origin, birth_ns: Option<i64>) -> Others {
    let is_own = |set: &SetFacts| set.log.is_none() && set.identity.origin.is_same(origin);
    let own = plain(sets)
        .into_iter()
        .find(|plain| is_own(&sets[plain[0]]));
    let own = own.unwrap_or_default();
    let files = Files::of(own.iter().map(|i| &sets[*i].identity.origin));
    let mut others = Others {
        has_own: !own.is_empty(),
        ..Others::default()
    };
    if let Some(birth) = birth_ns {
        others.came_back = files.seen.contains(&birth) && files.seen.last() != Some(&birth);
        others.births_ns = files.seen;
        others.births_ns.push(birth);
    }
    let newest_us = own.last().map(|i| sets[*i].start_us);
    let tips = branches(sets).into_iter().map(|branch| branch.tip());
    let newer = tips.filter(|tip| !is_own(&sets[*tip]) && Some(sets[*tip].start_us) > newest_us);
    others.newer = newer.collect();
    others
        .newer
        .sort_by_key(|i| (sets[*i].start_us, sets[*i].label.clone()));
    others
}

/// The lines that the sets of one system form. A set is compared with earlier ones until one fits, and its records
/// about other sets are looked up: a target may hold thousands.
fn lines(sets: &[SetFacts], mut order: Vec<usize>, system: u64) -> Vec<Branch> {
    order.sort_by_key(|i| {
        let first = sets[*i].log.map_or(0, |log| log.first_lsn);
        (first, sets[*i].start_us, sets[*i].label.clone())
    });
    let known: Vec<Option<Earlier>> = order.iter().map(|i| as_earlier(&sets[*i])).collect();
    let ids = known.iter().zip(0..);
    let places: HashMap<[u8; 16], usize> = ids
        .filter_map(|(known, at)| Some((known.as_ref()?.set, at)))
        .collect();
    // By position in the order: the previous set, and the relation to it.
    let mut before: Vec<Option<(usize, Tie)>> = Vec::new();
    for at in 0..order.len() {
        let own = known[at].as_ref().map_or(&[][..], |own| &own.lineage.known);
        let noted = |verdict: LineageVerdict| {
            let of_verdict = own.iter().filter(move |known| known.verdict == verdict);
            of_verdict.filter_map(|known| places.get(&known.set).copied())
        };
        let apart: Vec<usize> = noted(LineageVerdict::Apart).collect();
        let is_below = |from: usize, wanted: &dyn Fn(usize) -> bool| {
            let line = std::iter::successors(Some(from), |next| Some(before[*next]?.0));
            line.into_iter().any(wanted)
        };
        // A set that follows this one also follows all sets that this one follows.
        let fits = |from: &usize| apart.is_empty() || !is_below(*from, &|x| apart.contains(&x));
        let tie = |other: usize| tie(sets, &order, &known, (at, other));
        let proved = noted(LineageVerdict::Follows).filter(|other| *other < at && fits(other));
        let proved = proved.filter(|other| tie(*other) == Tie::Proved).max();
        let nearest = (0..at).rev().find_map(|other| {
            let tie = tie(other);
            let is_tied = matches!(tie, Tie::Proved | Tie::Presumed);
            (is_tied && fits(&other)).then_some((other, tie))
        });
        let next = match (proved, nearest) {
            // A set that comes after the proved one on the same line.
            (Some(proved), Some((near, tie))) if is_below(near, &|x| x == proved) => {
                Some((near, tie))
            }
            (Some(proved), _) => Some((proved, Tie::Proved)),
            (None, nearest) => nearest,
        };
        before.push(next);
    }
    let mut is_tip = vec![true; order.len()];
    for (other, _) in before.iter().flatten() {
        is_tip[*other] = false;
    }
    let branch = |tip: usize| {
        let (mut line, mut proved, mut at) = (vec![order[tip]], true, tip);
        while let Some((next, tie)) = before[at] {
            proved &= tie == Tie::Proved;
            line.push(order[next]);
            at = next;
        }
        line.reverse();
        Branch {
            system: Some(system),
            sets: line,
            proved,
            given_up_for: None,
        }
    };
    let tips = (0..order.len()).filter(|at| is_tip[*at]);
    tips.map(branch).collect()
}

/// The set in the form with which others are compared; facts that it did not record are taken from its log range.
fn as_earlier(set: &SetFacts) -> Option<Earlier> {
    let log = set.log?;
    let first = Timeline::new(log.first_timeline)?;
    let lineage = set.identity.lineage.as_deref().cloned();
    Some(Earlier {
        set: *set.id?.as_bytes(),
        lineage: lineage
            .unwrap_or_else(|| Lineage::unrecorded(log.system, first, Lsn(log.first_lsn))),
        end: (Timeline::new(log.last_timeline)?, Lsn(log.last_lsn)),
    })
}

/// The relation of a set to one with a lower LSN; both are given by their positions in the order.
fn tie(
    sets: &[SetFacts],
    order: &[usize],
    known: &[Option<Earlier>],
    (at, other): (usize, usize),
) -> Tie {
    let (Some(own), Some(earlier)) = (&known[at], &known[other]) else {
        return Tie::None;
    };
    // The set with the lower LSN was made when the other was complete: the server was set back to older files, or is a
    // copy.
    if earlier.lineage.has_seen(own.set) {
        return Tie::Refuted;
    }
    match own.lineage.comes_from(earlier) {
        Relation::Proved(_) => Tie::Proved,
        Relation::Refuted(_) => Tie::Refuted,
        // It found the other complete, and then began before the other's end: a server never goes back.
        Relation::Unknown(_) if began_before_the_end(&sets[order[at]], own, earlier) => {
            Tie::Refuted
        }
        Relation::Unknown(_) => {
            let (set, other) = (&sets[order[at]], &sets[order[other]]);
            let is_later = own.lineage.has_seen(earlier.set) || set.start_us >= other.start_us;
            match is_later && is_same_home(set, other) {
                true => Tie::Presumed,
                false => Tie::None,
            }
        }
    }
}

/// Whether the set found the earlier one complete and begins before its end. On a standby, which replays behind its
/// primary, that says nothing.
fn began_before_the_end(set: &SetFacts, own: &Earlier, earlier: &Earlier) -> bool {
    let first = set.log.map_or(Lsn(u64::MAX), |log| Lsn(log.first_lsn));
    own.lineage.has_seen(earlier.set) && !own.lineage.in_recovery && first < earlier.end.1
}

fn is_same_home(one: &SetFacts, other: &SetFacts) -> bool {
    let home = |set: &SetFacts| set.identity.lineage.as_ref().and_then(|l| l.home);
    match (home(one), home(other)) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => one.identity.whence == other.identity.whence,
    }
}

/// For each branch, the branch that a server at the same place continued when the last backup of this one already
/// existed.
fn given_up(sets: &[SetFacts], branches: &[Branch]) -> Vec<Option<usize>> {
    let id = |branch: &Branch| Some(*sets[branch.tip()].id?.as_bytes());
    let tips: HashMap<[u8; 16], usize> = branches
        .iter()
        .zip(0..)
        .filter_map(|(branch, index)| Some((id(branch)?, index)))
        .collect();
    let home = |set: usize| sets[set].identity.lineage.as_ref().and_then(|l| l.home);
    let mut given_up = vec![None; branches.len()];
    for (by, branch) in branches.iter().enumerate() {
        for set in &branch.sets {
            let lineage = sets[*set].identity.lineage.as_ref();
            for known in lineage.iter().flat_map(|lineage| &lineage.known) {
                let Some(index) = tips.get(&known.set).copied() else {
                    continue;
                };
                let same = home(*set).is_some() && home(*set) == home(branches[index].tip());
                if index != by && same && given_up[index].is_none() {
                    given_up[index] = Some(by);
                }
            }
        }
    }
    given_up
}

/// The indexes of the branches that a server still continues.
pub fn living(branches: &[Branch]) -> Vec<usize> {
    let lives = |i: &usize| branches[*i].given_up_for.is_none();
    (0..branches.len()).filter(lives).collect()
}

/// Indexes of all sets, oldest first: by their times, and among those of one cluster by their LSNs.
pub fn in_order(sets: &[SetFacts]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|i| (sets[*i].start_us, sets[*i].label.clone()));
    let mut systems: Vec<u64> = sets.iter().filter_map(|s| Some(s.log?.system)).collect();
    systems.sort_unstable();
    systems.dedup();
    for system in systems {
        let is_of = |i: &usize| sets[*i].log.is_some_and(|log| log.system == system);
        let slots: Vec<usize> = (0..order.len()).filter(|at| is_of(&order[*at])).collect();
        let mut of_system: Vec<usize> = slots.iter().map(|at| order[*at]).collect();
        of_system.sort_by_key(|i| sets[*i].log.map_or(0, |log| log.first_lsn));
        for (slot, set) in slots.into_iter().zip(of_system) {
            order[slot] = set;
        }
    }
    order
}

/// Whether both branches have backups after they forked: each has one of its own that is younger than the first own
/// one of the other.
pub fn are_both_made(sets: &[SetFacts], one: &Branch, other: &Branch) -> bool {
    let own = |branch: &Branch, other: &Branch| -> Vec<i64> {
        let own = branch.sets.iter().filter(|set| !other.sets.contains(set));
        own.map(|set| sets[*set].start_us).collect()
    };
    let (a, b) = (own(one, other), own(other, one));
    let later = |a: &[i64], b: &[i64]| a.iter().max() > b.iter().min() && !b.is_empty();
    later(&a, &b) && later(&b, &a)
}

/// Pairs of consecutive sets on a branch whose times contradict their LSNs: the second set's clock was behind.
pub fn clock_contradictions(sets: &[SetFacts], branch: &Branch) -> Vec<(usize, usize)> {
    let pairs = branch.sets.windows(2).map(|pair| (pair[0], pair[1]));
    pairs
        .filter(|(one, next)| sets[*next].start_us < sets[*one].start_us)
        .collect()
}

/// One line for messages: what is on the branch, and how a command names it.
pub fn text(sets: &[SetFacts], branch: &Branch) -> String {
    let tip = &sets[branch.tip()];
    let whence = tip.identity.whence.replace('\0', ", ");
    let count = branch.sets.len();
    let of = match (branch.system, tip.log) {
        (Some(system), Some(log)) => format!(
            "cluster {system}, timeline {}, to {}",
            log.last_timeline,
            Lsn(log.last_lsn)
        ),
        _ => tip.identity.origin.name.clone(),
    };
    let whence = match whence.trim_matches([',', ' ']) {
        // If the user gave the source no name, the line's name already contains it.
        _ if branch.system.is_none() && told_name(tip) => String::new(),
        "" => String::new(),
        whence => format!(", from {whence}"),
    };
    let recorded = match (&tip.identity.lineage, branch.system) {
        (None, Some(_)) => ", branch not recorded",
        _ => "",
    };
    let given_up = match branch.given_up_for {
        Some(_) => ", given up by its server",
        None => "",
    };
    let plural = if count == 1 { "" } else { "s" };
    let made = made(&tip.identity.origin).unwrap_or_default();
    format!(
        "{}: {of}, {count} backup{plural}{whence}{recorded}{given_up}{made}",
        tip.label
    )
}

/// Whether a source's name is made from its machine and path.
fn told_name(set: &SetFacts) -> bool {
    let (machine, origin) = set.identity.whence.split_once('\0').unwrap_or_default();
    set.identity.origin.name == Origin::here(0, machine, origin, None).name
}

/// When its file was created, if known.
fn made(origin: &Origin) -> Option<String> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(origin.birth()?)).ok()?;
    let at = at.strftime("%Y-%m-%d %H:%M:%S.%6f");
    Some(format!(", of the file made {at} UTC"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chain::tests::full;
    use crate::identity::Identity;
    use longshore_pg::lineage::{Contradiction, Digest, Proof, TimelineHistory, Witness};
    use longshore_wal::LogRange;

    /// A full backup of cluster 1 at this time and LSN, from the server at `home`.
    fn set(at: i64, lsn: u64, home: u8) -> SetFacts {
        let timeline = Timeline::new(1).unwrap();
        let mut lineage = Lineage::unrecorded(1, timeline, Lsn(lsn));
        lineage.line = Some(TimelineHistory::first());
        lineage.checkpoint = Lsn(lsn);
        lineage.next_xid = lsn;
        lineage.home = Some(Digest::of([&[home][..]]));
        lineage.witness = Some(Witness {
            timeline,
            start: Lsn(lsn * 8192),
            len_bytes: 100,
            page_bytes: 8192,
            before: None,
            digest: Digest::of([&[home][..], &lsn.to_le_bytes()]),
        });
        SetFacts {
            log: Some(LogRange {
                system: 1,
                first_timeline: 1,
                first_lsn: lsn,
                last_timeline: 1,
                last_lsn: lsn + 1,
            }),
            identity: Identity {
                lineage: Some(Box::new(lineage)),
                whence: "host\0postgres:".into(),
                ..Identity::default()
            },
            ..full(at)
        }
    }

    pub(crate) fn of_server(at: i64, lsn: u64, home: u8) -> SetFacts {
        set(at, lsn, home)
    }

    /// Records that the set's server follows the other one.
    pub(crate) fn note(set: &mut SetFacts, other: &SetFacts) {
        relate(set, other, &FOLLOWS);
    }

    fn relate(set: &mut SetFacts, other: &SetFacts, relation: &Relation) {
        let lineage = set.identity.lineage.as_mut().unwrap();
        lineage.note(*other.id.unwrap().as_bytes(), relation);
    }

    fn found(sets: &[SetFacts]) -> Vec<Vec<usize>> {
        branches(sets).into_iter().map(|b| b.sets).collect()
    }

    const SEEN: Relation = Relation::Unknown(longshore_pg::lineage::Doubt::NotCompared);
    const FOLLOWS: Relation = Relation::Proved(Proof::Recorded);
    const APART: Relation = Relation::Refuted(Contradiction::Recorded);

    /// Goal: a copy that writes to its origin's target is a separate branch, however the LSNs interleave.
    #[test]
    fn a_copy_is_a_branch_of_its_own() {
        let sets = [set(1, 10, 1), set(2, 20, 2), set(3, 30, 1), set(4, 40, 2)];
        assert_eq!(found(&sets), [[0, 2], [1, 3]]);
        assert_eq!(living(&branches(&sets)), [0, 1]);
    }

    #[test]
    fn a_moved_server_continues_its_branch_if_its_wal_proves_it() {
        let mut sets = [set(1, 10, 1), set(2, 20, 2)];
        assert_eq!(found(&sets).len(), 2);
        let first = sets[0].clone();
        relate(&mut sets[1], &first, &FOLLOWS);
        assert_eq!(found(&sets), [[0, 1]]);
        assert!(branches(&sets)[0].proved);
    }

    /// Goal: a clock that was ahead and is corrected does not change the order.
    #[test]
    fn the_order_is_that_of_the_log() {
        let mut sets = [set(9, 10, 1), set(5, 20, 1), set(6, 30, 1)];
        assert_eq!(found(&sets).len(), 2, "unknown, and not mixed");
        let ahead = sets[0].clone();
        relate(&mut sets[1], &ahead, &SEEN);
        let both = branches(&sets);
        assert_eq!(both.len(), 1);
        assert_eq!(both[0].sets, [0, 1, 2]);
        assert_eq!(clock_contradictions(&sets, &both[0]), [(0, 1)]);
        assert_eq!(in_order(&sets), [0, 1, 2]);
    }

    /// Goal: a server that was set back to older files has abandoned the backups made after that point.
    #[test]
    fn a_server_that_was_set_back_leaves_a_branch() {
        let mut sets = [set(1, 10, 1), set(2, 30, 1), set(3, 20, 1), set(4, 40, 1)];
        let later = sets[1].clone();
        relate(&mut sets[2], &later, &APART);
        relate(&mut sets[3], &later, &APART);
        let both = branches(&sets);
        let lines: Vec<_> = both.iter().map(|b| b.sets.clone()).collect();
        assert_eq!(lines, [vec![0, 1], vec![0, 2, 3]]);
        assert_eq!(both[0].given_up_for, Some(1));
        assert_eq!(living(&both), [1]);
    }

    /// Goal: of two sets at one address with the same LSNs, the later of which found the earlier complete, neither follows
    /// the other; a standby may have replayed less than its primary had when that was backed up.
    #[test]
    fn a_set_that_begins_before_the_end_of_one_it_found_does_not_follow_it() {
        let bare = |at, lsn| {
            let mut set = set(at, lsn, 1);
            set.identity.lineage.as_mut().unwrap().witness = None;
            set
        };
        let mut sets = [bare(1, 10), bare(2, 10)];
        assert_eq!(found(&sets), [[0, 1]]);
        let first = sets[0].clone();
        relate(&mut sets[1], &first, &SEEN);
        assert_eq!(found(&sets), [[0], [1]]);
        sets[1].identity.lineage.as_mut().unwrap().in_recovery = true;
        assert_eq!(found(&sets), [[0, 1]]);
        // One that begins at the end goes on from there.
        let mut sets = [bare(1, 10), bare(2, 11)];
        relate(&mut sets[1], &first, &SEEN);
        assert_eq!(found(&sets), [[0, 1]]);
    }

    /// Goal: what follows a backup that a server has left is left with it, though the server never heard of it.
    #[test]
    fn backups_after_an_abandoned_one_are_on_its_branch() {
        let mut sets = [
            set(1, 10, 1),
            set(2, 30, 1),
            set(3, 35, 1),
            set(4, 20, 1),
            set(5, 40, 1),
        ];
        let left = sets[1].clone();
        relate(&mut sets[3], &left, &APART);
        relate(&mut sets[4], &left, &APART);
        assert_eq!(found(&sets), [[0, 1, 2], [0, 3, 4]]);
    }

    #[test]
    fn sets_without_a_record_are_distinguished_by_their_origin() {
        let bare = |at, lsn, whence: &str| SetFacts {
            identity: Identity {
                whence: whence.into(),
                ..Identity::default()
            },
            ..set(at, lsn, 1)
        };
        let sets = [bare(1, 10, "a"), bare(2, 20, "b"), bare(3, 30, "a")];
        assert_eq!(found(&sets), [vec![1], vec![0, 2]]);
        // The same with times that the LSNs contradict.
        let sets = [bare(9, 10, "a"), bare(2, 20, "a")];
        assert_eq!(found(&sets).len(), 2);
    }

    /// Goal: a target with thousands of backups is judged in a short time, without comparing every pair.
    #[test]
    fn thousands_of_sets_are_put_in_order_soon() {
        let began = std::time::Instant::now();
        let sets: Vec<SetFacts> = (0..10_000)
            .map(|n| set(n, 10 * n as u64 + 1, (n % 2) as u8))
            .collect();
        let both = branches(&sets);
        assert_eq!(both.len(), 2);
        assert!(both.iter().all(|branch| branch.sets.len() == 5_000));
        // Trees whose root is recreated for each backup; in the middle an old one is backed up again.
        let mut births: Vec<i64> = (1..=10_000).collect();
        births[5_000] = 4_998;
        let mut trees: Vec<SetFacts> = Vec::new();
        for (at, birth) in births.iter().enumerate() {
            let earlier = &births[at.saturating_sub(63)..at];
            trees.push(plain_set(at as i64, "a", *birth, earlier));
        }
        let many = branches(&trees);
        assert_eq!(many.iter().map(|b| b.sets.len()).sum::<usize>(), 10_000);
        // Far less than a minute even on a busy machine; comparing every pair takes longer.
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    /// Goal: no history of files, however long or strange, prevents a target from being read.
    #[test]
    fn a_file_that_comes_back_after_hundreds_ends_in_branches() {
        let births: Vec<i64> = (1..200).chain(1..200).chain([5, 7, 5]).collect();
        let sets = in_turn(&births);
        let found = found(&sets);
        let both = |line: &Vec<usize>| [5, 7].map(|b| line.iter().any(|i| births[*i] == b));
        assert!(found.iter().all(|line| both(line) != [true, true]));
        assert!((0..sets.len()).all(|i| found.iter().any(|line| line.contains(&i))));
    }

    /// A full backup of a database at this time, from the file created then; 0: unknown. `earlier`: the files that it
    /// found.
    fn plain_set(at: i64, name: &str, birth: i64, earlier: &[i64]) -> SetFacts {
        let mut births_ns = earlier.to_vec();
        births_ns.extend(Some(birth).filter(|birth| *birth != 0));
        SetFacts {
            identity: Identity {
                origin: Origin {
                    kind: 2,
                    name: name.into(),
                    births_ns,
                },
                ..Identity::default()
            },
            ..full(at)
        }
    }

    /// Backups under one name, one after another, each made with the lists of those before.
    fn in_turn(births: &[i64]) -> Vec<SetFacts> {
        let mut sets: Vec<SetFacts> = Vec::new();
        for (at, birth) in (1..).zip(births) {
            let mut set = plain_set(at, "a", 0, &[]);
            let known = others(
                &sets,
                &set.identity.origin,
                Some(*birth).filter(|b| *b != 0),
            );
            set.identity.origin.births_ns = known.births_ns;
            sets.push(set);
        }
        sets
    }

    /// Goal: one name at a target does not mean one source.
    #[test]
    fn databases_of_two_machines_or_paths_are_two_branches() {
        let sets = [
            plain_set(1, "web1 sqlite:/srv/app.db", 0, &[]),
            plain_set(2, "web2 sqlite:/srv/app.db", 0, &[]),
            plain_set(3, "web1 sqlite:/srv/app.db", 0, &[]),
            plain_set(4, "web1 sqlite:/srv/b.db", 0, &[]),
        ];
        assert_eq!(found(&sets), [vec![0, 2], vec![1], vec![3]]);
        let mut tree = sets[0].clone();
        tree.identity.origin.kind = 1;
        assert_eq!(found(&[sets[0].clone(), tree]).len(), 2);
    }

    /// Goal: host name and path may agree, too; a file that is backed up again proves that two files exist.
    #[test]
    fn a_replaced_file_continues_its_branch_and_one_that_returns_is_another() {
        assert_eq!(found(&in_turn(&[7, 7, 8, 9, 9])), [[0, 1, 2, 3, 4]]);
        assert_eq!(found(&in_turn(&[7, 8, 7])), [vec![0, 2], vec![1]]);
        // A file that had replaced another before the pair was known continues its branch.
        assert_eq!(
            found(&in_turn(&[6, 7, 8, 7, 8])),
            [vec![0, 1, 3], vec![2, 4]]
        );
        // It is unknown which file a third one replaced, and to which one a backup without a creation time belongs.
        assert_eq!(
            found(&in_turn(&[7, 8, 7, 9, 0])),
            [vec![0, 2], vec![1], vec![3], vec![4]]
        );
        // The creation time of one of them is unknown: no proof.
        assert_eq!(found(&in_turn(&[7, 0, 7])), [[0, 1, 2]]);
    }

    /// Goal: one mix-up of files does not end retention. A replaced file continues its branch, even if backups in
    /// between are gone.
    #[test]
    fn files_that_are_replaced_after_a_mix_up_are_one_branch() {
        let mut sets = in_turn(&[7, 8, 7, 11, 12, 13, 14, 15, 16]);
        let lines = [vec![0, 2], vec![1], vec![3, 4, 5, 6, 7, 8]];
        assert_eq!(found(&sets), lines);
        sets.drain(6..8);
        sets.drain(3..5);
        assert_eq!(found(&sets), [vec![0, 2], vec![1], vec![3, 4]]);
        // Files that were one source before one of them was backed up again stay one.
        assert_eq!(found(&in_turn(&[7, 8, 9, 7])), [vec![0, 3], vec![1, 2]]);
    }

    /// Backups under one name at these times, in this order.
    fn dated(sets: &[(i64, i64)]) -> Vec<SetFacts> {
        let mut made: Vec<SetFacts> = Vec::new();
        for (at, birth) in sets {
            let known = others(
                &made,
                &plain_set(*at, "a", 0, &[]).identity.origin,
                Some(*birth),
            );
            let mut set = plain_set(*at, "a", 0, &[]);
            set.identity.origin.births_ns = known.births_ns;
            made.push(set);
        }
        made
    }

    /// Goal: a clock that is ahead, or is set back, does not make one database look like two.
    #[test]
    fn times_alone_do_not_prove_that_two_live() {
        // One backup from the future, then a new file each night.
        let mut ahead = dated(&[(1, 7), (400, 8), (2, 9), (3, 10), (4, 11), (5, 11), (6, 12)]);
        assert_eq!(found(&ahead).len(), 1);
        assert!(!others(&ahead, &ahead[0].identity.origin.clone(), Some(12)).came_back);
        ahead.remove(1);
        assert_eq!(found(&ahead).len(), 1);
        // A clock that is set back after a file was replaced.
        let back = dated(&[(10, 7), (20, 8), (5, 8), (6, 8), (7, 9)]);
        assert_eq!(found(&back).len(), 1);
        // A proof holds with any clock.
        for at in [3, 400, 0] {
            let both = dated(&[(1, 7), (2, 8), (at, 7)]);
            assert_eq!(found(&both).len(), 2, "{at}");
        }
        let both = dated(&[(1, 5), (400, 7), (2, 8), (3, 7), (4, 9), (5, 10)]);
        let lines = [vec![0, 3, 1], vec![2], vec![4, 5]];
        assert_eq!(found(&both), lines);
    }

    /// Goal: no stored list prevents a target from being read.
    #[test]
    fn files_that_each_took_the_other_s_place_have_an_end() {
        let sets = [
            plain_set(1, "a", 7, &[8]),
            plain_set(2, "a", 8, &[7]),
            plain_set(3, "a", 9, &[8, 9, 8, 7]),
            plain_set(4, "a", 9, &[9, 7, 9, 9]),
        ];
        let found = found(&sets);
        assert!((0..4).all(|i| found.iter().any(|line| line.contains(&i))));
    }

    #[test]
    fn later_backups_remember_expired_ones() {
        let mut sets = in_turn(&[7, 8]);
        sets.remove(0);
        let line = sets[0].identity.origin.clone();
        let back = others(&sets, &line, Some(7));
        assert!(back.came_back);
        sets.push(plain_set(3, "a", 7, &back.births_ns[..2]));
        assert_eq!(found(&sets), [[0], [1]]);
        // Each of them alone still shows it.
        let again = others(&sets[1..], &line, Some(8));
        assert!(again.came_back, "{again:?}");
        assert!(!others(&sets[1..], &line, Some(7)).came_back);
    }

    /// Goal: a backup made while another was being written does not list the other, and proves nothing.
    #[test]
    fn backups_at_the_same_time_do_not_prove_that_two_live() {
        let sets = [
            plain_set(1, "a", 7, &[]),
            plain_set(2, "a", 8, &[7]),
            plain_set(3, "a", 8, &[7]),
            plain_set(4, "a", 8, &[7, 8]),
            plain_set(5, "a", 9, &[]),
            plain_set(6, "a", 9, &[8]),
        ];
        assert_eq!(found(&sets), [[0, 1, 2, 3, 4, 5]]);
    }

    #[test]
    fn a_new_backup_learns_the_origins_of_the_others() {
        let sets = [
            plain_set(1, "a", 0, &[]),
            plain_set(2, "b", 0, &[]),
            set(3, 30, 1),
        ];
        let told = |name| {
            let found = others(&sets, &plain_set(9, name, 0, &[]).identity.origin, None);
            (found.has_own, found.newer)
        };
        assert_eq!(told("c"), (false, vec![0, 1, 2]));
        assert_eq!(told("a"), (true, vec![1, 2]));
        assert_eq!(told("b"), (true, vec![2]));
    }

    #[test]
    fn a_path_has_one_text() {
        let name = |origin| Origin::here(2, "m", origin, None).name;
        assert_eq!(name("sqlite:/a//b/./c"), "m sqlite:/a/b/c");
        assert_eq!(name("files:/a/"), "m files:/a");
        assert_eq!(name("files:/"), "m files:/");
        assert_eq!(Origin::here(2, "m", "files:/a", Some("x/")).name, "x/");
    }

    proptest::proptest! {
        /// Goal: no backup is lost to retention and restores, whatever the order of the files was.
        #[test]
        fn every_plain_set_is_on_a_branch_and_no_two_that_live_share_one(
            births in proptest::collection::vec(0i64..5, 1..14),
            gone in proptest::collection::vec(proptest::bool::ANY, 14),
        ) {
            let all = in_turn(&births);
            let (sets, births): (Vec<_>, Vec<_>) = all
                .into_iter()
                .zip(births)
                .zip(gone)
                .filter_map(|(pair, gone)| (!gone).then_some(pair))
                .unzip();
            let lines = found(&sets);
            for i in 0..sets.len() {
                proptest::prop_assert!(lines.iter().any(|line| line.contains(&i)), "{lines:?}");
            }
            for line in &lines {
                let of = |at: usize| births[line[at]];
                for (a, b, c) in (0..line.len()).flat_map(|a| {
                    let n = line.len();
                    (a..n).flat_map(move |b| (b..n).map(move |c| (a, b, c)))
                }) {
                    let back = of(a) == of(c) && of(b) != of(a) && of(a) != 0 && of(b) != 0;
                    proptest::prop_assert!(!back, "{births:?} {lines:?}");
                }
            }
        }
    }

    #[test]
    fn every_whole_set_is_on_a_branch() {
        let mut sets = vec![full(1), full(2), set(3, 30, 1)];
        let mut other = set(4, 40, 1);
        other.log.as_mut().unwrap().system = 2;
        other.identity.lineage.as_mut().unwrap().system = 2;
        sets.push(other);
        assert_eq!(found(&sets), [vec![0, 1], vec![2], vec![3]]);
        assert_eq!(in_order(&sets), [0, 1, 2, 3]);
    }
}
