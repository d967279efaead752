//! T-SQL: no text makes the parser panic, and what it takes is printed without loss.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_tsql::syntax::parse;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(batch) = parse(text) else {
        return;
    };
    let printed = batch.to_string();
    match parse(&printed) {
        Ok(again) => assert_eq!(batch, again),
        Err(error) => panic!("{}: {printed}", error.text),
    }
});
