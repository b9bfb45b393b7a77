//! Reads an npy file as one entry, `@0`.

use crate::entry::{Entry, Kind};
use crate::error::ReadError;
use crate::names::NameTable;
use crate::npy::header;
use crate::wire::cursor::Cursor;

/// Lists the file's one array.
pub(crate) fn read(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let file_len = cursor.file_len();
    let position = table.next_position(0)?;
    let (header, data) = header::read(cursor, file_len)?;
    let mut entry = Entry::new(position, 0, Kind::Data);
    let room = file_len - data;
    match header.describe(&mut entry, data, room) {
        Ok(len) if len < room => {
            table.warn_of_loss(Some(data + len), format!("{} bytes follow the array", room - len));
        }
        Ok(_) => {}
        Err(fault) => entry.fault = Some(Box::new(fault)),
    }
    table.push(entry, "@0", 0)?;
    Ok(String::new())
}
