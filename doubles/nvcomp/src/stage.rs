//! For tests: copies of the double under the names of the libraries that it plays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One copy of the double, under both names: the dynamic linker treats them as one library. Another copy is another
/// GPU.
#[derive(Debug, Clone)]
pub struct Installed {
    pub cuda: PathBuf,
    pub nvcomp: PathBuf,
}

/// Copies the double into `dir`, as `libcuda.so.1` and `libnvcomp.so.5`.
pub fn install(dir: &Path) -> io::Result<Installed> {
    let installed = Installed {
        cuda: dir.join("libcuda.so.1"),
        nvcomp: dir.join("libnvcomp.so.5"),
    };
    fs::copy(built()?, &installed.cuda)?;
    fs::hard_link(&installed.cuda, &installed.nvcomp)?;
    Ok(installed)
}

/// The library as cargo built it, next to the running test program.
fn built() -> io::Result<PathBuf> {
    const NAME: &str = "liblongshore_double_nvcomp.so";
    let program = std::env::current_exe()?;
    let near = program.ancestors().skip(1).take(2);
    let mut places = near.flat_map(|dir| [dir.join(NAME), dir.join("deps").join(NAME)]);
    places.find(|path| path.is_file()).ok_or_else(|| {
        let text = format!("{NAME} was not built beside {}", program.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}
