//! Goal: every kernel computes what the definition says, any lost members come back, and a library that is not ours
//! computes the same parity.
//!
//! Method: the definition is multiplication bit by bit; ISA-L (`libisal.so.2`) gets the matrix and encodes the same data.

use longshore_kit::Random;
use longshore_parity::{
    DATA_MAX, Kernel, Outputs, PARITY_MAX, Recipe, coefficient, combine_with, product,
};

fn slices(of: &[Vec<u8>]) -> Vec<&[u8]> {
    of.iter().map(Vec::as_slice).collect()
}

fn encoded(kernel: Kernel, parity: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut outs = vec![vec![0x5a; data[0].len()]; parity];
    let factors: Vec<u8> = (0..parity)
        .flat_map(|j| (0..data.len()).map(move |i| coefficient(j, i)))
        .collect();
    let mut places: Vec<&mut [u8]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
    combine_with(kernel, &mut places, &factors, &slices(data), Outputs::Zeros);
    outs
}

#[test]
fn every_kernel_adds_products_at_any_length_and_alignment() {
    let mut numbers = Random(7);
    for kernel in Kernel::ALL {
        if !kernel.is_available() {
            println!("this processor has no {kernel:?}");
            continue;
        }
        for round in 0..400 {
            let len = [0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 1000, 4097][round % 12];
            let (outs, sources) = (1 + round % 11, 1 + round % 7);
            let skip = round % 5;
            // Each source has an alignment of its own.
            let all: Vec<Vec<u8>> = (0..sources).map(|i| numbers.bytes(len + i)).collect();
            let data: Vec<&[u8]> = (0..sources).map(|i| &all[i][i..]).collect();
            let factors = numbers.bytes(outs * sources);
            let before: Vec<Vec<u8>> = (0..outs).map(|_| numbers.bytes(len + skip)).collect();
            for start in [Outputs::Zeros, Outputs::Present] {
                let mut found = before.clone();
                let mut places: Vec<&mut [u8]> =
                    found.iter_mut().map(|out| &mut out[skip..]).collect();
                combine_with(kernel, &mut places, &factors, &data, start);
                for (j, out) in found.iter().enumerate() {
                    assert_eq!(out[..skip], before[j][..skip], "{kernel:?} {round}");
                    for at in 0..len {
                        let first = match start {
                            Outputs::Zeros => 0,
                            Outputs::Present => before[j][skip + at],
                        };
                        let terms =
                            (0..sources).map(|i| product(factors[j * sources + i], data[i][at]));
                        let sum = terms.fold(first, |a, b| a ^ b);
                        assert_eq!(out[skip + at], sum, "{kernel:?} {round} {start:?} {at}");
                    }
                }
            }
        }
    }
}

/// All ways to lose up to `parity` of `members`.
fn losses(members: usize, parity: usize) -> impl Iterator<Item = u32> {
    (0u32..1 << members).filter(move |lost| lost.count_ones() as usize <= parity)
}

#[test]
fn any_lost_members_come_back_whatever_is_lost() {
    let mut numbers = Random(8);
    for data in 1..=6 {
        for parity in 0..=4 {
            let bytes: Vec<Vec<u8>> = (0..data).map(|_| numbers.bytes(77)).collect();
            let mut all = bytes.clone();
            all.extend(encoded(Kernel::best(), parity, &bytes));
            for lost in losses(data + parity, parity) {
                for wanted in 0..data + parity {
                    let usable = |m: usize| lost >> m & 1 == 0;
                    let recipe = Recipe::among(data, parity, wanted, usable);
                    // A member that is there itself is not among its own sources.
                    let others =
                        data + parity - lost.count_ones() as usize - usize::from(usable(wanted));
                    let Some(recipe) = recipe else {
                        assert!(others < data);
                        continue;
                    };
                    assert!(recipe.sources.iter().all(|m| usable(*m) && *m != wanted));
                    let sources: Vec<&[u8]> = recipe.sources.iter().map(|m| &*all[*m]).collect();
                    let mut out = vec![1; 77];
                    combine_with(
                        Kernel::best(),
                        &mut [&mut out],
                        &recipe.factors,
                        &sources,
                        Outputs::Zeros,
                    );
                    assert!(out == all[wanted], "{data}+{parity} {lost:b} {wanted}");
                }
            }
        }
    }
}

#[test]
fn the_widest_code_gets_eight_members_back() {
    let mut numbers = Random(9);
    let bytes: Vec<Vec<u8>> = (0..DATA_MAX).map(|_| numbers.bytes(130)).collect();
    let mut all = bytes.clone();
    all.extend(encoded(Kernel::best(), PARITY_MAX, &bytes));
    for _ in 0..60 {
        let mut lost = Vec::new();
        while lost.len() < PARITY_MAX {
            let m = numbers.below(DATA_MAX + PARITY_MAX);
            if !lost.contains(&m) {
                lost.push(m);
            }
        }
        for wanted in &lost {
            let recipe = Recipe::of(DATA_MAX, *wanted, |m| !lost.contains(&m)).unwrap();
            let sources: Vec<&[u8]> = recipe.sources.iter().map(|m| &*all[*m]).collect();
            let mut out = vec![0; 130];
            let kernel = Kernel::best();
            combine_with(
                kernel,
                &mut [&mut out],
                &recipe.factors,
                &sources,
                Outputs::Zeros,
            );
            assert!(out == all[*wanted], "{lost:?}");
        }
    }
}

type InitTables = unsafe extern "C" fn(i32, i32, *const u8, *mut u8);
type EncodeData = unsafe extern "C" fn(i32, i32, i32, *const u8, *const *const u8, *const *mut u8);

#[test]
fn isa_l_computes_the_same_parity_from_the_same_matrix() {
    // SAFETY: the library's initialisers must be sound: it is a distribution's.
    let Ok(library) = (unsafe { libloading::Library::new("libisal.so.2") }) else {
        assert!(
            std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none(),
            "libisal2 is missing"
        );
        println!("libisal2 is missing");
        return;
    };
    // SAFETY: the types must be those of ISA-L's erasure_code.h (2.30), and they are.
    let (init, encode) = unsafe {
        (
            library.get::<InitTables>(b"ec_init_tables\0").unwrap(),
            library.get::<EncodeData>(b"ec_encode_data\0").unwrap(),
        )
    };
    let mut numbers = Random(10);
    for (data, parity) in [
        (1, 1),
        (4, 1),
        (4, 2),
        (8, 2),
        (10, 4),
        (16, 8),
        (56, 8),
        (64, 8),
    ] {
        let len = 4096 + 64 * data;
        let bytes: Vec<Vec<u8>> = (0..data).map(|_| numbers.bytes(len)).collect();
        let matrix: Vec<u8> = (0..parity)
            .flat_map(|j| (0..data).map(move |i| coefficient(j, i)))
            .collect();
        let mut tables = vec![0; 32 * data * parity];
        let mut theirs = vec![vec![0; len]; parity];
        let from: Vec<*const u8> = bytes.iter().map(|b| b.as_ptr()).collect();
        let to: Vec<*mut u8> = theirs.iter_mut().map(|b| b.as_mut_ptr()).collect();
        // SAFETY: the matrix must have `parity` rows of `data` factors, the tables 32 bytes for each factor, and every
        // buffer `len` bytes: all have.
        unsafe {
            let (k, m) = (data as i32, parity as i32);
            init(k, m, matrix.as_ptr(), tables.as_mut_ptr());
            encode(
                len as i32,
                k,
                m,
                tables.as_ptr(),
                from.as_ptr(),
                to.as_ptr(),
            );
        }
        for kernel in Kernel::ALL.into_iter().filter(|k| k.is_available()) {
            assert!(
                encoded(kernel, parity, &bytes) == theirs,
                "{data}+{parity} {kernel:?}"
            );
        }
    }
}
