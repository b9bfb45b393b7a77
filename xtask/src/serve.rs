//! A server for one folder, on this machine alone, which is a browser's proxy too: so every request that the browser
//! makes is in the log, and none leaves the machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

/// A running server, which ends with the program.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    is_away: Arc<AtomicBool>,
}

impl Server {
    /// Serves a folder on a port, or on any free one for 0.
    pub(crate) fn begin(folder: &Path, port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
        let address = listener.local_addr()?;
        let log = Arc::<Mutex<Vec<String>>>::default();
        let is_away = Arc::<AtomicBool>::default();
        let (folder, told, away) = (folder.to_owned(), Arc::clone(&log), Arc::clone(&is_away));
        std::thread::spawn(move || {
            // One that is away hangs up without a word.
            for stream in listener.incoming().flatten().filter(|_| !away.load(Ordering::SeqCst)) {
                let (folder, told) = (folder.clone(), Arc::clone(&told));
                // A browser that hangs up early is no fault of ours.
                std::thread::spawn(move || answer(stream, &folder, address, &told).ok());
            }
        });
        Ok(Self { address, log, is_away })
    }

    /// Answers nobody, or everybody again.
    pub(crate) fn go_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn answer(mut stream: TcpStream, folder: &Path, own: SocketAddr, log: &Mutex<Vec<String>>) -> Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().context("no request")??;
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    log.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} {target}"));
    let path = target.strip_prefix(&format!("http://{own}")).unwrap_or(target);
    let (status, kind, body) = match file(folder, path).filter(|_| method == "GET") {
        Some(file) => ("200 OK", kind(&file), std::fs::read(file)?),
        None => ("404 Not Found", "text/plain", b"not here\n".to_vec()),
    };
    let len = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n"
    )?;
    Ok(stream.write_all(&body)?)
}

/// The file of a path; `None` for another host, and for a file that is not in the folder itself.
fn file(folder: &Path, path: &str) -> Option<PathBuf> {
    let name = path.strip_prefix('/')?.split('?').next()?;
    let name = if name.is_empty() { "index.html" } else { name };
    let is_plain = !name.contains(['/', '\\']) && !name.starts_with('.');
    Some(folder.join(name)).filter(|file| is_plain && file.is_file())
}

fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("svg") => "image/svg+xml",
        Some("webmanifest") => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_folder_is_served_alone_and_each_request_is_told() {
        let folder = crate::shell::root().join("web");
        let server = Server::begin(&folder, 0).unwrap();
        let mut said = Vec::new();
        for target in ["/icon.svg", "/../Cargo.toml", "http://example.org/"] {
            let mut stream = TcpStream::connect(server.address).unwrap();
            write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            said.push(text[9..12].to_owned());
        }
        assert_eq!(said, ["200", "404", "404"]);
        assert_eq!(server.requests(), ["GET /icon.svg", "GET /../Cargo.toml", "GET http://example.org/"]);
        assert!(server.requests().is_empty());
        server.go_away(true);
        let mut stream = TcpStream::connect(server.address).unwrap();
        // The other end may be closed before, or behind, these bytes.
        let _ = write!(stream, "GET /icon.svg HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        assert!(bytes.is_empty() && server.requests().is_empty());
    }
}
