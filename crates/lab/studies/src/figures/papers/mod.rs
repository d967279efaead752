//! The five publications, each with its figures and tables: 22 in all.

mod desktop;
mod optane;
mod samples;
mod software_mode;
mod tuning_note;
mod white_paper;

use super::published::Paper;

pub static PAPERS: [Paper; 5] = [
    white_paper::PAPER,
    desktop::PAPER,
    software_mode::PAPER,
    tuning_note::PAPER,
    optane::PAPER,
];
