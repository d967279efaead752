//! What `--version` prints: the release, the commit that was built, and the engines that compress.

use longshore_codec::engines;

/// The text for a program, two lines.
pub fn text(program: &str) -> String {
    let engines: Vec<String> = engines()
        .into_iter()
        .map(|engine| match &engine.absent {
            Some(_) => format!("{} not found", engine.name),
            None => format!("{} {}", engine.name, engine.version),
        })
        .collect();
    format!("{program} {}\nengines: {}\n", release(), engines.join(", "))
}

/// The release and the commit that was built.
pub fn release() -> String {
    format!(
        "{} ({})",
        env!("CARGO_PKG_VERSION"),
        env!("LONGSHORE_STAMP")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_begins_with_program_and_release_and_the_second_has_every_engine() {
        let text = text("longshore");
        let (first, second) = text.split_once('\n').unwrap();
        let begin = format!("longshore {} (", env!("CARGO_PKG_VERSION"));
        assert!(first.starts_with(&begin) && first.ends_with(')'), "{first}");
        for engine in engines() {
            assert!(second.contains(engine.name), "{} in {second}", engine.name);
        }
    }
}
