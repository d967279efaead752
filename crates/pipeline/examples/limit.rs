//! How near the pipeline comes to what its parts allow: bare codec, page-cache read and checksum, each single-threaded,
//! then the pipeline over the same files, alternating in one process.
//!
//! `limit DIR [ROUNDS [ALGORITHM...]]`
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use longshore_codec::{Algorithm, Compressor, Level, payload_bound};
use longshore_io::{Host, HostClock, crc32c};
use longshore_media::DeviceSpec;
use longshore_pipeline::*;

fn cpu() -> f64 {
    let mut u: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut u) };
    let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    s(u.ru_utime) + s(u.ru_stime)
}

fn walk(dir: &PathBuf, out: &mut Vec<PathBuf>) {
    for e in std::fs::read_dir(dir).unwrap() {
        let p = e.unwrap().path();
        if p.is_dir() { walk(&p, out) } else { out.push(p) }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = PathBuf::from(&args[1]);
    let rounds: usize = args.get(2).map_or(3, |r| r.parse().unwrap());
    let stripes: usize = std::env::var("STRIPES").map_or(1, |r| r.parse().unwrap());
    let out_dir = std::env::var("OUT").ok();
    let algorithms: Vec<Algorithm> = match args.get(3..) {
        Some(a) if !a.is_empty() => a.iter().map(|a| a.parse().unwrap()).collect(),
        _ => vec![Algorithm::QatDeflate, Algorithm::Zstd, Algorithm::Lz4, Algorithm::None],
    };
    let mut files = Vec::new();
    walk(&dir, &mut files);
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    let house = House { storage: Arc::new(Host::new()), clock: Arc::new(HostClock), catalog: None, cancel: Arc::new(AtomicBool::new(false)) };
    for a in algorithms {
        for _ in 0..rounds {
            // bare
            let mut buf = vec![0u8; 1 << 20];
            let mut out = vec![0u8; payload_bound(a, 1 << 20)];
            let mut c = Compressor::new(a, Level::Low).unwrap();
            let (mut n, mut read, mut codec, mut crc) = (0usize, 0.0, 0.0, 0.0);
            let mut m = 0usize;
            use std::io::Read;
            for f in &files {
                let mut f = std::fs::File::open(f).unwrap();
                loop {
                    let t = Instant::now();
                    let k = f.read(&mut buf).unwrap();
                    read += t.elapsed().as_secs_f64();
                    if k == 0 { break; }
                    n += k;
                    let t = Instant::now();
                    std::hint::black_box(crc32c(&buf[..k]));
                    crc += t.elapsed().as_secs_f64();
                    if a != Algorithm::None {
                        let t = Instant::now();
                        let k2 = c.compress(&buf[..k], &mut out).len;
                        codec += t.elapsed().as_secs_f64();
                        let t = Instant::now();
                        std::hint::black_box(crc32c(&out[..k2]));
                        crc += t.elapsed().as_secs_f64();
                        m += k2;
                    }
                }
            }
            let limit = cores * n as f64 / (read + codec + crc) / 1e6;
            // pipeline
            let devices = (0..stripes).map(|i| match &out_dir { Some(d) => DeviceSpec::File(format!("{d}/s{i}.bak").into()), None => DeviceSpec::Nul }).collect();
            let mut r = BackupRequest::new(SourceSpec::Files(vec![dir.clone()]), devices);
            r.algorithm = a;
            r.disposition = Disposition::Format;
            let c0 = cpu();
            let t = Instant::now();
            let Report::Backup(rep) = run(&house, &Request::Backup(r), &Silent).unwrap() else { panic!() };
            let wall = t.elapsed().as_secs_f64();
            let gb = n as f64 / 1e9;
            println!("{a}: bare read {:.0} codec {:.0} crc {:.0} MB/s ratio {:.3} | limit {limit:.0} MB/s sum {:.3} CPU-s/GB | pipeline {:.0} MB/s ({:.1} %) {:.3} CPU-s/GB ({:.1} %) cold {} limit {:?} bufwait {:.2} gate {:.2} compute {:.2} write {:.2}",
                n as f64 / read / 1e6, if codec > 0.0 { n as f64 / codec / 1e6 } else { 0.0 }, n as f64 / crc / 1e6, n as f64 / m.max(1) as f64, (read + codec + crc) / gb,
                n as f64 / wall / 1e6, n as f64 / wall / 1e4 / limit, (cpu() - c0) / gb, 100.0 * (cpu() - c0) / (read + codec + crc),
                rep.run.waits.cold_bytes, rep.run.limit, rep.run.waits.buffer_wait_us as f64/1e6, rep.run.waits.cpu_wait_us as f64/1e6, rep.run.waits.compute_us as f64/1e6, rep.run.waits.write_us as f64/1e6);
        }
    }
}
