//! Goal: tests have `longshore serve` as a process, with its logins, and know its ports.
//! Method: the server's own lines on standard error tell where it listens.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub const USER: &str = "ada";
pub const PASSWORD: &str = "Harbour-7 'ü";

const PAGE: &str = "longshore: the status page is at ";

pub struct Server {
    child: Child,
    pub port: u16,
    /// The port of the status page, if there is one.
    pub page: Option<u16>,
    log: Option<std::thread::JoinHandle<Vec<String>>>,
}

/// `command`: adds a login.
pub fn add_login(command: &mut Command, password: &str) {
    let output = command.env("LONGSHORE_LOGIN_PASSWORD", password).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

impl Server {
    /// `command`: `serve` on a port that the system chooses, on the loopback address.
    pub fn start(command: &mut Command) -> Server {
        Server::start_until(command, "longshore: listening on ")
    }

    /// `command`: `serve --http` on such a port, alone.
    pub fn start_page(command: &mut Command) -> Server {
        Server::start_until(command, PAGE)
    }

    /// `start`: of the line that tells the address last.
    fn start_until(command: &mut Command, start: &str) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let mut page = None;
        let port = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "{said}");
            let port = |start: &str| {
                let address = line.trim().strip_prefix(start)?;
                let (_, port) = address.trim_end_matches('/').rsplit_once(':')?;
                Some(port.parse().unwrap())
            };
            page = page.or(port(PAGE));
            if let Some(port) = port(start) {
                break port;
            }
            said += &line;
        };
        // Its log is not needed here, but a full pipe would stop it.
        let rest = std::thread::spawn(move || stderr.lines().map_while(Result::ok).collect());
        Server {
            child,
            port,
            page,
            log: Some(rest),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The names of its threads.
    pub fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        // A thread that ends meanwhile no longer has a name.
        let names =
            tasks.filter_map(|t| std::fs::read_to_string(t.unwrap().path().join("comm")).ok());
        names.map(|name| name.trim_end().to_owned()).collect()
    }

    /// Asks it to end; returns its exit code and its log.
    pub fn stop(self) -> (Option<i32>, Vec<String>) {
        self.ask();
        self.ended()
    }

    /// Its exit code and its log, once it has ended. One that is asked a second time ends at once.
    pub fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let code = self.child.wait().unwrap().code();
        (code, self.log.take().unwrap().join().unwrap())
    }

    pub fn ask(&self) {
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.log.is_some() {
            let _ended = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}
