//! Goal: the commands of docs/tutorial.md lead from an empty machine to a table that came back and a drill that passed.
//! Method: the page's blocks run in their order, as in `emergency.rs`; the table is looked at where the page says that it is
//! there or gone.
//! Not covered: the installation before the page (`packages`), and timers.

use crate::pages::run_page;

/// Every step of the page, and what it has done.
const COURSE: &str = r#"
[ ! -e /srv/try ]
run a-cluster-and-two-disks 1
run what-is-backed-up-and-where 1
run the-wal-archive 1
run a-backup 1 > /srv/said
cat /srv/said
grep -q 'yes' /srv/said
sql() { runuser -u postgres -- psql -p 5439 -XAtq -d postgres -v ON_ERROR_STOP=1 -c "$1"; }
[ "$(sql 'select sum(amount) from account')" = 10000000 ]
run an-accident 1
[ "$(sql "select count(*) from pg_class where relname = 'account'")" = 0 ]
run back-to-the-moment-before 1
run back-to-the-moment-before 2
run back-to-the-moment-before 3 > /srv/said
cat /srv/said
[ "$(grep -c '^100000|10000010$' /srv/said)" = 2 ]
run a-drill 1
run from-here 1
[ ! -e /srv/try ]
[ -z "$(pg_lsclusters -h | grep -w try)" ]
"#;

#[test]
fn the_tutorial_leads_from_nothing_to_a_drilled_backup_as_it_stands() {
    run_page("tutorial", "a-cluster-and-two-disks.2", COURSE, |block| {
        block
    });
}
