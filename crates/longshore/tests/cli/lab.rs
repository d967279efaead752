//! Sample data through the command line.

use crate::stage::Stage;

#[test]
fn sample_databases_have_the_size_asked_for_and_the_same_bytes_every_time() {
    let stage = Stage::new();
    for kind in ["tprocc", "stae"] {
        let line = format!("lab sample {kind} --size 3M {kind}.db --json");
        let ran = stage.line(&line).exits(0);
        let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let bytes = value["bytes"].as_u64().unwrap();
        assert!(
            (bytes as f64 / f64::from(3 << 20) - 1.0).abs() < 0.02,
            "{bytes}"
        );
        stage.line(&line).exits(6).says("exists");
        let first = std::fs::read(stage.path(format!("{kind}.db"))).unwrap();
        stage.line(&format!("{line} --replace")).exits(0);
        let second = std::fs::read(stage.path(format!("{kind}.db"))).unwrap();
        assert!(first == second);
    }
    stage
        .line("lab sample stae --size 4M --files 2 --dir x --dir y")
        .exits(0);
    assert_eq!(stage.names("x"), ["stae-1.db"]);
    assert_eq!(stage.names("y"), ["stae-2.db"]);
}
