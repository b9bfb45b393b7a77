//! The deliberate breakages, a row each: what, where, the text as it is, the text as broken, the test that must notice.
//! Add a row with a test that guards something; `cargo xtask mutants NAME` then shows that it does.
//! Nothing but the table; a text that no longer stands in its file exactly once is a finding of `cargo xtask tidy`.

use super::Mutant;

/// All rows, in the order of the files.
pub(crate) const TABLE: &[Mutant] = &[
    Mutant {
        name: "a function of 71 lines passes",
        file: "xtask/src/tidy/sizes.rs",
        old: "if lines > FUNCTION_LINES {",
        new: "if lines > FUNCTION_LINES + 1 {",
        test: &["-p", "xtask", "a_function_of_71_lines_is_found"],
    },
    Mutant {
        name: "unsafe passes everywhere",
        file: "xtask/src/tidy/doors.rs",
        old: "if !source.is_one_of(UNSAFE) {",
        new: "if !source.is_one_of(UNSAFE) && source.is_test() {",
        test: &["-p", "xtask", "unsafe_outside_its_files_is_found"],
    },
    Mutant {
        name: "any cfg counts as a test's",
        file: "xtask/src/tidy/source.rs",
        old: r#"["test"] | ["all", "(", "test", ..]"#,
        new: "[..]",
        test: &["-p", "xtask", "a_cfg_in_the_main_flow_is_found"],
    },
];
