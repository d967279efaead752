//! Stock tools accept the stripes, and unpack a plain backup without our code.

use crate::stage::Stage;

#[test]
fn gzip_zstd_and_lz4_accept_stripes_of_several_sets_and_find_the_content() {
    let stage = Stage::new();
    let source = stage.database("app.db", 4);
    for (algorithm, tools) in [
        ("QAT_DEFLATE", &["gzip", "pigz"][..]),
        ("ZSTD", &["zstd"]),
        ("LZ4", &["lz4"]),
        ("NONE", &["lz4"]),
    ] {
        stage
            .line(&format!(
                "backup app.db --to one.bak -a {algorithm} --format"
            ))
            .exits(0);
        stage
            .line(&format!(
                "backup app.db --to a.bak --to b.bak -a {algorithm} --format"
            ))
            .exits(0);
        stage
            .line(&format!(
                "backup app.db --to a.bak --to b.bak -a {algorithm} --append"
            ))
            .exits(0);
        for tool in tools {
            for stripe in ["one.bak", "a.bak", "b.bak"] {
                stage.shell(&format!("{tool} -t < {stripe}")).exits(0);
            }
            stage
                .shell(&format!(
                    "{tool} -dc < one.bak | cmp - {}",
                    source.display()
                ))
                .exits(0);
        }
    }
}
