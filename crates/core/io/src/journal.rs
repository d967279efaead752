//! systemd's journal by its native protocol: one datagram is one entry, with fields of any name.
//!
//! Invariants
//! - An entry that the journal does not take is an error for the caller, who still has the text. No entry waits longer
//!   than [`PATIENCE`].
//!
//! Leaves to others: what an entry says, and whether a stream is the journal (`terminal`).

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the journal listens: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The longest time that an entry waits for a journal with a full queue.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often, and at which interval, [`JournalSocket::settle`] looks whether the journal has taken everything.
const LOOKS: u32 = 100;
const NAP: Duration = Duration::from_millis(1);

/// The way to the journal of this system.
pub struct JournalSocket {
    socket: UnixDatagram,
    journal: PathBuf,
}

impl JournalSocket {
    pub fn open() -> io::Result<JournalSocket> {
        JournalSocket::of(Path::new(SOCKET))
    }

    fn of(journal: &Path) -> io::Result<JournalSocket> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(JournalSocket {
            socket,
            journal: journal.to_owned(),
        })
    }

    /// Sends one entry: fields by name and value. A name has capitals, digits and underscores only. Errors: no journal
    /// listens, it takes no more, or the entry is too large for a datagram.
    pub fn send(&self, fields: &[(&str, &str)]) -> io::Result<()> {
        let entry = encoded(fields);
        self.socket.send_to(&entry, &self.journal).map(|_| ())
    }

    /// Waits for a tenth of a second at most until the journal has taken all entries. It finds the unit of an entry by
    /// its process, and finds none if that has ended.
    pub fn settle(&self) {
        for _ in 0..LOOKS {
            if self.waiting() == 0 {
                return;
            }
            std::thread::sleep(NAP);
        }
    }

    /// The bytes that were sent and not taken yet, as the kernel counts them.
    fn waiting(&self) -> libc::c_int {
        let mut waiting: libc::c_int = 0;
        // SAFETY: TIOCOUTQ demands a socket, which `self` holds open, and room for one `c_int`, which is a local
        // variable. If the call fails, that stays 0.
        unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
        waiting
    }
}

/// A value with line breaks stands after its length; any other is the rest of the line.
fn encoded(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut entry = Vec::new();
    for (name, value) in fields {
        entry.extend_from_slice(name.as_bytes());
        match value.contains('\n') {
            true => {
                entry.push(b'\n');
                entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
            }
            false => entry.push(b'='),
        }
        entry.extend_from_slice(value.as_bytes());
        entry.push(b'\n');
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_line_break_stands_after_its_length() {
        let entry = encoded(&[("PRIORITY", "3"), ("MESSAGE", "a\nb"), ("LONGSHORE_X", "")]);
        let expected = b"PRIORITY=3\nMESSAGE\n\x03\0\0\0\0\0\0\0a\nb\nLONGSHORE_X=\n";
        assert_eq!(entry, expected);
    }

    #[test]
    fn an_entry_is_one_datagram_and_is_waited_for_until_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = JournalSocket::of(&path).unwrap();
        assert!(socket.send(&[("MESSAGE", "nobody listens")]).is_err());
        let journal = UnixDatagram::bind(&path).unwrap();
        socket.send(&[("MESSAGE", "one")]).unwrap();
        assert!(socket.waiting() > 0);
        let mut entry = [0; 64];
        let len = journal.recv(&mut entry).unwrap();
        assert_eq!(&entry[..len], b"MESSAGE=one\n");
        assert_eq!(socket.waiting(), 0);
        socket.settle();
    }

    #[test]
    fn an_entry_that_is_too_large_or_finds_a_full_queue_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _journal = UnixDatagram::bind(&path).unwrap();
        let socket = JournalSocket::of(&path).unwrap();
        assert!(socket.send(&[("MESSAGE", &"x".repeat(64 << 20))]).is_err());
        const MOST: usize = 1 << 20;
        let taken = (0..MOST).take_while(|_| socket.send(&[("MESSAGE", "x")]).is_ok());
        assert!((1..MOST).contains(&taken.count()));
    }
}
