//! Rows that are shared out by parts: more of them than are listed on the stack, few rows, unequal parts.

use super::{all_execs, check_rows};

/// Rows of more parts than are listed on the stack, rows that are fewer than the pieces, and parts that are most of a
/// row.
#[test]
fn rows_of_many_and_of_unequal_parts() {
    let execs = all_execs();
    for count in [16, 17, 33, 40] {
        for rows in [1, 2, 3, 6, 7, 100] {
            for step in [1, 3, 64, 65] {
                let runs: Vec<usize> = (0..count).map(|k| k * 7 % 11 * step).collect();
                check_rows(&execs, &runs, rows);
            }
            for long in [0, 5, count - 1] {
                let mut runs = vec![usize::from(rows % 2 == 0); count];
                runs[long] = 5000;
                check_rows(&execs, &runs, rows);
            }
        }
    }
    for rows in 1..9 {
        check_rows(&execs, &[4, 4, 4, 1000, 1000], rows);
        check_rows(&execs, &[1000, 0, 0, 2], rows);
        check_rows(&execs, &[0, 1, 0], rows);
    }
}
