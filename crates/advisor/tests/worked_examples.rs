//! Every figure that the papers print of their cost models, beside what our functions give.
//!
//! A figure is reproduced if ours, rounded to as many decimals as are printed, is the same text. Where a paper rounds
//! on the way or uses other units, the functions do so too and their modules say it. What is printed and cannot be had
//! from the paper's own equations is listed in [`EXPLAINED`] with the reason; nothing else may differ.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use mycelium_advisor::cost::{laser, lsm_opd, mycelium};
use mycelium_base::ColumnSet;

/// Where a figure stands, what it is, how it is printed, and what we have for it.
type Figure = (&'static str, &'static str, &'static str, String);

/// Figures that no reading of the paper's equations gives.
const EXPLAINED: [(&str, &str); 1] = [(
    "LASER 7.1, levels of the narrow table",
    "equation 1 gives 10 (L = 9) for 400 million rows, 32 in a block, T = 2",
)];

/// Rounded to `decimals`.
fn rounded(value: f64, decimals: usize) -> String {
    format!("{value:.decimals$}")
}

/// Appendix B.
fn figures_of_mycelium() -> Vec<Figure> {
    let size = mycelium::DataSize { data: 100.0 * 2f64.powi(40), buffer: 64.0 * 2f64.powi(20), size_ratio: 10.0 };
    let plain = mycelium::max_throughput(&size, 417.0);
    let transforming = mycelium::max_transforming_throughput_at_disk_speed(&size, 2, 417.0);

    let untransformed = mycelium::PointQuery {
        levels: 6.0,
        level0_files: 2.0,
        steps: 0,
        false_positives: 0.01,
        piece_bytes: 5_000.0,
        block_bytes: 4_096.0,
    };
    let convert = mycelium::PointQuery { steps: 1, piece_bytes: 3_500.0, ..untransformed };
    let split = mycelium::PointQuery { levels: 5.0, steps: 3, piece_bytes: 625.0, ..untransformed };

    let convert_range = mycelium::transforming_range_cost(100.0, &[3_500.0], 4_000.0, 10.0, 6).paper;
    let split_range = mycelium::transforming_range_cost(100.0, &[2_500.0, 1_250.0, 625.0], 4_000.0, 10.0, 5).paper;
    let plain_range = mycelium::range_cost(100.0, 5_000.0, 4_000.0, 10.0, 6).paper;
    let percent_saved = |cost: f64| rounded(100.0 * (1.0 - cost / plain_range), 1);
    // 138.888875 is cut after two decimals.
    let cut = (plain_range * 100.0).floor() / 100.0;
    vec![
        ("Mycelium B.0.1", "MB/s without transformations", "52.75", rounded(plain, 2)),
        ("Mycelium B.0.1", "MB/s with two", "42.10", rounded(transforming, 2)),
        ("Mycelium B.0.1", "percent lost", "20", rounded(100.0 * (1.0 - transforming / plain), 0)),
        ("Mycelium B.0.2", "blocks for a record, converted", "1.1", rounded(convert.record_cost(1).paper, 1)),
        ("Mycelium B.0.2", "blocks for a record, split", "8.13", rounded(split.record_cost(8).paper, 2)),
        ("Mycelium B.0.2", "blocks for a field, split", "1.13", rounded(split.field_cost().paper, 2)),
        ("Mycelium B.0.2", "blocks for a record, as it was", "2.08", rounded(untransformed.record_cost(1).paper, 2)),
        ("Mycelium B.0.3", "blocks for a range, converted", "97.78", rounded(convert_range, 2)),
        ("Mycelium B.0.3", "blocks for a range, split", "17.78", rounded(split_range, 2)),
        ("Mycelium B.0.3", "blocks for a range, as it was", "138.88", rounded(cut, 2)),
        ("Mycelium B.0.3", "percent saved by the split", "87.2", percent_saved(split_range)),
        ("Mycelium B.0.3", "percent saved by the convert", "29.6", percent_saved(convert_range)),
    ]
}

/// Sections 2.2, 5 and 7.1. Fractions of B and the like are printed as they stand in the text, for B = 1.
fn figures_of_laser() -> Vec<Figure> {
    let of_section_2 = laser::Tree { size_ratio: 2.0, entries_per_block: 4_000.0 / 100.0, columns: 24 };
    let level0_blocks = 64e6 / 4_000.0;
    let of_section_5 = laser::Tree { size_ratio: 2.0, entries_per_block: 1.0, columns: 4 };
    let entries = |group| laser::entries_in_block(&of_section_5, group);
    let layout: Vec<ColumnSet> = ["0-1", "2-3"].map(|group| group.parse().unwrap()).to_vec();
    let (apart, together) = (ColumnSet::from_iter([0, 2]), ColumnSet::from_iter([0, 1]));
    let groups = |projection| laser::required_groups(&layout, projection).to_string();
    let columns = |projection| laser::required_columns(&layout, projection).to_string();

    // Keys of 8 bytes, columns of 4, blocks of 4 KiB, a level 0 of 64 MiB.
    let levels = |size_ratio, columns: usize, rows| {
        let row_bytes = 8.0 + 4.0 * columns as f64;
        let tree = laser::Tree { size_ratio, entries_per_block: 4_096.0 / row_bytes, columns };
        (laser::last_level(&tree, rows, 16_384.0) + 1).to_string()
    };
    vec![
        ("LASER 2.2", "entries in a block, B", "40", of_section_2.entries_per_block.to_string()),
        ("LASER 2.2", "blocks of level 0, pg", "16000", level0_blocks.to_string()),
        (
            "LASER 2.2",
            "entries of level 0",
            "640000",
            laser::level_capacity(&of_section_2, level0_blocks, 0).to_string(),
        ),
        ("LASER 5", "entries of <A,B> over those of <C>, 2/3", "0.667", rounded(entries(2) / entries(1), 3)),
        ("LASER 5", "entries of <A,B> in a block, 5B/3", "1.667", rounded(entries(2), 3)),
        ("LASER 5", "entries of <C> in a block, 5B/2", "2.5", rounded(entries(1), 1)),
        ("LASER 5", "groups for {A,C}", "2", groups(&apart)),
        ("LASER 5", "groups for {A,B}", "1", groups(&together)),
        ("LASER 5", "columns for {A,C}", "6", columns(&apart)),
        ("LASER 5", "columns for {A,B}", "3", columns(&together)),
        ("LASER 7.1", "levels of the narrow table", "8", levels(2.0, 30, 400e6)),
        ("LASER 7.1", "levels of the wide table", "5", levels(10.0, 100, 200e6)),
    ]
}

/// Sections 4.2 and 5. What the text gives as a bound or as "about" is compared as such.
fn figures_of_lsm_opd() -> Vec<Figure> {
    let terms = lsm_opd::Terms::TABLE_1;
    // To the next ten thousand.
    let about = |value: f64| rounded((value / 1e4).round() * 1e4, 0);
    let gibibytes = |value_bytes| {
        let terms = lsm_opd::Terms { value_bytes, ..terms };
        6.4e7 * terms.stored_pair_bytes(lsm_opd::Scheme::Plain) / 2f64.powi(30)
    };
    let least_share = [16e6, 32e6, 64e6]
        .into_iter()
        .flat_map(|file_bytes| {
            [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0].map(|value_bytes| lsm_opd::Terms {
                file_bytes,
                value_bytes,
                ..terms
            })
        })
        .map(|terms| lsm_opd::most_distinct_share(&terms))
        .fold(f64::INFINITY, f64::min);
    let section_5 = lsm_opd::Terms { entries: 6.4e7, file_bytes: 64e6, value_bytes: 128.0, ..terms };
    let ten_percent = lsm_opd::Terms { distinct_values: 0.1 * section_5.entries_per_file(), ..section_5 };
    let yes_or_no = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
    vec![
        ("LSM-OPD 4.2.1", "pairs in a file", "1600000", rounded(terms.entries_per_file(), 0)),
        (
            "LSM-OPD 4.2.1",
            "distinct values at the border, about",
            "90000",
            about(lsm_opd::most_distinct_values(&terms)),
        ),
        ("LSM-OPD 4.2.1", "the border is above 5 % of the pairs", "yes", yes_or_no(least_share > 0.05)),
        ("LSM-OPD 5.1", "GB with values of 32 bytes", "2.86", rounded(gibibytes(32.0), 2)),
        ("LSM-OPD 5.1", "GB with values of 1,024 bytes", "62.0", rounded(gibibytes(1024.0), 1)),
        ("LSM-OPD 5.3", "dictionaries below 1 GB", "yes", yes_or_no(ten_percent.dictionary_bytes() < 1e9)),
    ]
}

#[test]
fn the_figures_that_the_papers_print() {
    let figures = [figures_of_mycelium(), figures_of_laser(), figures_of_lsm_opd()].concat();
    let (mut reproduced, mut differing) = (0, Vec::new());
    for (place, what, printed, ours) in &figures {
        let name = format!("{place}, {what}");
        let reason = EXPLAINED.iter().find(|(explained, _)| *explained == name);
        match (ours == printed, reason) {
            (true, None) => reproduced += 1,
            (false, Some((_, reason))) => println!("{name}: printed {printed}, ours {ours}; {reason}"),
            _ => differing.push(format!("{name}: printed {printed}, ours {ours}")),
        }
    }
    println!("figures reproduced: {reproduced}, explained: {}, differing: {}", EXPLAINED.len(), differing.len());
    assert!(differing.is_empty(), "{differing:#?}");
    assert_eq!(reproduced + EXPLAINED.len(), figures.len(), "an explanation is of a figure that is not in the list");
}
