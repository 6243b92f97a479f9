//! The levels of a table as a picture: one line a level, a bar of its bytes, its files and runs.
//!
//! ```text
//! memory  ██                 1.00 MiB        1 memtable
//!     L0  ████               4.00 MiB        2 files   2 runs
//!     L1                          0 B        0 files   0 runs
//!     L2  ████████████████   64.0 MiB    1,200 files   1 run
//! ```
//!
//! What waits for its transformation has a last line of its own, `waits`.
//!
//! A level that holds column groups has a line for each of them below it: its bar, its bytes, its columns and format.
//!
//! Bars are scaled to the largest level by square root (levels differ tenfold in size, and a linear bar would show
//! one).

use serde::Serialize;

use super::units;

/// What a level holds of one column group.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct GroupStats {
    /// Its columns and format.
    pub(crate) group: String,
    /// Sorted runs.
    pub(crate) runs: u64,
    /// Files.
    pub(crate) files: u64,
    /// Bytes of the files.
    pub(crate) bytes: u64,
}

/// What a level holds.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct LevelStats {
    /// Its number: 0 is the youngest.
    pub(crate) level: usize,
    /// Sorted runs.
    pub(crate) runs: u64,
    /// Files.
    pub(crate) files: u64,
    /// Bytes of the files.
    pub(crate) bytes: u64,
    /// Entries of the files, superseded versions included.
    pub(crate) entries: u64,
    /// By column group; none where all files hold whole rows.
    pub(crate) groups: Vec<GroupStats>,
}

/// What the whole table holds.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct TreeStats {
    /// Memtables, the active one included.
    pub(crate) memtables: u64,
    /// Bytes of the memtables.
    pub(crate) memtable_bytes: u64,
    /// Youngest first.
    pub(crate) levels: Vec<LevelStats>,
    /// Bytes whose transformation was put off.
    pub(crate) deferred_bytes: u64,
}

/// Characters a bar is drawn with: full, then eighths from seven down to one; ASCII has whole cells only.
const BLOCKS: [char; 8] = ['█', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// The picture, a line per level that holds something or lies above one that does; neighbours that are empty share one.
/// No line is wider than `width`.
/// `ascii` draws with `#` instead of block characters.
pub(crate) fn draw(tree: &TreeStats, width: usize, ascii: bool) -> Vec<String> {
    // "memory  " before the bar, "  1023 MiB  123,456 files  12 runs" after it.
    const BEFORE: usize = 8;
    const AFTER: usize = 36;
    let cells = width.saturating_sub(BEFORE + AFTER).min(60);
    let depth = tree.levels.iter().rposition(|level| level.files > 0).map_or(1, |last| last + 1);
    let levels = &tree.levels[..depth.min(tree.levels.len())];
    let largest = levels.iter().map(|level| level.bytes).chain([tree.memtable_bytes]).max().unwrap_or(0);
    let mut lines = Vec::with_capacity(levels.len() + 1);
    lines.push(line("memory", &bar(tree.memtable_bytes, largest, cells, ascii), tree.memtable_bytes, &tables(tree)));
    let mut rest = levels;
    while let [level, others @ ..] = rest {
        let empty = rest.iter().take_while(|level| level.files == 0).count();
        if empty > 1 {
            let name = format!("L{}-L{}", level.level, level.level + empty - 1);
            lines.push(line(&name, &" ".repeat(cells), 0, &format!("{:>7} files", 0)));
            rest = &rest[empty..];
            continue;
        }
        rest = others;
        let held = format!(
            "{:>7} {}  {:>2} {}",
            units::count(level.files),
            plural(level.files, "file"),
            level.runs,
            plural(level.runs, "run")
        );
        let name = format!("{:>6}", format!("L{}", level.level));
        lines.push(line(&name, &bar(level.bytes, largest, cells, ascii), level.bytes, &held));
        lines.extend(level.groups.iter().map(|group| {
            line("", &bar(group.bytes, largest, cells, ascii), group.bytes, &format!("        {}", group.group))
        }));
    }
    if tree.deferred_bytes > 0 {
        let bar = bar(tree.deferred_bytes, largest, cells, ascii);
        lines.push(line("waits", &bar, tree.deferred_bytes, "        not transformed"));
    }
    lines.into_iter().map(|line| console::truncate_str(&line, width, "").trim_end().to_owned()).collect()
}

fn line(name: &str, bar: &str, bytes: u64, held: &str) -> String {
    format!("{name:>6}  {bar}  {:>9}  {held}", units::bytes(bytes))
}

fn tables(tree: &TreeStats) -> String {
    format!("{:>7} {}", tree.memtables, plural(tree.memtables, "memtable"))
}

fn plural(number: u64, word: &str) -> String {
    // Padded so that columns stay put.
    format!("{word}{}", if number == 1 { " " } else { "s" })
}

/// A bar of `value` against `largest`, exactly `cells` wide. Nothing is drawn for 0; anything else shows.
fn bar(value: u64, largest: u64, cells: usize, ascii: bool) -> String {
    let share = if largest == 0 { 0.0 } else { (value as f64 / largest as f64).sqrt() };
    let eighths = (share * (cells * 8) as f64).round() as usize;
    let eighths = eighths.clamp(usize::from(value > 0 && cells > 0), cells * 8);
    let mut out = String::with_capacity(cells * 3);
    let (whole, part) = if ascii { (eighths.div_ceil(8), 0) } else { (eighths / 8, eighths % 8) };
    out.extend(std::iter::repeat_n(if ascii { '#' } else { BLOCKS[0] }, whole));
    if part > 0 {
        out.push(BLOCKS[part]);
    }
    let drawn = whole + usize::from(part > 0);
    out.extend(std::iter::repeat_n(' ', cells - drawn));
    out
}

/// Whether block characters can be expected to show.
pub(crate) fn utf8_locale() -> bool {
    let first_set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    first_set.is_some_and(|value| value.to_string_lossy().to_ascii_lowercase().replace('-', "").contains("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(level: usize, runs: u64, files: u64, bytes: u64) -> LevelStats {
        LevelStats { level, runs, files, bytes, entries: 0, groups: Vec::new() }
    }

    #[test]
    fn a_tree_is_drawn_line_by_line() {
        let tree = TreeStats {
            memtables: 1,
            memtable_bytes: 1 << 20,
            levels: vec![level(0, 2, 2, 4 << 20), level(1, 0, 0, 0), level(2, 1, 1200, 64 << 20), level(3, 0, 0, 0)],
            deferred_bytes: 0,
        };
        let picture = draw(&tree, 60, true).join("\n");
        assert_eq!(
            picture,
            "\
memory  ##                 1.00 MiB        1 memtable
    L0  ####               4.00 MiB        2 files   2 runs
    L1                          0 B        0 files   0 runs
    L2  ################   64.0 MiB    1,200 files   1 run"
        );
        let mut split = tree.clone();
        let group = |group: &str, bytes| GroupStats { group: group.into(), runs: 1, files: 600, bytes };
        split.levels[2].groups = vec![group("1-2 json", 16 << 20), group("3 packed", 48 << 20)];
        assert_eq!(
            draw(&split, 60, true)[4..],
            [
                "        ########           16.0 MiB          1-2 json",
                "        ##############     48.0 MiB          3 packed"
            ]
        );
        let waiting = TreeStats { deferred_bytes: 4 << 20, ..tree.clone() };
        assert_eq!(draw(&waiting, 60, true)[4], " waits  ####               4.00 MiB          not transformed");
        let mut deep = tree.clone();
        deep.levels[0] = level(0, 0, 0, 0);
        assert_eq!(draw(&deep, 60, true)[1], " L0-L1                          0 B        0 files");
        let blocks = draw(&tree, 60, false);
        assert!(blocks[0].starts_with("memory  ██ "), "{}", blocks[0]);
        assert!(blocks[3].contains(&"█".repeat(16)));
    }

    #[test]
    fn any_tree_fits_any_width() {
        let trees = [
            TreeStats::default(),
            TreeStats {
                memtables: u64::MAX,
                memtable_bytes: u64::MAX,
                levels: vec![level(0, u64::MAX, u64::MAX, 1)],
                deferred_bytes: u64::MAX,
            },
        ];
        for tree in &trees {
            for width in 0..120 {
                for ascii in [false, true] {
                    for line in draw(tree, width, ascii) {
                        assert!(console::measure_text_width(&line) <= width, "{width}: {line:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn bars_show_whatever_is_there() {
        assert_eq!(bar(0, 100, 4, true), "    ");
        assert_eq!(bar(1, u64::MAX, 4, true), "#   ");
        assert_eq!(bar(1, u64::MAX, 4, false), "▏   ");
        assert_eq!(bar(100, 100, 4, false), "████");
        assert_eq!(bar(0, 0, 2, false), "  ");
    }
}
