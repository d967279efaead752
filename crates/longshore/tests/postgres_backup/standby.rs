//! Backups of standbys.

use longshore_test_servers::{Installation, Server, installations, representatives};

use crate::common::{Guarded, text, wait};
use crate::stage::{Stage, check, succeed};

/// A standby that streams from `primary`; its directory lies in the primary's stage.
fn standby(primary: &Stage, installation: &Installation) -> Stage {
    let data = primary.path("standby");
    succeed(
        primary
            .server
            .command("pg_basebackup")
            .args(["--checkpoint=fast", "--write-recovery-conf", "-D"])
            .arg(&data),
    );
    let server = Server::adopt(installation, &data);
    server.start();
    Stage::of(server)
}

fn caught_up(primary: &Stage, standby: &Stage) {
    let end = primary.server.psql("select pg_current_wal_lsn()");
    standby
        .server
        .wait_for(&format!("select pg_last_wal_replay_lsn() >= '{end}'"), "t");
}

#[test]
fn a_standby_can_be_backed_up_instead_of_its_primary() {
    for installation in installations() {
        let primary = Stage::new(&installation, &[]);
        primary
            .server
            .psql("create table t as select g, md5(g::text) from generate_series(1, 20000) g");
        let standby = standby(&primary, &installation);
        primary
            .server
            .psql("insert into t select 0, 'x' from generate_series(1, 5000); checkpoint");
        caught_up(&primary, &standby);
        succeed(&mut standby.backup("standby.bak"));
        let (target, restored) = standby.restored("standby.bak");
        assert_eq!(restored.psql("select count(*) from t"), "25000");
        check(&restored, &target);
    }
}

#[test]
fn a_promotion_meanwhile_makes_the_backup_fail() {
    for installation in representatives() {
        let primary = Stage::new(&installation, &[]);
        let standby = standby(&primary, &installation);
        caught_up(&primary, &standby);
        let mut command = standby.backup("promoted.bak");
        command.args(["--max-rate", "4MB"]);
        command.stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::piped());
        let mut child = Guarded(command.spawn().unwrap());
        standby.server.wait_for(
            "select count(*) from pg_stat_activity where application_name = 'longshore' \
             and state = 'idle' and query like '%backup%(%'",
            "1",
        );
        standby.server.psql("select pg_promote()");
        let status = wait(&mut child.0, longshore_test_servers::PATIENCE, "the backup");
        let mut stderr = Vec::new();
        std::io::Read::read_to_end(child.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        assert_eq!(status.code(), Some(3), "{}", text(&stderr));
        assert!(!standby.path("promoted.bak").exists());
    }
}
