//! Goal: a server that cannot start costs no cached data.
//! Method: nbdkit's callbacks on real files, with a control socket that cannot be made; then its superblock is read.

use longshore_blockcache::format::Superblock;
use longshore_io::Host;
use longshore_serving::{Connection, Here};
use nbdkit::Server;

type Plugin = Connection<Here>;

#[test]
fn a_server_that_cannot_listen_leaves_its_cache_cleanly_stopped() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("disk"), [7; 1 << 20]).unwrap();
    std::fs::write(path("control"), b"a file of somebody").unwrap();
    longshore_blockcache::create(&Host::new(), &path("cache"), Some(20 << 20), 65536, false)
        .unwrap();
    for (key, name) in [
        ("backend", "disk"),
        ("cache", "cache"),
        ("control", "control"),
    ] {
        <Plugin as Server>::config(key, path(name).to_str().unwrap()).unwrap();
    }
    <Plugin as Server>::config("buffered", "true").unwrap();
    let refused = <Plugin as Server>::after_fork().unwrap_err();
    assert!(refused.to_string().contains("cannot listen"), "{refused}");
    let left = Superblock::decode(&std::fs::read(path("cache")).unwrap()).unwrap();
    assert!(left.session > 0 && left.clean, "{left:?}");
}
