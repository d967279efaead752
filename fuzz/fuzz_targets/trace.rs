//! Block traces: no bytes panic, and what is read keeps what its types promise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_simulator::trace::{TraceFormat, read};

fuzz_target!(|input: (u8, &[u8])| {
    let (form, bytes) = input;
    let form = TraceFormat::ALL.get(usize::from(form)).copied();
    let Ok(trace) = read(bytes, form) else {
        return;
    };
    assert!(trace.records.is_sorted_by_key(|record| record.at));
    for record in &trace.records {
        assert!(record.len > 0 && record.offset.checked_add(record.len).is_some());
    }
});
