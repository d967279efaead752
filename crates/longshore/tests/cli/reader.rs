//! Goal: the independent reader, written from docs/format.md alone, restores what the program wrote, and tells whose it is.
//! Method: sets of every algorithm, encrypted, signed and not, are compared with what was backed up.

use std::path::Path;

use crate::stage::{BINARY, Stage};

#[test]
fn the_independent_reader_restores_every_algorithm_without_our_code() {
    let stage = Stage::new();
    stage.database("tree/app.db", 3);
    stage.write("tree/with space/empty", b"");
    stage.write("tree/zeros", &vec![0; 2 << 20]);
    std::os::unix::fs::symlink("nowhere", stage.path("tree/link")).unwrap();
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let reader = reader.display();
    assert!(Path::new(BINARY).exists());
    for algorithm in ["NONE", "MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4", "PAGES"] {
        let to = format!("--to {algorithm}-1 --to {algorithm}-2 --to {algorithm}-3");
        stage.write("tree/version", b"one");
        stage
            .line(&format!("backup tree {to} -a {algorithm}"))
            .exits(0);
        stage.shell("rm -rf first && cp -a tree first").exits(0);
        stage.write("tree/version", b"two");
        stage
            .line(&format!("backup tree {to} -a {algorithm} --append"))
            .exits(0);
        let stripes = format!("{algorithm}-3 {algorithm}-1 {algorithm}-2");
        stage
            .shell(&format!("python3 {reader} verify {stripes}"))
            .exits(0);
        stage
            .shell(&format!(
                "rm -rf out && python3 {reader} restore --position 1 --to out {stripes}
                 diff -r --no-dereference first out"
            ))
            .exits(0);
    }
}

/// Goal: what the page says of encrypted sets suffices to read them. It needs Python's package `cryptography`.
#[test]
fn the_independent_reader_opens_encrypted_sets_without_our_code() {
    let stage = Stage::new();
    stage.database("tree/app.db", 3);
    stage.write("tree/with space/empty", b"");
    stage.write("tree/zeros", &vec![0; 2 << 20]);
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let reader = reader.display();
    let has_it = stage.shell("python3 -c 'import cryptography'").code == 0;
    if !has_it && std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none() {
        eprintln!("python3 has no package cryptography");
        return;
    }
    // The vectors that Longshore's own tests read are what a program makes that was written from the page alone.
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let vectors = vectors.display();
    let line = format!("python3 {vectors}/reader/vectors.py {vectors}/golden/encryption.json");
    stage.shell(&line).exits(0);
    let line =
        format!("python3 {vectors}/reader/vectors.py --object {vectors}/golden/key-object.json");
    stage.shell(&line).exits(0);
    for (kind, options) in [("classic", "--classic"), ("hybrid", "")] {
        stage.line(&format!("key new {kind} {options}")).exits(0);
        for algorithm in ["NONE", "QAT_DEFLATE", "ZSTD"] {
            let stripes = ["1", "2", "3"].map(|n| format!("{kind}-{algorithm}-{n}"));
            let to = stripes.each_ref().map(|name| format!("--to {name}"));
            stage
                .shell(&format!(
                    "longshore backup tree {} -a {algorithm} \
                     --encrypt-to \"$(longshore key recipient {kind})\"",
                    to.join(" ")
                ))
                .exits(0);
            let stripes = stripes.join(" ");
            stage
                .shell(&format!("python3 {reader} verify {stripes}"))
                .exits(0)
                .says("not opened");
            stage
                .shell(&format!(
                    "python3 {reader} verify --identity {kind} {stripes}
                     rm -rf out && python3 {reader} restore --identity {kind} --to out {stripes}
                     diff -r --no-dereference tree out"
                ))
                .exits(0);
        }
    }
    // Whose it is needs no identity.
    let key = |name: &str| {
        let made = stage.line(&format!("key new --signing {name}"));
        made.exits(0).out.trim().to_owned()
    };
    let (own, other) = (key("own"), key("other"));
    stage
        .shell(
            "longshore backup tree --to s1 --to s2 --sign own \
             --encrypt-to \"$(longshore key recipient classic)\"",
        )
        .exits(0);
    let verify = |rest: &str| stage.shell(&format!("python3 {reader} verify {rest} s1 s2"));
    verify(&format!("--signer {own}"))
        .exits(0)
        .says("signed by");
    verify(&format!(
        "--identity classic --signer {other} --signer {own}"
    ))
    .exits(0);
    verify(&format!("--signer {other}"))
        .exits(1)
        .says("who was not named");
    let unsigned = format!(
        "python3 {reader} verify --signer {own} classic-ZSTD-1 classic-ZSTD-2 classic-ZSTD-3"
    );
    stage.shell(&unsigned).exits(1).says("it is not signed");
}
