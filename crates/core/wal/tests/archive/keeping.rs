//! Goal: a copy's archive has a record for what is owed from before the debt is noted until it is paid, and no longer; the
//! records of a clone's origin are none of the clone's.
//! Method: simulated disks with hand-made segments, of which one fails, or loses power, from each of its steps on.
//! Not covered: expires that read the records (`wal/kept.rs` of the program).

use std::path::Path;

use longshore_io::{Fault, SimDisk, Storage};
use longshore_pg::Lsn;
use longshore_wal::needs::{Need, Purpose};
use longshore_wal::{
    AwaitExpires, Creditor, DebtMark, Debtor, Error, Givers, OWED_LIST, PgWal, ToSettle, WalArchive,
};

use crate::support::*;

const MAIN: &str = "main";
const NEAR: &str = "/near/main/wal";
const ALGORITHM: longshore_codec::Algorithm = longshore_codec::Algorithm::Lz4;

/// A server, its own archive, and two copies.
struct Site {
    server: SimDisk,
    home: SimDisk,
    copies: [SimDisk; 2],
}

fn creditor() -> Creditor<'static> {
    Creditor {
        database: MAIN,
        location: Path::new(NEAR),
    }
}

fn debtor(pg_wal: &PgWal) -> Debtor<'_> {
    Debtor {
        database: MAIN,
        target: "near",
        pg_wal: pg_wal.path(),
    }
}

impl Site {
    /// All have the first two segments.
    fn new(seed: u64) -> Site {
        let server = SimDisk::new(seed);
        server
            .write_file(Path::new(WAL).join("archive_status/.keep"), b"")
            .unwrap();
        let site = Site {
            server,
            home: disk(1),
            copies: [disk(2), disk(3)],
        };
        for number in 1..=2 {
            for at in [&site.home, &site.copies[0], &site.copies[1]] {
                push(at, name(1, number), &segment(1, number, number)).unwrap();
            }
        }
        for number in 3..=6 {
            outgoing(&site.server, name(1, number), &segment(1, number, number));
        }
        site
    }

    /// A push that the first copy takes, as the program makes it.
    fn owe(&self, number: u64) -> Result<DebtMark, Error> {
        self.owe_while(number, &|_| Ok(()))
    }

    fn owe_while(&self, number: u64, expires: &AwaitExpires<'_>) -> Result<DebtMark, Error> {
        let name = name(1, number);
        let pg_wal = PgWal::open(&self.server, Path::new(WAL))?;
        let out = pg_wal.outgoing(name, Path::new(&name.to_string()))?;
        let (copy, form) = (archive(&self.copies[0])?, form(ALGORITHM));
        let to = ToSettle {
            archive: &copy,
            form: &form,
        };
        let mut owing = pg_wal.begin_owing(debtor(&pg_wal))?.unwrap();
        owing.push(to, &out, expires, &*clock())?;
        owing.note(creditor(), &out, &*clock())?;
        Ok(pg_wal.debt_mark(MAIN)?.unwrap())
    }

    fn settle(&self) -> Result<(), Error> {
        let pg_wal = PgWal::open(&self.server, Path::new(WAL))?;
        let turn = pg_wal.turn_to_follow(MAIN)?.unwrap();
        let (home, form) = (archive(&self.home)?, form(ALGORITHM));
        let copy = archive(&self.copies[0])?;
        let to_settle = |archive| ToSettle {
            archive,
            form: &form,
        };
        let givers = Givers {
            copies: &[to_settle(&copy)],
            are_all: true,
        };
        let home = (creditor(), Some(to_settle(&home)));
        pg_wal.settle(&turn, home, givers, &*clock()).map(drop)
    }

    /// As each process that a push starts.
    fn renew(&self, copies: &[&SimDisk]) -> Result<(), Error> {
        let pg_wal = PgWal::open(&self.server, Path::new(WAL))?;
        let opened: Result<Vec<WalArchive>, Error> =
            copies.iter().map(|disk| archive(*disk)).collect();
        let opened = opened?;
        let archives: Vec<&WalArchive> = opened.iter().collect();
        let all = (&archives[..], copies.len() == 2);
        pg_wal.renew_kept(&debtor(&pg_wal), all, &*clock())
    }

    fn mark(&self) -> Option<DebtMark> {
        mark_on(&self.server)
    }

    fn is_owed(&self) -> bool {
        is_owed_on(&self.server)
    }

    fn needs(&self) -> [Vec<Need>; 2] {
        [0, 1].map(|i| archive(&self.copies[i]).unwrap().needs().unwrap())
    }
}

fn mark_on(disk: &SimDisk) -> Option<DebtMark> {
    let pg_wal = PgWal::open(disk, Path::new(WAL)).unwrap();
    pg_wal.debt_mark(MAIN).unwrap()
}

fn is_owed_on(disk: &SimDisk) -> bool {
    let pg_wal = PgWal::open(disk, Path::new(WAL)).unwrap();
    !pg_wal.owed_list().unwrap().of(MAIN).names.is_empty()
}

#[test]
fn each_copy_has_one_record_from_the_first_owed_segment_on_until_the_debt_is_paid() {
    let site = Site::new(9);
    let mark = site.owe(4).unwrap();
    for number in [5, 6] {
        assert_eq!(site.owe(number).unwrap(), mark);
    }
    let [first, second] = site.needs();
    assert_eq!((first.len(), second.len()), (1, 0));
    assert_eq!(first[0].purpose, Purpose::Debt);
    let from = |number: u64| Some(Lsn(number * SEGMENT as u64));
    // The archives are compared by the last one before it that the copy has.
    assert_eq!(first[0].from(), from(2));
    // An earlier one comes late, as after a failover; the second copy was away.
    site.owe(3).unwrap();
    assert_eq!(site.needs()[0].len(), 1);
    assert_eq!(site.needs()[0][0].from(), from(2));
    site.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
    let [first, second] = site.needs();
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_eq!(second[0].from(), from(2));
    // A record that was forgotten by hand comes back.
    let copy = archive(&site.copies[0]).unwrap();
    assert_eq!(copy.forget_need(first[0].id).unwrap(), 1);
    site.renew(&[&site.copies[0]]).unwrap();
    assert_eq!(site.needs()[0].len(), 1);

    site.settle().unwrap();
    assert!(!site.is_owed());
    // One copy is away when the record should go.
    site.renew(&[&site.copies[0]]).unwrap();
    let [first, second] = site.needs();
    assert_eq!((first.len(), second.len()), (0, 1));
    assert!(site.mark().is_some());
    site.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
    assert_eq!(site.needs(), [vec![], vec![]]);
    assert_eq!(site.mark(), None);
    // Without a mark nobody asks the archives.
    site.copies[0].inject(Fault::errno(5));
    site.renew(&[]).unwrap();
    let list = Path::new("/data").join(OWED_LIST.0);
    assert_eq!(site.server.read_file(&list).unwrap(), b"");
}

#[test]
fn records_stay_while_the_list_is_not_understood() {
    let site = Site::new(9);
    site.owe(3).unwrap();
    let list = Path::new("/data").join(OWED_LIST.0);
    let before = site.server.read_file(&list).unwrap();
    site.server
        .write_file(&list, b"a line of a later version\n")
        .unwrap();
    site.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
    assert_eq!(site.needs()[0].len(), 1);
    assert!(site.mark().is_some());
    site.server.write_file(&list, &before).unwrap();
    site.settle().unwrap();
    site.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
    assert_eq!(site.needs()[0].len(), 0);
}

/// Goal: a copy of the data directory neither believes in the records of its origin nor removes them.
#[test]
fn a_clone_has_records_of_its_own() {
    let site = Site::new(9);
    let mark = site.owe(3).unwrap();
    let clone = SimDisk::new(7);
    for path in site.server.paths() {
        // Directories are among the paths.
        if let Ok(bytes) = site.server.read_file(&path) {
            clone.write_file(&path, &bytes).unwrap();
        }
    }
    let clone = Site {
        server: clone,
        home: disk(8),
        copies: site.copies.clone(),
    };
    assert!(clone.mark().is_some_and(|own| own != mark));
    clone.owe(4).unwrap();
    assert_eq!(site.needs()[0].len(), 2);
    let pg_wal = PgWal::open(&clone.server, Path::new(WAL)).unwrap();
    let pg_wal_list = Path::new("/data").join(OWED_LIST.0);
    clone.server.write_file(&pg_wal_list, b"").unwrap();
    assert!(pg_wal.owed_list().unwrap().of(MAIN).names.is_empty());
    clone.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
    assert_eq!(clone.mark(), None);
    assert_eq!(site.needs()[0].len(), 1);
    let copy = archive(&site.copies[0]).unwrap();
    assert!(copy.keeps_debt(mark, Lsn(2 * SEGMENT as u64)).unwrap());
}

/// Goal: an expire that may not have seen the record is over before the file counts as being in the copy.
#[test]
fn nothing_is_owed_while_an_expire_may_not_have_seen_the_record() {
    let site = Site::new(9);
    let is_kept = std::cell::Cell::new(false);
    let expires = |copy: &WalArchive| {
        is_kept.set(!copy.needs().unwrap().is_empty());
        Err(Error::BeingExpired {
            archive: copy.path().to_owned(),
            holder: "another".to_owned(),
            waited_s: 5,
        })
    };
    let refused = site.owe_while(3, &expires).unwrap_err();
    assert!(matches!(refused, Error::BeingExpired { .. }), "{refused}");
    assert!(is_kept.get(), "the next expire sees the record");
    assert!(!site.is_owed());
    site.owe(3).unwrap();
    assert!(site.is_owed());
    // The list says that the record is there.
    site.owe_while(4, &expires).unwrap();
}

/// Goal: the records of a database whose debts another one took over go from each copy, after the other's own are there.
#[test]
fn records_of_a_database_go_when_another_one_has_its_own() {
    let site = Site::new(9);
    let mark = site.owe(3).unwrap();
    site.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
    let pg_wal = PgWal::open(&site.server, Path::new(WAL)).unwrap();
    let prime = Creditor {
        database: "prime",
        ..creditor()
    };
    pg_wal.move_debts(MAIN, prime, &*clock()).unwrap();
    let opened = site.copies.each_ref().map(|disk| archive(disk).unwrap());
    let [first, second] = opened.each_ref();
    let names = (MAIN, "prime");
    let release = |copies: &[&WalArchive], are_all| {
        let released = pg_wal.release_taken(names, (copies, are_all), &*clock());
        released.unwrap()
    };
    // It has no records yet.
    assert!(!release(&[first, second], true));
    assert_eq!(site.needs().map(|needs| needs.len()), [1, 1]);
    let heir = Debtor {
        database: "prime",
        ..debtor(&pg_wal)
    };
    pg_wal
        .renew_kept(&heir, (&[first, second], true), &*clock())
        .unwrap();
    // One copy is away.
    assert!(!release(&[first], false));
    assert_eq!(site.needs().map(|needs| needs.len()), [1, 2]);
    assert_eq!(site.mark(), Some(mark));
    assert!(release(&[first, second], true));
    assert_eq!(site.mark(), None);
    for needs in site.needs() {
        let names: Vec<&str> = needs.iter().map(|need| &*need.database).collect();
        assert_eq!(names, ["prime"]);
    }
    assert!(release(&[first, second], true));
}

/// Whether what a debt rests on is there: the record, and while there is a record the mark by which it is found.
fn is_sound(site: &Site) -> bool {
    let is_recorded = !site.needs()[0].is_empty();
    (is_recorded || !site.is_owed()) && (site.mark().is_some() || !is_recorded)
}

/// Goal: whatever step fails, a debt has its record, a record is found again, and the next calls end with neither.
#[test]
fn a_record_is_neither_missing_nor_forgotten_wherever_it_is_cut_off() {
    let act = |site: &Site| -> Result<(), Error> {
        site.owe(3)?;
        site.settle()?;
        site.renew(&[&site.copies[0], &site.copies[1]])
    };
    let mut cut_offs = 0;
    for is_server in [true, false] {
        for after in 0..1000 {
            let site = Site::new(9);
            let failing = match is_server {
                true => &site.server,
                false => &site.copies[0],
            };
            failing.inject(Fault::errno(5).from_step(failing.steps() + after));
            let done = act(&site);
            failing.heal();
            assert!(is_sound(&site), "{is_server} {after}: {done:?}");
            if site.is_owed() {
                site.settle().unwrap();
            }
            site.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
            assert_eq!(site.needs()[0].len(), 0, "{is_server} {after}");
            assert_eq!(site.mark(), None, "{is_server} {after}");
            if done.is_ok() {
                break;
            }
            cut_offs += 1;
        }
    }
    assert!(cut_offs > 20, "{cut_offs}");
}

/// Goal: a debt is durable also where the process that made the directory of the list was killed before its name was.
#[test]
fn a_debt_is_durable_wherever_the_process_before_was_killed() {
    let mut killed = 0;
    for after in 0..1000 {
        let site = Site::new(after);
        let fault = Fault::errno(5).from_step(site.server.steps() + after);
        site.server.inject(fault);
        let before = site.owe(3);
        site.server.heal();
        site.owe(3).unwrap();
        for server in site.server.images(8) {
            let [home, first, second] = [&site.home, &site.copies[0], &site.copies[1]].map(apart);
            let site = Site {
                server,
                home,
                copies: [first, second],
            };
            assert!(site.is_owed() && is_sound(&site), "{after}");
        }
        if before.is_ok() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 10, "{killed}");
}

/// The disk as it is now, apart from the original.
fn apart(disk: &SimDisk) -> SimDisk {
    // The last of two has all that was written.
    disk.images(2).pop().unwrap()
}

/// Removes the files of an archive that no record keeps, as an expire where no backup needs any.
fn expire(disk: &SimDisk) {
    let needs = archive(disk).unwrap().needs().unwrap();
    let from = needs.iter().filter_map(Need::from).min();
    for number in 1..=6 {
        let end = Lsn((number + 1) * SEGMENT as u64);
        if held(disk, number) && from.is_none_or(|from| end <= from) {
            let path = stored(disk, name(1, number));
            let dir = disk.dir(path.parent().unwrap()).unwrap();
            dir.remove_file(Path::new(path.file_name().unwrap()))
                .unwrap();
        }
    }
}

fn held(disk: &SimDisk, number: u64) -> bool {
    fetch(disk, name(1, number)).is_ok()
}

/// Goal: at whatever step the server, the own archive or the copy loses its power, no expire takes what is owed, and after the
/// next attempt it is paid.
/// Method: the server has removed each file of which a push succeeded, so that the copy alone can have it.
#[test]
fn what_is_owed_outlives_a_power_cut_anywhere_and_an_expire_after_it() {
    let mut cuts = 0;
    for cut in 0..3 {
        for after in 0..1000 {
            let site = Site::new(after);
            let disks = [&site.server, &site.home, &site.copies[0]];
            disks[cut].cut_power_at(disks[cut].steps() + after);
            let pushed = site.owe(3).is_ok();
            let done = pushed
                && site.settle().is_ok()
                && site.renew(&[&site.copies[0], &site.copies[1]]).is_ok();
            for image in disks[cut].images(8) {
                let mut left = disks.map(apart);
                left[cut] = image;
                let [server, home, copy] = left;
                let site = Site {
                    server,
                    home,
                    copies: [copy, apart(&site.copies[1])],
                };
                let case = format!("{cut} {after} {pushed}");
                assert!(is_sound(&site), "{case}");
                expire(&site.copies[0]);
                if !pushed {
                    continue;
                }
                let own = site.server.dir(Path::new(WAL)).unwrap();
                own.remove_file(Path::new(&name(1, 3).to_string())).unwrap();
                assert!(site.is_owed() || held(&site.home, 3), "{case}");
                site.settle().unwrap();
                assert!(!site.is_owed() && held(&site.home, 3), "{case}");
                site.renew(&[&site.copies[0], &site.copies[1]]).unwrap();
                assert_eq!(site.needs(), [vec![], vec![]], "{case}");
                assert_eq!(site.mark(), None, "{case}");
            }
            if done && !disks[cut].power_is_off() {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 30, "{cuts}");
}
