//! Goal: a script gets over the protocol what it gets from `longshore sql`.
//! Method: the batches of a script whose answers are all printed, with bare messages; each line of the kept answer is looked
//! for in what the server sends.

use crate::answers::scripts;
use crate::raw::{Raw, says};
use crate::stage::Stage;

#[test]
fn everyday_reports_and_procedures_answer_over_the_protocol_as_well() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut client = Raw::login(server.port);
    let script = std::fs::read_to_string(scripts().join("everyday.sql")).unwrap();
    let kept = std::fs::read_to_string(scripts().join("everyday.out")).unwrap();
    let mut said = Vec::new();
    for batch in script.split("\nGO\n") {
        said.push(client.batch(batch));
    }
    let known = |line: &&str| {
        // Heads of errors, and lines with times in them, are the program's own.
        !line.starts_with("Msg ") && !line.contains('#') && !line.trim().is_empty()
    };
    for line in kept.lines().filter(known) {
        let found = said.iter().any(|answer| says(answer, line));
        assert!(found, "nothing says {line:?}");
    }
}
