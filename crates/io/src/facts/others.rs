//! Other processes: whether the one that left something behind still runs.

use std::fs;

/// When a process started, in clock ticks since the machine did; none when there is no such process. Together with its number
/// it identifies a process for as long as the machine runs.
pub fn process_started(pid: u32) -> Option<u64> {
    started(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of proc(5); the second field is a name in brackets that may hold anything.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let fields: Vec<String> = (4..=30).map(|n| n.to_string()).collect();
        let stat = format!("17 (a) b) S {}", fields.join(" "));
        assert_eq!(started(&stat), Some(22));
        assert_eq!(started("17 (a"), None);
    }

    #[test]
    fn this_process_has_a_start_and_an_impossible_one_none() {
        assert_eq!(
            process_started(std::process::id()),
            process_started(std::process::id())
        );
        assert!(process_started(std::process::id()).is_some());
        assert_eq!(process_started(u32::MAX), None);
    }
}
