//! Goal: everything that was backed up is restored: every algorithm, stripe count and kind of file, and every position
//! of media with several sets.
//! Method: a tree with every kind of entry on the real file system; its observable properties before the backup are
//! compared with those after the restore.
//! Not covered: databases and faults, which have tests of their own.

mod common;

use common::forge::{self, Claims};
use common::*;
use longshore_codec::Algorithm;
use longshore_media::{DeviceSpec, Entry, EntryKind, Extent, Item};
use longshore_pipeline::{
    Disposition, Error, Limits, NullObserver, Report, Request, SourceSpec, Tuning, VerifyDepth,
    VerifyRequest, run,
};

#[test]
fn a_tree_comes_back_as_it_was_with_every_algorithm_and_one_stripe_or_several() {
    let source = tempfile::tempdir().unwrap();
    odd_tree(source.path());
    let before = describe(source.path());
    for algorithm in Algorithm::ALL {
        for count in [1, 3] {
            let (media, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let devices = stripes(media.path(), count);
            let spec = SourceSpec::Files(vec![source.path().into()]);
            let report =
                backup(&context(), backup_request(spec, devices.clone(), algorithm)).unwrap();
            assert!(
                !report.damaged,
                "{algorithm} x{count}: {:?}",
                report.changed
            );
            let verified = verify(&context(), devices.clone()).unwrap();
            assert!(
                verified.is_valid(),
                "{algorithm} x{count}: {:?}",
                verified.findings
            );
            let restored = restore(&context(), restore_request(devices, target.path())).unwrap();
            assert_eq!(restored.totals, report.totals);
            assert_eq!(describe(target.path()), before, "{algorithm} x{count}");
            assert_eq!(describe(source.path()), before, "the source was changed");
        }
    }
}

#[test]
fn a_tree_comes_back_from_as_many_stripes_as_there_may_be() {
    let source = tempfile::tempdir().unwrap();
    odd_tree(source.path());
    std::fs::write(source.path().join("large"), content(64, 9 << 20)).unwrap();
    let before = describe(source.path());
    let (media, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let devices = stripes(media.path(), 64);
    let spec = SourceSpec::Files(vec![source.path().into()]);
    let mut request = backup_request(spec, devices.clone(), Algorithm::Lz4);
    // More blocks than stripes.
    request.tuning.buffer_bytes = Some(64 << 10);
    backup(&context(), request).unwrap();
    assert!(verify(&context(), devices.clone()).unwrap().is_valid());
    let mut any_order = devices;
    any_order.rotate_left(23);
    restore(&context(), restore_request(any_order, target.path())).unwrap();
    assert_eq!(describe(target.path()), before);
}

/// Each checksum of a block is compared separately: a decoder may produce wrong bytes from good ones, and right bytes
/// from damaged ones.
#[test]
fn a_block_whose_plain_or_stored_bytes_have_another_checksum_is_damage() {
    let cases = [
        ((0, 0), ""),
        ((1, 0), "plain bytes"),
        ((0, 1), "stored bytes"),
    ];
    for (algorithm, (crcs_off, what)) in Algorithm::ALL
        .into_iter()
        .flat_map(|a| cases.map(|c| (a, c)))
    {
        let dir = tempfile::tempdir().unwrap();
        let devices = stripes(dir.path(), 1);
        let entry = Entry {
            path: "file".into(),
            kind: EntryKind::File,
            first: true,
            based: false,
            xattrs: Vec::new(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            len: 30_000,
        };
        let extent = Extent {
            offset: 0,
            len: 30_000,
        };
        let items = vec![Item::Entry(entry), Item::Extent(extent)];
        let claims = Claims {
            algorithm,
            disposition: Disposition::New,
            crcs_off,
            ..Claims::new(None)
        };
        let blocks = [(items, content(9, 30_000))];
        forge::write(&context().storage, &devices, &claims, &blocks, |_| 0);
        let verified = verify(&context(), devices.clone()).unwrap();
        let found = format!("{algorithm}: {:?}", verified.findings);
        assert_eq!(verified.is_valid(), what.is_empty(), "{found}");
        assert!(found.contains(what), "{found}");
        let target = dir.path().join("out");
        let restored = restore(&context(), restore_request(devices, &target));
        assert_eq!(restored.is_ok(), what.is_empty(), "{algorithm}");
        assert_eq!(target.join("file").exists(), what.is_empty(), "{algorithm}");
    }
}

#[test]
fn a_stripe_that_was_cut_off_is_one_finding() {
    let source = tempfile::tempdir().unwrap();
    odd_tree(source.path());
    for count in [1, 3] {
        let media = tempfile::tempdir().unwrap();
        let devices = stripes(media.path(), count);
        let spec = SourceSpec::Files(vec![source.path().into()]);
        backup(
            &context(),
            backup_request(spec, devices.clone(), Algorithm::Lz4),
        )
        .unwrap();
        let first = std::fs::read_dir(media.path()).unwrap().next().unwrap();
        let path = first.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 10]).unwrap();
        let verified = verify(&context(), devices).unwrap();
        assert!(!verified.is_valid() && verified.sets.iter().all(|set| !set.valid));
        assert_eq!(verified.findings.len(), 1, "{:?}", verified.findings);
    }
}

#[test]
fn two_buffers_and_one_stripe_do_not_deadlock() {
    let source = tempfile::tempdir().unwrap();
    odd_tree(source.path());
    let (media, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let devices = stripes(media.path(), 1);
    let mut request = backup_request(
        SourceSpec::Files(vec![source.path().into()]),
        devices.clone(),
        Algorithm::QatDeflate,
    );
    request.tuning = Tuning {
        buffer_count: Some(2),
        buffer_bytes: Some(64 << 10),
    };
    backup(&context(), request).unwrap();
    let mut request = restore_request(devices, target.path());
    request.tuning = Tuning {
        buffer_count: Some(1),
        buffer_bytes: None,
    };
    restore(&context(), request).unwrap();
    assert_eq!(describe(target.path()), describe(source.path()));
}

/// Goal: rows of parity keep no buffer that the workers need, however few were asked for.
#[test]
fn few_buffers_and_parity_do_not_deadlock() {
    let source = tempfile::tempdir().unwrap();
    odd_tree(source.path());
    for count in [1, 2, 3, 4, 6, 7] {
        let (media, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let devices = stripes(media.path(), 4);
        let spec = SourceSpec::Files(vec![source.path().into()]);
        let mut request = backup_request(spec, devices.clone(), Algorithm::Lz4);
        request.parity = 1;
        request.tuning = Tuning {
            buffer_count: Some(count),
            buffer_bytes: Some(64 << 10),
        };
        backup(&context(), request).unwrap();
        let left = devices[1..].to_vec();
        restore(&context(), restore_request(left, target.path())).unwrap();
        assert_eq!(describe(target.path()), describe(source.path()), "{count}");
    }
}

#[test]
fn sets_are_appended_and_each_position_restores_its_own_state() {
    let source = tempfile::tempdir().unwrap();
    let media = tempfile::tempdir().unwrap();
    let devices = stripes(media.path(), 2);
    let file = source.path().join("data");
    for n in 1..=3u32 {
        std::fs::write(&file, content(u64::from(n), 3_000_000 + n as usize)).unwrap();
        let spec = SourceSpec::Files(vec![source.path().into()]);
        let mut request = backup_request(spec, devices.clone(), Algorithm::Zstd);
        request.disposition = Disposition::Append;
        assert_eq!(backup(&context(), request).unwrap().position, n);
    }
    for n in 1..=3u32 {
        let target = tempfile::tempdir().unwrap();
        let mut request = restore_request(devices.clone(), target.path());
        request.position = n;
        restore(&context(), request).unwrap();
        let got = std::fs::read(target.path().join("data")).unwrap();
        assert_eq!(got, content(u64::from(n), 3_000_000 + n as usize));
    }
    let spec = SourceSpec::Files(vec![source.path().into()]);
    let mut other = backup_request(spec.clone(), devices.clone(), Algorithm::Lz4);
    other.disposition = Disposition::Append;
    assert_eq!(backup(&context(), other).unwrap_err().number(), Some(3098));
    let again = backup_request(spec, devices, Algorithm::Zstd);
    let refused = backup(&context(), again).unwrap_err();
    assert!(
        matches!(refused, Error::Media(longshore_media::Error::Exists { .. })),
        "{refused}"
    );
}

#[test]
fn backups_and_restores_are_in_the_history_and_a_lost_catalog_is_only_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let mut context = context();
    context.catalog = Some(dir.path().join("catalog.db"));
    let devices = stripes(dir.path(), 2);
    let spec = SourceSpec::Files(vec![source.clone()]);
    let made = backup(
        &context,
        backup_request(spec.clone(), devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    assert_eq!(made.run.warnings, Vec::<String>::new());
    let restored = restore(&context, restore_request(devices, &dir.path().join("out"))).unwrap();
    assert_eq!(restored.run.warnings, Vec::<String>::new());
    let catalog = longshore_catalog::Catalog::open(context.catalog.as_ref().unwrap()).unwrap();
    let rows = catalog
        .history(&longshore_catalog::HistoryQuery::default())
        .unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].size_bytes, rows[0].compressed_bytes),
        (made.plain_bytes, made.stored_bytes)
    );
    assert_eq!(
        catalog
            .restores(&longshore_catalog::HistoryQuery::default())
            .unwrap()
            .len(),
        1
    );

    context.catalog = Some(source.join("empty/no such place/catalog.db"));
    let nul = vec![longshore_media::DeviceSpec::Nul];
    let made = backup(&context, backup_request(spec, nul, Algorithm::Lz4)).unwrap();
    assert!(
        made.run.warnings.iter().any(|w| w.contains("3009")),
        "{:?}",
        made.run.warnings
    );
}

#[test]
fn noise_grows_by_a_thousandth_at_most_and_zeros_cost_almost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let noise = longshore_kit::random::noise(1, 16 << 20);
    for (bytes, allowed) in [(noise, 1.001), (vec![0; 16 << 20], 0.005)] {
        std::fs::write(source.join("file"), &bytes).unwrap();
        for algorithm in Algorithm::ALL {
            if allowed < 1.0 && algorithm == Algorithm::None {
                continue;
            }
            let devices = stripes(dir.path(), 1);
            let spec = SourceSpec::Files(vec![source.clone()]);
            let mut request = backup_request(spec, devices.clone(), algorithm);
            request.disposition = Disposition::Format;
            let report = backup(&context(), request).unwrap();
            let grown = report.stored_bytes as f64 / report.plain_bytes as f64;
            assert!(grown <= allowed, "{algorithm}: {grown}");
        }
    }
}

/// Goal: if a restore of a position is refused, a verification of that position finds the reason.
#[test]
fn a_set_that_is_there_twice_is_no_more_valid_than_it_can_be_restored() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let devices = stripes(dir.path(), 2);
    let DeviceSpec::File(first) = &devices[0] else {
        panic!("no file");
    };
    let mut ends = Vec::new();
    for n in 1..=2u8 {
        std::fs::write(source.join("file"), vec![n; 300_000]).unwrap();
        let spec = SourceSpec::Files(vec![source.clone()]);
        let mut request = backup_request(spec, devices.clone(), Algorithm::Lz4);
        if n > 1 {
            request.disposition = Disposition::Append;
        }
        backup(&context(), request).unwrap();
        ends.push(std::fs::metadata(first).unwrap().len() as usize);
    }
    let mut bytes = std::fs::read(first).unwrap();
    let last = bytes[ends[0]..].to_vec();
    bytes.extend_from_slice(&last);
    std::fs::write(first, &bytes).unwrap();
    let mut request = restore_request(devices.clone(), &dir.path().join("out"));
    request.position = 2;
    restore(&context(), request).unwrap_err();
    let (tuning, limits) = (Tuning::default(), Limits::default());
    let request = VerifyRequest {
        devices,
        bases: Vec::new(),
        position: Some(2),
        known: Vec::new(),
        depth: VerifyDepth::Chains,
        tuning,
        limits,
    };
    let report = match run(&context(), &Request::Verify(request), &NullObserver) {
        Ok(Report::Verify(report)) => report,
        other => panic!("{other:?}"),
    };
    assert!(!report.is_valid(), "{report:?}");
}
