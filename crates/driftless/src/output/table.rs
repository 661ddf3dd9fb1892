//! Tables of text for a terminal.

/// Returns columns as wide as their cells: the first one to the left, the other ones to the right.
/// The last column has no padding behind it.
pub fn table(rows: &[Vec<String>]) -> String {
    aligned(rows, |at| at > 0)
}

/// Returns columns as wide as their cells: those of numbers to the right, and those of text to the
/// left.
pub fn aligned(rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (text, width))| match is_number(at) {
            false => format!("{text:<width$}"),
            true => format!("{text:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn cells_stand_below_each_other() {
        let rows = [["NODE", "HELD"], ["n1", "1 B"], ["node10", "12 MiB"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            table(&rows),
            "NODE      HELD\nn1         1 B\nnode10  12 MiB"
        );
    }
}
