//! Goal: clusters come back from backups with the algorithm PAGES, whether or not the server said how its tables are laid
//! out, and asking it harms nobody.
//! Method: real servers with tables of every form, at rest; files of restores are compared byte by byte with the
//! server's, and restored servers are started and checked with PostgreSQL's tools.
//! Not covered: servers under load, which `soak.rs` and `chains.rs` have; what a payload looks like, which is the codec's.

use std::path::Path;
use std::process::Command;

use longshore_kit::{Server, Stop, installations, representatives};
use serde_json::Value;

use crate::common::{answer, expect, longshore, text};
use crate::differential::{assert_same, mapped};
use crate::stage::{Stage, check, dump, end, same, succeed};

/// Tables whose rows are of every form: NULLs, dropped and added columns, values in line, compressed and out of line,
/// every width and alignment, partitions, inheritance, a materialized view, HOT chains, dead rows, rows without columns.
const TABLES: &str = "
    create table plain (a int, b bigint, c smallint, d boolean, e \"char\", f char(7), g text, h float8, i date);
    insert into plain select g, g * 1000003::bigint, g % 32000, g % 3 = 0, 'x', g::text, md5(g::text), g / 7.0, '2020-01-01'::date + g
      from generate_series(1, 6000) g;
    create table nulls as select g as a, case when g % 3 = 0 then g end as b, case when g % 5 > 0 then md5(g::text) end as c,
      case when g % 7 = 0 then g::numeric / 3 end as d from generate_series(1, 5000) g;
    create table changed (a int, b text, c int);
    insert into changed select g, 'row ' || g, g from generate_series(1, 3000) g;
    alter table changed drop column b;
    alter table changed add column d bigint default 77, add column e text;
    insert into changed select g, g, g, repeat('e', g % 90) from generate_series(1, 3000) g;
    alter table changed drop column a;
    create table long (id int primary key, body text, packed text, raw bytea);
    alter table long alter column raw set storage external;
    insert into long select g, string_agg(md5((g * 1000 + s)::text), ''), repeat('pack ', 3000),
      decode(string_agg(md5((s * 7919 + g)::text), ''), 'hex') from generate_series(1, 60) g, generate_series(1, 200) s group by g;
    create table keyed (id uuid primary key, doc jsonb, tags text[], amount numeric(20, 4), at timestamptz, spot point, net inet);
    insert into keyed select md5(g::text)::uuid, jsonb_build_object('n', g, 'name', md5(g::text), 'list', array[g, g + 1]),
      array['a', g::text], g / 3.0, '2024-05-05'::timestamptz + g * interval '1 second', point(g, -g), '10.0.0.1'::inet + g
      from generate_series(1, 4000) g;
    create index on keyed using gin (doc);
    create index on keyed using brin (at);
    create index on keyed using gist (spot);
    create index on keyed using hash (amount);
    create table measured (at int, v float4) partition by range (at);
    create table measured_1 partition of measured for values from (0) to (5000);
    create table measured_2 partition of measured for values from (5000) to (10001);
    insert into measured select g, g / 3.0 from generate_series(1, 10000) g;
    create table child (more text) inherits (plain);
    insert into child (a, more) select g, 'more' from generate_series(1, 500) g;
    create table hot (id int primary key, n int, pad text) with (fillfactor = 70);
    insert into hot select g, 0, repeat('p', 50) from generate_series(1, 2000) g;
    update hot set n = n + 1; update hot set n = n + 1 where id % 2 = 0; delete from hot where id % 11 = 0;
    create table nothing (); insert into nothing default values; insert into nothing default values;
    create unlogged table unlogged_one as select g from generate_series(1, 1000) g;
    create materialized view seen as select a, count(*) from nulls group by a;
    create table wide (c0 int);
    do $$ begin for i in 1..300 loop execute format('alter table wide add column c%s %s', i,
      (array['int', 'text', 'bigint', 'boolean', 'name'])[1 + i % 5]); end loop; end $$;
    insert into wide (c0, c7, c299) select g, g, 'w' from generate_series(1, 500) g;
    create sequence counting; select nextval('counting') from generate_series(1, 40);
    comment on table plain is 'a comment';
    vacuum full nulls; analyze";

/// The tables, some in another tablespace and some in other databases, to one of which nobody may connect.
fn fill(stage: &Stage) {
    let server = &stage.server;
    let space = stage.path("space");
    std::fs::create_dir(&space).unwrap();
    server.user().own(&space);
    for statement in TABLES.split_inclusive(";\n") {
        server.psql(statement);
    }
    server.psql(&format!(
        "create tablespace far location '{}'",
        space.display()
    ));
    server.psql("create table out_there tablespace far as select g, md5(g::text) from generate_series(1, 3000) g");
    server.psql("create database second");
    server.psql_in(
        "second",
        "create table mine as select g, g::text t from generate_series(1, 3000) g",
    );
    server.psql("create database closed");
    server.psql_in(
        "closed",
        "create table hidden as select g, md5(g::text) m from generate_series(1, 3000) g",
    );
    settle(server);
    server.psql("alter database closed allow_connections false");
}

/// Sets all hint bits, so that later reads change no page.
fn settle(server: &Server) {
    let names = "select datname from pg_database where datallowconn and datname <> 'template1'";
    for database in server.psql(names).lines() {
        server.psql_in(database, "vacuum");
    }
}

impl Stage {
    /// `longshore backup` with PAGES to `devices`, not yet run.
    fn in_columns(&self, devices: &[&str]) -> Command {
        let mut command = longshore(["backup", "--json", "--algorithm", "PAGES"]);
        command.arg(self.server.url());
        for device in devices {
            command.arg("--to").arg(self.path(device));
        }
        command
    }
}

fn layouts(report: &Value, what: &str) -> u64 {
    let known = &report["run"]["plan"]["layouts"];
    known[what]
        .as_u64()
        .unwrap_or_else(|| panic!("{what}: {report}"))
}

#[test]
fn tables_of_every_form_come_back_from_columns() {
    for installation in installations() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        fill(&stage);
        let report = answer(&succeed(&mut stage.in_columns(&["columns"])));
        // template0 and the closed database.
        assert_eq!(layouts(&report, "databases_not_asked"), 2);
        assert_eq!(layouts(&report, "databases_asked"), 3);
        assert!(layouts(&report, "relations") > 200, "{report}");
        assert_eq!(report["run"]["engines"][0]["name"], "pages");
        expect(0, ["verify".as_ref(), stage.path("columns").as_os_str()]);
        let target = mapped(&stage, &["columns"]);
        assert_same(&stage, &target);
        let restored = stage.serve(&target);
        restored.psql("alter database closed allow_connections true");
        server.psql("alter database closed allow_connections true");
        let (space, moved) = (stage.path("space"), target.with_extension("space"));
        let found = dump(&restored).replace(moved.to_str().unwrap(), space.to_str().unwrap());
        same(&found, &dump(server));
        check(&restored, &target);
    }
}

/// Goal: what docs/format.md says suffices to read columns of a cluster.
#[test]
fn the_independent_reader_restores_a_cluster_from_columns() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let server = &stage.server;
    // One database is enough, and faster to read than three.
    for statement in [
        "update pg_database set datistemplate = false",
        "drop database template0",
        "drop database template1",
        "create table nulls as select g as a, case when g % 3 = 0 then g end as b, md5(g::text) as c, 'low'::name as d
           from generate_series(1, 2000) g",
        "create index on nulls (b); create index on nulls (c)",
        "alter table nulls add column e text; update nulls set e = repeat('e', a % 200) where a % 7 = 0",
    ] {
        server.psql(statement);
    }
    settle(server);
    succeed(&mut stage.in_columns(&["columns"]));
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let target = stage.path("read");
    let mut command = Command::new("python3");
    command.arg("-B").arg(reader).args(["restore", "--to"]);
    succeed(command.arg(&target).arg(stage.path("columns")));
    stage.assert_same_files(&target);
}

/// What goes on after the compression is the same for every algorithm: parity, encryption, copies, parts of a set, chains.
#[test]
fn columns_go_through_parity_encryption_differences_and_single_files() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        fill(&stage);
        let key = stage.path("key");
        expect(0, ["key".as_ref(), "new".as_ref(), key.as_os_str()]);
        let recipients = std::fs::read_to_string(&key).unwrap();
        let recipient = recipients
            .lines()
            .find_map(|line| line.strip_prefix("# public key: "))
            .unwrap_or_else(|| panic!("{recipients}"));
        let encrypted = |devices: &[&str]| {
            let mut backup = stage.in_columns(devices);
            backup.args(["--encrypt-to", recipient]);
            backup
        };
        succeed(encrypted(&["one", "two", "parity"]).args(["--parity", "1"]));
        server.psql("update plain set g = 'new' where a % 100 = 0; insert into nulls select g from generate_series(1, 900) g");
        server.psql("alter table changed add column later int default 5");
        settle(server);
        let mut differing = encrypted(&["more"]);
        differing.args(["--differential", "--identity"]).arg(&key);
        for base in ["one", "two", "parity"] {
            differing.arg("--base").arg(stage.path(base));
        }
        succeed(&mut differing);
        std::fs::remove_file(stage.path("two")).unwrap();
        let restore = |target: &str, more: &[&str]| {
            let mut restore = longshore(["restore", "--identity"]);
            restore.arg(&key).arg("--to").arg(stage.path(target));
            restore.args(more).arg(stage.path("more"));
            for base in ["one", "parity"] {
                restore.arg("--base").arg(stage.path(base));
            }
            // One stripe is lost.
            end(&mut restore, 5);
        };
        let (target, space) = (stage.path("back"), stage.path("back.space"));
        let map = format!("{}={}", stage.path("space").display(), space.display());
        restore("back", &["--tablespace-map", &map]);
        server.user().own(&space);
        assert_same(&stage, &target);
        let file = server.psql("select pg_relation_filepath('keyed')");
        restore("single", &["--only", &file]);
        assert_eq!(
            std::fs::read(stage.path("single").join(&file)).unwrap(),
            std::fs::read(server.data_dir().join(&file)).unwrap()
        );
        check(&stage.serve(&target), &target);
    }
}

/// A role that may connect to its own database alone, and one whose databases do not answer, make the same backup.
#[test]
fn a_backup_without_any_layout_is_as_good() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        fill(&stage);
        let functions = match installation.major {
            14 => "pg_start_backup(text, boolean, boolean), pg_stop_backup(boolean, boolean)",
            _ => "pg_backup_start(text, boolean), pg_backup_stop(boolean)",
        };
        server.psql(&format!(
            "create role keeper login replication; grant pg_read_all_settings to keeper;
             grant execute on function {functions} to keeper;
             revoke connect on database second, template1 from public"
        ));
        settle(server);
        let url = server.url().replace("//postgres@", "//keeper@");
        let as_keeper = |device: &str| {
            let mut backup = longshore(["backup", "--json", "--algorithm", "PAGES"]);
            backup.args([url.as_str(), "--to", device]);
            answer(&succeed(&mut backup))
        };
        // A backup's own queries set hint bits: later backups find them set.
        as_keeper("nul:");
        let report = as_keeper(stage.path("few").to_str().unwrap());
        assert_eq!(layouts(&report, "databases_asked"), 1);
        assert_eq!(layouts(&report, "databases_not_asked"), 4);
        assert_same(&stage, &mapped(&stage, &["few"]));
        let report = answer(&succeed(stage.in_columns(&["sent"]).arg("--remote")));
        assert!(report["run"]["plan"]["layouts"].is_null());
        assert_same(&stage, &mapped(&stage, &["sent"]));
    }
}

/// Goal: no function of a user runs with the rights of the backup's role, and no setting of a database changes what is
/// asked.
/// Method: a schema that stands first in the search path has operators, functions, casts and tables of the names that a
/// careless query would use; each of them leaves a trace.
#[test]
fn no_code_of_a_database_runs_while_it_is_asked() {
    for installation in installations() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        server.psql(
            "create database evil; create table here as select g from generate_series(1, 1000) g",
        );
        server.psql_in(
            "evil",
            "create table traces (who text);
             create schema trap;
             create function trap.note(text) returns void language plpgsql as $$ begin
               insert into public.traces values (current_user || ': ' || $1); end $$;
             create function trap.same(anyelement, anyelement) returns boolean language plpgsql as $$ begin
               perform trap.note('='); return true; end $$;
             create operator trap.= (leftarg = anyelement, rightarg = anyelement, function = trap.same);
             create function trap.same_oid(oid, oid) returns boolean language plpgsql as $$ begin
               perform trap.note('= of oid'); return true; end $$;
             create operator trap.= (leftarg = oid, rightarg = oid, function = trap.same_oid);
             create function trap.same_char(\"char\", \"char\") returns boolean language plpgsql as $$ begin
               perform trap.note('= of char'); return true; end $$;
             create operator trap.= (leftarg = \"char\", rightarg = \"char\", function = trap.same_char);
             create function trap.more(int2, int4) returns boolean language plpgsql as $$ begin
               perform trap.note('>'); return true; end $$;
             create operator trap.> (leftarg = int2, rightarg = int4, function = trap.more);
             create function trap.joined(text, text) returns text language plpgsql as $$ begin
               perform trap.note('||'); return '4i'; end $$;
             create operator trap.|| (leftarg = text, rightarg = text, function = trap.joined);
             create function trap.pg_relation_filenode(oid) returns oid language plpgsql as $$ begin
               perform trap.note('filenode'); return 1; end $$;
             create function trap.pg_relation_filenode(regclass) returns oid language plpgsql as $$ begin
               perform trap.note('filenode'); return 1; end $$;
             create table trap.pg_class (oid oid); create table trap.pg_attribute (attrelid oid);
             create domain trap.text as pg_catalog.text check (trap.note('text') is null);
             alter database evil set search_path = trap, public, pg_catalog;
             alter database evil set statement_timeout = '3s';
             alter database evil set default_transaction_read_only = off;
             alter database evil set quote_all_identifiers = on",
        );
        let report = answer(&succeed(&mut stage.in_columns(&["media"])));
        let asked = layouts(&report, "databases_asked") + layouts(&report, "databases_not_asked");
        assert_eq!(asked, 4, "{report}");
        assert_eq!(layouts(&report, "databases_not_asked"), 1, "{report}");
        let traces =
            "set search_path = pg_catalog; select string_agg(who, ', ') from public.traces";
        assert_eq!(
            server.psql_in("evil", traces),
            "",
            "PostgreSQL {}",
            installation.major
        );
    }
}

/// A database that the server refuses to this role gives no layouts, and that is all.
#[test]
fn a_database_that_refuses_is_counted_and_no_error() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let server = &stage.server;
    server.psql(
        "create database refused; create table here as select g from generate_series(1, 1000) g",
    );
    server.psql_in(
        "refused",
        "create table t as select g from generate_series(1, 1000) g",
    );
    settle(server);
    server.stop(Stop::Fast);
    let hba = "local refused all reject\nlocal all all trust\nlocal replication all trust\n";
    std::fs::write(server.data_dir().join("pg_hba.conf"), hba).unwrap();
    server.start();
    let report = answer(&succeed(&mut stage.in_columns(&["media"])));
    assert_eq!(layouts(&report, "databases_asked"), 2);
    // template0 is the other one.
    assert_eq!(layouts(&report, "databases_not_asked"), 2);
    let mut seen = longshore([
        "--verbose",
        "backup",
        "--algorithm",
        "PAGES",
        "--to",
        "nul:",
    ]);
    let said = text(&succeed(seen.arg(server.url())).stderr);
    assert!(said.contains("Databases=2, NotAsked=2"), "{said}");
    stage.assert_same_files(&stage.tree(&["media"]));
}
