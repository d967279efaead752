//! Goal: an accepted model predicts the device, and a model that cannot is refused.
//! Method: shipped profiles as devices, with their jitter and tails, measured in virtual time; the fit sees latencies
//! only.

use std::time::Duration;

use longshore_io::{HostClock, SimDisk};
use proptest::prelude::*;

use super::*;
use crate::model::{Op, Profile};

/// Latencies of a modelled device, as [`measure`] would find them.
fn measured(profile: &Profile, seed: u64) -> Vec<Point> {
    let cells = MeasurePlan::default().cells();
    let points = cells.into_iter().map(|(len, depth)| {
        let count = 3000.min((40_000 << 12) / len).max(8 * u64::from(depth));
        let mean_us = profile.steady(len, depth, count, seed).mean_us;
        Point {
            len_bytes: len,
            depth,
            mean_us,
            count,
        }
    });
    points.collect()
}

#[test]
fn a_device_of_the_models_kind_is_found_from_its_latencies_alone() {
    for name in ["optane-905p", "samsung-970pro", "ebs-gp3-max"] {
        let truth = Profile::named(name).unwrap();
        let fitted = fit(&measured(truth, 5), Some(truth.command_bytes));
        let fitted = fitted.unwrap_or_else(|e| panic!("{name}: {e}: {e:?}"));
        assert!(fitted.near >= 0.9, "{name}: {}", fitted.near);
        assert_eq!(fitted.profile.command_bytes, truth.command_bytes);
        // The two figures on which policies rely: a lone small read, and the bandwidth.
        let lone = |p: &Profile| p.unloaded_us(Op::Read, 4096);
        let ratio = lone(&fitted.profile) / lone(truth);
        assert!((0.85..1.15).contains(&ratio), "{name}: {ratio}");
        let rate = |p: &Profile| p.capacity(Op::Read, 512 << 10);
        let ratio = rate(&fitted.profile) / rate(truth);
        assert!((0.85..1.15).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn measurements_that_fit_no_model_are_refused_with_their_cells() {
    let mut points = measured(Profile::named("optane-905p").unwrap(), 5);
    // Some longer reads take less time than shorter ones.
    for (n, point) in points.iter_mut().enumerate() {
        point.mean_us *= [1.0, 3.0, 0.4][n % 3];
    }
    match fit(&points, None) {
        Err(FitRefusal::Far { near, residuals }) => {
            assert!(near < 0.9 && residuals.len() == points.len());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn cells_that_are_missing_or_say_nothing_are_refused() {
    let points = measured(Profile::named("optane-905p").unwrap(), 5);
    assert!(matches!(
        fit(&points[..9], None),
        Err(FitRefusal::TooFew { have: 9 })
    ));
    for mean_us in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut points = points.clone();
        points[3].mean_us = mean_us;
        assert!(matches!(fit(&points, None), Err(FitRefusal::NoTime { .. })));
    }
}

#[test]
fn a_path_is_measured_in_every_cell_and_never_written() {
    let disk = SimDisk::new(1);
    let bytes = 4u64 << 20;
    let file = filled(&disk, bytes);
    let plan = MeasurePlan {
        lens: vec![4096, 65_536],
        depths: vec![1, 4],
        time: Duration::from_millis(1),
        in_flight_bytes_max: 128 << 10,
    };
    let told = std::cell::Cell::new(0);
    let points = measure(&*file, bytes, &plan, &HostClock, &|_| {
        told.set(told.get() + 1);
    });
    let points = points.unwrap();
    let cells: Vec<_> = points.iter().map(|p| (p.len_bytes, p.depth)).collect();
    assert_eq!(cells, [(4096, 1), (4096, 4), (65_536, 1)]);
    assert_eq!(told.get(), 3);
    assert!(points.iter().all(|p| p.count >= 3 * u64::from(p.depth)));
    let mut now = vec![0; bytes as usize];
    file.read_full_at(&mut now, 0, longshore_io::Via::Cache)
        .unwrap();
    assert!(now.iter().all(|byte| *byte == 7));
    assert!(matches!(
        measure(&*file, 1 << 20, &plan, &HostClock, &|_| {}),
        Err(MeasureError::TooSmall { .. })
    ));
    // The file is shorter than stated: a short read does not count as a fast one.
    assert!(matches!(
        measure(&*file, 1 << 40, &plan, &HostClock, &|_| {}),
        Err(MeasureError::Read { .. })
    ));
}

fn filled(disk: &SimDisk, bytes: u64) -> std::sync::Arc<dyn longshore_io::File> {
    use longshore_io::{OpenHow, Storage, Via};
    let dir = disk.create_dir_all(std::path::Path::new("/d")).unwrap();
    let file = dir
        .open(std::path::Path::new("f"), OpenHow::CreateNew)
        .unwrap();
    file.write_all_at(&vec![7; bytes as usize], 0, Via::Cache)
        .unwrap();
    file
}

#[test]
fn a_model_reads_back_as_it_was_written() {
    let fitted = Profile {
        name: "calibrated",
        write_us: 6.8,
        write_link: 2550.0,
        jitter: 0.0,
        ..Profile::named("optane-905p").unwrap().clone()
    };
    let text = write_model(&fitted, 0.95, "/dev/x\nunits = 3");
    assert_eq!(read_model(&text).unwrap(), fitted);
    assert_eq!(read_model("units = 7\n"), Err(BadModel::NoModel));
    let without = text.replace("read_us = 6.8\n", "");
    assert_eq!(
        read_model(&without),
        Err(BadModel::Missing { name: "read_us" })
    );
    for wrong in [
        "units = 0",
        "units = nan",
        "units = -1",
        "speed = 7",
        "units",
    ] {
        let text = text.replace("units = 7", wrong);
        assert!(read_model(&text).is_err(), "{wrong}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_model_of_which_any_line_was_changed_can_be_run_or_is_refused(
        line in 2..10_usize,
        value in "(-?[0-9]{1,3}(\\.[0-9]{1,3})?(e-?[0-9]{1,3})?|[-0-9.e]{0,12})",
    ) {
        let text = write_model(Profile::named("optane-905p").unwrap(), 0.95, "");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let name = lines[line].split_once('=').unwrap().0.to_owned();
        lines[line] = format!("{name}={value}");
        if let Ok(profile) = read_model(&lines.join("\n")) {
            prop_assert!(profile.units > 0 && profile.chunk_bytes > 0 && profile.read_link > 0.0);
            prop_assert!(profile.steady(4096, 2, 8, 1).mean_us.is_finite());
        }
    }
}
