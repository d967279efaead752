//! Goal: a test sees and holds the requests between the program and a store.
//! Method: a proxy that passes bytes on. Not covered: this file has no tests.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use crate::{PATIENCE, Server};

/// Stands before a server and looks at the requests on their way.
pub struct Between {
    pub endpoint: String,
    pub control: Arc<Control>,
}

#[derive(Default)]
pub struct Control {
    state: Mutex<Passing>,
    changed: Condvar,
}

#[derive(Default)]
pub struct Passing {
    /// Completions wait until so many of them are there.
    pub meet: usize,
    pub completions: usize,
    /// The second completion of a first stripe waits while this is set.
    pub holds_second: bool,
    pub firsts: usize,
    /// From this completion on, nothing passes.
    pub silent_from: Option<usize>,
    /// So many connections end when they have carried a megabyte.
    pub cuts: usize,
}

impl Control {
    pub fn change(&self, change: impl FnOnce(&mut Passing)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    pub fn is_silent(passing: &Passing) -> bool {
        passing
            .silent_from
            .is_some_and(|from| passing.completions >= from)
    }

    pub fn wait_until(&self, met: impl Fn(&Passing) -> bool) {
        let state = self.state.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(state, PATIENCE, |p| !met(p));
        assert!(!waited.unwrap().1.timed_out());
    }

    /// Returns when the bytes may pass.
    fn pass(&self, bytes: &[u8]) {
        let line = bytes.split(|b| *b == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let is_completion = (line.starts_with("POST ") && line.contains("uploadId="))
            || (line.starts_with("PUT ") && line.contains("comp=blocklist"));
        if is_completion {
            let is_first = line.contains("-1.bak");
            self.change(|p| {
                p.completions += 1;
                p.firsts += usize::from(is_first);
            });
            let number = self.state.lock().unwrap().firsts;
            self.wait_until(|p| p.completions >= p.meet);
            if is_first && number == 2 {
                self.wait_until(|p| !p.holds_second);
            }
        }
        let state = self.state.lock().unwrap();
        let _ended = self.changed.wait_while(state, |p| Control::is_silent(p));
    }

    fn cuts(&self, carried: usize) -> bool {
        let mut state = self.state.lock().unwrap();
        let cuts = carried > 1 << 20 && state.cuts > 0;
        state.cuts -= usize::from(cuts);
        cuts
    }
}

impl Between {
    pub fn start(server: &Server) -> Between {
        let to = format!("127.0.0.1:{}", server.port);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let endpoint = server.endpoint.replace(&to, &own);
        let control = Arc::<Control>::default();
        let its = control.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (to, control) = (to.clone(), its.clone());
                std::thread::spawn(move || carry(client, &to, &control));
            }
        });
        Between { endpoint, control }
    }
}

fn carry(mut client: TcpStream, to: &str, control: &Control) {
    let Ok(mut server) = TcpStream::connect(to) else {
        return;
    };
    let (mut back, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        // Either side may go first.
        let _ended = std::io::copy(&mut answers, &mut back);
        let _gone = back.shutdown(Shutdown::Both);
    });
    let (mut buf, mut carried) = (vec![0; 64 << 10], 0);
    while let Ok(n) = client.read(&mut buf) {
        control.pass(&buf[..n]);
        carried += n;
        if n == 0 || control.cuts(carried) || server.write_all(&buf[..n]).is_err() {
            break;
        }
    }
    for side in [&client, &server] {
        let _gone = side.shutdown(Shutdown::Both);
    }
}
