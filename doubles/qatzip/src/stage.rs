//! For tests: a copy of the library with a script next to it, and a sysfs with a device in it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Copies the double into `dir` as `libqatzip.so.3`, with its script. Each copy is a separate library: a process that
/// loads two of them has two devices.
pub fn install(dir: &Path, script: &str) -> io::Result<PathBuf> {
    script
        .parse::<crate::script::Script>()
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
    let path = dir.join("libqatzip.so.3");
    fs::copy(built()?, &path)?;
    fs::write(dir.join("libqatzip.so.3.script"), script)?;
    Ok(path)
}

/// [`install`], without the entry point of this name.
pub fn install_without(dir: &Path, symbol: &str) -> io::Result<PathBuf> {
    let path = install(dir, "")?;
    let mut bytes = fs::read(&path)?;
    let name = format!("\0{symbol}\0").into_bytes();
    let mut found = false;
    for at in 0..bytes.len().saturating_sub(name.len()) {
        if bytes[at..].starts_with(&name) {
            // The hash table still leads here, but to a name that nobody looks up.
            bytes[at + 1] = b'_';
            found = true;
        }
    }
    fs::write(&path, bytes)?;
    match found {
        true => Ok(path),
        false => Err(io::Error::new(io::ErrorKind::NotFound, symbol)),
    }
}

/// The library as cargo built it, next to the running test program.
fn built() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let near = program.ancestors().skip(1).take(2);
    let places = near.flat_map(|dir| [dir.join("libqatzip.so"), dir.join("deps/libqatzip.so")]);
    let mut places = places.filter(|path| path.is_file());
    places.next().ok_or_else(|| {
        let text = format!("libqatzip.so was not built beside {}", program.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// Makes `sys` look like `/sys` of a machine with a 4xxx endpoint that compresses, and one virtual function.
pub fn machine(sys: &Path) -> io::Result<()> {
    endpoint(sys, "0000:6b:00.0", 0x4940, "up", "dc")?;
    put(sys, "0000:6b:00.1", 0x4941, &[])
}

/// One physical function with its state (`up`, `down`) and services (`dc`, `sym;asym`, …).
pub fn endpoint(
    sys: &Path,
    address: &str,
    device: u16,
    state: &str,
    services: &str,
) -> io::Result<()> {
    let files = [("qat/state", state), ("qat/cfg_services", services)];
    put(sys, address, device, &files)?;
    let drivers = sys.join("bus/pci/drivers/4xxx");
    fs::create_dir_all(&drivers)?;
    symlink(
        drivers,
        sys.join("bus/pci/devices").join(address).join("driver"),
    )
}

/// Any function of Intel's, with these attributes.
pub fn put(sys: &Path, address: &str, device: u16, files: &[(&str, &str)]) -> io::Result<()> {
    let dir = sys.join("bus/pci/devices").join(address);
    let id = format!("{device:#06x}");
    for (name, text) in [
        ("vendor", "0x8086"),
        ("device", id.as_str()),
        ("numa_node", "0"),
    ]
    .iter()
    .chain(files)
    {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&dir))?;
        fs::write(path, format!("{text}\n"))?;
    }
    Ok(())
}
