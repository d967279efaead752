//! Goal: the commands of docs/tutorial.md lead from an empty machine to a table that came back and a drill that passed, and
//! README's first ones to a copy that starts.
//! Method: the page's blocks run in their order, as in `emergency.rs`; the table is looked at where the page says that it is
//! there or gone.
//! Not covered: the installation before the page (`packages`), and timers.

use std::path::Path;

use longshore_kit::installations;

use crate::common::{BINARY, text};
use crate::pages::{repository, run_page};
use crate::stage::{Stage, succeed};

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

/// Goal: the first commands that a reader of README.md tries make a copy that starts next to the original.
#[test]
fn the_first_commands_of_the_readme_make_a_copy_that_starts() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let mut blocks = page.split("```sh\n").skip(1);
    let block = blocks.find(|block| block.contains("longshore backup postgres:///"));
    let block = block.unwrap().split("```").next().unwrap();
    let work = stage.path("readme");
    std::fs::create_dir(&work).unwrap();
    std::os::unix::fs::symlink(BINARY, work.join("longshore")).unwrap();
    stage.server.user().own(&work);
    // The fifth line of this file is the directory of the copy's socket.
    let judge =
        "psql -h $(sed -n 5p restored/postmaster.pid) -p 5433 -XAtqc 'select count(*) from small'
        pg_ctl -D restored stop -m fast";
    let tools = installation.program("pg_ctl").unwrap();
    let path = format!(
        "{}:{}:{}",
        work.display(),
        tools.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut shell = stage.server.command_at(Path::new("/bin/sh"));
    shell.args(["-ec", &format!("{block}{judge}")]);
    shell.env("PATH", path).env("LONGSHORE_CATALOG", "none");
    let said = text(&succeed(shell.current_dir(&work)).stdout);
    let rows = stage.server.psql("select count(*) from small");
    assert!(said.lines().any(|line| line == rows), "{said}");
}
