//! The tool's findings as JSON, and in words, for the tool and the page in the browser: each field is declared once.
//! Knows neither arguments nor terminals. The feature `report`; not for other programs, whose interface is the JSON.

pub mod difference;
pub mod elements;
pub mod facts;
pub mod json;
pub mod list;
mod mean;
pub mod own;
pub mod problem;
pub mod slice;
pub mod stats;
pub mod verdict;
